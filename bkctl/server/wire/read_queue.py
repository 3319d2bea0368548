"""Runs of reads that wait for a ledger directory, read several at a time where that is fast.

Entries that lie in memory, in a cache of the bookie or of the system, cost little but the interpreter's work.
Then one thread reads all runs that wait in one step, and their answers leave together: several threads would
mostly wait for each other. Entries that come from the disk are waited for. Then many threads read, one run
each:

* A batch during which the system read from the disk opens all threads. Each batch from memory closes one.
* While runs wait and no batch ends for ``STALL_S``, all threads are opened: most likely the disk is slow.

How many entries are in a batch depends on how long one takes (:mod:`~bkctl.server.wire.read_pace`).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from bkctl.codec.location import KEY_BYTES
from bkctl.engine.engine_thread import report, reported
from bkctl.engine.read_stage import ReadStage
from bkctl.errors import TooManyRequestsError
from bkctl.protocol.framing import LENGTH_BYTES
from bkctl.server.wire.answers import Answer, AnswerQueue
from bkctl.server.wire.read_pace import ReadPace
from bkctl.server.wire.stage_pool import StagePool

#: The entries of a batch should have so many bytes together at most, as far as their size is foreseen.
BATCH_BYTES_MAX = 1 << 20
#: Seconds after which the end of a batch is overdue, if runs wait.
STALL_S = 0.005
#: After so many batches a thread lets other requests of the stage have their turn.
BATCHES_IN_TURN = 16

#: Seconds between two attempts of a thread to take runs, when there is no memory for that.
_AGAIN_S = 0.01

_THREAD = getattr(resource, "RUSAGE_THREAD", None)


class QueuedRun(Protocol):
    """A run of reads. Its next chunk is read by the queue, or by the run itself; on the read stage."""

    @property
    def requests(self) -> int:
        """The number of entries in the next chunk."""

    def next_keys(self) -> bytes:
        """Return the joined keys of the next chunk; nothing where the run has to read it by itself."""

    def answer(self, records: bytes, count: int, worked_s: float) -> Answer | None:
        """Return the answer with the first ``count`` entries of the chunk, or None: the run is to read them.

        ``worked_s`` are the seconds that reading them took.
        """

    def read(self) -> None:
        """Read the next chunk and have it answered."""


class _Waiting(NamedTuple):
    run: QueuedRun
    requests: int
    since_s: float


class ReadQueue:
    """The runs that wait for one directory. Its bound is that of ``stage``, which reads with its threads.

    One of several ``threads`` stays free for other requests of the stage.
    """

    def __init__(
        self,
        reads: ReadStage,
        stage: StagePool,
        pace: ReadPace,
        answers: AnswerQueue,
        loop: asyncio.AbstractEventLoop,
        now_s: Callable[[], float],
        *,
        threads: int,
    ) -> None:
        self._reads = reads
        self._stage = stage
        self._pace = pace
        self._answers = answers
        self._loop = loop
        self._now_s = now_s
        self._threads_max = max(1, threads - 1)
        self._lock = threading.Lock()
        # The lock guards these. While a run waits, a thread works.
        self._waiting: deque[_Waiting] = deque()
        self._working = 0
        self._open = 1
        self._ended = 0
        #: Whether a timer runs that looks for a stall; on the loop's thread.
        self._watched = False

    def add(self, run: QueuedRun) -> None:
        """Have a run's next chunk read. On the loop's thread. Raises TooManyRequestsError."""
        waiting = _Waiting(run, run.requests, self._now_s())
        self._stage.admit(waiting.requests)
        try:
            begins = self._put(waiting)
        except Exception:
            self._stage.end(waiting.requests)
            raise
        if not begins:
            # From here on the threads have the run, so nothing may be raised.
            reported("watching for a stall", self._watch)
            return
        try:
            self._stage.begin(self._work)
        except Exception:
            with self._lock:
                self._working -= 1
                if self._working:
                    return
                # Nobody else works, so this is the only one that waits.
                self._waiting.pop()
            self._stage.end(waiting.requests)
            raise

    def _put(self, waiting: _Waiting) -> bool:
        """Have a run wait; return whether a thread is to begin, which counts as one that works."""
        with self._lock:
            self._waiting.append(waiting)
            begins = self._working < self._open
            self._working += begins
        return begins

    def stop(self) -> None:
        """Drop what waits: nothing of it is read any more. In front of the stop of the stage."""
        with self._lock:
            dropped = sum([each.requests for each in self._waiting])
            self._waiting.clear()
        self._stage.end(dropped)

    # --- the threads ----------------------------------------------------------------------------------------

    def _open_all(self) -> None:
        """Have all threads read that may. From any thread."""
        with self._lock:
            self._open = self._threads_max
            more = max(0, min(self._open - self._working, len(self._waiting)))
            self._working += more
        while more:
            try:
                self._stage.begin(self._work)
            except Exception as error:  # noqa: BLE001 - those that work do the rest
                report("beginning to read with another thread", error)
                with self._lock:
                    self._working -= more
                return
            more -= 1

    def _watch(self) -> None:
        if not self._watched:
            self._loop.call_later(STALL_S, self._look, self._ended)
            self._watched = True

    def _look(self, ended: int) -> None:
        self._watched = False
        if self._waiting:
            if ended == self._ended:
                self._open_all()
            self._watch()

    def _work(self) -> None:
        """Read batches until none waits; on a thread of the stage. Never raises."""
        while True:
            try:
                if not self._work_in_turn():
                    return
                self._stage.begin(self._work)
            except TooManyRequestsError:
                continue
            except Exception as error:  # noqa: BLE001 - the runs that wait have nobody else
                report("taking reads that wait", error)
                time.sleep(_AGAIN_S)
            else:
                return

    def _work_in_turn(self) -> bool:
        """Read some batches; return whether this thread is to go on, behind others that use the stage."""
        for _ in range(BATCHES_IN_TURN):
            batch = self._take()
            if not batch:
                return False
            self._read(batch)
        return True

    def _take(self) -> list[_Waiting]:
        """Take the runs that are read together; none where this thread is to end."""
        entries_max = self._pace.together_max(BATCH_BYTES_MAX)
        batch: list[_Waiting] = []
        with self._lock:
            waiting = self._waiting
            if not waiting or self._working > self._open:
                self._working -= 1
                return batch
            # In this order, so that a run which cannot be added stays where it is.
            batch.append(waiting[0])
            entries_max -= waiting.popleft().requests
            with contextlib.suppress(MemoryError):
                while waiting and self._open == 1 and waiting[0].requests <= entries_max:
                    batch.append(waiting[0])
                    entries_max -= waiting.popleft().requests
        return batch

    def _read(self, batch: Sequence[_Waiting]) -> None:
        """Have a batch read and counted. Never raises."""
        blocks, started_s = _blocks_read(), batch[0].since_s
        try:
            started_s = self._now_s()
            rest = self._read_together(batch) if len(batch) > 1 else batch
        except Exception as error:  # noqa: BLE001 - each run is read by itself, and answers its own failures
            report("reading several runs together", error)
            rest = batch
        for each in rest:
            reported("reading entries", each.run.read)
        for each in batch:
            reported("counting reads", self._count, each, started_s)
        with self._lock:
            self._ended += 1
            self._open = max(1, self._open - 1)
        if _blocks_read() != blocks:
            reported("opening threads for reads", self._open_all)

    def _count(self, waiting: _Waiting, started_s: float) -> None:
        self._stage.end(waiting.requests, started_s - waiting.since_s)

    def _read_together(self, batch: Sequence[_Waiting]) -> list[_Waiting]:
        """Read the chunks of several runs in one step; return the runs that it did not answer.

        An error that it raises has answered none of them.
        """
        started_s = self._now_s()
        keys = [each.run.next_keys() for each in batch]
        found = self._reads.read_records(b"".join(keys), BATCH_BYTES_MAX)
        records, left = found or (b"", 0)
        worked_s = (self._now_s() - started_s) / max(left, 1)
        answers: list[Answer] = []
        rest: list[_Waiting] = []
        start = 0
        for each, own in zip(batch, keys, strict=True):
            count = min(len(own) // KEY_BYTES, left)
            end = _end_of(records, start, count)
            answer = each.run.answer(records[start:end], count, worked_s * count) if count else None
            if answer is None:
                rest.append(each)
            else:
                answers.append(answer)
            left -= count
            start = end
        if answers:
            self._answers.post(answers)
        return rest


def _end_of(records: bytes, start: int, count: int) -> int:
    """Return where the ``count`` records end that begin at ``start``."""
    for _ in range(count):
        start += LENGTH_BYTES + int.from_bytes(records[start : start + LENGTH_BYTES], "big")
    return start


def _blocks_read() -> int:
    """Return how many blocks the system has read from disks for this thread; 0 where it does not say."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_inblock
