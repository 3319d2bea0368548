"""Find whose directories are rebuilt, and when their bookie wrote last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bkctl.admin.index.rebuild.log_files import find_logs
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.ledgers.grouped_metadata import GroupedMetadata
from bkctl.admin.ledgers.known_ledgers import Cluster, DumpedCluster
from bkctl.admin.logs.digests import digesters_of
from bkctl.codec.digest import Digester
from bkctl.directories.placement import Placement, ledgers_in
from bkctl.errors import storage_error
from bkctl.scan.directory import JournalFile
from bkctl.vfs import FileSystem

_MARKS = ("lastMark", "lastId")


def last_written_ms(journals: Iterable[JournalFile], *ledger_dirs: str) -> float:
    """Find when a journal, an entry log or a mark was written last. Raises StorageError."""
    paths = [journal.path for journal in journals]
    try:
        for directory in ledger_dirs:
            names = os.listdir(directory)
            paths += [os.path.join(directory, n) for n in names if n.endswith(".log") or n.startswith(_MARKS)]
        return max((os.stat(path).st_mtime_ns for path in paths), default=0) / 1e6
    except OSError as error:
        raise storage_error(error, error.filename) from error


def with_cluster(
    filesystem: FileSystem, options: RebuildOptions, cluster: Cluster, placements: Sequence[Placement]
) -> RebuildOptions:
    """Add what is known of the cluster, and how the entries of its ledgers are checked.

    Of a live store only the ledgers of these directories are read: those in the ledgers maps, or in the first
    part of a log without one. Others are asked for when a log has been read and has them (``read_logs``).
    Raises BkctlError.
    """
    if isinstance(cluster, DumpedCluster):
        return replace(options, cluster=cluster, digesters=digesters_of(cluster.ledgers))
    ledgers: set[int] = set()
    if cluster.is_live:
        for placement in placements:
            # Each by itself: the directories of DbLedgerStorage have logs of the same ids.
            for folder in sorted({directory.ledger_dir for directory in placement.directories}):
                ledgers |= ledgers_in(filesystem, find_logs(filesystem, [folder]))
    return replace(options, cluster=cluster, digesters=digests_in(cluster, ledgers))


def digests_in(cluster: Cluster, ledgers: Iterable[int]) -> dict[int, Digester]:
    """Return how the entries of those of some ledgers are checked that the cluster has. Raises BkctlError."""
    return digesters_of(GroupedMetadata(cluster.metadata_of, ledgers))
