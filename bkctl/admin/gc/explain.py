"""``gc explain``: what each log holds, whether it can be reclaimed, and if not exactly why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bkctl.admin.gc.index_reader import IndexReader
from bkctl.admin.gc.log_facts import LogFacts
from bkctl.admin.gc.survey import Survey, read_logs, survey
from bkctl.admin.ledgers.known_ledgers import Cluster
from bkctl.clock import Clock
from bkctl.directories.index_spaces import IndexSpace
from bkctl.engine.gc.explanation import NO, Threshold, verdict
from bkctl.engine.gc.policy import Kind
from bkctl.reporting import Advance, nobody
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Fractions of live bytes below which a log is compacted; Java's defaults."""

    minor: float = 0.2
    major: float = 0.8


@dataclass(frozen=True, slots=True)
class LogRow:
    """One log. ``live_ledgers`` are (ledger, bytes), most bytes first; ``eligible`` is ``garbage``,
    ``minor``, ``major`` or ``no``; ``damaged`` logs carry None where a number would be a guess. ``alarming``
    is whether the log or its index is damaged."""

    dir: str
    log_id: int
    path: str
    bytes: int
    record_bytes: int | None
    live_bytes: int | None
    counted_bytes: int | None
    live_ratio: float | None
    ledgers: int | None
    live_ledgers: tuple[tuple[int, int], ...]
    age_s: int
    source: str
    eligible: str
    why: str
    damaged: bool
    alarming: bool


def explain(
    filesystem: FileSystem,
    spaces: Sequence[IndexSpace],
    cluster: Cluster,
    clock: Clock,
    *,
    thresholds: Thresholds | None = None,
    quick: bool = False,
    log_id: int | None = None,
    advance: Advance = nobody,
    reserve: Callable[[Survey], None] = lambda found: None,
) -> Iterator[LogRow]:
    """Yield a row for each log, space by space and by id; ``reserve`` is called when a space is done.

    Raises RefusedError with another cluster's metadata, CorruptionError and StorageError when an index or the
    metadata cannot be read. A damaged log is a row.
    """
    for space in spaces:
        with IndexReader(filesystem, space) as index:
            found = survey(filesystem, space, index, cluster)
            for facts in read_logs(filesystem, found, clock, quick=quick, log_id=log_id, advance=advance):
                yield _row(found, facts, thresholds or Thresholds())
            reserve(found)


def _verdict(found: Survey, facts: LogFacts, thresholds: Thresholds) -> tuple[str, str]:
    obstacle = found.obstacle(facts)
    if obstacle is not None:
        return NO, obstacle
    garbage = remark = ""
    if not facts.ledgers and facts.source != "cache":
        garbage = "no entry in it"
    elif not facts.live_ledgers:
        garbage = f"none of its ledgers is alive ({facts.ledgers} in it)"
    share = facts.balance().usage()
    counted = facts.counted_bytes / facts.record_bytes if facts.record_bytes else 0.0
    if facts.exact and counted - share >= 0.001:
        remark = (
            f" (a running bookie counts {counted:.1%}, with copies of entries that the index has elsewhere)"
        )
    pair = [Threshold(Kind.MINOR, thresholds.minor), Threshold(Kind.MAJOR, thresholds.major)]
    return verdict(share, pair, garbage=garbage, remark=remark)


def _misses_index(found: Survey, facts: LogFacts) -> bool:
    """Return whether the index lacks what the log has; of a bookie that runs, that is no news."""
    if found.holder is not None or found.unreplayed.records:
        return False
    return facts.unindexed > 0 or (found.index_is_lost and facts.record_bytes > 0)


def _row(found: Survey, facts: LogFacts, thresholds: Thresholds) -> LogRow:
    eligible, why = _verdict(found, facts, thresholds)
    whole = facts.problem is None
    ratio = facts.live_bytes / facts.record_bytes if facts.record_bytes else 0.0
    return LogRow(
        dir=facts.log.directory,
        log_id=facts.log.log_id,
        path=facts.log.path,
        bytes=facts.log.size_bytes,
        record_bytes=facts.record_bytes if whole else None,
        live_bytes=facts.live_bytes if whole else None,
        counted_bytes=facts.counted_bytes if whole else None,
        live_ratio=round(ratio, 6) if whole else None,
        ledgers=facts.ledgers if whole else None,
        live_ledgers=tuple(sorted(facts.live.items(), key=lambda each: (-each[1], each[0]))),
        age_s=facts.age_s,
        source=facts.source,
        eligible=eligible,
        why=why,
        damaged=not whole,
        alarming=not whole or _misses_index(found, facts),
    )
