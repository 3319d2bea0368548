"""The writer of a ledger: append, ensemble change, close; explicit LAC and force.

::

    writer = WriteMachine(access, metadata, version)  # of a ledger just created
    run(writer.start())
    appended = writer.append(b"data")  # its Notify has appended.token and value = the entry id
    run(appended.instructions)
    run(writer.close())  # Finished(UpdateOutcome)

========= =========================== ===========================================================
state     input                       next state, effect
========= =========================== ===========================================================
OPEN      ``append``                  OPEN, the add goes to its write set
OPEN      an ack quorum               OPEN, Notify in the order of ids; the LAC moves
OPEN      bookies fail                CHANGING, others are chosen and stored; DEAD with deferred
                                      sync, or when no further change is allowed
OPEN,     fenced, wrong password, or  DEAD, pending appends fail
CHANGING  an add's time is over
CHANGING  ``append``                  CHANGING, no append completes until the change is stored
CHANGING  bookies fail                CHANGING, they are replaced next
CHANGING  stored: ledger OPEN         OPEN, pending adds go to the new bookies; CHANGING when one
                                      of them failed during the change; DEAD when an append can
                                      reach its quorum no more
CHANGING  stored: ledger IN_RECOVERY  DEAD, pending appends fail
          or CLOSED; or an error
DEAD      ``append``                  DEAD, the reason is raised
each      ``close``                   CLOSING, pending appends fail, CLOSED is stored behind the
                                      LAC once no change runs; FINISHED with the error of a fence
CLOSING   stored, or an error         FINISHED, Finished with the outcome
========= =========================== ===========================================================

Appends complete strictly in the order of their ids, each with Aq acknowledgements; the LAC is the last one
that completed, and goes out with the next entry. A bookie that fails is replaced: see
:class:`EnsembleChange` for the rules on which no acknowledged entry depends on a bookie that metadata does
not name.

A handle dies (:attr:`WriteMachine.death`) when the ledger is fenced or being recovered, when the password is
refused, or when a failed bookie cannot be replaced: pending appends fail, further ones are refused. Unless
another client is recovering the ledger, :meth:`WriteMachine.close` closes it then too, behind the LAC. Java
does so by itself, without being asked.

Source: ``org.apache.bookkeeper.client.LedgerHandle``, ``PendingAddOp``, ``EnsembleUtils``, ``ForceLedgerOp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bkctl.client.distribution import Distribution
from bkctl.client.errors import (
    AddTimeoutError,
    ClientError,
    ClosedDifferentlyError,
    HandleClosedError,
    HandleFencedError,
    NotEnoughBookiesError,
    WriteFailedError,
)
from bkctl.client.machine import Event, Instruction, Token
from bkctl.client.ops.add_pipeline import AddPipeline, PendingAdd
from bkctl.client.ops.ensemble_change import EnsembleChange
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.explicit_lac import ExplicitLac
from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.client.ops.metadata_update import MetadataUpdate, UpdateOutcome, closed
from bkctl.client.ops.votes import Votes
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata
from bkctl.errors import BkctlError, UsageError
from bkctl.protocol.messages import ForceLedgerRequest
from bkctl.types import LedgerState


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """A writer's choices, with BookKeeper's names in brackets.

    ``ensemble_changes_max`` (``maxNumEnsembleChanges``) ends the handle. With ``delay_ensemble_change`` (same
    name) a bookie is replaced only when an append cannot complete without it. ``add_timeout_s``
    (``addEntryQuorumTimeoutSec``) bounds one append over all ensemble changes; None does not.
    ``explicit_lac_interval_s`` (``explicitLacInterval``) is the interval at which bookies get the LAC in a
    message of its own when no entry carries it; None is never.

    With ``deferred_sync``, which only v3 has, bookies acknowledge before the data is on disk.
    :meth:`WriteMachine.force` makes it durable, and alone moves the LAC. No bookie can be replaced then.
    """

    ensemble_changes_max: int = 2**31 - 1
    delay_ensemble_change: bool = False
    add_timeout_s: float | None = None
    explicit_lac_interval_s: float | None = None
    deferred_sync: bool = False


class Appended(NamedTuple):
    """An append on its way: Notify with ``token`` brings ``entry`` as its value, or an error."""

    token: Token
    entry: int
    instructions: list[Instruction]


class Asked(NamedTuple):
    """A force or a flush of the LAC on its way: Notify with ``token`` brings the LAC, or an error."""

    token: Token
    instructions: list[Instruction]


class WriteMachine(OperationMachine):
    """A ledger's only writer. ``metadata`` is OPEN and stored with ``version``; the ledger is empty.

    Raises UsageError for metadata that is not OPEN. :attr:`lac` is the last entry confirmed, :attr:`length`
    the payload bytes up to it. The caller bounds :attr:`pending` and :attr:`pending_bytes` by waiting for
    Notify.
    """

    def __init__(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        version: int,
        settings: WriteSettings | None = None,
    ) -> None:
        super().__init__()
        require_quorum_fields(metadata, access.ledger)
        if metadata.state is not LedgerState.OPEN:
            raise UsageError(f"ledger {access.ledger} is {metadata.state.value}: it takes no entries")
        self.settings = settings or WriteSettings()
        self.access = access
        self.metadata = metadata
        self.version = version
        self.lac = NO_ENTRY
        self.length = 0
        #: Why nothing can be appended any more; None while it can.
        self.death: BkctlError | None = None
        self.ensemble_changes = 0
        self._distribution = Distribution.of(metadata)
        self._pipeline = AddPipeline(
            self.exchange,
            access,
            self._distribution,
            metadata.segments[-1].bookies,
            self,
            deferred_sync=self.settings.deferred_sync,
            delay_ensemble_change=self.settings.delay_ensemble_change,
        )
        self._explicit_lac = ExplicitLac(self.exchange, access, self._distribution, self._pipeline)
        self._last_pushed = NO_ENTRY
        self._length_pushed = 0
        self._last_completed = NO_ENTRY
        self._length_completed = 0
        self._failed: dict[int, str] = {}
        self._failed_meanwhile: dict[int, str] = {}
        self._change_running = False
        self._closing = False

    @property
    def pending(self) -> int:
        """Appends that have not completed."""
        return len(self._pipeline.pending)

    @property
    def pending_bytes(self) -> int:
        """Their payload."""
        return self._pipeline.pending_bytes

    def _begin(self) -> None:
        self._set_lac_timer()

    # --- append ---------------------------------------------------------------------------------------------

    def append(self, data: bytes) -> Appended:
        """Send ``data`` as the next entry. Raises :attr:`death`, or HandleClosedError after :meth:`close`."""
        self._require_writable()
        return self._push(self._last_pushed + 1, data)

    def _require_writable(self) -> None:
        if self.death is not None:
            raise self.death
        if self._closing:
            raise HandleClosedError("the handle is closed", ledger=self.access.ledger)

    def _push(self, entry: int, data: bytes) -> Appended:
        self._last_pushed = max(self._last_pushed, entry)
        self._length_pushed += len(data)
        token = self.exchange.token()
        add = self._pipeline.push(entry, self.lac, self._length_pushed, data, token)
        self._explicit_lac.note(self.lac)
        if self.death is None:
            self._set_add_timer(add)
        return Appended(token, entry, self.exchange.take())

    def _set_add_timer(self, add: PendingAdd) -> None:
        timeout_s = self.settings.add_timeout_s
        if timeout_s is not None:
            add.timer = self.exchange.set_timer(timeout_s, partial(self._add_timed_out, add))

    def add_completed(self, add: PendingAdd) -> None:
        """Report a completed add, which confirms its entry unless sync is deferred."""
        self._last_completed = add.entry
        self._length_completed += add.data_bytes
        if not self.settings.deferred_sync:
            self._confirm(add.entry, self._length_completed)
        self.exchange.notify(add.token, add.entry)

    def _confirm(self, entry: int, length: int) -> None:
        if entry > self.lac:
            self.lac = entry
            self.length = length

    def _add_timed_out(self, add: PendingAdd, event: Event) -> None:
        add.timer = None
        if self._pipeline.has_quorum(add):
            # It waits for one below it, which has a time of its own; an ensemble change may still take the
            # quorum away.
            self._set_add_timer(add)
            return
        message = f"no ack quorum within {self.settings.add_timeout_s} s"
        self._die(AddTimeoutError(message, ledger=self.access.ledger, entry=add.entry))

    # --- failures -------------------------------------------------------------------------------------------

    def add_refused(self, error: ClientError) -> None:
        """End the writer with the error of a refused add: the ledger is fenced, or the password is wrong."""
        self._die(error)

    def bookies_failed(self, failed: dict[int, str], error: ClientError) -> None:
        """Replace failed bookies, or remember them while others are being replaced."""
        if self.death is not None or self._closing:
            return
        if self.settings.deferred_sync:
            self._die(self._write_failed(f"no bookie can be replaced with deferred sync; {error}"))
        elif self._pipeline.changing:
            self._failed_meanwhile.update(failed)
        else:
            self._change_ensemble({**self._pipeline.failed_late, **failed})

    def _change_start(self) -> int:
        """Return the first entry of the new ensemble. It stays: no entry completes during the change."""
        return self.lac + 1

    def _change_ensemble(self, failed: dict[int, str]) -> None:
        self._pipeline.changing = True
        self.ensemble_changes += 1
        if self.ensemble_changes > self.settings.ensemble_changes_max:
            self._die(self._write_failed(f"{self.settings.ensemble_changes_max} ensemble changes are over"))
            return
        self._failed = failed
        self._change_running = True
        EnsembleChange(
            self.exchange,
            self.access.ledger,
            self.metadata,
            self.version,
            failed,
            self._change_start(),
            self._changed,
        ).begin()

    def _changed(self, outcome: UpdateOutcome | BkctlError) -> None:
        self._change_running = False
        if isinstance(outcome, UpdateOutcome):
            self.metadata = outcome.metadata
            self.version = outcome.version
        if self._closing:
            # The stored metadata may contain the change or not; the close reads them itself.
            self._close_metadata()
            return
        if self.death is not None:
            return
        if isinstance(outcome, BkctlError):
            self._die(outcome)
        elif self.metadata.state is LedgerState.IN_RECOVERY:
            self._die(HandleFencedError("somebody recovers the ledger", ledger=self.access.ledger))
        elif self.metadata.state is LedgerState.CLOSED:
            self._die(HandleClosedError("somebody else closed the ledger", ledger=self.access.ledger))
        else:
            self._go_on(self.metadata.segments[-1].bookies)

    def _go_on(self, ensemble: tuple[str, ...]) -> None:
        """Go on with the new ensemble; change it once more if one of it failed during the change."""
        meanwhile = {i: bookie for i, bookie in self._failed_meanwhile.items() if ensemble[i] == bookie}
        self._failed_meanwhile = {}
        if meanwhile and meanwhile != self._failed:
            self._change_ensemble(meanwhile)
            return
        self._pipeline.replace(ensemble)
        stuck = self._pipeline.stuck()
        if stuck is not None and self.death is None and not self._pipeline.changing:
            message = "not every failed bookie could be replaced, and the others are no ack quorum"
            self._die(NotEnoughBookiesError(message, ledger=self.access.ledger, entry=stuck.entry))

    def _write_failed(self, message: str) -> WriteFailedError:
        return WriteFailedError(message, ledger=self.access.ledger, entry=self.lac + 1)

    def _die(self, error: BkctlError) -> None:
        if self.death is None:
            self.death = error
            self._fail_pending(error)

    def _fail_pending(self, error: BkctlError) -> None:
        for add in self._pipeline.drop_all():
            self.exchange.notify(add.token, error=error)

    # --- close ----------------------------------------------------------------------------------------------

    def close(self) -> list[Instruction]:
        """Fail what is pending, and close the ledger behind the LAC; the machine finishes.

        Finished brings an :class:`UpdateOutcome`. Errors: HandleFencedError when the ledger is under
        recovery, ClosedDifferentlyError when it was closed elsewhere. A second call does nothing.
        """
        if self._closing:
            return []
        self._closing = True
        self._fail_pending(HandleClosedError("the handle is closed", ledger=self.access.ledger))
        if isinstance(self.death, HandleFencedError):
            self.exchange.finish(error=self.death)
        elif not self._change_running:
            self._close_metadata()
        return self.exchange.take()

    def _close_metadata(self) -> None:
        MetadataUpdate(
            self.exchange, self.access.ledger, self.metadata, self.version, self._closed_plan, self._closed
        ).begin()

    def _closed_plan(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata.state is LedgerState.OPEN:
            return closed(metadata, self.lac, self.length)
        if metadata.state is LedgerState.IN_RECOVERY:
            raise HandleFencedError("somebody recovers the ledger", ledger=self.access.ledger)
        if (metadata.last_entry, metadata.length) == (self.lac, self.length):
            return None
        raise ClosedDifferentlyError(
            f"it was closed behind entry {metadata.last_entry} with {metadata.length} bytes, this writer has "
            f"entry {self.lac} with {self.length} bytes",
            ledger=self.access.ledger,
        )

    def _closed(self, outcome: UpdateOutcome | BkctlError) -> None:
        if isinstance(outcome, BkctlError):
            self.exchange.finish(error=outcome)
            return
        self.metadata = outcome.metadata
        self.version = outcome.version
        self.exchange.finish(outcome)

    # --- force and explicit LAC -----------------------------------------------------------------------------

    def force(self) -> Asked:
        """Make what has completed so far durable on *all* bookies; the LAC follows. For ``deferred_sync``.

        Raises as :meth:`append`.
        """
        self._require_writable()
        token = self.exchange.token()
        entry, length = self._last_completed, self._length_completed
        ensemble = self._pipeline.ensemble
        votes = Votes(self.exchange, self.access, token, sent=len(ensemble), needed=len(ensemble), lac=entry)
        for bookie in ensemble:
            request = ForceLedgerRequest(self.access.ledger)
            self.exchange.send(bookie, request, partial(self._force_answered, votes, length, bookie))
        return Asked(token, self.exchange.take())

    def _force_answered(self, votes: Votes, length: int, bookie: str, event: Event) -> None:
        if not votes.complete(bookie, event):
            return
        if self._closing:
            # The close is behind the LAC as it was: what this would confirm is not in the ledger.
            error = HandleClosedError("the handle is closed", ledger=self.access.ledger)
            self.exchange.notify(votes.token, error=error)
        else:
            self._confirm(votes.lac, length)
            self.exchange.notify(votes.token, self.lac)

    def flush_lac(self) -> Asked:
        """Send the LAC to the bookies (WRITE_LAC) unless they know it; Notify comes after Aq OKs."""
        token = self.exchange.token()
        self._explicit_lac.flush(self.lac, token)
        return Asked(token, self.exchange.take())

    def _set_lac_timer(self) -> None:
        interval_s = self.settings.explicit_lac_interval_s
        if interval_s is not None:
            self.exchange.set_timer(interval_s, self._lac_timer_fired)

    def _lac_timer_fired(self, event: Event) -> None:
        if self.death is None and not self._closing:
            self._explicit_lac.flush(self.lac, 0)
            self._set_lac_timer()
