#!/usr/bin/env python3
"""Make sets of a fleet that there is not, and measure audits over them: time, memory, bytes.

    python bench/fleet.py [--entries 1e9] [--bookies 50] [--engine local|spark] [--ensemble 3] [--quorum 2]

A set of so many entries is written from its statistics alone: fragments, logs and blocks as a bookie's pass
would see them, with one fragment's entries lost. Nothing of the entries themselves is made. The audit runs in
a process of its own, whose peak memory is told.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.manifest import Manifest, PartFile
from bkctl.pipeline.sets.set_tables import TABLES
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.tables.schemas import FRAGMENTS, LEDGERS

ENTRY_BYTES = 1024
LOG_BYTES = 1 << 30
BLOCK = 1024


def fleet(folder: Path, entries: int, bookies: int, ensemble: int, quorum: int, ledger_entries: int) -> int:
    """Write metadata and sets; the bytes of the sets."""
    names = [f"10.0.{n // 250}.{n % 250}:3181" for n in range(bookies)]
    ledgers = max(1, entries // ledger_entries)
    ids = np.arange(ledgers, dtype=np.int64)
    first = (ids * 7919) % bookies
    slots = [(first + slot) % bookies for slot in range(ensemble)]
    _metadata(folder / "metadata", ids, slots, names, ensemble, quorum, ledger_entries)
    store = SetStore(located(str(folder / "sets")))
    store.claim()
    total = 0
    for number, name in enumerate(names):
        parts = [np.flatnonzero(slot == number) for slot in slots]
        total += _set(store, name, number, parts, ensemble, quorum, ledger_entries)
    return total


def _metadata(
    folder: Path,
    ids: np.ndarray,
    slots: list[np.ndarray],
    names: list[str],
    ensemble: int,
    quorum: int,
    ledger_entries: int,
) -> None:
    count = len(ids)
    for table in ("ledgers", "fragments"):
        (folder / table).mkdir(parents=True)
    constant = lambda value, kind: pa.repeat(pa.scalar(value, kind), count)  # noqa: E731
    columns = {
        "ledger": pa.array(ids),
        "state": constant("CLOSED", pa.string()),
        "digest": constant("crc32c", pa.string()),
        "length": constant(ledger_entries * ENTRY_BYTES, pa.int64()),
        "last_entry": constant(ledger_entries - 1, pa.int64()),
    }
    quorums = {"ensemble_size": ensemble, "write_quorum": quorum, "ack_quorum": quorum}
    columns |= {name: constant(value, pa.int32()) for name, value in quorums.items()}
    pq.write_table(_filled(columns, LEDGERS, count), folder / "ledgers" / "part.parquet", compression="zstd")
    named = pa.array(names)
    writer = pq.ParquetWriter(folder / "fragments" / "part.parquet", FRAGMENTS, compression="zstd")
    for slot, bookies in enumerate(slots):
        of_slot = {
            "ledger": columns["ledger"],
            "first_entry": constant(0, pa.int64()),
            "last_entry": columns["last_entry"],
            "slot": constant(slot, pa.int32()),
            "bookie": named.take(pa.array(bookies)),
            "state": columns["state"],
            **{name: columns[name] for name in quorums},
        }
        writer.write_table(_filled(of_slot, FRAGMENTS, count))
    writer.close()
    (folder / "summary.json").write_text("{}\n")


def _filled(columns: dict[str, pa.Array], schema: pa.Schema, count: int) -> pa.Table:
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _set(
    store: SetStore,
    name: str,
    number: int,
    parts: list[np.ndarray],
    ensemble: int,
    quorum: int,
    ledger_entries: int,
) -> int:
    ledger = np.concatenate(parts)
    slot = np.repeat(np.arange(ensemble), [len(part) for part in parts])
    held = ledger_entries * quorum // ensemble
    logs = max(1, len(ledger) * held * ENTRY_BYTES // LOG_BYTES)
    # A ledger's entries go into as many logs as the bookie rolls while it is written.
    per_log = max(1, min(ledger_entries, LOG_BYTES // ENTRY_BYTES // 200))
    pieces = -(-ledger_entries // per_log)
    order = np.lexsort((slot, ledger))
    ledger, slot = np.repeat(ledger[order], pieces), np.repeat(slot[order], pieces)
    piece = np.tile(np.arange(pieces), len(order))
    low, high = piece * per_log, np.minimum((piece + 1) * per_log, ledger_entries) - 1
    rng = np.random.default_rng(number)
    count = len(ledger)
    lost = np.zeros(count, bool)
    if number == 0 and count:
        lost[0] = True
    phase = (slot - quorum + 1) % ensemble if quorum < ensemble else np.zeros(count, np.int64)
    text = lambda value, n: pa.repeat(pa.scalar(value), n)  # noqa: E731
    log_id = (np.arange(count) // 200) % logs
    columns = {
        "bookie": text(name, count),
        "dir": text("/data/current", count),
        "log_id": pa.array(log_id),
        "ledger": pa.array(ledger),
        "first": pa.array(low),
        "last": pa.array(high),
        "entries": pa.array((high - low + 1) * quorum // ensemble),
        "bytes": pa.array((high - low + 1) * quorum // ensemble * ENTRY_BYTES),
        "min_lac": pa.array(low - 1),
        "max_lac": pa.array(high - 1),
        "bad_digests": pa.array(np.zeros(count, np.int64)),
        "ids_hash": pa.array(rng.integers(0, 1 << 44, count)),
        "step": pa.array(np.full(count, ensemble if quorum < ensemble else 1, np.int32)),
        "width": pa.array(np.full(count, quorum if quorum < ensemble else 1, np.int32)),
        "phase": pa.array(phase.astype(np.int32)),
    }
    place = store.place_of(name, "20261123T010000000Z-00000000")
    tables: dict[str, tuple[PartFile, ...]] = {}
    runs = pa.Table.from_pydict(columns, schema=TABLES["runs"]).filter(pa.array(~lost))
    tables["runs"] = (_part(place, "runs", runs),)
    tables["blocks"] = (_part(place, "blocks", _blocks(name, columns, ensemble, quorum, rng)),)
    bookie = {
        "bookie": name,
        "dir": "/data/current",
        "holds_ledgers": True,
        "holds_journals": True,
        "ledger_dirs": 1,
        "journal_dirs": 1,
    }
    tables["bookies"] = (_part(place, "bookies", pa.Table.from_pylist([bookie], TABLES["bookies"])),)
    for table, schema in TABLES.items():
        if table not in tables:
            tables[table] = (_part(place, table, schema.empty_table()),)
    _publish(store, name, tables, bookie)
    return sum(part.bytes for parts in tables.values() for part in parts)


def _publish(
    store: SetStore, name: str, tables: dict[str, tuple[PartFile, ...]], bookie: dict[str, object]
) -> None:
    now_ms = int(time.time() * 1000)
    store.publish(
        Manifest(
            bookie=name,
            set_id="20261123T010000000Z-00000000",
            instance_id="bench",
            host=name,
            cookie=None,
            dirs=("/data/current",),
            started_ms=now_ms,
            ended_ms=now_ms,
            version="bench",
            kernel="bench",
            digest_known="auto",
            verdict="clean",
            guards=(),
            unread_indexes=(),
            logs_gone=0,
            not_read={},
            last_marks=(),
            tables=tables,
            files=(),
            bookies=(bookie,),
        )
    )


def _blocks(
    name: str, columns: dict[str, pa.Array], ensemble: int, quorum: int, rng: np.random.Generator
) -> pa.Table:
    """A row for each block of a piece and remainder that the bookie has, with digests of which the replicas
    have the same."""
    ledger, low = np.asarray(columns["ledger"]), np.asarray(columns["first"])
    high, phase = np.asarray(columns["last"]), np.asarray(columns["phase"]).astype(np.int64)
    step = ensemble if quorum < ensemble else 1
    first, last = low // BLOCK, high // BLOCK
    counts = last - first + 1
    row = np.repeat(np.arange(len(ledger)), counts)
    block = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + first[row]
    width = quorum if step > 1 else 1
    row, block = np.repeat(row, width), np.repeat(block, width)
    residue = (phase[row] + np.tile(np.arange(width), len(row) // width)) % step
    start = np.maximum(low[row], block * BLOCK)
    end = np.minimum(high[row], block * BLOCK + BLOCK - 1)
    entries = (end - residue) // step - (start - 1 - residue) // step
    mixed = (ledger[row] * 0x9E3779B1 + block * 0x85EBCA6B + start * 31 + residue) * 0xC2B2AE35
    made = {
        "bookie": pa.repeat(pa.scalar(name), len(row)),
        "dir": pa.repeat(pa.scalar("/data/current"), len(row)),
        "log_id": columns["log_id"].take(pa.array(row)),
        "ledger": pa.array(ledger[row]),
        "block": pa.array(block),
        "step": pa.array(np.full(len(row), step, np.int32)),
        "residue": pa.array(residue.astype(np.int32)),
        "entries": pa.array(entries),
        "digest": pa.array((mixed ^ mixed >> 17) & ((1 << 44) - 1)),
    }
    return pa.Table.from_pydict(made, schema=TABLES["blocks"])


def _part(place: object, table: str, rows: pa.Table) -> PartFile:
    from bkctl.pipeline.sets.parts import PartWriter, part_name

    writer = PartWriter(place, part_name(table), rows.schema)  # type: ignore[arg-type]
    for batch in rows.to_batches(max_chunksize=1 << 18):
        writer.add(batch)
    found = writer.close()
    if found is not None:
        return found
    with place.opened(f"{table}/empty.parquet") as stream:  # type: ignore[attr-defined]
        pq.write_table(rows, stream)
        return PartFile(f"{table}/empty.parquet", 0, int(stream.tell()))


def audit(folder: str, job: str, engine: str, memory: str) -> None:
    """Run one job in this process and print what it took."""
    command = ["pipeline", "run", job, f"{folder}/sets", "--metadata", f"{folder}/metadata", "--out"]
    command += [f"{folder}/out-{job}-{engine}", "--engine", engine, "--memory", memory, "-o", "json"]
    started = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "bkctl", *command], capture_output=True, text=True, check=False
    )
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        raise SystemExit(done.stderr)
    outcome = json.loads(done.stdout)
    row = {
        "job": job,
        "engine": outcome["engine"],
        "wall_s": round(time.time() - started, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": usage.ru_maxrss >> 10,
        "verdict": outcome["verdict"],
        "counts": {name: value for name, value in outcome["counts"].items() if value},
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--entries", type=float, default=1e8)
    parser.add_argument("--bookies", type=int, default=50)
    parser.add_argument("--ensemble", type=int, default=3)
    parser.add_argument("--quorum", type=int, default=2)
    parser.add_argument("--ledger-entries", type=int, default=20_000)
    parser.add_argument("--engine", choices=("local", "spark"), action="append")
    parser.add_argument("--job", action="append")
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--dir", help="where sets are made, and left; a directory that goes without")
    parser.add_argument("--audit", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.audit:
        audit(given.audit, given.job[0], given.engine[0], given.memory)
        return
    folder = Path(given.dir or tempfile.mkdtemp(prefix="bkctl-fleet-"))
    try:
        started = time.time()
        if not (folder / "metadata").exists():
            entries = int(given.entries)
            size = fleet(folder, entries, given.bookies, given.ensemble, given.quorum, given.ledger_entries)
            copies = entries * given.quorum
            print(
                json.dumps(
                    {
                        "entries": entries,
                        "copies": copies,
                        "bookies": given.bookies,
                        "set_bytes": size,
                        "bytes_per_copy": round(size / copies, 4),
                        "runs_bytes_per_copy": round(_size(folder, "runs") / copies, 4),
                        "blocks_bytes_per_copy": round(_size(folder, "blocks") / copies, 4),
                        "made_in_s": round(time.time() - started, 1),
                    }
                ),
                flush=True,
            )
        for engine in given.engine or ["local"]:
            for job in given.job or ["replication-audit", "replica-compare"]:
                words = ["--audit", str(folder), "--job", job, "--engine", engine, "--memory", given.memory]
                subprocess.run([sys.executable, __file__, *words], check=True, env=dict(os.environ))
    finally:
        if given.dir is None:
            shutil.rmtree(folder)


def _size(folder: Path, table: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"sets/*/*/{table}/*.parquet"))


if __name__ == "__main__":
    main()
