"""``index-rebuild``: the indexes of many bookies' directories, built again from their logs.

Unlike the other jobs it writes into the directories. The job does the work of ``bkctl index rebuild`` on one
bookie: the old index is kept beside the new one. Here the bookies are done one after the other, each with all
processes; ``bkctl.spark.index_rebuild`` does them at the same time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.admin.index.rebuild.bookie_facts import with_cluster
from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult
from bkctl.admin.index.rebuild.rebuild import rebuild_index
from bkctl.admin.ledgers.known_ledgers import DumpedCluster
from bkctl.directories.placement import Placement, find_placement
from bkctl.errors import UsageError, as_storage_errors
from bkctl.pipeline.job import REBUILD_NAME, Parameters
from bkctl.pipeline.jobs.index_rebuild import REBUILD, REBUILD_TABLE
from bkctl.pipeline.out_directory import put
from bkctl.pipeline.results import Outcome, WrittenTable, judged
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.places import bookie_folders
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.vfs import FileSystem

REBUILT = pa.schema(
    [
        ("dir", pa.string()),
        ("rows", pa.int64()),
        ("ledgers", pa.int64()),
        ("seconds", pa.float64()),
        ("backups", pa.list_(pa.string())),
        ("differences", pa.string()),
        ("lossy", pa.bool_()),
        ("alarming", pa.bool_()),
    ]
)


def placements(filesystem: FileSystem, paths: Sequence[str]) -> list[Placement]:
    """Find the bookies in ``paths`` and which index serves which of their logs, each once.

    Directories of one storage that are named one by one lead to the same: the cookie names the others.
    Raises UsageError when there is none, NotFoundError, StorageError.
    """
    folders = bookie_folders(filesystem, paths)
    if not folders:
        raise UsageError(f"{', '.join(paths)}: no ledger directory in it")
    found: dict[frozenset[str], Placement] = {}
    for folder in folders:
        placement = find_placement(filesystem, folder)
        dirs = frozenset(os.path.realpath(pair.ledger_dir) for pair in placement.directories)
        found.setdefault(dirs, placement)
    return list(found.values())


def with_metadata(filesystem: FileSystem, options: RebuildOptions, metadata: str | None) -> RebuildOptions:
    """Add the facts of a metadata dump to the options. Raises UsageError for a URI, CorruptionError."""
    if metadata is None:
        return options
    if is_uri(metadata):
        raise UsageError(
            f"--metadata {metadata}: {REBUILD_NAME} takes a dump ('bkctl metadata dump'), so that all "
            "bookies are rebuilt by the same one"
        )
    return with_cluster(
        filesystem, options, DumpedCluster(load_metadata_dump(filesystem, metadata), name=metadata), ()
    )


def rebuild_locally(
    found: Sequence[Placement], options: RebuildOptions, jobs: int | None
) -> list[RebuildResult]:
    """Rebuild one bookie after the other; raises what ``rebuild_index`` raises for the first that fails,
    which has its old index then, as have those after it."""
    return [result for placement in found for result in rebuild_index(placement, options, jobs)]


def rebuild_outcome(
    results: Sequence[RebuildResult],
    out: str,
    work_dir: str,
    paths: tuple[str, ...],
    engine: str,
    started_s: float,
) -> Outcome:
    """Write the table of what was rebuilt into ``out``, a claimed directory, and say what came of it.

    Raises StorageError.
    """
    outcome = Outcome(
        job=REBUILD_NAME,
        engine=engine,
        out=out,
        paths=paths,
        metadata=None,
        metadata_after=None,
        started_ms=int(started_s * 1000),
        seconds=round(time.time() - started_s, 3),
        parameters=Parameters(),
        counts={
            "indexes": len(results),
            "rows": sum(result.rows or 0 for result in results),
            "ledgers": sum(result.ledgers for result in results),
            "lossy": sum(result.lossy for result in results),
            "alarming": sum(result.is_alarming for result in results),
            "unproved": sum(result.is_unproved for result in results),
            "differences": sum(len(result.differences) for result in results),
        },
        tables=(_write(results, out, work_dir),),
        guards=(),
    )
    return judged(outcome, REBUILD)


def _write(results: Sequence[RebuildResult], out: str, work_dir: str) -> WrittenTable:
    rows = [
        {
            "dir": result.dir,
            "rows": result.rows,
            "ledgers": result.ledgers,
            "seconds": result.seconds,
            "backups": list(result.backups),
            "differences": json.dumps(
                [
                    {"kind": found.kind, "ledger": found.ledger, "detail": found.detail}
                    for found in result.differences
                ]
            ),
            "lossy": result.lossy,
            "alarming": result.is_alarming,
        }
        for result in results
    ]
    folder, making = os.path.join(out, REBUILD_TABLE), os.path.join(work_dir, REBUILD_TABLE)
    with as_storage_errors(making):
        os.makedirs(making)
        pq.write_table(pa.Table.from_pylist(rows, REBUILT), os.path.join(making, "part-00000.parquet"))
    put(making, folder)
    return WrittenTable.of(REBUILD_TABLE, "result", folder)
