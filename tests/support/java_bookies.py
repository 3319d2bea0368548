"""Whole Java bookies, started one after the other in one JVM on directories that we wrote.

A JVM of its own for each bookie would cost three seconds; a start in a warm one costs a fraction of that.
The program is ``tests/interop/java/RebuildIndex.java``.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.support.java_bookkeeper import Jars

EntryKey = tuple[int, int]
#: What reads entries from a running bookie.
Read = Callable[[Sequence[EntryKey]], dict[EntryKey, str]]

_DB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
_SORTED = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
_INTERLEAVED = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
#: What the bookies of each corpus ran with.
STORAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "db": (_DB, ()),
    "sorted": (_SORTED, ()),
    "interleaved": (_INTERLEAVED, ()),
    "perledger": (_SORTED, ("entryLogPerLedgerEnabled=true",)),
}
# Requests that wait for answers, and their answers, must fit into the pipes, or both sides wait for ever.
_READS_AT_ONCE = 400
_EXIT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class BookieFolders:
    """Directories of one bookie, parents of ``current``; ``corpus`` names what it runs with."""

    corpus: str
    journal: Path
    ledgers: Sequence[Path]
    indexes: Sequence[Path] = field(default=())

    @classmethod
    def of(cls, corpus: str, folder: Path) -> BookieFolders:
        """Those of a bookie in a corpus."""
        return cls(corpus, folder / "journal", [folder / "ledgers"])


class JavaBookies:
    """The JVM; a context manager."""

    def __init__(self, jars: Jars) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        main = "org.apache.bookkeeper.bookie.RebuildIndex"
        self._process = subprocess.Popen(
            jars.quick_command(main, "bookies", log_level="ERROR", memory_mb=512),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> JavaBookies:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    @property
    def pid(self) -> int:
        """Process id of the JVM, for messages that must name it."""
        return self._process.pid

    @contextmanager
    def running(
        self, folders: BookieFolders
    ) -> Iterator[Callable[[Sequence[EntryKey]], dict[EntryKey, str]]]:
        """A bookie while it runs (journals replayed); gives what reads entries from it.

        The SHA-256 (hex) of each body, or the error of its read. Fails the test when the bookie does not
        start or stop.
        """
        storage, settings = STORAGES[folders.corpus]
        ledgers = ",".join(map(str, folders.ledgers))
        indexes = ",".join(map(str, folders.indexes or folders.ledgers))
        start = ("start", storage, str(folders.journal), indexes, ledgers, *settings)
        self._expect("\t".join(start), "started")
        yield self._read
        self._expect("stop", "stopped")

    def serve(self, folders: BookieFolders, keys: Sequence[EntryKey] = ()) -> dict[EntryKey, str]:
        """Start a bookie, read entries, shut it down; as :meth:`running`."""
        with self.running(folders) as read:
            return read(keys)

    def _read(self, keys: Sequence[EntryKey]) -> dict[EntryKey, str]:
        answers: list[str] = []
        for first in range(0, len(keys), _READS_AT_ONCE):
            part = keys[first : first + _READS_AT_ONCE]
            answers += self._ask([f"read\t{ledger}\t{entry}" for ledger, entry in part])
        return dict(zip(keys, answers, strict=True))

    def _expect(self, request: str, expected: str) -> None:
        answer = self._ask([request])[0]
        assert answer == expected, f"{request}: {answer}\n{self._last_words()}"

    def _ask(self, requests: Sequence[str]) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("".join(f"{request}\n" for request in requests))
        self._process.stdin.flush()
        answers = [self._process.stdout.readline().rstrip("\n") for _ in requests]
        assert all(answers), f"the JVM has ended: {self._last_words()}"
        return answers

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-3000:].decode(errors="replace").strip() or "without a word"
