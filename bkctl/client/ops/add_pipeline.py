"""Adds of a writer or a recovery on their way to a write set: sent at once, completed in the order of ids.

Where the caller chooses ids, an add is complete only when all adds below it are: a gap in the ids holds back
the adds above it.

An add is complete with Aq acknowledgements from indices of the *current* ensemble. When an index gets
another bookie (:meth:`AddPipeline.replace`), what the old one said about adds that are still pending does
not count any more, and they are sent to the new one; while the ensemble is being changed nothing completes.
Otherwise an add could be acknowledged by a bookie that metadata does not name for it.

One pending add:

======= =========================== ========================================================================
state   input                       next state, effect
======= =========================== ========================================================================
NEW     ``push``                    PENDING, Send to its write set; the owner hears of bookies that failed
                                    late
PENDING OK from an index            PENDING; COMPLETE when Aq indices of the current ensemble said so, all
                                    adds below are complete, and no ensemble change is going on
PENDING fenced, or unauthorized     PENDING, ``add_refused``
PENDING another error, or no answer PENDING, ``bookies_failed``; where it has its quorum already the bookie
                                    only failed late; ``delay_ensemble_change`` waits as long as Aq can be
                                    reached
PENDING ``replace``                 PENDING, what the changed indices said is forgotten, Send to their new
                                    bookies
PENDING ``drop_all``                DROPPED, no answer counts any more
======= =========================== ========================================================================

Source: ``org.apache.bookkeeper.client.PendingAddOp``, ``LedgerHandle.sendAddSuccessCallbacks``,
``LedgerHandle.unsetSuccessAndSendWriteRequest``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import partial
from typing import Protocol

from bkctl.client.distribution import Distribution
from bkctl.client.errors import ClientError
from bkctl.client.machine import Event, Token
from bkctl.client.ops.exchange import Exchange
from bkctl.client.ops.ledger_access import LedgerAccess, answer_code
from bkctl.protocol.messages import AddRequest
from bkctl.types import ResultCode

#: Answers that no other bookie would change: the writer has no right to go on.
REFUSALS = frozenset({ResultCode.FENCED, ResultCode.UNAUTHORIZED})


class PendingAdd:
    """An entry on its way to its bookies.

    ``length`` is the ledger's length with it; ``token`` names it to the caller, 0 when no caller waits.
    """

    __slots__ = ("acked", "data_bytes", "entry", "failed", "length", "request", "timer", "token", "waiting")

    def __init__(self, request: AddRequest, length: int, data_bytes: int, token: Token) -> None:
        self.entry = request.entry
        self.request = request
        self.length = length
        self.data_bytes = data_bytes
        self.token = token
        self.timer: Token | None = None
        #: Indices that said OK.
        self.acked: set[int] = set()
        #: Indices that said something else, or nothing.
        self.failed: set[int] = set()
        #: Indices whose answer is waited for, and by which token.
        self.waiting: dict[int, Token] = {}


class PipelineOwner(Protocol):
    """Gets a report of what happens to adds."""

    def add_completed(self, add: PendingAdd) -> None:
        """Note that the oldest pending add has its ack quorum; it is not pending any more."""

    def bookies_failed(self, failed: dict[int, str], error: ClientError) -> None:
        """Note failed bookies by their indices; :meth:`AddPipeline.replace` follows at some time."""

    def add_refused(self, error: ClientError) -> None:
        """Note that a bookie refuses this client as a writer."""


class AddPipeline:
    """The pending adds of a handle; how many is bounded by its owner.

    ``delay_ensemble_change`` reports a bookie only when an add cannot reach Aq without it, or when the bookie
    says that it is read-only.
    """

    def __init__(
        self,
        exchange: Exchange,
        access: LedgerAccess,
        distribution: Distribution,
        ensemble: tuple[str, ...],
        owner: PipelineOwner,
        *,
        recovery: bool = False,
        deferred_sync: bool = False,
        delay_ensemble_change: bool = False,
    ) -> None:
        self.ensemble = ensemble
        self.pending: deque[PendingAdd] = deque()
        self.pending_bytes = 0
        #: An ensemble change is going on: nothing completes.
        self.changing = False
        #: The entry that completes next. It is set before the first push where that is not entry 0.
        self.next_entry = 0
        self._pending_ids: set[int] = set()
        #: Bookies that failed an add which had its quorum already: replaced with the next add.
        self.failed_late: dict[int, str] = {}
        self._exchange = exchange
        self._access = access
        self._distribution = distribution
        self._owner = owner
        self._recovery = recovery
        self._deferred_sync = deferred_sync
        self._delay = delay_ensemble_change

    def push(self, entry: int, lac: int, length: int, data: bytes, token: Token) -> PendingAdd:
        """Send an entry that was not sent before; ``lac`` is what is confirmed at this moment."""
        body = self._access.encode(entry, lac, length, data)
        request = self._access.add_request(
            entry, body, recovery=self._recovery, deferred_sync=self._deferred_sync
        )
        add = PendingAdd(request, length, len(data), token)
        self._insert(add)
        self.pending_bytes += len(data)
        for index in self._distribution.write_set(entry):
            self._send(add, index)
        if self.failed_late and not self.changing:
            self._owner.bookies_failed(
                dict(self.failed_late), ClientError("failed an earlier add", ledger=self._access.ledger)
            )
        return add

    def has_sent(self, entry: int) -> bool:
        """Return whether an entry is pending or complete."""
        return entry < self.next_entry or entry in self._pending_ids

    def has_quorum(self, add: PendingAdd) -> bool:
        """Return whether enough bookies of the ensemble have an entry; it may still wait for lower ones."""
        return len(add.acked) >= self._distribution.ack_quorum

    def _insert(self, add: PendingAdd) -> None:
        """Insert an add in the order of ids; its place is mostly the last one."""
        place = len(self.pending)
        while place and self.pending[place - 1].entry > add.entry:
            place -= 1
        self.pending.insert(place, add)
        self._pending_ids.add(add.entry)

    def replace(self, ensemble: tuple[str, ...]) -> None:
        """Use this ensemble from now on: pending adds go to what is new in it; completions go on."""
        old = self.ensemble
        self.ensemble = ensemble
        changed = {index for index, bookie in enumerate(ensemble) if bookie != old[index]}
        for index in changed:
            self.failed_late.pop(index, None)
        for add in self.pending:
            for index in self._distribution.write_set(add.entry):
                if index in changed:
                    add.acked.discard(index)
                    add.failed.discard(index)
                    self._send(add, index)
        self.changing = False
        self.complete()

    def complete(self) -> None:
        """Complete what is complete, from the oldest on."""
        pending = self.pending
        while pending and not self.changing and self.has_quorum(pending[0]):
            if pending[0].entry != self.next_entry:
                return
            add = pending.popleft()
            self.next_entry += 1
            self._pending_ids.discard(add.entry)
            self.pending_bytes -= add.data_bytes
            self._forget_timer(add)
            self._owner.add_completed(add)

    def stuck(self) -> PendingAdd | None:
        """Return a pending add that can reach its quorum no more with this ensemble."""
        for add in self.pending:
            if len(add.acked) + len(add.waiting) < self._distribution.ack_quorum:
                return add
        return None

    def held_up_by(self, bookies: Collection[str]) -> dict[int, str]:
        """Return the places of these bookies without which a pending add does not reach its quorum."""
        found: dict[int, str] = {}
        for add in self.pending:
            theirs = {index: self.ensemble[index] for index in add.waiting if self.ensemble[index] in bookies}
            if len(add.acked) + len(add.waiting) - len(theirs) < self._distribution.ack_quorum:
                found.update(theirs)
        return found

    def drop_all(self) -> list[PendingAdd]:
        """Give up every pending add."""
        dropped = list(self.pending)
        self.pending.clear()
        self._pending_ids.clear()
        self.pending_bytes = 0
        for add in dropped:
            self._forget_timer(add)
            add.waiting.clear()
        return dropped

    def _send(self, add: PendingAdd, index: int) -> None:
        bookie = self.ensemble[index]
        heard = partial(self._answered, add, index, bookie)
        add.waiting[index] = self._exchange.send(bookie, add.request, heard)

    def _forget_timer(self, add: PendingAdd) -> None:
        if add.timer is not None:
            self._exchange.forget(add.timer)
            add.timer = None

    def _is_from_a_replaced_bookie(self, add: PendingAdd, index: int, token: Token) -> bool:
        return add.waiting.get(index) != token

    def _answered(self, add: PendingAdd, index: int, bookie: str, event: Event) -> None:
        if self._is_from_a_replaced_bookie(add, index, event.token):
            return
        add.waiting.pop(index, None)
        code = answer_code(event)
        if code is ResultCode.OK:
            add.acked.add(index)
            self.complete()
            return
        error = self._access.failure(event, add.entry, bookie)
        if code in REFUSALS:
            self._owner.add_refused(error)
        else:
            add.failed.add(index)
            self._failed(add, index, bookie, code, error)

    def _failed(
        self, add: PendingAdd, index: int, bookie: str, code: ResultCode | None, error: ClientError
    ) -> None:
        if self.ensemble[index] != bookie:
            return
        if len(add.acked) >= self._distribution.ack_quorum:
            if not self._delay:
                self.failed_late[index] = bookie
            return
        spare = self._distribution.write_quorum - self._distribution.ack_quorum
        if self._delay and code is not ResultCode.READ_ONLY and len(add.failed) <= spare:
            return
        self._owner.bookies_failed({i: self.ensemble[i] for i in add.failed}, error)
