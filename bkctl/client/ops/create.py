"""Creating a ledger: an ensemble, an id, metadata. No bookie is asked.

======== ============================ ======================================================================
state    input                        next state, effect
======== ============================ ======================================================================
NEW      ``start``                    CHOOSING, ChooseBookies
CHOOSING enough bookies               CREATING, CreateMetadata of the id that was asked for; without one
                                      DRAWING, NewLedgerId
CHOOSING too few, or an error         FINISHED with NotEnoughBookiesError, or the error
DRAWING  an id                        CREATING, CreateMetadata
DRAWING  an error                     FINISHED with the error
CREATING stored                       FINISHED with CreatedLedger
CREATING the ledger exists            LOOKING, ReadMetadata: it may be there by an earlier try of this
                                      creation
CREATING the outcome is not known     RESTING, SetTimer, twice as long each time; FINISHED with the error
                                      behind UNKNOWN_MAX of these
CREATING any other error              FINISHED with the error
RESTING  the timer                    LOOKING, ReadMetadata
LOOKING  metadata with own token      FINISHED with CreatedLedger
LOOKING  metadata of another creation FINISHED with LedgerExistsError for an id that was asked for, and
                                      behind TAKEN_MAX of these; else DRAWING, NewLedgerId
LOOKING  there is no such ledger      CREATING, CreateMetadata of the same id
LOOKING  the outcome is not known     RESTING as above
LOOKING  any other error              FINISHED with the error
======== ============================ ======================================================================

Source: ``org.apache.bookkeeper.client.LedgerCreateOp``, ``AbstractZkLedgerManager.createLedgerMetadata``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.client.distribution import Distribution
from bkctl.client.errors import ClientError, LedgerExistsError, NotEnoughBookiesError
from bkctl.client.machine import BookiesAre, Event, LedgerIdIs, MetadataFailed, MetadataIs
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.metadata_update import PAUSE_S, UNKNOWN_MAX
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata, Segment
from bkctl.errors import BkctlError, ConnectionFailedError, NotFoundError
from bkctl.metadata.api import AlreadyExistsError, NoClusterError
from bkctl.reporting import counted
from bkctl.types import DigestType, LedgerState

#: Fresh ids that were taken all the same, before creation fails.
TAKEN_MAX = 10


@dataclass(frozen=True, slots=True)
class NewLedger:
    """The form of a ledger to be made. Raises UsageError for quorums that do not go together.

    ``c_token`` is a random number below 2^63 by which a creation knows its own metadata again; the caller
    draws it. ``ctime_ms`` None leaves the time to the store. ``metadata_version`` 1 holds neither digest,
    password, ack quorum nor custom metadata.
    """

    ensemble_size: int = 3
    write_quorum: int = 2
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32
    password: bytes = field(default=b"", repr=False)
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    c_token: int = 0
    ctime_ms: int | None = None
    metadata_version: int = 3

    def __post_init__(self) -> None:
        Distribution(self.ensemble_size, self.write_quorum, self.ack_quorum)

    def metadata(self, bookies: tuple[str, ...]) -> LedgerMetadata:
        """Return the metadata of this ledger on ``bookies``."""
        if self.metadata_version == 1:
            return LedgerMetadata(
                metadata_version=1,
                write_quorum=self.write_quorum,
                ensemble_size=self.ensemble_size,
                ack_quorum=self.write_quorum,
                length=0,
                last_entry=NO_ENTRY,
                state=LedgerState.OPEN,
                segments=(Segment(0, bookies),),
            )
        return LedgerMetadata(
            metadata_version=self.metadata_version,
            write_quorum=self.write_quorum,
            ensemble_size=self.ensemble_size,
            ack_quorum=self.ack_quorum,
            length=0,
            last_entry=NO_ENTRY,
            state=LedgerState.OPEN,
            segments=(Segment(0, bookies),),
            digest_type=self.digest_type,
            password=self.password,
            ctime_ms=self.ctime_ms,
            custom_metadata=self.custom_metadata,
            c_token=self.c_token,
        )


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """The ledger's id, its metadata, and the version to change it with."""

    ledger: int
    metadata: LedgerMetadata
    version: int


