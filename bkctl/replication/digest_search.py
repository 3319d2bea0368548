"""Finding the digest of a closed ledger whose metadata name none, as those of format 1 never do.

An entry is read, and each kind of digest is tried on it. A digest of no bytes checks nothing: it is believed
when the first entry is as long as its own header says, and no other bookie's copy proves another kind; one
that was cut by the length of its digest is as long, too. The read has the fence flag and so carries the
password: the bookie then says whether it is the ledger's. A copy with another password would lock the owner
out. The fence does no harm, because nobody writes to a closed ledger.

====== ======================= =============================================================================
state  input                   next state, effect
====== ======================= =============================================================================
NEW    ``start``               ASKING, Send to the first bookie of entry 0; FINISHED with CRC32 for an empty
                               ledger
ASKING a digest that checks    FINISHED with its kind
ASKING the password is refused FINISHED with AccessDeniedError
ASKING anything else           ASKING, Send to the next bookie; behind the last one FINISHED with DUMMY where
                               an entry was as one without a digest is, else with DigestUnknownError
====== ======================= =============================================================================
"""

from __future__ import annotations

from functools import partial
from typing import cast

from bkctl.client.errors import AccessDeniedError, ClientError
from bkctl.client.machine import Answered, Event
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, answer_code, require_quorum_fields
from bkctl.client.ops.read import read_order
from bkctl.codec.entry import HEADER_BYTES
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata
from bkctl.errors import UsageError
from bkctl.protocol.messages import ReadResponse
from bkctl.replication.steps import Steps
from bkctl.types import DigestType, LedgerState, ResultCode

#: Those that prove something first.
_KINDS = (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC, DigestType.DUMMY)


class DigestUnknownError(ClientError):
    """No entry could be read that proves the digest of its ledger."""


class DigestSearchMachine(OperationMachine):
    """Find the digest of a closed ledger from its first entry; finishes with a :class:`DigestType`.

    Errors: AccessDeniedError when the password is not the ledger's, DigestUnknownError when no bookie has the
    entry with a digest of a known kind. An empty ledger has none, and gets CRC32, Java's default.
    """

    def __init__(self, ledger: int, metadata: LedgerMetadata, password: bytes) -> None:
        super().__init__()
        self._access = LedgerAccess(ledger, DigestType.DUMMY, password)
        self._kinds = [(kind, LedgerAccess(ledger, kind, password)) for kind in _KINDS]
        self._metadata = metadata
        self._left: list[str] = []
        self._said = "no bookie has its first entry"
        self._may_have_none = False

    def _begin(self) -> None:
        if self._metadata.last_entry == NO_ENTRY:
            self.exchange.finish(DigestType.CRC32)
            return
        self._left = read_order(self._metadata, 0)
        self._ask()

    def _ask(self) -> None:
        if not self._left and self._may_have_none:
            self.exchange.finish(DigestType.DUMMY)
            return
        if not self._left:
            error = DigestUnknownError(f"its digest is not known: {self._said}", ledger=self._access.ledger)
            self.exchange.finish(error=error)
            return
        bookie = self._left.pop(0)
        request = self._access.read_request(0, fence=True)
        self.exchange.send(bookie, request, partial(self._answered, bookie))

    def _answered(self, bookie: str, event: Event) -> None:
        code = answer_code(event)
        if code is ResultCode.UNAUTHORIZED:
            self.exchange.finish(error=self._access.failure(event, 0, bookie))
            return
        if code is ResultCode.OK and isinstance(event, Answered) and isinstance(event.response, ReadResponse):
            kind = self._kind_of(event.response.body, bookie)
            if kind is DigestType.DUMMY:
                self._may_have_none = True
            elif kind is not None:
                self.exchange.finish(kind)
                return
            self._said = f"no kind of digest checks on what {bookie} sent"
        self._ask()

    def _kind_of(self, body: bytes | None, bookie: str) -> DigestType | None:
        for kind, access in self._kinds:
            entry = access.checked(body, 0, bookie)
            if isinstance(entry, LedgerEntry) and (kind is not DigestType.DUMMY or _is_whole(entry, body)):
                return kind
        return None


def _is_whole(entry: LedgerEntry, body: bytes | None) -> bool:
    """Return whether nothing stands between the header and the payload of a ledger's first entry."""
    return body is not None and len(body) - HEADER_BYTES == entry.length


async def access_to(
    ledger: int, metadata: LedgerMetadata, password: bytes | None, steps: Steps
) -> LedgerAccess:
    """Return the ledger's secrets, from the metadata or else from ``password`` and by trying.

    Raises UsageError where they cannot be known, or the password is not the ledger's.
    """
    if metadata.digest_type is not None:
        return LedgerAccess.of(ledger, metadata)
    if password is None:
        raise UsageError("they tell neither digest nor password; give passwd")
    if metadata.state is not LedgerState.CLOSED:
        raise UsageError("they tell no digest, and the ledger is not closed")
    require_quorum_fields(metadata, ledger)
    try:
        digest = cast("DigestType", await steps.run(DigestSearchMachine(ledger, metadata, password)))
    except AccessDeniedError as error:
        raise UsageError(f"passwd is not its password: {error.message}") from None
    return LedgerAccess(ledger, digest, password)
