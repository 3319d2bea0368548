"""Zeros written ahead of a journal's records: records then overwrite blocks that are allocated and written.

An fdatasync over such blocks has no extent to convert and no file-system journal to commit. It takes less
than half the time of one that grows the file. A thread of its own writes and syncs the zeros.

Zeros never fall on records, because both sides claim ranges: the journal thread claims a range before it
writes there, and the zero writer takes only ranges behind everything that is claimed. When a claim meets a
range in which zeros are being written, it waits for them.

Every zero is one more byte for the disk. While groups are large, no zeros are written: they would cost more
than they save.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bkctl.engine.engine_thread import EngineThread
from bkctl.engine.journal.meters import JournalMeters
from bkctl.errors import BkctlError, NoSpaceError, NotFoundError, StorageError
from bkctl.vfs.base import WritableFile, WritableFileSystem

_log = logging.getLogger(__name__)

#: Zeros start at a page of their own, so that they never share one with records being written.
PAGE_BYTES = 4096
#: Zeros of one write and sync: what a claim, or the sync of records, may have to wait for.
CHUNK_BYTES_MAX = 1024 * 1024
#: Average size of groups above which zeros do not pay.
GROUP_BYTES_MAX = 16 * 1024
#: Steps that must be free on the disk for more zeros.
FREE_STEPS_MIN = 4
_GROUPS_AVERAGED = 16


class ZeroRange:
    """Which bytes of one file may be zeroed. No lock: the owner has one.

    At least ``step_bytes`` are kept zeroed ahead of what is claimed, nothing beyond ``end_bytes_max`` is.
    It rests while the groups that are claimed have more than ``group_bytes_max`` on average.
    """

    __slots__ = (
        "_chunk_bytes",
        "_end_bytes_max",
        "_group_bytes",
        "_group_bytes_max",
        "_step_bytes",
        "busy",
        "claimed",
        "zeroed",
    )

    def __init__(
        self, position: int, step_bytes: int, end_bytes_max: int, group_bytes_max: int = GROUP_BYTES_MAX
    ) -> None:
        self.claimed = position
        self.zeroed = position
        self.busy: tuple[int, int] | None = None
        self._step_bytes = step_bytes
        self._end_bytes_max = end_bytes_max
        self._chunk_bytes = min(step_bytes, CHUNK_BYTES_MAX)
        self._group_bytes_max = group_bytes_max
        self._group_bytes = 0.0

    def claim(self, end: int) -> None:
        """Allow records anywhere below ``end``, as soon as :meth:`is_clear` says so."""
        self._group_bytes += (end - self.claimed - self._group_bytes) / _GROUPS_AVERAGED
        self.claimed = max(self.claimed, end)

    def is_clear(self, end: int) -> bool:
        """Return whether no zeros are in the making below ``end``."""
        return self.busy is None or self.busy[0] >= end

    def next(self) -> tuple[int, int] | None:
        """Return the next range (start, end) to zero, None when there are enough, or one is in the making."""
        start = max(self.zeroed, self.claimed)
        start += -start % PAGE_BYTES
        end = min(start + self._chunk_bytes, self._end_bytes_max)
        if self.busy is not None or self._group_bytes > self._group_bytes_max:
            return None
        if start >= self.claimed + self._step_bytes or end <= start:
            return None
        return start, end

    def take(self) -> tuple[int, int] | None:
        """Take the range that :meth:`next` returns; :meth:`done` ends it."""
        found = self.next()
        if found is not None:
            self.busy = found
        return found

    def done(self) -> None:
        """Note that the range that was taken is zeroed."""
        if self.busy is not None:
            self.zeroed = self.busy[1]
            self.busy = None


class ZerosAhead:
    """Keeps zeros ahead in the file that is being written; does nothing when ``step_bytes`` is 0.

    Bounds: one range of 1 MiB at a time, one step ahead of the claims. Zeros are not what a disk's last room
    is for: with less than ``FREE_STEPS_MIN`` steps free, or none at all, this file gets no more of them. A
    write that fails otherwise ends the zeros for good and disturbs nobody: the write of records decides what
    that means. A sync that fails may have lost records too, so ``on_sync_error`` is called.
    """

    def __init__(
        self,
        filesystem: WritableFileSystem,
        step_bytes: int,
        end_bytes_max: int,
        meters: JournalMeters,
        on_sync_error: Callable[[BkctlError], None],
    ) -> None:
        self._filesystem = filesystem
        self._step_bytes = step_bytes
        self._end_bytes_max = end_bytes_max
        self._meters = meters
        self._on_sync_error = on_sync_error
        # Taken by itself where it is taken for each group, as that of the queue.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._path: str | None = None
        self._range: ZeroRange | None = None
        self._ended = step_bytes == 0
        self._thread: EngineThread | None = None

    def start(self, name: str) -> None:
        """Start the thread."""
        if not self._ended:
            # Nothing relies on zeros: a thread that ends costs time, no record.
            self._thread = EngineThread(name, self._run, self._give_up)
            self._thread.start()

    def follow(self, path: str, position: int) -> None:
        """Follow ``path``: from now on it is the file being written, with nothing but its header so far."""
        with self._changed:
            if not self._ended:
                self._path = path
                self._range = ZeroRange(position, self._step_bytes, self._end_bytes_max, GROUP_BYTES_MAX)
                self._changed.notify_all()

    def claim(self, end: int) -> None:
        """Claim the file below ``end``: no zeros will be written there any more.

        None are being written when this returns.
        """
        with self._lock:
            current = self._range
            if current is None:
                return
            current.claim(end)
            # Waking the thread for nothing would cost a lone record an eighth of its time.
            if current.next() is not None:
                self._changed.notify_all()
            while not current.is_clear(end):
                self._changed.wait()

    def stop(self) -> None:
        """End the thread after the range that it is at; idempotent."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        """Zero one file after the other, as the thread's work."""
        while (chosen := self._next_file()) is not None:
            path, current = chosen
            try:
                # A descriptor of its own: a sync error that the kernel reports here, once per descriptor, is
                # reported to the force-write thread too.
                file = self._filesystem.open_to_write(path)
            except (StorageError, NotFoundError) as error:
                self._give_up(error)
                return
            try:
                self._fill(file, current)
            finally:
                file.close()

    def _next_file(self) -> tuple[str, ZeroRange] | None:
        """Return the file that is followed, None at the end."""
        with self._changed:
            while not self._ended and (self._path is None or self._range is None):
                self._changed.wait()
            if self._ended or self._path is None or self._range is None:
                return None
            return self._path, self._range

    def _fill(self, file: WritableFile, current: ZeroRange) -> None:
        """Write zeros into one file, until another one is followed."""
        zeros = memoryview(bytes(min(self._step_bytes, CHUNK_BYTES_MAX)))
        while (taken := self._take(current)) is not None:
            start, end = taken
            try:
                if self._filesystem.disk_space(file.path).free_bytes < FREE_STEPS_MIN * self._step_bytes:
                    self._rest(current)
                    return
                file.write_at(start, zeros[: end - start])
            except NoSpaceError:
                self._rest(current)
                return
            except StorageError as error:
                self._give_up(error)
                return
            finally:
                with self._changed:
                    current.done()
                    self._changed.notify_all()
            try:
                # The zeros and the file's length are on disk: records now overwrite written blocks.
                file.sync_data()
            except StorageError as error:
                self._give_up(error)
                self._on_sync_error(error)
                return
            self._meters.zeroed_bytes += end - start

    def _take(self, current: ZeroRange) -> tuple[int, int] | None:
        """Wait for a range to zero; None when the file is no longer followed."""
        with self._changed:
            while not self._ended and current is self._range:
                taken = current.take()
                if taken is not None:
                    return taken
                self._changed.wait()
            return None

    def _rest(self, current: ZeroRange) -> None:
        """Write no more zeros in this file."""
        self._meters.zero_failures += 1
        with self._changed:
            if self._range is current:
                self._range = None

    def _give_up(self, error: BkctlError) -> None:
        _log.warning("no more zeros ahead of journal records: %s", error)
        self._meters.zero_failures += 1
        with self._changed:
            self._ended = True
            self._changed.notify_all()
