"""Answers to runs of adds: from the journal's word to frames, and how many adds are in progress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

from bkctl.clock import Clock
from bkctl.engine.add_run import AddRun as EngineAddRun
from bkctl.engine.add_run import RecordRun
from bkctl.engine.engine_thread import report, reported
from bkctl.engine.journal.batch import JournalBatch
from bkctl.errors import BkctlError
from bkctl.metrics.latency import LatencyHistogram
from bkctl.metrics.sizes import UNIT_S, SizeHistogram
from bkctl.metrics.stage import StageMeter
from bkctl.protocol.runs import AddRun, answer_run
from bkctl.server.wire.answer_codes import code_of
from bkctl.server.wire.answers import TRIES, TRY_AGAIN_S, Answer, AnswerQueue
from bkctl.server.wire.channel import Channel
from bkctl.server.wire.connection_memory import ConnectionMemory
from bkctl.types import ResultCode

#: At hand, as members of an enumeration are not: Python asks for memory to get them.
_OK = ResultCode.OK
_IO_ERROR = ResultCode.IO_ERROR
#: So often it is tried again to count adds down, on the loop's thread, which does not wait.
_END_TRIES = 3


class PendingAdds:
    """A run of one connection that the engine has: ``count`` adds, of entries of ``size_bytes`` together."""

    __slots__ = ("connection", "count", "run", "since_s", "size_bytes")

    def __init__(self, connection: Channel, run: AddRun, since_s: float) -> None:
        self.connection = connection
        self.run = run
        self.since_s = since_s
        self.count = run.count
        self.size_bytes = run.size_bytes


class AddsInProgress:
    """Counts adds from their arrival to their answer; above ``adds_max`` or ``bytes_max`` no more are read.

    A connection stops reading when its own run goes over a bound, and all of them go on when three quarters
    of both are left. On the loop's thread only.

    ``latency`` is the time from an add's arrival to its answer, ``taken``, the write stage's, the part of it
    in which the engine took it, ``sizes`` the bytes of the entries that were acknowledged (of a run their
    average).
    """

    def __init__(
        self, adds_max: int, bytes_max: int, memory: ConnectionMemory, taken: LatencyHistogram
    ) -> None:
        self._bytes = 0
        self._bytes_max = bytes_max
        self._memory = memory
        self.meter = StageMeter("adds_in_progress", bound=adds_max)
        self.refused: Counter[ResultCode] = Counter()
        self.latency = self.meter.worked
        self.taken = taken
        self.sizes = SizeHistogram()
        self._paused: set[Channel] = set()

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return self._bytes

    def begin(self, connection: Channel, count: int, size_bytes: int) -> None:
        """Note a run that came in, of entries of so many bytes together.

        After an error nothing is noted: the run is not to be ended.
        """
        length, run_bytes = self.meter.length + count, self._bytes + size_bytes
        full = length >= self.meter.bound or run_bytes >= self._bytes_max
        if full and connection not in self._paused:
            self._paused.add(connection)
            connection.pause_adds(True)
        self._memory.take(size_bytes)
        self.meter.length, self._bytes = length, run_bytes

    def end(self, count: int, size_bytes: int) -> None:
        """Note adds that were answered.

        Where Python has no memory for that it is tried again: what stays counted keeps others from being
        read.
        """
        tries, noted = 0, False
        while True:
            try:
                if not noted:
                    self._note_end(count, size_bytes)
                    noted = True
                self._read_on()
                return
            except MemoryError:
                if tries == _END_TRIES:
                    raise
                tries += 1

    def _note_end(self, count: int, size_bytes: int) -> None:
        """Count adds down, or raise and leave everything as it was."""
        meter = self.meter
        length, done, left_bytes = meter.length - count, meter.done + count, self._bytes - size_bytes
        self._memory.give(size_bytes)
        meter.length, meter.done, self._bytes = length, done, left_bytes

    def _read_on(self) -> None:
        """Read from connections again as long as there is room."""
        while self._paused and self._has_room():
            connection = self._paused.pop()
            try:
                connection.pause_adds(False)
            except Exception as error:  # noqa: BLE001 - the others must be read
                report("reading adds again", error)
                # It may not be read, and nothing else makes it go on.
                reported("ending a connection that cannot be read", connection.abort)

    def _has_room(self) -> bool:
        few = self.meter.length <= self.meter.bound * 3 // 4
        return few and self._bytes <= self._bytes_max * 3 // 4

    def took(self, count: int, time_s: float) -> None:
        """Note adds that the engine took, all together in so much time."""
        self.taken.add(time_s / count, count)

    def forget(self, connection: Channel) -> None:
        """Forget a connection that is gone."""
        self._paused.discard(connection)


class AddAnswers:
    """Hears from the engine about runs, from its threads; a run's context are the ``PendingAdds`` in it."""

    def __init__(self, answers: AnswerQueue, in_progress: AddsInProgress, clock: Clock) -> None:
        self._answers = answers
        self._in_progress = in_progress
        self._clock = clock

    def journaled(self, batches: list[JournalBatch]) -> None:
        """Answer runs that are durable."""
        self._post_all(batches, _OK, at_once=True)

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        """Answer runs that are not known to be durable."""
        try:
            code = code_of(error)
        except MemoryError:
            code = _IO_ERROR
        self._post_all(batches, code)

    def add_again(self, run: EngineAddRun | RecordRun) -> None:
        """Take a held run apart and add its entries one by one."""
        # Nothing to write, but on the loop's thread and in its turn.
        self._answers.post(
            [
                (each.connection, bytes, partial(each.connection.add_one_by_one, each.run))
                for each in cast("Sequence[PendingAdds]", run.context)
            ]
        )

    def refuse(self, pending: Sequence[PendingAdds], code: ResultCode) -> None:
        """Answer runs with an error."""
        self._post(pending, code)

    def _post_all(self, batches: Sequence[JournalBatch], code: ResultCode, *, at_once: bool = False) -> None:
        """Have the runs of batches answered: together, or by batch when they cannot be put together."""
        try:
            pending = _pending(batches)
        except Exception as error:  # noqa: BLE001 - adds without an answer would be in progress for good
            report("putting adds together", error)
            for batch in batches:
                self._post(_runs_of(batch), code)
        else:
            self._post(pending, code, at_once=at_once)

    def _post(self, pending: Sequence[PendingAdds], code: ResultCode, *, at_once: bool = False) -> None:
        """Have runs answered, and counted as ended behind the last one's answer."""
        if not pending:
            return
        tries = 0
        while True:
            try:
                answers = self._answers_or_ends(pending, code)
                break
            except MemoryError:
                if tries == TRIES:
                    raise
                tries += 1
                time.sleep(TRY_AGAIN_S)
        self._answers.post(answers, at_once=at_once)

    def _answers_or_ends(self, pending: Sequence[PendingAdds], code: ResultCode) -> list[Answer]:
        """Return the answers, or what ends their connections. Raises MemoryError."""
        try:
            return self._answers_to(pending, code)
        except Exception as error:  # noqa: BLE001 - adds without an answer would be in progress for good
            report("answering adds", error)
            return [(pending[-1].connection, bytes, partial(self._lost, pending))]

    def _answers_to(self, pending: Sequence[PendingAdds], code: ResultCode) -> list[Answer]:
        # Here, where an error still ends in `_lost`.
        count = size_bytes = 0
        answers: list[Answer] = []
        for one in pending:
            count += one.count
            size_bytes += one.size_bytes
            stored = one.run.stored if code is _OK else None
            answers.append((one.connection, stored or partial(answer_run, one.run, code), None))
        connection, frames, _ = answers[-1]
        answers[-1] = connection, frames, partial(self._ended, pending, code, count, size_bytes)
        return answers

    def _lost(self, pending: Sequence[PendingAdds]) -> None:
        """End the connections whose clients would wait in vain for an answer, and count their adds down."""
        for one in pending:
            reported("ending a connection without its answers", one.connection.abort)
            reported("counting adds down", self._ended, (one,), _IO_ERROR, one.count, one.size_bytes)

    def _ended(self, pending: Sequence[PendingAdds], code: ResultCode, count: int, size_bytes: int) -> None:
        try:
            if code is _OK:
                now_s = self._clock.monotonic()
                latency, sizes = self._in_progress.latency, self._in_progress.sizes
                for one in pending:
                    latency.add(now_s - one.since_s, one.count)
                    sizes.add(UNIT_S * one.size_bytes / one.count, one.count)
            else:
                self._in_progress.refused[code] += count
        finally:
            # Also after an error in a meter: adds that are not counted down keep connections from being read.
            self._in_progress.end(count, size_bytes)


def _pending(batches: Iterable[JournalBatch]) -> list[PendingAdds]:
    """Return the runs that batches of the journal are of."""
    return [each for batch in batches for each in _runs_of(batch)]


def _runs_of(batch: JournalBatch) -> Sequence[PendingAdds]:
    return cast("Sequence[PendingAdds]", batch.context)
