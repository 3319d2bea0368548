"""Closing a ledger whose writer is gone, so that nothing acknowledged is lost and nothing changes afterwards.

==== ==================================================================================================
step what happens
==== ==================================================================================================
1    metadata: OPEN -> IN_RECOVERY by compare-and-set. From here on the writer can change no ensemble.
2    the newest entry is read with the fence flag from all bookies of the last ensemble, until they are
     covered: the writer gets no ack quorum for an entry that does not have one already
3    LAC = the highest in the answers, at least the last segment's first entry - 1
4    entries from LAC + 1 on are read, each with the fence flag again: a bookie that was not needed for
     coverage may still take adds, and its "no such entry" has to stay true
5    an entry that is found is added again to its whole write set (recovery flag, high priority)
6    Wq - Aq + 1 bookies without it: the entry never had an ack quorum, and nothing behind it. That is the
     end. A bookie that does not know counts neither way; with too few answers the recovery fails
7    every add needs Aq acknowledgements; a bookie that fails in this step is replaced in memory only, and so
     is one that an add waits for and that has not answered the fence either, a moment after the others
8    metadata: IN_RECOVERY -> CLOSED by compare-and-set, with the replacements. The first client to close the
     ledger wins, the others take over the metadata that it stored
==== ==================================================================================================

Two recoveries of one ledger may run at once: both have fenced before they read, so both find whatever was
acknowledged; above that they may find different ends, and the first CLOSED decides.

The closed length is that of the last entry: its header is read when the entry itself was not recovered.
Java takes the length of an entry above the LAC even when that one turns out not to exist, so that its
length can be too large. When no bookie can send the header now, Java's value is taken, and ``length_exact``
is false.

Entries that are added again carry the LAC that was found in step 3. Java writes the recovery's own, which
moves with its adds; when that recovery then fails, its replacements of bookies are forgotten while the LAC
stays, and the next recovery takes entries for confirmed that metadata's bookies have fewer than Aq copies of.

Source: ``org.apache.bookkeeper.client.LedgerRecoveryOp``, ``ReadOnlyLedgerHandle``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from bkctl.client.distribution import Distribution
from bkctl.client.errors import (
    AccessDeniedError,
    ClientError,
    NoAnswerError,
    NoSuchLedgerError,
    RecoveryFailedError,
)
from bkctl.client.ops.add_pipeline import AddPipeline, PendingAdd
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, require_quorum_fields
from bkctl.client.ops.metadata_update import MetadataUpdate, UpdateOutcome, closed, in_recovery
from bkctl.client.ops.read import (
    ENTRY_SPECULATION,
    EntryMissing,
    EntryOutcome,
    EntryRead,
    Speculation,
    read_order,
)
from bkctl.client.ops.read_lac import LacRead, LacResult, ReplicaLac
from bkctl.client.ops.recovery_rehearsal import RecoveryRehearsal
from bkctl.client.ops.recovery_replacements import RecoveryReplacements
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata
from bkctl.errors import BkctlError, UsageError
from bkctl.types import LedgerState

#: When the next bookie is asked although the last one may answer, where that has not even answered the fence.
SILENT_SPECULATION = Speculation(0.05, 2.0, 40.0)


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """``read_batch`` entries are read ahead at once (``recoveryReadBatchSize``).

    Reading pauses while ``pending_adds_max`` adds have no quorum. ``avoid`` is as in
    :func:`~bkctl.client.ops.read.read_order`; bookies that keep the recovery waiting join them. ``dry_run``
    fences nothing, writes nothing and waits for every bookie: what it finds holds only if the writer does not
    go on. It fails where too few bookies answer, or could take the places of those that do not.
    """

    read_batch: int = 1
    pending_adds_max: int = 100
    speculation: Speculation | None = ENTRY_SPECULATION
    avoid: frozenset[str] = field(default_factory=frozenset)
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.read_batch < 1 or self.pending_adds_max < 1:
            raise UsageError("read_batch and pending_adds_max must be 1 or more")


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """How the ledger is closed (in a dry run: would be). ``metadata`` and ``version`` are what is stored.

    ``adopted``: another client had closed it, here nothing was decided. ``lac_found`` is where reading
    began: entries ``lac_found + 1`` to ``last_entry`` were written again. ``missing_at`` are the bookies
    which said that entry ``last_entry + 1`` is not there. ``replicas`` are the answers to step 2.
    """

    metadata: LedgerMetadata
    version: int
    adopted: bool
    last_entry: int
    length: int
    length_exact: bool = True
    lac_found: int = NO_ENTRY
    entries_rewritten: int = 0
    replicas: tuple[ReplicaLac, ...] = ()
    missing_at: tuple[str, ...] = ()


class RecoveryMachine(OperationMachine):
    """Recover and close a ledger; finishes with a :class:`RecoveryResult`.

    ``metadata`` and ``version`` are what was read last; a ledger that is CLOSED is finished at once. Errors:
    RecoveryFailedError (the ledger stays IN_RECOVERY, nothing is lost, try again), AccessDeniedError,
    NoSuchLedgerError, those of the metadata store.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        version: int,
        settings: RecoverySettings | None = None,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        self.settings = settings or RecoverySettings()
        self.access = access
        self.metadata = metadata
        self.version = version
        self.lac = NO_ENTRY
        self.length = 0
        self._distribution = Distribution.of(metadata)
        ensemble = metadata.segments[-1].bookies
        self._pipeline = AddPipeline(self.exchange, access, self._distribution, ensemble, self, recovery=True)
        self._replacements = RecoveryReplacements(
            self.exchange,
            self._pipeline,
            access.ledger,
            metadata.write_quorum,
            changed=self._close_when_done,
            failed=self._fail,
        )
        self._fenced: LacResult | None = None
        #: Bookies that are asked last: a hung one would else keep each entry waiting whose reads it leads.
        self._slow = set(self.settings.avoid)
        #: Bookies of the ensemble that have not answered the fence so far.
        self._silent: set[str] = set()
        self._lac_found = NO_ENTRY
        self._reads: dict[int, EntryRead] = {}
        self._read_outcomes: dict[int, EntryOutcome] = {}
        self._next_read = 0
        self._next_found = 0
        self._end: EntryMissing | None = None
        self._ending = False
        self._length_exact = True

    # --- steps 1 and 2 --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.settings.dry_run:
            self._entered(UpdateOutcome(self.metadata, self.version, False))
            return
        self._update(self._enter_plan, self._entered)

    def _update(
        self,
        plan: Callable[[LedgerMetadata], LedgerMetadata | None],
        done: Callable[[UpdateOutcome | BkctlError], None],
    ) -> None:
        MetadataUpdate(self.exchange, self.access.ledger, self.metadata, self.version, plan, done).begin()

    def _enter_plan(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        return in_recovery(metadata) if metadata.state is LedgerState.OPEN else None

    def _entered(self, outcome: UpdateOutcome | BkctlError) -> None:
        if isinstance(outcome, BkctlError):
            self._fail(outcome)
            return
        self.metadata = outcome.metadata
        self.version = outcome.version
        if self.metadata.state is LedgerState.CLOSED:
            self._finish(adopted=True)
            return
        self._pipeline.ensemble = self.metadata.segments[-1].bookies
        LacRead(
            self.exchange,
            self.access,
            self.metadata,
            self._fencing_ended,
            fence=not self.settings.dry_run,
            wait_all=self.settings.dry_run,
            on_late=self._answered_late,
        ).begin()

    # --- steps 3 to 6 ---------------------------------------------------------------------------------------

    def _fencing_ended(self, outcome: LacResult | ClientError) -> None:
        if isinstance(outcome, ClientError):
            self._fail(outcome)
            return
        self._fenced = outcome
        self._silent = set(self.metadata.segments[-1].bookies) - {
            replica.bookie for replica in outcome.replicas if not isinstance(replica.error, NoAnswerError)
        }
        self.lac = max(outcome.lac, self.metadata.segments[-1].first_entry - 1)
        self._lac_found = self.lac
        self._next_read = self._next_found = self._pipeline.next_entry = self.lac + 1
        self._read_on()

    def _answered_late(self, bookie: str) -> None:
        self._silent.discard(bookie)

    def _read_on(self) -> None:
        """Keep ``read_batch`` reads going, as long as adds keep up."""
        while (
            self._end is None
            and self._next_read < self._next_found + self.settings.read_batch
            and len(self._pipeline.pending) < self.settings.pending_adds_max
        ):
            self._read(self._next_read)
            self._next_read += 1

    def _read(self, entry: int) -> None:
        order = read_order(self.metadata, entry, avoid=self._slow)
        speculation = self.settings.speculation
        if speculation is not None and order[0] in self._silent:
            speculation = SILENT_SPECULATION
        read = EntryRead(
            self.exchange,
            self.access,
            entry,
            order,
            partial(self._read_ended, entry),
            # Each entry by itself: a bookie that hangs from now on may have answered for the last one.
            heard=set(),
            slow=self._slow,
            speculation=speculation,
            missing_quorum=self._distribution.missing_quorum,
            fence=not self.settings.dry_run,
        )
        self._reads[entry] = read
        read.begin()

    def _read_ended(self, entry: int, outcome: EntryOutcome) -> None:
        del self._reads[entry]
        self._read_outcomes[entry] = outcome
        while self._next_found in self._read_outcomes and not self.exchange.finished:
            self._take(self._read_outcomes.pop(self._next_found))
        if not self.exchange.finished:
            self._read_on()
            self._close_when_done()

    def _take(self, outcome: EntryOutcome) -> None:
        """Take the outcome of the next entry; what is behind the end does not matter any more."""
        if self._end is not None:
            self._next_found += 1
        elif isinstance(outcome, LedgerEntry):
            self._next_found += 1
            self._add_again(outcome)
        elif isinstance(outcome, EntryMissing):
            self._end = outcome
            for read in self._reads.values():
                read.drop()
            self._reads.clear()
        else:
            self._fail(outcome)

    def _add_again(self, found: LedgerEntry) -> None:
        if self.settings.dry_run:
            self.lac, self.length = found.entry, found.length
            return
        # Not this recovery's own LAC: what it wrote may stand on replacements that nobody else knows until
        # the close, and a later recovery believes the LAC of any entry that it finds.
        self._pipeline.push(found.entry, self._lac_found, found.length, found.payload, 0)
        self._replacements.wait_for(self._silent)

    # --- step 7 ---------------------------------------------------------------------------------------------

    def add_completed(self, add: PendingAdd) -> None:
        """Make the entry of a completed add the LAC, and go on with reading or closing."""
        self.lac = add.entry
        self.length = add.length
        self._read_on()
        self._close_when_done()

    def add_refused(self, error: ClientError) -> None:
        """Fail the recovery with the error of a refused add."""
        self._fail(error)

    def bookies_failed(self, failed: dict[int, str], error: ClientError) -> None:
        """Have others take the places of failed bookies from LAC + 1 on, in memory."""
        self._replacements.replace(failed)

    # --- step 8 ---------------------------------------------------------------------------------------------

    def _close_when_done(self) -> None:
        if self._end is None or self._ending or self._pipeline.pending or self._pipeline.changing:
            return
        if self.exchange.finished:
            return
        self._ending = True
        if self.lac == self._lac_found and self.lac != NO_ENTRY:
            self._read_length()
        else:
            self._close()

    def _read_length(self) -> None:
        """Read the length from the last entry's header, as no entry was recovered that would have it."""
        EntryRead(
            self.exchange,
            self.access,
            self.lac,
            read_order(self.metadata, self.lac, avoid=self._slow),
            self._length_read,
            heard=set(),
            slow=self._slow,
            speculation=self.settings.speculation,
        ).begin()

    def _length_read(self, outcome: EntryOutcome) -> None:
        if isinstance(outcome, LedgerEntry):
            self.length = outcome.length
        else:
            self._length_exact = False
            self.length = 0 if self._fenced is None else self._fenced.length
        self._close()

    def _close(self) -> None:
        if not self.settings.dry_run:
            self._update(self._close_plan, self._closed)
            return
        RecoveryRehearsal(
            self.exchange,
            self.access.ledger,
            self._distribution,
            self.metadata.segments[-1].bookies,
            range(self._lac_found + 1, self.lac + 1),
            self._silent,
            self._rehearsed,
        ).begin()

    def _rehearsed(self, error: BkctlError | None) -> None:
        if error is None:
            self._finish(adopted=False)
        else:
            self._fail(error)

    def _close_plan(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata.state is LedgerState.CLOSED:
            return None
        if metadata.state is not LedgerState.IN_RECOVERY:
            raise RecoveryFailedError(
                f"it became {metadata.state.value} while it was recovered", ledger=self.access.ledger
            )
        return closed(self._replacements.stored_in(metadata), self.lac, self.length)

    def _closed(self, outcome: UpdateOutcome | BkctlError) -> None:
        if isinstance(outcome, BkctlError):
            self._fail(outcome)
            return
        self.metadata = outcome.metadata
        self.version = outcome.version
        self._finish(adopted=not outcome.written)

    def _finish(self, *, adopted: bool) -> None:
        metadata = self.metadata
        by_metadata = metadata.state is LedgerState.CLOSED
        self.exchange.finish(
            RecoveryResult(
                metadata,
                self.version,
                adopted,
                metadata.last_entry if by_metadata else self.lac,
                metadata.length if by_metadata else self.length,
                adopted or self._length_exact,
                self._lac_found,
                self.lac - self._lac_found,
                () if self._fenced is None else self._fenced.replicas,
                () if self._end is None else self._end.bookies,
            )
        )

    def _fail(self, error: BkctlError) -> None:
        """Fail the recovery with RecoveryFailedError.

        AccessDeniedError and the store's errors stay as they are.
        """
        if isinstance(error, ClientError) and not isinstance(
            error, AccessDeniedError | NoSuchLedgerError | RecoveryFailedError
        ):
            message = f"recovery stopped: {error.message}"
            error = RecoveryFailedError(message, ledger=error.ledger, entry=error.entry, bookie=error.bookie)
        self.exchange.finish(error=error)
