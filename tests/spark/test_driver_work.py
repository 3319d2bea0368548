"""A job's driver opens no more of a large fleet than of a small one: tasks list, look, open and plan."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bkctl.errors import UsageError
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.locations import located
from bkctl.pipeline.results import Outcome
from bkctl.pipeline.run import run_job
from bkctl.pipeline.run_request import Request
from bkctl.vfs import PosixFileSystem
from tests.support.grades import one_kept
from tests.support.log_builder import simple_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEMO = Path(__file__).parents[1] / "data" / "demo"
REFUSING = Path("/sys/class/net/lo/speed")


def fleet(folder: Path, more_logs: int) -> Path:
    """Two bookies with the same entries, one of which has more small logs."""
    for name in ("bookie1", "bookie2"):
        shutil.copytree(DEMO / "bookie1", folder / name)
    for cookie in (folder / "bookie2").rglob("VERSION"):
        cookie.write_text(re.sub('bookieHost: "[^"]*"', 'bookieHost: "10.0.0.2:3181"', cookie.read_text()))
    for log_id in range(0x1000, 0x1000 + more_logs):
        (folder / "bookie1" / "ledgers" / "current" / f"{log_id:x}.log").write_bytes(simple_log().data)
    return folder


@contextmanager
def looks(folder: Path) -> Iterator[Counter[str]]:
    """What this process asks of the files below a folder."""
    asked: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "status", "names"):
            patch.setattr(
                PosixFileSystem, name, _counted(getattr(PosixFileSystem, name), name, folder, asked)
            )
        yield asked


def _counted(method: Any, name: str, folder: Path, asked: Counter[str]) -> Any:
    def counted(self: PosixFileSystem, path: str) -> Any:
        if Path(path).is_relative_to(folder):
            asked[name] += 1
        return method(self, path)

    return counted


def ran(
    spark: SparkSession | None, job: str, paths: list[Path], out: Path, exchange: Path | None = None
) -> Outcome:
    from bkctl.spark.engine import SparkEngine
    from bkctl.spark.exchange import Exchange

    metadata = str(DEMO / "zk.json")
    request = Request(JOBS[job], tuple(map(str, paths)), str(out), metadata)
    if spark is None:
        with LocalEngine(jobs=1) as local:
            return run_job(PosixFileSystem(), local, request)
    between = None if exchange is None else Exchange(located(str(exchange)))
    with SparkEngine(spark, str(out / ".work"), files_here_max=4, exchange=between) as engine:
        return run_job(PosixFileSystem(), engine, request)


@pytest.mark.parametrize("exchange", one_kept("the same without an exchange", True, False))
def test_what_the_driver_opens_does_not_grow(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    """With an exchange, too, where executors see the bookies' files and no other directory of the driver."""
    monkeypatch.setattr("bkctl.spark.engine.DUMP_BYTES_HERE_MAX", 0)
    counts = []
    for more in (2, 40):
        folder = fleet(tmp_path / f"with-{more}", more)
        with looks(folder) as asked:
            between = tmp_path / "exchange" if exchange else None
            told = ran(spark, "stats", [folder], tmp_path / f"out-{more}", between)
        counts.append(asked)
        here = ran(None, "stats", [folder], tmp_path / f"here-{more}")
        assert (told.verdict, told.counts, told.found) == (here.verdict, here.counts, here.found)
    assert counts[0] == counts[1]
    assert counts[1].total() < 40, counts  # what stops the driver's own look, once
    assert not list(tmp_path.rglob("*.digests"))
    assert not list(tmp_path.rglob("*.splits"))


@pytest.mark.parametrize("exchange", one_kept("the same with an exchange", False, True))
def test_tasks_that_look_find_what_one_process_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    """Damage, digests that metadata alone tells, and an index that cannot be opened."""
    monkeypatch.setattr("bkctl.spark.engine.DUMP_BYTES_HERE_MAX", 0)
    folder = fleet(tmp_path / "fleet", 3)
    current = folder / "bookie1" / "ledgers" / "current"
    log = max(current.glob("?.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[1024 + 4 + 40] ^= 1
    log.write_bytes(bytes(data))
    (folder / "bookie2" / "ledgers" / "current" / "locations" / "CURRENT").write_text("MANIFEST-x\n")
    paths = [folder / "bookie1", folder / "bookie2" / "ledgers", folder / "bookie2" / "journal"]
    for job in ("verify", "orphans"):
        between = tmp_path / "exchange" if exchange else None
        told = ran(spark, job, paths, tmp_path / f"spark-{job}", between)
        here = ran(None, job, paths, tmp_path / f"here-{job}")
        assert (told.verdict, told.counts, told.found) == (here.verdict, here.counts, here.found)
        if job == "verify":
            assert told.counts["bad_entries"] == 1
            assert told.counts["damages"] == 1
        else:
            assert told.verdict == "unexamined"
            assert sorted(told.unread_indexes) == sorted(here.unread_indexes)


def test_a_path_that_holds_nothing_of_a_bookie_is_refused_by_tasks_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "nothing").mkdir()
    for number in range(9):
        (tmp_path / "nothing" / f"{number}.txt").write_text("")
    with pytest.raises(UsageError, match="no journal, entry log"):
        ran(spark, "verify", [tmp_path / "nothing"], tmp_path / "out")


def test_tasks_that_look_leave_out_a_log_that_cannot_be_opened(spark: SparkSession, tmp_path: Path) -> None:
    """A link that leads to itself: no process can open it."""
    folder = fleet(tmp_path / "fleet", 3)
    log = folder / "bookie1" / "ledgers" / "current" / "1.log"
    log.unlink()
    log.symlink_to(log.name)
    told = ran(spark, "stats", [folder], tmp_path / "out")
    assert (told.verdict, told.unread_files) == ("unexamined", (str(log),))


@pytest.mark.parametrize("exchange", one_kept("the same without an exchange", True, False))
def test_what_tasks_cannot_read_of_a_log_is_named(
    spark: SparkSession, tmp_path: Path, exchange: bool
) -> None:
    """A link to a file of the kernel's that has a size and gives an error to every read."""
    if not refuses_reads(REFUSING):
        pytest.skip(f"{REFUSING} can be read here")
    folder = fleet(tmp_path / "fleet", 3)
    log = folder / "bookie1" / "ledgers" / "current" / "1.log"
    log.unlink()
    log.symlink_to(REFUSING)
    between = tmp_path / "exchange" if exchange else None
    told = ran(spark, "stats", [folder], tmp_path / "out", between)
    assert (told.verdict, told.unread_files) == ("unexamined", (str(log),))
    assert told.unread_tables == ("log_ledgers",)


def refuses_reads(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return path.exists() and path.stat().st_size > 0
    return False
