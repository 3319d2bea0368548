"""A journal under test: sinks that remember, a file system that can be told to wait, Java's way to read."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bkctl.codec.entry import frame
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal, JournalBatch
from bkctl.errors import BkctlError
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem, FileOperation
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.manual_clock import ManualClock

CURRENT = "/journal/current"
#: How long a test waits for what must happen at once.
SECONDS = 20.0

_I32 = struct.Struct(">i")


class RecordingSink:
    """Remembers contexts in the order of their answers."""

    def __init__(self) -> None:
        self.journaled_contexts: list[Any] = []
        self.failed_contexts: list[Any] = []
        self.errors: list[BkctlError] = []
        self.calls = 0
        self.changed = threading.Condition()

    def journaled(self, batches: list[JournalBatch]) -> None:
        with self.changed:
            self.calls += 1
            self.journaled_contexts += [batch.context for batch in batches]
            self.changed.notify_all()

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        with self.changed:
            self.failed_contexts += [batch.context for batch in batches]
            self.errors.append(error)
            self.changed.notify_all()

    @property
    def answered(self) -> list[Any]:
        """Contexts of all answers, good ones first."""
        return self.journaled_contexts + self.failed_contexts

    def wait(self, condition: Callable[[RecordingSink], object]) -> None:
        """Until ``condition`` holds."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), SECONDS), "no answer in time"

    def wait_for(self, count: int) -> None:
        """Until so many batches were answered."""
        self.wait(lambda sink: len(sink.answered) >= count)


class Gate:
    """What a call may be made to wait for: an event as the ``sleep`` of a faulty file system."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _seconds: float) -> None:
        self.reached.set()
        assert self.opened.wait(SECONDS), "nobody opened the gate"

    def await_reached(self) -> None:
        """Until a call has come to it."""
        assert self.reached.wait(SECONDS), "nobody came to the gate"


class ThreadsSink(RecordingSink):
    """Keeps the threads that answered, and does something before each good answer."""

    def __init__(self, first: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.threads: list[str] = []
        self._first = first

    def journaled(self, batches: list[JournalBatch]) -> None:
        self.threads.append(threading.current_thread().name)
        self._first()
        super().journaled(batches)

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        self.threads.append(threading.current_thread().name)
        super().journal_failed(batches, error)


class GatedSink(RecordingSink):
    """Takes no good answer before its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def journaled(self, batches: list[JournalBatch]) -> None:
        self.gate(1)
        super().journaled(batches)


class TracedFileSystem(FaultyFileSystem):
    """Keeps (operation, last part of the path) of every call."""

    def __init__(self, inner: WritableFileSystem) -> None:
        self.trace: list[tuple[str, str]] = []
        super().__init__(inner)

    def enter(
        self, operation: FileOperation, *paths: str, doing: str = "", offset: int | None = None
    ) -> None:
        self.trace.append((operation, paths[0].rsplit("/", 1)[-1]))
        super().enter(operation, *paths, doing=doing, offset=offset)


def memory() -> MemoryFileSystem:
    """A disk with an empty journal directory."""
    system = MemoryFileSystem()
    system.make_directories(CURRENT)
    return system


def gated(
    operation: FileOperation, inner: WritableFileSystem, *, first: int = 1
) -> tuple[FaultyFileSystem, Gate]:
    """A file system of which one call waits for the gate."""
    gate = Gate()
    rule = FaultRule(operation, ".txn", first=first, count=1, latency_s=1, error_number=None)
    return FaultyFileSystem(inner, [rule], sleep=gate), gate


def body(ledger: int, entry: int, size_bytes: int = 40) -> bytes:
    """An entry of that size, its bytes telling it from others."""
    return (struct.pack(">qqq", ledger, entry, -1) + b"%d:%d|" % (ledger, entry) * size_bytes)[:size_bytes]


def batch_of(
    bodies: Sequence[bytes], sink: RecordingSink, context: object = None, *, after_write: bool = False
) -> JournalBatch:
    """Bodies framed as the engine does it."""
    pieces = [piece for record in bodies for piece in (_I32.pack(len(record)), record)]
    return JournalBatch(pieces, sum(map(len, pieces)), len(bodies), sink, context, after_write=after_write)


@contextmanager
def running(
    filesystem: WritableFileSystem,
    settings: JournalSettings | None = None,
    *,
    after_id: int = 0,
    on_failure: Callable[[BkctlError], None] | None = None,
) -> Iterator[Journal]:
    """A started journal without zeros ahead unless ``settings`` ask for them; aborted at the end."""
    journal = Journal(
        0,
        CURRENT,
        filesystem,
        ManualClock(),
        settings or JournalSettings(preallocation_bytes=0),
        on_failure or (lambda _error: None),
    )
    journal.start(after_id=after_id)
    try:
        yield journal
    finally:
        journal.abort()
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("journal-0")]
        assert not left, f"threads are left: {left}"


def journals(filesystem: MemoryFileSystem) -> dict[int, bytes]:
    """The journal files by id, ascending."""
    found = {
        int(path.rsplit("/", 1)[1].removesuffix(".txn"), 16): data
        for path, data in filesystem.files.items()
        if path.endswith(".txn")
    }
    return dict(sorted(found.items()))


def java_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset of the length word, body) as ``Journal.scanJournal`` delivers them; zero ends the file."""
    if len(data) < 8 or data[:4] != b"BKLG":
        assert not any(data), "a version 1 journal"
        return
    version = _I32.unpack_from(data, 4)[0]
    at = 512 if version >= 5 else 8
    while at + 4 <= len(data):
        size = _I32.unpack_from(data, at)[0]
        if size == 0:
            return
        if size == -256 and version >= 5:
            if at + 8 > len(data):
                return
            at += 8 + _I32.unpack_from(data, at + 4)[0]
            continue
        assert size > 0, f"invalid record of length {size} at {at}"
        if at + 4 + size > len(data):
            return
        yield at, data[at + 4 : at + 4 + size]
        at += 4 + size


def bodies_in(files: Iterable[bytes]) -> list[bytes]:
    """All bodies that Java would replay."""
    return [record for data in files for _, record in java_records(data)]


def framed(bodies: Iterable[bytes]) -> bytes:
    """Records as they lie in a file."""
    return b"".join(map(frame, bodies))
