"""The entry logs of one space of log ids: read into runs, judged, and held to what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bkctl.admin.offline.rebuild.location_runs import Run
from bkctl.admin.offline.rebuild.log_scan import LogTask, scan_log
from bkctl.admin.offline.rebuild.options import RebuildOptions
from bkctl.admin.offline.rebuild.state import LogManifest, WorkDirectory, identity_of
from bkctl.admin.offline.rebuild.workers import Workers
from bkctl.codec.digest import Digester
from bkctl.errors import RefusedError
from bkctl.scan.directory import LogFile
from bkctl.types import DigestType


@dataclass(frozen=True, slots=True)
class LogSet:
    """Logs that were read, in order of ids, each with its manifest."""

    logs: tuple[LogFile, ...]
    manifests: tuple[LogManifest, ...]

    @property
    def runs(self) -> list[Run]:
        """The runs of all logs, in the order of the places that they point to."""
        return [run for manifest in self.manifests for run in manifest.runs]

    @property
    def ledgers(self) -> frozenset[int]:
        """Every ledger with an entry in a log."""
        return frozenset(ledger for manifest in self.manifests for ledger in manifest.ledgers)

    @property
    def damaged(self) -> list[LogManifest]:
        """Logs from which entries may be missing."""
        return [manifest for manifest in self.manifests if manifest.damaged]

    def lost(self, everything: Sequence[int]) -> set[int]:
        """Ledgers that may have lost entries; ``everything`` where a log cannot tell."""
        lost: set[int] = set()
        for manifest in self.damaged:
            lost.update(everything if manifest.lost is None else manifest.lost)
        return lost

    def fingerprint(self, *more: object) -> str:
        """Changes when a log does, or what else the result depends on."""
        parts = [(m.log_id, m.size_bytes, m.mtime_ns, m.mode) for m in self.manifests]
        return hashlib.sha256(repr((parts, more)).encode()).hexdigest()

    def check_unchanged(self) -> None:
        """Raises RefusedError when a log is not what it was when it was read."""
        for log, manifest in zip(self.logs, self.manifests, strict=True):
            if identity_of(log.path) != (manifest.size_bytes, manifest.mtime_ns):
                raise RefusedError(
                    f"{log.path}: changed during the rebuild; the old index is in place; stop what writes "
                    "there and run the command again"
                )


def read_logs(
    logs: Sequence[LogFile], work: WorkDirectory, options: RebuildOptions, workers: Workers
) -> LogSet:
    """Read every log, or take what an earlier run left. Raises StorageError, RefusedError for damage."""
    work.prepare("logs")
    tasks = [
        LogTask(log, work.path, options.rows_max, options.digest, options.digesters)
        for log in sorted(logs, key=lambda log: log.size_bytes, reverse=True)
    ]
    with options.phase("reading entry logs", sum(log.size_bytes for log in logs)) as advance:
        manifests = {found.log_id: found for found in workers.results(scan_log, tasks, advance)}
    again = _to_read_again(tasks, manifests)
    with options.phase("reading entry logs again", sum(task.log.size_bytes for task in again)) as advance:
        manifests |= {found.log_id: found for found in workers.results(scan_log, again, advance)}
    found = LogSet(tuple(logs), tuple(manifests[log.log_id] for log in logs))
    check_loss(found, options)
    return found


def _to_read_again(tasks: Sequence[LogTask], manifests: Mapping[int, LogManifest]) -> list[LogTask]:
    """Logs with too few entries of a ledger to tell its digest, where another log could tell it."""
    learnt = {
        ledger: Digester(DigestType(kind)) for found in manifests.values() for ledger, kind in found.learnt
    }
    again = []
    for task in tasks:
        told = {ledger: learnt[ledger] for ledger in manifests[task.log.log_id].unsettled if ledger in learnt}
        if told:
            again.append(replace(task, digesters={**told, **task.digesters}, again=True))
    return again


def check_loss(found: LogSet, options: RebuildOptions) -> None:
    """Raises RefusedError naming what is damaged and missing, unless the loss is accepted."""
    if not found.damaged or options.accept_loss:
        return
    lines = []
    for manifest in found.damaged:
        lines += list(manifest.damage)
        lines.append(f"  missing: {'; '.join(manifest.missing) or 'not known'}")
        if manifest.lost is None:
            lines.append("  it has no ledgers map: any ledger of the directory may have lost entries")
    raise RefusedError(
        "\n".join(lines)
        + "\nnothing was changed. The new index would lack these entries for good. Copy the logs "
        "from a good disk if there is one; with --accept-loss the rebuild goes on without them and marks "
        "every ledger that may have lost entries (limbo)"
    )
