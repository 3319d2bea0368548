"""The callback stage: reports outcomes to the sinks, once for each sink and wake-up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from bkctl.clock import Clock
from bkctl.engine.engine_thread import EngineThread, reported
from bkctl.engine.journal.batch import JournalBatch, JournalSink
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from bkctl.errors import BkctlError


@dataclass(slots=True)
class Outcome:
    """The fate of some batches.

    ``durable`` False: they are only written, so a failure in between still counts.

    ``final``: after ``error`` nothing is written any more.
    """

    batches: list[JournalBatch]
    ready_s: float
    error: BkctlError | None = None
    durable: bool = True
    counted: bool = True
    final: bool = True


class CallbackStage:
    """Reports the outcome of groups to their sinks, on a thread of its own, or on that which has synced them.

    Every outcome that was put is reported, unless the journal is aborted. There are ``callback_groups_max``
    groups at most: when so many wait, the journal thread writes no more, and only the groups already in the
    force-write stage can still come.
    """

    def __init__(
        self,
        clock: Clock,
        state: JournalQueue,
        meters: JournalMeters,
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        self._clock = clock
        self._state = state
        self._meters = meters
        self._on_failure = on_failure
        self._failure_told = False
        self._queue: SimpleQueue[Outcome | None] = SimpleQueue()
        # Outcomes that were put and not reported yet, counted and not.
        self._untold = 0
        self._lock = threading.Lock()
        self.thread: EngineThread | None = None

    def start(self, name: str) -> None:
        """Start the thread."""
        self.thread = EngineThread(name, self._run, self._on_failure)
        self.thread.start()

    def put(self, outcome: Outcome) -> None:
        """Hand an outcome over to the stage; this never blocks."""
        self.put_all([outcome])

    def put_all(self, outcomes: list[Outcome]) -> None:
        """Hand outcomes over in their order."""
        with self._lock:
            self._untold += len(outcomes)
        for outcome in outcomes:
            self._queue.put(outcome)

    def tell_now(self, outcome: Outcome) -> None:
        """Report a durable outcome on the caller's thread, or hand it over while others wait before it.

        During the call no other thread may put outcomes.
        """
        with self._lock:
            waits = self._untold > 0
        if waits or outcome.error is not None:
            self.put(outcome)
        elif not self._state.aborted:
            self._report([outcome])

    def close(self) -> None:
        """Let the thread end behind what was put so far."""
        self._queue.put(None)

    def _run(self) -> None:
        closed = False
        while not closed:
            outcomes: list[Outcome] = []
            closed = _take_all(self._queue, outcomes)
            if self._state.aborted:
                continue
            self._report(outcomes)
            with self._lock:
                self._untold -= len(outcomes)

    def _report(self, outcomes: list[Outcome]) -> None:
        started_s = self._clock.monotonic()
        self._tell(outcomes)
        counted = [outcome for outcome in outcomes if outcome.counted]
        if counted:
            meter = self._meters.callback
            meter.waited.add(started_s - counted[0].ready_s, len(counted))
            meter.worked.add((self._clock.monotonic() - started_s) / len(counted), len(counted))
            self._state.answered(len(counted))

    def _tell(self, outcomes: list[Outcome]) -> None:
        journaled: dict[int, list[JournalBatch]] = {}
        failed: dict[tuple[int, int], tuple[list[JournalBatch], BkctlError]] = {}
        fatal: BkctlError | None = None
        for outcome in outcomes:
            # Records that were written, and whose sync has failed since, are no success of DEFERRED_SYNC.
            why = outcome.error or (None if outcome.durable else self._state.error)
            if why is None:
                now_s = self._clock.monotonic()
                for batch in outcome.batches:
                    journaled.setdefault(id(batch.sink), []).append(batch)
                    time_s = now_s - batch.enqueued_s
                    if batch.entries:
                        self._meters.added.add(time_s, batch.entries)
                    else:
                        self._meters.forced.add(time_s)
                continue
            if outcome.final:
                fatal = fatal or why
            for batch in outcome.batches:
                failed.setdefault((id(batch.sink), id(why)), ([], why))[0].append(batch)
        for batches in journaled.values():
            self._call(batches[0].sink, batches, None)
        for batches, why in failed.values():
            self._call(batches[0].sink, batches, why)
        if fatal is not None and not self._failure_told:
            self._failure_told = True
            self._tell_failure(fatal)

    def _call(self, sink: JournalSink, batches: list[JournalBatch], error: BkctlError | None) -> None:
        if self._state.aborted:
            return
        # The other sinks must get their answers, whatever error this one raises.
        if error is None:
            reported("a sink of the journal", sink.journaled, batches)
        else:
            reported("a sink of the journal", sink.journal_failed, batches, error)

    def _tell_failure(self, error: BkctlError) -> None:
        if self._state.aborted:
            return
        # Batches that still come must be answered.
        reported("telling of the journal's failure", self._on_failure, error)


def _take_all(queue: SimpleQueue[Outcome | None], into: list[Outcome]) -> bool:
    """Wait for an outcome, then take all that the queue has; return True at the queue's end."""
    item = queue.get()
    while item is not None:
        into.append(item)
        if queue.empty():
            return False
        item = queue.get()
    return True
