"""A running collector's view of each entry log: how much of the log is alive, and why it stays or goes.

Any thread may ask while a pass is running. The answer is as old as the last pass: a ledger that was deleted
since still counts as alive. ``gc explain`` on the files of a stopped bookie uses the same ``verdict``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter

from bkctl.clock import Clock
from bkctl.engine.gc.log_reading import trusted_map
from bkctl.engine.gc.log_usage import LogTotals, LogUsage
from bkctl.engine.gc.policy import Due, Kind, obstacle_of
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError
from bkctl.reporting import counted
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import WritableFileSystem

#: So many ledgers of one log are named.
LEDGERS_MAX = 1000

GARBAGE = "garbage"
NO = "no"


@dataclass(frozen=True, slots=True)
class Threshold:
    """The live share below which a compaction takes a log; ``when`` says when it runs, or why it does not."""

    kind: Kind
    share: float
    when: str = ""


def verdict(
    share: float, thresholds: Sequence[Threshold], *, garbage: str = "", remark: str = "", off: str = ""
) -> tuple[str, str]:
    """Return the verdict on a log (its ``eligible``), and the reason.

    ``share`` of the log's bytes is live; ``thresholds`` are those that count, the lower one first. Where no
    entry is alive, ``garbage`` says why; ``remark`` follows the share; ``off`` is the reason why there is no
    major compaction.
    """
    if garbage:
        return GARBAGE, garbage
    live = f"{share:.1%} of its entries' bytes are live{remark}"
    for each in thresholds:
        if share < each.share:
            when = f"; {each.when}" if each.when else ""
            return each.kind.value, f"{live}, below {each.share:.0%}{when}"
    if off:
        return NO, f"{live}; {off}"
    highest = thresholds[-1].share
    return NO, f"{live}, {share - highest:.1%} above the threshold of {highest:.0%}"


@dataclass(frozen=True, slots=True)
class LogState:
    """One log: the verdict on it, and the figures behind that.

    ``live_bytes``, of ``total_bytes``, are those of all entries of the ``live_ledgers`` ledgers that are
    alive, size words included; ``ledgers`` are the (ledger, bytes) of the largest. A figure that is not
    known yet is None. ``source`` is ``map``, ``scan``, ``cache`` or ``none``; ``eligible`` is ``garbage``,
    ``minor``, ``major`` or ``no``; ``held`` says that the reason has nothing to do with the threshold.
    """

    log_id: int
    path: str
    file_bytes: int
    age_s: int
    source: str
    eligible: str
    why: str
    held: bool = False
    damaged: bool = False
    total_bytes: int | None = None
    live_bytes: int | None = None
    live_ledgers: int | None = None
    ledgers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """One ledger directory; ``disk_bytes`` and ``free_bytes`` are those of its disk."""

    directory: str
    disk_bytes: int
    free_bytes: int
    minor_threshold: float
    major_threshold: float
    least_unflushed_log_id: int | None
    logs: tuple[LogState, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """The collector's contribution to an explanation.

    ``held_deletions`` are those that wait to be confirmed.
    """

    usages: Mapping[int, LogUsage | LogTotals]
    set_aside: Mapping[int, str]
    unresolved: Mapping[int, str]
    dues: Mapping[Kind, Due]
    held_deletions: int = 0
    log_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains the logs of one ledger directory."""

    storage: LogKeeper
    filesystem: WritableFileSystem
    clock: Clock
    known: Known
    unflushed: Collection[int] = field(default_factory=frozenset)

    def directory(self) -> DirectoryState:
        """Explain the whole directory. Raises StorageError when the directory cannot be listed."""
        logger = self.storage.entry_logger
        space = self.filesystem.disk_space(self.storage.directory)
        states = (self._log(log_id) for log_id in logger.log_ids())
        return DirectoryState(
            self.storage.directory,
            space.total_bytes,
            space.free_bytes,
            self.known.dues[Kind.MINOR].settings.threshold,
            self.known.dues[Kind.MAJOR].settings.threshold,
            min(self.unflushed, default=None),
            tuple(state for state in states if state is not None),
        )

    def _log(self, log_id: int) -> LogState | None:
        path = self.storage.entry_logger.path(log_id)
        status = self.filesystem.status(path)
        if status is None and log_id not in self.known.unresolved:
            return None  # the log was removed since it was listed
        file_bytes = 0 if status is None else status.size_bytes
        age_s = 0 if status is None else max(0, int(self.clock.time_ms() / 1000 - status.mtime_s))
        obstacle = self._obstacle(log_id)
        damaged = log_id in self.known.set_aside
        usage = None if damaged or log_id in self.known.unresolved else self._usage(log_id, file_bytes)
        if usage is None:
            unread = "no ledgers map, and not read since the start; the next pass reads it (bkctl bookie gc)"
            return LogState(log_id, path, file_bytes, age_s, "none", NO, obstacle or unread, True, damaged)
        pairs = self._pairs(usage)
        eligible, why = (NO, obstacle) if obstacle else self._verdict(usage)
        return LogState(
            log_id,
            path,
            file_bytes,
            age_s,
            usage.source,
            eligible,
            why,
            held=bool(obstacle),
            total_bytes=usage.total_bytes,
            live_bytes=usage.remaining_bytes if isinstance(usage, LogTotals) else sum(s for _, s in pairs),
            live_ledgers=usage.ledgers if isinstance(usage, LogTotals) else len(pairs),
            ledgers=tuple(nlargest(LEDGERS_MAX, pairs, key=itemgetter(1))),
        )

    def _obstacle(self, log_id: int) -> str:
        """Return the reason why a log stays, however little of it is alive; empty without a reason."""
        if log_id in self.known.set_aside:
            return f"damaged, set aside: {self.known.set_aside[log_id]}"
        if log_id in self.known.unresolved:
            return f"a compaction of it is not finished: {self.known.unresolved[log_id]}"
        if log_id in self.unflushed:
            return "it is being written"
        if self.known.held_deletions:
            return (
                "nothing is collected while"
                f" {counted(self.known.held_deletions, 'deletion waits', 'deletions wait')} to be confirmed"
                " (bkctl bookie gc --confirm-deletions)"
            )
        return ""

    def _verdict(self, usage: LogUsage | LogTotals) -> tuple[str, str]:
        dues = self.known.dues
        major = dues[Kind.MAJOR]
        return verdict(
            usage.usage(self.known.log_size_bytes),
            [
                Threshold(
                    kind,
                    dues[kind].settings.threshold,
                    obstacle_of(kind, dues[kind]) or f"{kind.value} is due with the next pass",
                )
                for kind in (Kind.MINOR, Kind.MAJOR)
                if dues[kind].settings.has_threshold
            ],
            garbage="no ledger of it is alive; the next pass removes it" if usage.is_empty else "",
            off="" if major.settings.has_threshold else obstacle_of(Kind.MAJOR, major),
        )

    def _usage(self, log_id: int, file_bytes: int) -> LogUsage | LogTotals | None:
        """Return the usage of the last pass, or else that of the ledgers map; nothing is scanned for this."""
        usage = self.known.usages.get(log_id)
        if usage is not None or log_id in self.unflushed:
            return usage
        return self._mapped(log_id, file_bytes)

    def _pairs(self, usage: LogUsage | LogTotals) -> list[tuple[int, int]]:
        """Return (ledger, bytes) of the live ledgers, by the map where they did not fit into memory."""
        if isinstance(usage, LogUsage):
            return usage.pairs()
        mapped = self._mapped(usage.log_id, usage.file_bytes)
        return [] if mapped is None else mapped.pairs()

    def _mapped(self, log_id: int, file_bytes: int) -> LogUsage | None:
        try:
            with EntryLogScan(self.filesystem, self.storage.entry_logger.path(log_id)) as scan:
                found = trusted_map(scan.head)
        except BkctlError:
            return None
        if found is None:
            return None
        rows = self.storage.ledgers
        live = {ledger: size for ledger, size in found.items() if rows.get(ledger) is not None}
        return LogUsage(log_id, live, file_bytes=file_bytes, total_bytes=sum(found.values()))
