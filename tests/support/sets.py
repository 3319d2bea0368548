"""Sets of the demo's bookie, and runs of jobs over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bkctl.pipeline.engine import Engine
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.locations import located
from bkctl.pipeline.results import Outcome
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.pipeline.sets.collection import Collected, CollectRequest, collect
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.tables.options import TableOptions
from bkctl.vfs import PosixFileSystem

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"
ZK = DEMO.parent / "zk.json"


def collected(bookie: Path, to: object, **request: Any) -> Collected:
    """Collect a bookie's directories with the demo's metadata."""
    options = request.pop("options", None) or TableOptions(damage="rows", metadata=str(ZK))
    store = SetStore(located(str(to)))
    return collect(PosixFileSystem(), store, CollectRequest((str(bookie),), options, **request))


def ran(
    job: str,
    paths: Sequence[object],
    out: Path,
    *,
    engine: Engine | None = None,
    out_url: str | None = None,
    **request: Any,
) -> Outcome:
    """Run a job with the demo's metadata, read twice unless said."""
    request.setdefault("metadata", str(ZK))
    request.setdefault("metadata_after", request["metadata"])
    asked = Request(JOBS[job], tuple(map(str, paths)), out_url or str(out), **request)
    if engine is not None:
        return run_job(PosixFileSystem(), engine, asked)
    with LocalEngine(jobs=1) as local:
        return run_job(PosixFileSystem(), local, asked)
