"""How an operation of the ledger client fails. Every error names what it knows of ledger, entry and bookie.

========================== ==== ============================================= ================================
class                      exit Java (BKException.Code)                       meaning
========================== ==== ============================================= ================================
HandleFencedError          4    LedgerFenced (-101)                           another client recovers it
AccessDeniedError          4    UnauthorizedAccess (-102)                     another password
HandleClosedError          4    LedgerClosed (-11)                            no appends any more
ClosedDifferentlyError     4    MetadataVersion (-17)                         closed by another, elsewhere
LedgerExistsError          4    LedgerExist (-20)                             the id is taken
DuplicateEntryError        4    DuplicateEntryId (-22)                        the entry's id was used
NotEnoughBookiesError      5    NotEnoughBookies (-6)
TooFewAnswersError         5    Read (-1)                                     the silent could be a quorum
NoAnswerError              5    Timeout (-23), BookieHandleNotAvailable (-8)
BookieRefusalError         5    Read (-1), Write (-12), DataUnknown (-108)    an error code of the bookie
AddTimeoutError            5    AddEntryQuorumTimeout (-21)
NoSuchEntryError           6    NoSuchEntry (-13)                             every bookie asked says so
NoSuchLedgerError          6    NoSuchLedgerExistsOnMetadataServer (-25)
RecoveryFailedError        3    LedgerRecovery (-10)                          still IN_RECOVERY; try again
WriteFailedError           7    Write (-12)                                   the writer gave up
DigestMismatchError        1    DigestMatch (-5)
========================== ==== ============================================= ================================
"""

from __future__ import annotations

from typing import ClassVar

from bkctl.errors import (
    BkctlError,
    ConnectionFailedError,
    NotFoundError,
    PartialError,
    RefusedError,
)
from bkctl.types import ResultCode


class ClientError(BkctlError):
    """An operation of the client failed; -1 and "" where there is no ledger, entry or bookie to name."""

    def __init__(self, message: str, *, ledger: int = -1, entry: int = -1, bookie: str = "") -> None:
        self.ledger = ledger
        self.entry = entry
        self.bookie = bookie
        self.message = message
        named = [
            f"ledger {ledger}" if ledger >= 0 else "",
            f"entry {entry}" if entry >= 0 else "",
            f"bookie {bookie}" if bookie else "",
        ]
        where = ", ".join(part for part in named if part)
        Exception.__init__(self, f"{where}: {message}" if where else message)

    def __str__(self) -> str:
        return str(self.args[0])


class HandleFencedError(ClientError, RefusedError):
    """Another client recovers, or has recovered, the ledger: this handle can append nothing any more."""


class AccessDeniedError(ClientError, RefusedError):
    """The password is not the ledger's."""


class HandleClosedError(ClientError, RefusedError):
    """The handle takes no appends any more; what was not acknowledged is not in the ledger."""


class ClosedDifferentlyError(ClientError, RefusedError):
    """Another client closed the ledger, with another last entry or length than this writer's."""


class LedgerExistsError(ClientError, RefusedError):
    """The ledger id asked for is taken."""


class DuplicateEntryError(ClientError, RefusedError):
    """An entry with this id is in the ledger, or on its way."""


class NotEnoughBookiesError(ClientError, ConnectionFailedError):
    """There are fewer bookies to choose from than are needed."""


class TooFewAnswersError(ClientError, ConnectionFailedError):
    """So many bookies of an ensemble are silent or fail that they could be an ack quorum."""


class NoAnswerError(ClientError, ConnectionFailedError):
    """A bookie did not answer, or not in a way that can be read; what it did is not known."""


class BookieRefusalError(ClientError, ConnectionFailedError):
    """A bookie answered with an error that says nothing about the entry; ``code`` is what it was."""

    def __init__(
        self, message: str, *, code: ResultCode, ledger: int = -1, entry: int = -1, bookie: str = ""
    ) -> None:
        self.code = code
        super().__init__(message, ledger=ledger, entry=entry, bookie=bookie)


class AddTimeoutError(ClientError, ConnectionFailedError):
    """An append found no ack quorum in the time that was set for it."""


class NoSuchEntryError(ClientError, NotFoundError):
    """Every bookie that should have the entry answered, and none has it."""


class NoSuchLedgerError(ClientError, NotFoundError):
    """The metadata store has no such ledger."""


class RecoveryFailedError(ClientError, PartialError):
    """Too little is known to close the ledger. It stays in recovery, nothing is lost; try again."""


class WriteFailedError(ClientError):
    """The writer cannot go on: too many ensemble changes, or one where none is allowed."""


class DigestMismatchError(ClientError):
    """A bookie answered with bytes that are not the entry the writer made."""

    exit_code: ClassVar[int] = 1
