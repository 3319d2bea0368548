"""Read again for every set a bookie's journals, and the entries in which indexes and logs disagree."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bkctl.errors import NotFoundError, StorageError
from bkctl.pipeline.job import Job
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.locations import opened_file
from bkctl.pipeline.results import parquet_files
from bkctl.pipeline.sets.blocks import BLOCK_ENTRIES
from bkctl.pipeline.sets.set_tables import (
    EXPANDED_BLOCKS,
    JOURNAL_ENTRIES,
    REPLICAS,
    STRIPED_INDEX_RUNS,
    UNFLUSHED,
)
from bkctl.pipeline.sets.stripes import Stripes, striped
from bkctl.pipeline.survey import folded_ranges
from bkctl.pipeline.tables.arrow_columns import batch_of, rows_batches
from bkctl.pipeline.tables.damage import INDEX, JOURNAL, damage_rows, index_damage_row, unread_row
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import index_directories, journal_files
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.run_lengths import Runs
from bkctl.pipeline.tables.schemas import VERIFICATION
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.verification import damage_row
from bkctl.pipeline.task_calls import index_trouble
from bkctl.reporting import counted
from bkctl.scan.columns.column import Column
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import PosixFileSystem

Keep = Callable[[str, Iterator[pa.RecordBatch]], None]

#: More entries than these of ledgers whose index differs from their logs are left to a reading of the files.
SUSPECT_ENTRIES_MAX = 20_000_000

_JOURNAL_COLUMNS = [*JOURNAL_ENTRIES.names, "kind"]


def read_table(
    name: str, columns: Sequence[str], paths: Sequence[str], options: TableOptions
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a table, one task after the other."""
    table = table_named(name)
    for split in table.plan(paths, options):
        yield from table.read(split, columns, options)


def read_journals(paths: Sequence[str], options: TableOptions, keep: Keep) -> None:
    """Write the entries of journals, and those of them that the next start replays."""
    for batch in read_table("journal", _JOURNAL_COLUMNS, paths, options):
        entries = batch.filter(pc.equal(batch.column("kind"), "entry"))
        keep("journal_entries", iter([entries.select(JOURNAL_ENTRIES.names)]))
        after = entries.filter(pc.fill_null(entries.column("after_mark"), False))
        keep("unflushed", iter([after.select(UNFLUSHED.names)]))


def keep_unread_indexes(
    directories: Iterable[str], paths: Sequence[str], options: TableOptions, keep: Keep
) -> None:
    """Write a damage for each index that cannot be opened, of those that are left out."""
    filesystem = PosixFileSystem()
    left_out = set(map(os.path.abspath, directories))
    for file in index_directories(filesystem, paths, options):
        why = index_trouble(filesystem, file.path) if os.path.abspath(file.path) in left_out else None
        if why is not None:
            row = damage_row(unread_row(replace(file, bytes=0), INDEX, why))
            keep("verification", rows_batches(VERIFICATION, [row], 1))


def keep_index_damage(file: SplitFile, damage: IndexDamage, keep: Keep) -> None:
    """Write a damage of an index."""
    row = damage_row((file.bookie, file.dir, *index_damage_row(damage)))
    keep("verification", rows_batches(VERIFICATION, [row], 1))


def read_journal_damage(paths: Sequence[str], options: TableOptions, keep: Keep) -> None:
    """Write what of the journals cannot be read; a power cut's trace at their end is no damage."""
    structure = replace(options, digest="off", metadata=None)
    if not paths:
        return
    files = journal_files(PosixFileSystem(), paths, structure)
    for file in files:
        rows = damage_rows(file, Split((file,), kind=JOURNAL), structure)
        keep("verification", rows_batches(VERIFICATION, map(damage_row, rows), options.batch_rows))


def striped_index_runs(file: SplitFile, columns: Mapping[str, Column]) -> pa.RecordBatch:
    """Return the columns of table ``index_runs``, of one directory and in order of entries, as stripes."""
    ledgers, logs = columns["ledger"], columns["log_id"]
    if ((ledgers[1:] == ledgers[:-1]) & (logs[1:] < logs[:-1])).any():
        order = np.lexsort((columns["first"], logs, ledgers))
        columns = {name: values[order] for name, values in columns.items()}
        ledgers, logs = columns["ledger"], columns["log_id"]
    new = (ledgers[1:] != ledgers[:-1]) | (logs[1:] != logs[:-1])
    key = np.concatenate(([0], np.cumsum(new)))
    nothing = np.zeros(len(key), np.int64)
    first, last, entries, hashes = (columns[name] for name in ("first", "last", "entries", "ids_hash"))
    stripes = striped(Runs(key, first, last, entries, nothing, nothing, nothing, nothing, hashes))
    group = np.concatenate(([0], np.flatnonzero(new) + 1))
    made = _stripe_columns(stripes)
    made["ledger"] = pa.array(ledgers[group][stripes.ledgers])
    made["log_id"] = pa.array(logs[group][stripes.ledgers])
    constants = {"bookie": file.bookie, "dir": file.dir}
    return batch_of(STRIPED_INDEX_RUNS, STRIPED_INDEX_RUNS.names, len(stripes), made, constants)


