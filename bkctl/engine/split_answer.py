"""One answer for a run whose entries went to several journals."""

from __future__ import annotations

import threading

from bkctl.engine.journal.batch import JournalBatch, JournalSink
from bkctl.errors import BkctlError


class SplitAnswer:
    """Reports to ``sink`` once, when all ``parts`` are durable or when the first of them has failed.

    The parts come from different journals' threads.
    """

    def __init__(self, parts: int, sink: JournalSink, answer: JournalBatch) -> None:
        self._lock = threading.Lock()
        self._left = parts
        self._sink = sink
        self._answer = answer

    def journaled(self, batches: list[JournalBatch]) -> None:
        with self._lock:
            self._left -= len(batches)
            done = self._left == 0
        if done:
            self._sink.journaled([self._answer])

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        with self._lock:
            first = self._left > 0
            self._left = -1
        if first:
            self._sink.journal_failed([self._answer], error)
