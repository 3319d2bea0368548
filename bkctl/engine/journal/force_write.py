"""The force-write stage: one fdatasync for all groups that wait, then the mark moves and they get answers.

The journal thread takes a group through the stage by itself where every answer waits for the sync: all that
comes during that makes the next group. Where some are answered after the write, or without any sync, a thread
of the stage's own syncs, so that writing goes on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from queue import SimpleQueue

from bkctl.clock import Clock
from bkctl.codec.last_mark import ZERO_MARK, LastMark
from bkctl.engine.engine_thread import EngineThread, as_failure
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.journal.callback_stage import CallbackStage, Outcome
from bkctl.engine.journal.journal_file import JournalFile
from bkctl.engine.journal.journal_queue import JournalQueue
from bkctl.engine.journal.meters import JournalMeters
from bkctl.errors import BkctlError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Synced:
    """The sync that came with the write of a group: its time, and its error if it has failed."""

    seconds: float = 0.0
    error: BkctlError | None = None


@dataclass(slots=True)
class Group:
    """Written records up to ``position`` of ``file``, and the batches that wait for their sync.

    ``last``: nothing is written to the file behind it. ``synced`` is the sync of a group that was written and
    synced in one call.
    """

    file: JournalFile
    position: int
    batches: list[JournalBatch]
    written_s: float
    last: bool = False
    synced: Synced | None = None


class ForceWriteStage:
    """One thread. Bound: ``force_write_groups_max`` groups, kept by the journal thread.

    ``forgetful``: the page cache need not keep what is synced.
    """

    def __init__(
        self,
        clock: Clock,
        state: JournalQueue,
        callbacks: CallbackStage,
        meters: JournalMeters,
        *,
        forgetful: bool,
    ) -> None:
        self._clock = clock
        self._state = state
        self._callbacks = callbacks
        self._meters = meters
        self._forgetful = forgetful
        self._queue: SimpleQueue[Group | None] = SimpleQueue()
        self.mark = ZERO_MARK
        #: How long the last sync took, in seconds; of none it is not known.
        self.sync_s = math.inf
        self.thread: EngineThread | None = None

    def start(self, name: str) -> None:
        """Start the thread."""
        self.thread = EngineThread(name, self._run, self._broken)
        self.thread.start()

    def put(self, group: Group) -> None:
        """Hand a group over to the stage; this never blocks."""
        self._queue.put(group)

    def force_now(self, group: Group) -> None:
        """Sync and answer a group on the caller's thread, the journal's, while the stage has no other one.

        Behind an error the caller answers what is still in the group.
        """
        self._force([group], here=True)

    def close(self) -> None:
        """End the thread behind what was put so far, and the callback stage behind its own groups."""
        self._queue.put(None)

    def _run(self) -> None:
        closed = False
        while not closed:
            groups: list[Group] = []
            closed = self._take_all(groups)
            for _, of_file in groupby(groups, attrgetter("file.journal_id")):
                self._force(list(of_file))
        self._callbacks.close()

    def _broken(self, error: BkctlError) -> None:
        """End the journal with the thread's error: groups that still come are not synced and not answered."""
        self._state.fail(error)
        self._callbacks.put(Outcome([], self._clock.monotonic(), error, counted=False))
        self._callbacks.close()

    def _take_all(self, into: list[Group]) -> bool:
        """Wait for a group, then take all that the queue has; return True at the queue's end."""
        group = self._queue.get()
        while group is not None:
            into.append(group)
            if self._queue.empty():
                return False
            group = self._queue.get()
        return True

    def _force(self, groups: list[Group], *, here: bool = False) -> None:
        """Sync the groups of one file and pass them on; ``here`` a lone one is answered by this thread."""
        started_s = self._clock.monotonic()
        newest = groups[-1]
        error = self._state.error or self._failed_before(groups)
        if error is None and not self._state.aborted and newest.synced is None:
            # Every group written to this file so far is on disk then: their batches may be answered. With the
            # last one it is the whole file and its length, too: nothing will sync it again.
            file = newest.file
            error = self._done("syncing", file, file.sync if newest.last else file.sync_data)
        if newest.last:
            failure = self._done("closing", newest.file, newest.file.close)
            error = error or failure
        if self._state.aborted:
            return
        ended_s = self._clock.monotonic()
        if error is None:
            self.mark = LastMark(newest.file.journal_id, newest.position)
            self._meters.syncs += 1
            self._meters.force_write.waited.add(started_s - groups[0].written_s, len(groups))
            sync_s = ended_s - started_s if newest.synced is None else newest.synced.seconds
            self.sync_s = sync_s
            self._meters.force_write.worked.add(sync_s)
            entries = sum([batch.entries for group in groups for batch in group.batches])
            self._meters.sync_entries.add_size(entries)
        outcomes = [Outcome(group.batches, ended_s, error) for group in groups]
        failed = error is not None
        if here:
            self._state.forced(1, failed=failed)
            groups[0].batches = []
            self._callbacks.tell_now(outcomes[0])
        else:
            # The journal thread would answer a newer group of its own in between.
            self._state.forced(
                len(groups), failed=failed, hand_over=partial(self._callbacks.put_all, outcomes)
            )
        if self._forgetful and error is None and not newest.last:
            newest.file.forget_cached(newest.position)

    def _failed_before(self, groups: list[Group]) -> BkctlError | None:
        """Return the error of a sync that came with a write of these groups; it ends the journal."""
        for group in groups:
            if group.synced is not None and group.synced.error is not None:
                self._state.fail(group.synced.error)
                return group.synced.error
        return None

    def _done(self, doing: str, file: JournalFile, call: Callable[[], None]) -> BkctlError | None:
        """Make a call; return its error, which has ended the journal: batches must be answered after any."""
        try:
            call()
        except BkctlError as error:
            # Never tried again: the next sync could succeed without the bytes that this one has lost.
            self._state.fail(error)
            return error
        except Exception as error:  # noqa: BLE001
            _log.exception("%s %s failed", doing, file.path)
            failure = as_failure(f"{file.path}: {doing}", error)
            self._state.fail(failure)
            return failure
        return None
