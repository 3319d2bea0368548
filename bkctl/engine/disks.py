"""Watching the disks: when a bookie turns read-only, and when back (Java: ``LedgerDirsMonitor``)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bkctl.config.server_keys.disks import DiskSettings
from bkctl.engine.engine_thread import EngineThread, reported
from bkctl.errors import BkctlError, StorageError
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """One directory's disk; ``full`` follows the thresholds with their hysteresis."""

    directory: str
    total_bytes: int
    free_bytes: int
    full: bool

    @property
    def usage(self) -> float:
        """Fraction in use, 0 to 1."""
        return _usage(self.total_bytes, self.free_bytes)


@dataclass(frozen=True, slots=True)
class DiskState:
    """The state of the disks.

    No plain writes are taken any more when ``read_only``, and with ``high_priority_too`` not even those of
    high priority.
    """

    disks: tuple[DiskUse, ...]
    read_only: bool
    high_priority_too: bool


def _usage(total_bytes: int, free_bytes: int) -> float:
    return 1 - free_bytes / total_bytes if total_bytes else 1.0


def judge(
    settings: DiskSettings, before: DiskState | None, spaces: Sequence[tuple[str, int, int]]
) -> DiskState:
    """Return the state of the disks, from (directory, total bytes, free bytes) of each directory."""
    was_full = {use.directory for use in before.disks if use.full} if before else set()
    disks = []
    for directory, total_bytes, free_bytes in spaces:
        limit = settings.usage_low if directory in was_full else settings.usage_max
        full = _usage(total_bytes, free_bytes) > limit
        disks.append(DiskUse(directory, total_bytes, free_bytes, full))
    full_disks = sum(use.full for use in disks)
    # A ledger belongs to one directory and one journal by its id: one full disk fails some ledgers' adds.
    read_only = full_disks > 0 and (settings.read_only_on_any_full or full_disks == len(disks))
    roomy = all(use.free_bytes >= settings.free_bytes_min for use in disks)
    return DiskState(tuple(disks), read_only, read_only and not roomy)


class DiskMonitor:
    """Checks the directories every ``check_interval_ms``, or when it is woken; reports to ``on_look``."""

    def __init__(
        self,
        filesystem: WritableFileSystem,
        directories: Sequence[str],
        settings: DiskSettings,
        on_look: Callable[[DiskState], None],
        on_failure: Callable[[BkctlError], None],
    ) -> None:
        self._filesystem = filesystem
        self._directories = directories
        self._settings = settings
        self._on_look = on_look
        #: The result of the last check, None before the first.
        self.last: DiskState | None = None
        self._checking = threading.Lock()
        #: Directories whose disks could not be asked the last time.
        self._silent: set[str] = set()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = EngineThread("bookie-disks", self._run, on_failure)

    @property
    def state(self) -> DiskState:
        """The state that the last check found; checks now if there was none."""
        return self.last or self.check()

    def start(self) -> None:
        """Check the disks once on the caller's thread, then start the thread that goes on checking them."""
        self.check()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        """Have the thread check the disks soon."""
        self._wake.set()

    def check(self) -> DiskState:
        """Check the disks now; one that cannot be asked counts as full, until it can.

        Raises StorageError for such a disk the first time, when nothing is known of any.
        """
        # One after the other, so that what was found later is reported later.
        with self._checking:
            spaces = [(directory, *self._space(directory)) for directory in self._directories]
            before, state = self.last, judge(self._settings, self.last, spaces)
            self.last = state
            filling = {use.directory: self._filling(use) for use in before.disks} if before else {}
            for use in state.disks:
                self._tell(use, filling.get(use.directory, "normal"))
            self._on_look(state)
            return state

    def _space(self, directory: str) -> tuple[int, int]:
        """Return total and free bytes of a directory's disk. Nobody knows of room on one that errs."""
        try:
            space = self._filesystem.disk_space(directory)
        except StorageError as error:
            if self.last is None:
                raise
            if directory not in self._silent:
                _log.error("the disk cannot be asked, it counts as full: %s", error)
            self._silent.add(directory)
            return 0, 0
        self._silent.discard(directory)
        return space.total_bytes, space.free_bytes

    def _filling(self, use: DiskUse) -> str:
        if use.full:
            return "full"
        return "high" if use.usage > self._settings.usage_warn else "normal"

    def _tell(self, use: DiskUse, before: str) -> None:
        """Log a line when a disk crossed a threshold since the check before; else log nothing."""
        filling = self._filling(use)
        if filling == before:
            return
        percent = round(use.usage * 100, 1)
        _log.log(
            logging.INFO if filling == "normal" else logging.WARNING,
            "%s: %s%s %% of the disk are in use",
            use.directory,
            "full, " if use.full else "",
            percent,
            extra={
                "event": "disk_usage",
                "directory": use.directory,
                "filling": filling,
                "used_percent": percent,
            },
        )

    def _run(self) -> None:
        while True:
            self._wake.wait(self._settings.check_interval_ms / 1000)
            self._wake.clear()
            if self._stop.is_set():
                return
            reported("a look at the disks", self.check)