def _stripe_columns(stripes: Stripes) -> dict[str, pa.Array]:
    return {
        "first": pa.array(stripes.first),
        "last": pa.array(stripes.last),
        "entries": pa.array(stripes.entries),
        "ids_hash": pa.array(stripes.hashes),
        "step": pa.array(stripes.step.astype("int32")),
        "width": pa.array(stripes.width.astype("int32")),
        "phase": pa.array(stripes.phase.astype("int32")),
    }


def read_suspects(
    audit: Job,
    parts: dict[str, list[str]],
    paths: Sequence[str],
    options: TableOptions,
    keep: Keep,
    memory_bytes: int,
) -> str | None:
    """Write entries and locations of the ledgers whose index differs from their logs, as ``audit`` says.

    ``parts`` are the files of the tables that its first queries read. Returns why they were left out, None
    when they were not.
    """
    with LocalEngine(jobs=1, memory_bytes=memory_bytes) as engine:
        for name, files in parts.items():
            engine.load(name, files)
        for statement in audit.statements():
            if statement.kind == "expand":
                break
            (engine.step if statement.kind == "step" else engine.view)(statement.name, statement.query)
        rows = engine.rows(
            "SELECT s.space, s.ledger, coalesce(sum(l.entries), 0) AS entries FROM suspects s "
            "LEFT JOIN log_side l ON l.space = s.space AND l.ledger = s.ledger GROUP BY s.space, s.ledger"
        )
        dirs = defaultdict(list)
        for row in engine.rows("SELECT d.space, d.dir FROM dir_spaces d"):
            dirs[row["space"]].append(row["dir"])
    if not rows:
        return None
    entries = sum(int(row["entries"]) for row in rows)
    if entries > SUSPECT_ENTRIES_MAX:
        return (
            f"the index of {counted(len(rows), 'ledger')} differs from the logs, which have {entries:,} "
            "entries of such ledgers: run index-audit over the directories themselves"
        )
    ledgers = sorted({int(row["ledger"]) for row in rows})
    wanted = pa.array([f"{row['ledger']} {name}" for row in rows for name in dirs[row["space"]]])
    narrowed = replace(options, ledgers=folded_ranges(ledgers), digest="off", metadata=None)

    def chosen(name: str, source: str, columns: Sequence[str]) -> None:
        batches = read_table(source, columns, paths, narrowed)
        keep(name, (_of(batch, wanted) for batch in batches))

    # Locations first, as in the audit itself: the bookie may flush in between.
    chosen("suspect_locations", "index_locations", table_named("index_locations").schema.names)
    chosen("suspect_entries", "entries", ("bookie", "dir", "log_id", "offset", "ledger", "entry"))
    return None


def _of(batch: pa.RecordBatch, wanted: pa.Array) -> pa.RecordBatch:
    ledger = pc.cast(batch.column("ledger"), pa.string())
    keys = pc.binary_join_element_wise(ledger, pc.cast(batch.column("dir"), pa.string()), " ")
    return batch.filter(pc.is_in(keys, wanted))


def asked_blocks(table: str, bookie: str) -> pa.Table:
    """Return the blocks that a bookie is asked for by table ``blocks_to_compare`` of a run, a folder or URL.

    Raises NotFoundError, StorageError.
    """
    found = []
    try:
        for file in parquet_files(table):
            filesystem, path = opened_file(file)
            rows = pq.read_table(path, columns=["bookie", "ledger", "block"], filesystem=filesystem)
            found.append(rows.filter(pc.equal(rows.column("bookie"), bookie)))
    except FileNotFoundError:
        raise NotFoundError(f"--blocks {table}: no such directory") from None
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"--blocks {table}: {error}", path=table) from error
    if not found:
        raise NotFoundError(f"--blocks {table}: holds no table")
    joined: pa.Table = pa.concat_tables(found).cast(EXPANDED_BLOCKS)
    return joined


def read_blocks(asked: pa.Table, paths: Sequence[str], options: TableOptions, keep: Keep) -> None:
    """Write the entries of blocks one by one."""
    if not asked.num_rows:
        return
    ledgers = sorted(set(asked.column("ledger").to_pylist()))
    pairs = zip(asked.column("ledger").to_pylist(), asked.column("block").to_pylist(), strict=True)
    wanted = pa.array([f"{ledger} {block}" for ledger, block in pairs])
    narrowed = replace(options, ledgers=folded_ranges(ledgers))
    for batch in read_table("entries", REPLICAS.names, paths, narrowed):
        block = pc.cast(pc.divide(batch.column("entry"), BLOCK_ENTRIES), pa.string())
        keys = pc.binary_join_element_wise(pc.cast(batch.column("ledger"), pa.string()), block, " ")
        keep("replicas", iter([batch.filter(pc.is_in(keys, wanted))]))
    keep("expanded_blocks", iter(asked.to_batches()))
