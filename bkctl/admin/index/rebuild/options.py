"""The options of a rebuild, and what the rebuild says in the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bkctl.admin.index.rebuild.difference import NOT_PROVED, Difference
from bkctl.admin.ledgers.known_ledgers import Cluster, NoCluster
from bkctl.codec.digest import Digester
from bkctl.reporting import Phase, silent_phase

#: Memory of a process before it holds a single row: interpreter, numpy, RocksDB, windows of a log.
PROCESS_BYTES = 72 << 20
#: Memory of one row at the peak while rows are read, sorted, written or read back.
ROW_BYTES_AT_PEAK = 128
#: Memory held for a ledger whose digest is known from metadata.
DIGESTER_BYTES = 192
MEMORY_BYTES_DEFAULT = 256 << 20
#: The least number of rows that a process holds at a time: with fewer, a large directory would make too
#: many files of sorted rows.
ROWS_MIN = 1 << 15


def nothing() -> None:
    """Do nothing: there is nobody to look for."""


class IndexFolder(NamedTuple):
    """A folder of ``.idx`` files in ``current``, and the folder that has the old ones, if there were any."""

    live: str
    kept: str


class RebuildRecord(Protocol):
    """Notes durably, in front of a swap, what a rebuild is going to change, so that it can be undone."""

    @property
    def goes_on(self) -> bool:
        """Whether the record of a run that was cut off still holds."""
        ...

    def announce(self, live: str, backup: str) -> None:
        """Keep a database that is going to get the name ``backup``."""
        ...

    def announce_folders(self, folders: Sequence[IndexFolder]) -> None:
        """Note where the old files of folders are, which are going to be replaced."""
        ...

    def announce_file(self, path: str) -> None:
        """Keep a small file that is going to be replaced, made or removed."""
        ...


class NoRecord:
    """The record of a rebuild that nobody is going to undo."""

    goes_on = True

    def announce(self, live: str, backup: str) -> None:
        """Do nothing: the names of databases are for those who undo."""

    def announce_folders(self, folders: Sequence[IndexFolder]) -> None:
        """Do nothing: the names of folders are for those who undo."""

    def announce_file(self, path: str) -> None:
        """Do nothing: the old content is for those who undo."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """``digest`` is ``auto`` or ``off``; ``jobs`` processes share ``memory_bytes``.

    ``recheck`` raises RefusedError when somebody else uses the directories by now; it is called before a
    swap, and so are the methods of ``record``.
    ``cluster`` says which ledgers there are, ``digesters`` how the entries of those are checked.
    """

    locations: bool = True
    ledgers: bool = True
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    jobs: int = 1
    digest: str = "auto"
    accept_loss: bool = False
    drop_old: bool = False
    dry_run: bool = False
    cluster: Cluster = field(default_factory=NoCluster)
    digesters: Mapping[int, Digester] = field(default_factory=dict, repr=False)
    phase: Phase = silent_phase
    recheck: Callable[[], None] = nothing
    record: RebuildRecord = field(default_factory=NoRecord, repr=False)

    @property
    def rows_max(self) -> int:
        """Rows that one process may hold at once."""
        return self.rows_beside(0)

    def rows_beside(self, held_bytes: int) -> int:
        """Count the rows that one process may hold at once.

        This process holds ``held_bytes`` besides.
        """
        held_bytes += DIGESTER_BYTES * len(self.digesters)
        share = (self.memory_bytes - held_bytes) // self.jobs - PROCESS_BYTES
        return max(ROWS_MIN, share // ROW_BYTES_AT_PEAK)


def jobs_for(memory_bytes: int, log_bytes: int, jobs: int | None = None) -> int:
    """Choose how many processes to use: as many as processors, as memory feeds, as are worth starting."""
    if jobs is not None:
        return max(1, jobs)
    if log_bytes < 64 << 20:
        return 1
    fed = memory_bytes // (PROCESS_BYTES + ROWS_MIN * ROW_BYTES_AT_PEAK)
    return max(1, min(len(os.sched_getaffinity(0)), fed))


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """One index directory. ``rows`` of ``locations`` or slots in use, None when they were not rebuilt;
    ``backups`` are the old indexes, kept."""

    dir: str
    rows: int | None
    ledgers: int
    seconds: float
    backups: tuple[str, ...]
    differences: tuple[Difference, ...]
    lossy: bool = False

    @property
    def is_alarming(self) -> bool:
        """Whether the new index is not all that is known to have been in the old one, or may not be."""
        return self.lossy or any(difference.is_alarming for difference in self.differences)

    @property
    def is_unproved(self) -> bool:
        """Whether entries may be lost without any trace; the differences say why."""
        return any(difference.kind == NOT_PROVED for difference in self.differences)
