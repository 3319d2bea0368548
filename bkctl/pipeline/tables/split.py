"""The split that one task reads: some files, or pieces of large ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.stored_digests import StoredDigests

#: A split for which starting a task is not worth it unless there is nothing else to do.
SPLIT_BYTES_MIN = 16 << 20
#: Files of a split: each costs the opening and a read of its head, however small it is. When every ledger
#: has a log of its own there are millions of files.
SPLIT_FILES_MAX = 512

#: The kind of a split that a stream reads: a log that is gone is lost data.
STREAM = "stream"


@dataclass(frozen=True, slots=True)
class SplitFile:
    """A log, a journal or an index directory; ``dir`` and ``bookie`` are those of its rows.

    ``id`` is the log's or journal's. Of a log only the records with ``start <= offset < stop`` are meant,
    None being the end; ``start`` 0 is the first record, anything else the offset of a record that proved
    itself.
    """

    path: str
    dir: str
    bookie: str | None
    id: int
    bytes: int
    start: int = 0
    stop: int | None = None

    @property
    def size_bytes(self) -> int:
        """How much of it there is to read."""
        return (self.bytes if self.stop is None else self.stop) - self.start


@dataclass(frozen=True, slots=True)
class Split:
    """One task; ``ledgers`` are the ids that a task on a metadata store reads, as native i64.

    ``known`` are the digests of the ledgers that may be in the files, as far as metadata knows them. ``kind``
    says what the files are, for a table that reads several kinds.
    """

    files: tuple[SplitFile, ...] = ()
    known: KnownDigests | StoredDigests = field(default_factory=KnownDigests, repr=False)
    ledgers: bytes | None = field(default=None, repr=False)
    kind: str = ""

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return sum(file.size_bytes for file in self.files)


def packed(files: Iterable[SplitFile], split_bytes: int, cores: int) -> Iterator[tuple[SplitFile, ...]]:
    """Yield files in their order, joined until ``split_bytes``, and never more than ``SPLIT_FILES_MAX``.

    Fewer files are joined where there would be no work for all cores.
    """
    listed = list(files)
    total = sum(file.size_bytes for file in listed)
    target = min(split_bytes, max(SPLIT_BYTES_MIN, total // cores)) if cores > 1 else split_bytes
    group: list[SplitFile] = []
    size = 0
    for file in listed:
        if group and (size + file.size_bytes > target or len(group) == SPLIT_FILES_MAX):
            yield tuple(group)
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if group:
        yield tuple(group)
