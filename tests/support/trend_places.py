"""Sets and runs of past nights, written by hand: what trends are read from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.pipeline.job import Parameters
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.manifest import Manifest, PartFile, SetFile
from bkctl.pipeline.sets.store import SetStore, new_set_id
from bkctl.pipeline.tables.schemas import VERIFICATION

DAY_MS = 86_400_000
#: The night of day 0.
NIGHT_MS = 1_790_000_000_000


def night(day: float) -> int:
    """Return the time of a night."""
    return NIGHT_MS + int(day * DAY_MS)


def publish(
    folder: Path,
    bookie: str,
    day: float,
    log_bytes: int = 1000,
    *,
    damages: int = 0,
    bad: int = 0,
    unchecked: int = 0,
    **changes: Any,
) -> Path:
    """Publish a set of a bookie; the path of its directory."""
    store = SetStore(located(str(folder)))
    store.claim()
    started_ms = night(day)
    set_id = new_set_id(started_ms)
    place = store.place_of(bookie, set_id)
    rows: list[dict[str, Any]] = [
        {"part": "checks", "digest_ok": True, "entries": 10},
        {"part": "checks", "digest_ok": False, "entries": bad},
        {"part": "checks", "digest_ok": None, "entries": unchecked},
        *({"part": "damage"} for _ in range(damages)),
    ]
    table = pa.Table.from_pylist([row for row in rows if row.get("entries") != 0], schema=VERIFICATION)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    place.write("verification/part-1.parquet", content)
    part = PartFile("verification/part-1.parquet", table.num_rows, len(content))
    made = Manifest(
        bookie=bookie,
        set_id=set_id,
        instance_id="one",
        host=f"host-of-{bookie}",
        cookie=None,
        dirs=("/data/current",),
        started_ms=started_ms,
        ended_ms=started_ms + 1000,
        version="1",
        kernel="k",
        digest_known="auto",
        verdict="clean",
        guards=(),
        unread_indexes=(),
        logs_gone=0,
        not_read={},
        last_marks=(),
        tables={"verification": (part,)},
        files=(SetFile("entry_log", "/data/current", 1, "1.log", log_bytes, 0, 0, 0, "read", started_ms),),
        bookies=(),
    )
    store.publish(replace(made, **changes))
    return Path(place.path)


def write_run(
    folder: Path,
    job: str,
    day: float,
    counts: Mapping[str, float],
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    **changes: Any,
) -> Path:
    """Write the results of a run as ``pipeline run`` leaves them, as far as trends read them."""
    out = folder / f"{job}-{day}"
    out.mkdir(parents=True)
    (out / ".bkctl-pipeline").touch()
    for name, rows in (tables or {}).items():
        (out / name).mkdir()
        pq.write_table(pa.Table.from_pylist(list(rows)), out / name / "part-00000.parquet")
    summary = {
        "job": job,
        "started_ms": night(day),
        "seconds": 60.0,
        "verdict": "clean",
        "found": [],
        "counts": dict(counts),
        "paths": [f"/backup/{day}/bookies"],
        "metadata": "dump.json",
        "parameters": asdict(Parameters(now_ms=night(day))),
    }
    (out / "summary.json").write_text(json.dumps({**summary, **changes}))
    return out