class CreateMachine(OperationMachine):
    """Create a ledger; finishes with a :class:`CreatedLedger`.

    ``ledger`` None draws an id. Errors: NotEnoughBookiesError, LedgerExistsError for an id that was asked
    for, those of the metadata store. When the store's answer is lost, metadata with this creation's token
    is its own.
    """

    def __init__(self, new: NewLedger, ledger: int | None = None) -> None:
        super().__init__()
        self._new = new
        self._asked_for = ledger
        self._ledger = -1
        self._metadata: LedgerMetadata | None = None
        self._taken = 0
        self._unknown = 0

    def _begin(self) -> None:
        self.exchange.choose_bookies(
            self._new.ensemble_size, frozenset(), self._chosen, write_quorum=self._new.write_quorum
        )

    def _chosen(self, event: Event) -> None:
        if not isinstance(event, BookiesAre):
            self._fail(event)
            return
        if len(event.bookies) < self._new.ensemble_size:
            self.exchange.finish(
                error=NotEnoughBookiesError(
                    f"the ensemble needs {counted(self._new.ensemble_size, 'writable bookie')}, "
                    f"{len(event.bookies)} can be chosen; bkctl bookies list shows which are registered, and "
                    "which of them are read-only"
                )
            )
            return
        self._metadata = self._new.metadata(event.bookies)
        self._find_id()

    def _find_id(self) -> None:
        if self._asked_for is None:
            self.exchange.new_ledger_id(self._id_is)
        else:
            self._create(self._asked_for)

    def _id_is(self, event: Event) -> None:
        if isinstance(event, LedgerIdIs):
            self._create(event.ledger)
        else:
            self._fail(event)

    def _create(self, ledger: int) -> None:
        assert self._metadata is not None
        self._ledger = ledger
        self.exchange.create_metadata(ledger, self._metadata, self._created)

    def _created(self, event: Event) -> None:
        if isinstance(event, MetadataIs):
            self._finish(event)
        elif isinstance(event, MetadataFailed) and isinstance(event.error, AlreadyExistsError):
            # It may be there by an earlier try of this creation.
            self.exchange.read_metadata(self._ledger, self._looked)
        elif isinstance(event, MetadataFailed) and isinstance(event.error, ConnectionFailedError):
            self._look_later(event)
        else:
            self._fail(event)

    def _look_later(self, event: MetadataFailed) -> None:
        self._unknown += 1
        if self._unknown > UNKNOWN_MAX:
            self._fail(event)
            return
        pause_s = PAUSE_S * 2 ** (self._unknown - 1)
        self.exchange.set_timer(pause_s, lambda _: self.exchange.read_metadata(self._ledger, self._looked))

    def _looked(self, event: Event) -> None:
        if isinstance(event, MetadataIs):
            if self._is_own(event.metadata):
                self._finish(event)
            else:
                self._id_is_taken()
        elif isinstance(event, MetadataFailed) and isinstance(event.error, ConnectionFailedError):
            self._look_later(event)
        elif _is_missing(event):
            self._create(self._ledger)
        else:
            self._fail(event)

    def _is_own(self, stored: LedgerMetadata) -> bool:
        return bool(self._new.c_token) and stored.c_token == self._new.c_token

    def _id_is_taken(self) -> None:
        self._taken += 1
        if self._asked_for is not None or self._taken > TAKEN_MAX:
            self.exchange.finish(error=LedgerExistsError("it exists already", ledger=self._ledger))
        else:
            self._find_id()

    def _finish(self, stored: MetadataIs) -> None:
        self.exchange.finish(CreatedLedger(self._ledger, stored.metadata, stored.version))

    def _fail(self, event: Event) -> None:
        error: BkctlError = ClientError("the ledger could not be created", ledger=self._ledger)
        if isinstance(event, MetadataFailed):
            error = event.error
        self.exchange.finish(error=error)


def _is_missing(event: Event) -> bool:
    return (
        isinstance(event, MetadataFailed)
        and isinstance(event.error, NotFoundError)
        and not isinstance(event.error, NoClusterError)
    )
