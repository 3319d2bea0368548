"""``gc plan``: what could be reclaimed at which threshold, what it costs to copy, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bkctl.admin.gc.index_reader import IndexReader
from bkctl.admin.gc.log_facts import LogBalance, LogFacts
from bkctl.admin.gc.survey import Survey, read_logs, survey
from bkctl.admin.ledgers.known_ledgers import Cluster
from bkctl.clock import Clock
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.directories.index_spaces import IndexSpace
from bkctl.engine.gc import policy
from bkctl.reporting import Advance, nobody
from bkctl.scan.directory import LogFile
from bkctl.vfs import WritableFileSystem

THRESHOLDS = tuple(tenths / 10 for tenths in range(1, 10))

#: Free share of the disk below which logs are taken by bytes won for each byte copied.
SCARCE_SHARE = 0.1

REMOVE = "remove"
COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One threshold in one space. ``freed_bytes`` is what compaction adds to ``garbage_bytes``, copies
    already taken off."""

    dir: str
    threshold: float
    garbage_logs: int
    garbage_bytes: int
    logs: int
    copied_bytes: int
    freed_bytes: int

    @property
    def reclaimed_bytes(self) -> int:
        """The bytes of garbage and of compaction together."""
        return self.garbage_bytes + self.freed_bytes


@dataclass(frozen=True, slots=True)
class Step:
    """Removing or compacting one log; ``fits`` is False when the disk has no room for its copy."""

    dir: str
    action: str
    log_id: int
    path: str
    bytes: int
    copied_bytes: int
    freed_bytes: int
    fits: bool = True


@dataclass(slots=True)
class Candidates:
    """Logs of a space that something can be done about, and with the reason those that stay.

    There may be a hundred thousand of them with hundreds of ledgers each: which ledgers these are is
    forgotten as soon as a log is judged. A compaction reads its log once more.
    """

    directory: str
    garbage: list[LogFile] = field(default_factory=list)
    others: list[LogBalance] = field(default_factory=list)
    damaged: list[tuple[LogFile, str]] = field(default_factory=list)
    held: list[tuple[LogFile, str]] = field(default_factory=list)

    def of(self, directory: str) -> Candidates:
        """Return those that something can be done about in one of several ledger directories."""
        return Candidates(
            directory,
            [log for log in self.garbage if log.directory == directory],
            [usage for usage in self.others if usage.log.directory == directory],
        )

    def curve(self) -> list[CurveRow]:
        """Compute a row for each of ``THRESHOLDS``."""
        garbage_bytes = sum(log.size_bytes for log in self.garbage)
        rows = []
        for threshold in THRESHOLDS:
            chosen = policy.compaction_order(self.others, threshold)
            copied = sum(usage.remaining_bytes for usage in chosen)
            freed = sum(usage.file_bytes - usage.remaining_bytes for usage in chosen)
            rows.append(
                CurveRow(
                    self.directory,
                    threshold,
                    len(self.garbage),
                    garbage_bytes,
                    len(chosen),
                    copied,
                    freed,
                )
            )
        return rows

    def steps(self, threshold: float | None, free_bytes: int, *, scarce: bool) -> list[Step]:
        """Order the work: garbage, the largest first, then compactions; a threshold of None compacts nothing.

        A copy fits when the steps before it leave enough room for it.
        """
        steps = []
        for log in sorted(self.garbage, key=lambda each: (-each.size_bytes, each.log_id)):
            steps.append(Step(log.directory, REMOVE, log.log_id, log.path, log.size_bytes, 0, log.size_bytes))
            free_bytes += log.size_bytes
        if threshold is None:
            return steps
        for usage in policy.compaction_order(self.others, threshold, scarce=scarce):
            log = usage.log
            freed = usage.file_bytes - usage.remaining_bytes
            copied = usage.remaining_bytes
            fits = policy.fits(copied, free_bytes, GcSettings())
            steps.append(
                Step(log.directory, COMPACT, log.log_id, log.path, log.size_bytes, copied, freed, fits)
            )
            free_bytes += freed if fits else 0
        return steps


def candidates(found: Survey, logs: Iterator[LogFacts]) -> Candidates:
    """Sort logs by what can be done about them."""
    sorted_out = Candidates(found.space.dir)
    for facts in logs:
        obstacle = found.obstacle(facts)
        if facts.problem is not None:
            sorted_out.damaged.append((facts.log, facts.problem))
        elif obstacle is not None:
            sorted_out.held.append((facts.log, obstacle))
        elif facts.live_ledgers:
            sorted_out.others.append(facts.balance())
        else:
            sorted_out.garbage.append(facts.log)
    return sorted_out


def plan(
    filesystem: WritableFileSystem,
    spaces: Sequence[IndexSpace],
    cluster: Cluster,
    clock: Clock,
    *,
    quick: bool = False,
    advance: Advance = nobody,
    reserve: Callable[[Survey], None] = lambda found: None,
) -> Iterator[Candidates]:
    """Yield the candidates of each space; ``reserve`` is called when a space is done.

    Raises as :func:`bkctl.admin.gc.explain.explain`.
    """
    for space in spaces:
        with IndexReader(filesystem, space) as index:
            found = survey(filesystem, space, index, cluster)
            yield candidates(found, read_logs(filesystem, found, clock, quick=quick, advance=advance))
            reserve(found)


def is_scarce(filesystem: WritableFileSystem, directory: str) -> tuple[int, bool]:
    """Return the free bytes of the directory's disk, and whether they are few. Raises StorageError."""
    space = filesystem.disk_space(directory)
    return space.free_bytes, space.free_bytes < space.total_bytes * SCARCE_SHARE
