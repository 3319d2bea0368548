"""Let one export, or one run, at a time write to a directory that may be in an object store.

::

    <folder>/<random>.json    one is under way: {"host": ..., "pid": ..., "started_ms": ...}

Each writes a note of its own, writes it again every 20 seconds, and looks for the notes of others after the
first time. A note that is less than three minutes older than its own is that of one that is still under way:
the new one ends. Two that begin at the same time may both end, but never do both go on, as long as a listing
shows every file that was written before it; local disks, HDFS and today's object stores all do that. Ages are
differences of times that the file system gave, so the clocks of the machines do not matter. The note of a
process that was killed counts for three minutes. A process that stood still for as long has lost its turn,
also when it writes its note again: another one may have begun, and has removed the note then.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from types import TracebackType
from typing import Self

from bkctl.clock import Clock
from bkctl.errors import NotFoundError, RefusedError, StorageError
from bkctl.pipeline.locations import Location

RENEWAL_S = 20.0
#: Age from which a note is that of one that was killed. A note that was not renewed for half of that time
#: ends what its owner does.
STALE_S = 180.0
_NOTE_BYTES_MAX = 1 << 16


class Turn:
    """A note in a folder: a context manager that holds what the folder stands for. ``work`` is what for, with
    its article."""

    def __init__(self, folder: Location, work: str, clock: Clock, renewal_s: float = RENEWAL_S) -> None:
        self._folder = folder
        self._work = work
        self._clock = clock
        self._renewal_s = renewal_s
        self._name = f"{secrets.token_hex(8)}.json"
        note = {"host": socket.gethostname(), "pid": os.getpid(), "started_ms": clock.time_ms()}
        self._note = json.dumps(note).encode()
        self._renewed_s = clock.monotonic()
        self._lost = False
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="turn", daemon=True)

    def __enter__(self) -> Self:
        """Take the folder. Raises RefusedError while another one has it, StorageError."""
        self._write()
        try:
            self._refuse_others()
        except BaseException:
            self._remove()
            raise
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewal.join()
        self._remove()

    @property
    def is_held(self) -> bool:
        """Whether no other one can have begun."""
        return not self._lost and self._age_s <= STALE_S / 2

    def check(self) -> None:
        """Raise StorageError where the note may have grown so old that another one has begun."""
        if not self.is_held:
            how_long = "too long" if self._lost else f"{self._age_s:.0f} s"
            raise StorageError(
                f"{self._folder.text_of(self._name)}: could not be renewed for {how_long}, and "
                f"another {self._kind} may have begun; run the {self._kind} again"
            )

    @property
    def _age_s(self) -> float:
        return self._clock.monotonic() - self._renewed_s

    @property
    def _kind(self) -> str:
        return self._work.rpartition(" ")[2]

    def _write(self) -> None:
        before_s = self._clock.monotonic()
        self._folder.write(self._name, self._note)
        self._lost = self._lost or self._age_s >= STALE_S
        self._renewed_s = before_s

    def _renew(self) -> None:
        while not (self._lost or self._ended.wait(self._renewal_s)):
            try:
                if self._folder.holds(self._name):
                    self._write()
                else:
                    self._lost = True
            except StorageError:
                continue  # what the age of the note means is decided by `check`

    def _refuse_others(self) -> None:
        written_at = self._folder.written_at()
        own = written_at.pop(self._name, None)
        if own is None:
            raise StorageError(f"{self._folder.text_of(self._name)}: was written, and is not there")
        for name, at in sorted(written_at.items()):
            if own - at < STALE_S:
                raise RefusedError(
                    f"{self._folder.text}: {self._work}{self._whose(name)} writes to these tables; run this "
                    f"one when it has ended (the note of one that was killed, {name}, counts for "
                    f"{STALE_S / 60:.0f} minutes)"
                )
            self._remove(name)

    def _whose(self, name: str) -> str:
        """Return who wrote a note, as words of a message; nothing where the note does not say it."""
        try:
            note = json.loads(self._folder.read(name, _NOTE_BYTES_MAX))
            return f" of process {int(note['pid'])} on {str(note['host'])!r}"
        except (StorageError, NotFoundError, ValueError, KeyError, TypeError):
            return ""

    def _remove(self, name: str | None = None) -> None:
        """Remove a note, the own one by default; one that cannot be removed grows old."""
        try:
            self._folder.remove_file(name or self._name)
        except (StorageError, NotFoundError):
            return
