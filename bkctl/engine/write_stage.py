"""The write stage: check, write cache and journal in one critical section; adds that must wait for room.

Theory of operation. An add is accepted in one pass under the engine lock: ledger and key are checked, the
entry goes to the active write cache, then to the queue of the ledger's journal. A thread that takes the
cache away to flush it, or fences the ledger, needs the same lock. So an entry that a last mark covers is in a
cache at least as old as the mark, and a fence record stands behind every add that was accepted before it.

When a cache or a journal queue has no room the add is *held*: a thread tries again when room is announced,
in the order of arrival, and new adds queue behind. An add held for ``throttle_ms_max``, and one that finds
``held_entries_max`` entries or ``held_bytes_max`` bytes waiting, is rejected with too-many-requests.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial

from bkctl.clock import Clock
from bkctl.codec.entry import ACCEPTED_BYTES_MIN
from bkctl.engine.add_notes import AddNotes
from bkctl.engine.add_run import AddRun, RecordRun, SingleAdd, framed
from bkctl.engine.engine_thread import Actions, EngineThread, call_all, report
from bkctl.engine.held_adds import HeldAdd, HeldAdds, HeldAddsSettings, Outcome
from bkctl.engine.ledger_descriptor import LedgerDescriptor
from bkctl.engine.ledger_table import LedgerTable
from bkctl.engine.run_appender import NOTING, RunAppender, answer_of
from bkctl.errors import (
    BadRequestError,
    BkctlError,
    BookieError,
    BookieIOError,
    LedgerFencedError,
    LedgerLimboError,
    ReadOnlyBookieError,
    TooManyRequestsError,
)
from bkctl.metrics.busiest_ledgers import LedgerAdds
from bkctl.metrics.stage import StageMeter
from bkctl.reporting import counted

#: An entry as the bookie reads it: ledger, entry, last add confirmed.
_FRONT = struct.Struct(">qqq")

_ANSWER = "an answer of the write stage"
_RETURNING = "giving back the turn of a journal"


class WriteStage:
    """Takes adds; see the module's docstring. Thread-safe; nothing but :meth:`stop` ever waits."""

    def __init__(
        self,
        lock: threading.Lock,
        table: LedgerTable,
        clock: Clock,
        settings: HeldAddsSettings,
        on_failure: Callable[[BkctlError], None],
        *,
        write_data: bool,
        throttle_ms_max: int,
    ) -> None:
        self.meter = StageMeter("write", bound=settings.held_entries_max)
        self._lock = lock
        self._table = table
        self._clock = clock
        #: False answers adds from the write cache alone.
        self._write_data = write_data
        self._throttle_ms_max = throttle_ms_max
        self._notes = AddNotes(table, clock, self.meter)
        self._runs = RunAppender(table, self._notes, write_data=write_data)
        # Behind an error: nothing where this thread was lent no turn.
        self._return_turns: Actions = [journal.return_turn for journal in table.journals]
        self._held = HeldAdds(settings, self.meter)
        self._read_only = False
        self._high_priority_too = False
        self._stopping = False
        self._wake = threading.Event()
        self._on_failure = on_failure
        self._thread = EngineThread("bookie-write-stage", self._run, self._broken)

    def start(self) -> None:
        """Start the thread that tries held adds again."""
        for storage in self._table.storages:
            storage.on_room = self._wake.set
        for journal in self._table.journals:
            journal.on_room = self._wake.set
        self._thread.start()

    def stop(self) -> None:
        """Fail what is held and end the thread; later adds are refused."""
        with self._lock:
            self._stopping = True
        self._wake.set()
        self._thread.join()

    def poke(self) -> None:
        """Look at what is held now, rather than when room is announced or time is up."""
        self._wake.set()

    def set_read_only(self, read_only: bool, *, high_priority_too: bool = False) -> None:
        """Refuse adds from now on, or take them again; high priority ones only with ``high_priority_too``."""
        with self._lock:
            self._read_only = read_only
            self._high_priority_too = high_priority_too

    @property
    def parts(self) -> int:
        """The number modulo which ledgers of the same directory and the same journal have the same id."""
        return self._table.parts

    @property
    def read_only(self) -> bool:
        """Whether plain adds are refused."""
        return self._read_only

    @property
    def takes_high_priority(self) -> bool:
        """Whether adds of high priority are taken."""
        return not (self._read_only and self._high_priority_too)

    def add_run(self, run: AddRun | RecordRun) -> bool:
        """Take a run of plain adds; False when each of them must be handed in by itself (:meth:`add`).

        That is so while one of its ledgers is not known to be open under its key. True: the answer comes
        through ``run.sink``, from another thread or before this returns. Raises StorageError when the
        journal has failed.
        """
        actions: Actions = []
        try:
            with self._lock:
                if self._read_only or self._stopping:
                    return False
                outcome = Outcome.NO_ROOM if self._held else self._runs.append(run, actions)
                if outcome is Outcome.NOT_AS_IS:
                    return False
                if outcome is Outcome.NO_ROOM:
                    held = self._held_run(run)
                    if not self._hold(held):
                        actions.append(partial(held.fail, self._too_many()))
            call_all(_ANSWER, actions)
        except BaseException:
            # A turn that was lent for an action would be nobody's.
            call_all(_RETURNING, self._return_turns)
            raise
        return True

    def end_of_known(self, grants: Sequence[bytes], start: int) -> int:
        """Find the first grant behind ``start`` that would keep :meth:`add_run` from taking a run.

        Returns where it stands.

        From any thread, without a lock: another thread may change it at any time.
        """
        known = self._table.grants
        end = start
        while end < len(grants) and grants[end] in known:
            end += 1
        return end

    def add(self, add: SingleAdd) -> None:
        """Take one add; its answer comes through its sink, from another thread or before this returns.

        Raises what refuses it: BadRequestError, ReadOnlyBookieError, UnauthorizedError, LedgerFencedError,
        LedgerLimboError, TooManyRequestsError, BookieIOError; StorageError when the journal has failed.
        """
        actions: Actions = []
        with self._lock:
            self._check(add)
            if self._held:
                # An add that would be refused is refused now, and does not wait behind those that are held.
                self._opened(add)
                outcome = Outcome.NO_ROOM
            else:
                outcome = self._append_single(add, actions)
            if outcome is Outcome.NO_ROOM and not self._hold(self._held_single(add)):
                raise self._too_many()
        call_all(_ANSWER, actions)

    def busiest_ledgers(self, count: int) -> list[LedgerAdds]:
        """Return what the ledgers have got that get the most entries at present, the busiest first."""
        with self._lock:
            return self._notes.busiest.busiest(count)

    def _check(self, add: SingleAdd) -> None:
        if self._stopping:
            raise BookieIOError("the bookie is shutting down")
        if len(add.body) < ACCEPTED_BYTES_MIN:
            raise BadRequestError(
                f"an entry of {counted(len(add.body), 'byte')}: at least {ACCEPTED_BYTES_MIN} are needed"
            )
        ledger, entry, _ = _FRONT.unpack_from(add.body)
        if ledger < 0 or entry < 0:
            raise BadRequestError(f"ledger {ledger}, entry {entry}: ids are not negative", ledger=ledger)
        self.check_writable(ledger, high_priority=add.high_priority)

    def check_writable(self, ledger: int, *, high_priority: bool = False) -> None:
        """Raise ReadOnlyBookieError when writes are refused. Called under the engine lock."""
        if self._read_only and (self._high_priority_too or not high_priority):
            raise ReadOnlyBookieError("the bookie is read-only", ledger=ledger)

    def _opened(self, add: SingleAdd) -> LedgerDescriptor:
        ledger, entry, _ = _FRONT.unpack_from(add.body)
        self._table.refuse_buried(ledger, self._clock.monotonic())
        descriptor = self._table.open(ledger, add.master_key)
        if add.recovery:
            return descriptor
        if descriptor.fenced:
            raise LedgerFencedError(f"ledger {ledger} is fenced", ledger=ledger, entry=entry)
        if self._table.is_limbo(ledger):
            # The records that were lost may have contained the ledger's fence.
            raise LedgerLimboError(
                f"ledger {ledger} is in limbo: whether it is fenced is unknown", ledger=ledger, entry=entry
            )
        return descriptor

    def _append_single(self, add: SingleAdd, actions: Actions) -> Outcome:
        descriptor = self._opened(add)
        size_bytes = len(add.body)
        room = descriptor.storage.has_room(size_bytes, 1)
        if not (room and descriptor.journal.has_room(size_bytes + 4, 1)):
            return Outcome.NO_ROOM
        descriptor.storage.put_many([add.body[:16]], [add.body], size_bytes, [add.body[:8]])
        if self._write_data:
            self._table.append(
                descriptor,
                framed([add.body]),
                entries=1,
                sink=add.sink,
                context=add.context,
                # A recovery add is answered when it is durable, whatever it asks for.
                after_write=add.deferred_sync and not add.recovery,
            )
        else:
            self._table.append_key(descriptor)
            actions.append(partial(add.sink.journaled, [answer_of(add.sink, add.context, 1)]))
        try:
            self._notes.single(descriptor, add.body, actions)
        except Exception as error:  # noqa: BLE001 - as in `RunAppender.append`
            report(NOTING, error)
        return Outcome.ADDED

    def _held_run(self, run: AddRun | RecordRun) -> HeldAdd:
        answer = answer_of(run.sink, run.context, run.count)
        return HeldAdd(
            attempt=partial(self._runs.append, run),
            again=partial(run.sink.add_again, run),
            fail=partial(run.sink.journal_failed, [answer]),
            entries=run.count,
            size_bytes=run.size_bytes,
            since_s=self._clock.monotonic(),
        )

    def _held_single(self, add: SingleAdd) -> HeldAdd:
        refusal: list[BookieError] = []
        fail = partial(add.sink.journal_failed, [answer_of(add.sink, add.context, 1)])

        def attempt(actions: Actions) -> Outcome:
            try:
                return self._append_single(add, actions)
            except BookieError as error:
                refusal.append(error)
                return Outcome.NOT_AS_IS

        return HeldAdd(
            attempt=attempt,
            again=lambda: fail(refusal[0]),
            fail=fail,
            entries=1,
            size_bytes=len(add.body),
            since_s=self._clock.monotonic(),
        )

    def _hold(self, held: HeldAdd) -> bool:
        """Queue an add that found no room; False when the queue is full, too."""
        if not self._held:
            # In front: behind the hold an error would be an answer beside that of the thread, which waits for
            # the lock. Those that are held behind this one are tried with it.
            self._wake.set()
        return self._held.hold(held)

    @staticmethod
    def _too_many() -> TooManyRequestsError:
        return TooManyRequestsError("both write caches, or a journal's queue, stayed full")

    def _run(self) -> None:
        """Try what is held whenever there may be room, and reject it in time; the thread's work."""
        stopping = False
        while not stopping:
            self._wake.wait(self._wait_s())
            self._wake.clear()
            actions: Actions = []
            try:
                with self._lock:
                    stopping = self._stopping
                    now_s = self._clock.monotonic()
                    self._held.retry(actions, now_s)
                    if stopping:
                        error: BkctlError = BookieIOError("the bookie is shutting down")
                        self._held.reject(actions, error, now_s, wait_ms=0)
                    else:
                        self._held.reject(actions, self._too_many(), now_s, wait_ms=self._throttle_ms_max)
            finally:
                # Also behind an error, which ends the thread: nobody else has these answers.
                call_all(_ANSWER, actions)

    def _broken(self, error: BkctlError) -> None:
        """End the stage for an error that ended the thread.

        The held adds are answered, and no add is taken any more.
        """
        actions: Actions = []
        try:
            with self._lock:
                self._stopping = True
                self._held.fail_all(actions, error)
        finally:
            # Each part also where the one in front of it fails: else nobody does it.
            try:
                call_all(_ANSWER, actions)
            finally:
                try:
                    # A turn may have been lent to this thread for an answer that it could not give.
                    call_all(_RETURNING, self._return_turns)
                finally:
                    self._on_failure(error)

    def _wait_s(self) -> float | None:
        """Return the seconds until the oldest held add is to be rejected, None without any."""
        with self._lock:
            since_s = self._held.oldest_since_s
        if since_s is None:
            return None
        return max(0.001, self._throttle_ms_max / 1000 - (self._clock.monotonic() - since_s))
