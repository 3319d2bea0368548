"""The entry logs of one space of log ids: read into runs, judged, and held to what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bkctl.admin.index.rebuild.bookie_facts import digests_in
from bkctl.admin.index.rebuild.difference import Difference
from bkctl.admin.index.rebuild.digest_columns import write_digests
from bkctl.admin.index.rebuild.id_set import IdSet
from bkctl.admin.index.rebuild.log_scan import scan_damaged, scan_log
from bkctl.admin.index.rebuild.log_task import LogTask
from bkctl.admin.index.rebuild.old_places import OldIndex
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rebuild.state import LogManifest, WorkDirectory, identity_of
from bkctl.admin.index.rows.location_runs import Run
from bkctl.admin.logs.file_steps import salvage_words
from bkctl.admin.next_step import ended_by
from bkctl.codec.digest import Digester
from bkctl.errors import RefusedError
from bkctl.scan.columns.column import Column
from bkctl.scan.directory import LogFile
from bkctl.types import DigestType
from bkctl.workers import Workers

#: Memory held for a log: its name, size and time of change, and the lengths of its runs.
_LOG_BYTES = 768
#: Memory held for a ledger of the logs, also while their ids are compared with those of the old index.
_LEDGER_BYTES = 128
#: Where the places that the old index has in damaged logs are noted.
_PLACES = "places"


#: A function that returns how the entries are checked of those of some ledgers that have metadata.
AskDigests = Callable[[Collection[int]], dict[int, Digester]]


@dataclass(frozen=True, slots=True)
class _ReadLog:
    """The facts that are held of a log that was read; the rest is in its manifest on disk."""

    size_bytes: int
    mtime_ns: int
    rows: tuple[int, ...]
    checksums: tuple[int, ...]


class LogSet:
    """Logs that were read, in order of ids.

    Manifests stay on disk: with hundreds of ledgers in each of a hundred thousand logs they do not fit into
    memory. Those of damaged logs are held, without their ledgers.
    """

    def __init__(self, logs: Sequence[LogFile], work: WorkDirectory, mode: str) -> None:
        self.logs = tuple(logs)
        self._work = work
        self._mode = mode
        self._read: dict[int, _ReadLog] = {}
        self._damaged: dict[int, LogManifest] = {}
        self._ledgers = IdSet()
        self._learnt: dict[str, IdSet] = {}
        self._unsettled: list[int] = []
        self._unchecked = IdSet()
        #: Logs that end within a record, or in zeros.
        self.cut: set[int] = set()

    def take(self, manifest: LogManifest) -> None:
        """Note what reading a log gave.

        A log with ledgers whose digest is not settled may be read once more; which ledgers it has counts when
        it is :meth:`settle` d.
        """
        self._note(manifest)
        kinds: dict[str, list[int]] = {}
        for ledger, kind in manifest.learnt:
            kinds.setdefault(kind, []).append(ledger)
        for kind, ledgers in kinds.items():
            self._learnt.setdefault(kind, IdSet()).add(ledgers)
        if manifest.unsettled:
            self._unsettled.append(manifest.log_id)
            self._unchecked.add(manifest.unsettled)
        else:
            self._ledgers.add(manifest.ledgers)

    def take_again(self, manifest: LogManifest) -> None:
        """Note what the second reading of a log gave, instead of the first."""
        self._note(manifest)
        self._ledgers.add(manifest.ledgers)

    def settle(self, ask: AskDigests) -> dict[int, dict[int, Digester]]:
        """Return for each log to be read again the digests of its ledgers that were not known.

        They come from other logs, and from ``ask``, which reads the metadata of ledgers that were in no
        ledgers map, each once. Other logs with unknown digests count as they were read. Raises StorageError,
        and what ``ask`` raises.
        """
        ledgers = self._unchecked.column()
        told = self._told(ledgers)
        told |= ask([ledger for ledger in ledgers.tolist() if ledger not in told])
        again = {}
        for log_id in self._unsettled:
            manifest = self._work.kept(log_id)
            digests = {ledger: told[ledger] for ledger in manifest.unsettled if ledger in told}
            if digests:
                again[log_id] = digests
            else:
                self._ledgers.add(manifest.ledgers)
        self._unsettled.clear()
        return again

    def _told(self, ledgers: Column) -> dict[int, Digester]:
        return {
            ledger: Digester(DigestType(kind))
            for kind, learnt in self._learnt.items()
            if kind != DigestType.MAC.value  # without a key the type alone is of no use
            for ledger in ledgers[np.isin(ledgers, learnt.column())].tolist()
        }

    def _note(self, manifest: LogManifest) -> None:
        runs = manifest.runs
        self._read[manifest.log_id] = _ReadLog(
            manifest.size_bytes,
            manifest.mtime_ns,
            tuple(run.rows for run in runs),
            tuple(run.checksum for run in runs),
        )
        self._damaged.pop(manifest.log_id, None)
        if manifest.cut:
            self.cut.add(manifest.log_id)
        if manifest.damaged:
            self._damaged[manifest.log_id] = replace(manifest, ledgers=(), learnt=(), unsettled=(), runs=())

    @property
    def runs(self) -> list[Run]:
        """The runs of all logs, in the order of the places that they point to."""
        return [
            Run(self._work.run_path(log.log_id, number), rows, checksum)
            for log in self.logs
            for read in (self._read[log.log_id],)
            for number, (rows, checksum) in enumerate(zip(read.rows, read.checksums, strict=True))
        ]

    @property
    def ledgers(self) -> frozenset[int]:
        """Every ledger with an entry in a log."""
        return frozenset(self._ledgers.column().tolist())

    @property
    def damaged(self) -> list[LogManifest]:
        """Logs from which entries may be missing, without the names of their ledgers and runs."""
        return [self._damaged[log.log_id] for log in self.logs if log.log_id in self._damaged]

    @property
    def doubts(self) -> list[Difference]:
        """Notes about records that may have stood inside damaged entries."""
        return [Difference("note", None, line) for manifest in self.damaged for line in manifest.doubts]

    @property
    def damaged_paths(self) -> list[str]:
        """The paths of logs from which entries may be missing."""
        return [log.path for log in self.logs if log.log_id in self._damaged]

    @property
    def held_bytes(self) -> int:
        """An estimate of the memory that grows with the logs and their ledgers, rows not included."""
        return _LOG_BYTES * len(self.logs) + _LEDGER_BYTES * len(self._ledgers.column())

    def lost(self, everything: Sequence[int]) -> set[int]:
        """Collect ledgers that may have lost entries; ``everything`` for a log that does not name them."""
        lost: set[int] = set()
        for manifest in self.damaged:
            lost.update(everything if manifest.lost is None else manifest.lost)
        return lost

    def fingerprint(self, *more: object) -> str:
        """Compute a text that changes when a log does, or what else the result depends on."""
        parts = [
            (log.log_id, read.size_bytes, read.mtime_ns, self._mode)
            for log in self.logs
            for read in (self._read[log.log_id],)
        ]
        return hashlib.sha256(repr((parts, more)).encode()).hexdigest()

    def check_unchanged(self) -> None:
        """Raise RefusedError when a log is not what it was when it was read."""
        for log in self.logs:
            read = self._read[log.log_id]
            if identity_of(log.path) != (read.size_bytes, read.mtime_ns):
                raise RefusedError(
                    f"{log.path}: changed during the rebuild; the old index is still in place. Stop the "
                    "process that writes there, and run the command again"
                )


def read_logs(
    logs: Sequence[LogFile], old: OldIndex, work: WorkDirectory, options: RebuildOptions, workers: Workers
) -> LogSet:
    """Read every log, or take what an earlier run left; ``old`` is replaced.

    Raises StorageError, RefusedError for damage.
    """
    work.prepare("logs")
    rows_max = options.rows_beside(_LOG_BYTES * len(logs))
    digesters = write_digests(work.at("digests.column"), options.digesters)
    tasks = [
        LogTask(log, work.path, rows_max, options.digest, digesters)
        for log in sorted(logs, key=lambda log: log.size_bytes, reverse=True)
    ]
    found = LogSet(logs, work, options.digest)
    read_each("reading entry logs", tasks, found.take, old, work, options, workers)
    again = _to_read_again(tasks, found, options)
    read_each("reading entry logs again", again, found.take_again, old, work, options, workers)
    check_loss(found, options)
    return found


def read_each(
    phase: str,
    tasks: Sequence[LogTask],
    take: Callable[[LogManifest], None],
    old: OldIndex,
    work: WorkDirectory,
    options: RebuildOptions,
    workers: Workers,
) -> None:
    """Read logs, and hand their manifests to ``take``; those that are not clean slowly, behind the others.

    One pass over ``old`` finds the places that it has in all of these. Raises StorageError, RefusedError.
    """
    damaged: set[int] = set()
    with options.phase(phase, sum(task.log.size_bytes for task in tasks)) as advance:
        for log_id, manifest in workers.results(scan_log, tasks, advance):
            if manifest is None:
                damaged.add(log_id)
            else:
                take(manifest)
    if not damaged:
        return
    work.prepare(_PLACES)
    places = old.note_places(damaged, lambda number: work.at(_PLACES, f"{number}.run"), tasks[0].rows_max)
    slow = [replace(task, places=places) for task in tasks if task.log.log_id in damaged]
    with options.phase("reading damaged entry logs", sum(task.log.size_bytes for task in slow)) as advance:
        for manifest in workers.results(scan_damaged, slow, advance):
            take(manifest)
    work.discard(_PLACES)


def _to_read_again(tasks: Sequence[LogTask], found: LogSet, options: RebuildOptions) -> list[LogTask]:
    """List the logs with unchecked entries whose digests another log or the metadata have."""

    def ask(ledgers: Collection[int]) -> dict[int, Digester]:
        new = [ledger for ledger in ledgers if ledger not in options.digesters]
        return digests_in(options.cluster, new) if new else {}

    told = found.settle(ask if options.cluster.is_live else lambda _: {})
    return [
        replace(task, told=told[task.log.log_id], again=True) for task in tasks if task.log.log_id in told
    ]


def check_loss(found: LogSet, options: RebuildOptions) -> None:
    """Raise RefusedError naming what is damaged and missing, unless the loss is accepted."""
    if not found.damaged or options.accept_loss:
        return
    lines = []
    for manifest in found.damaged:
        lines += list(manifest.damage)
        lines.append(f"missing: {', '.join(manifest.missing) or 'not known'}")
        if manifest.lost is None:
            lines.append("it has no ledgers map: any ledger of the directory may have lost entries")
    raise RefusedError(
        "; ".join(lines)
        + ". Nothing was changed: the new index would lack these entries for good. If there is an undamaged "
        "copy of the logs, bring it back. Otherwise, if the old index can be read, first run "
        + " and ".join(f"'{ended_by(salvage_words(path)).line}'" for path in found.damaged_paths)
        + ". This keeps the entries that digests and rows prove, and makes a rebuild possible. With "
        "--accept-loss the rebuild continues without the others, and puts every ledger that may have lost "
        "entries into limbo"
    )
