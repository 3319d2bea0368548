"""Directories by path or URL, and runs whose sets and results are in an object store."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bkctl.clock import SystemClock
from bkctl.errors import (
    CorruptionError,
    MissingPackageError,
    NotFoundError,
    RefusedError,
    StorageError,
    UsageError,
    WrongFileError,
)
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.local_engine import LocalEngine
from bkctl.pipeline.locations import is_url, local_path, located, refuse_foreign_schemes
from bkctl.pipeline.report import write_report
from bkctl.pipeline.results import first_rows
from bkctl.pipeline.turn import STALE_S
from bkctl.pipeline.uploaded_run import WORK_NAME, claimed_url
from tests.support.manual_clock import ManualClock
from tests.support.pipeline_tables import same_results
from tests.support.s3_server import put_objects, s3_bucket
from tests.support.sets import DEMO, collected, ran


def test_what_is_a_url_and_what_is_a_path() -> None:
    assert is_url("s3://bucket/x")
    assert not is_url("file:///x")
    assert not is_url("/x")
    assert (local_path("file:///x"), local_path("file:/x"), local_path("/x")) == ("/x", "/x", "/x")
    refuse_foreign_schemes("--to", "s3://b", "hdfs://h/x", "gs://b", "abfs://c@a/x", "/x", None)
    with pytest.raises(UsageError, match="--to ftp://h: no ftp:// URLs"):
        refuse_foreign_schemes("--to", "ftp://h")


def test_parameters_stay_behind_the_names_in_a_directory() -> None:
    place = located("s3://bucket/sets?region=eu-west-1&endpoint_override=127.0.0.1:1&scheme=http")
    inside = place.child("b").text_of("x.parquet")
    assert inside == "s3://bucket/sets/b/x.parquet?region=eu-west-1&endpoint_override=127.0.0.1:1&scheme=http"
    assert place.child("b").path == "bucket/sets/b"


def test_files_of_a_directory_are_written_read_and_listed(tmp_path: Path) -> None:
    place = located(f"file://{tmp_path}/d")
    assert (place.names(), place.sizes()) == ([], {})
    place.write("a/b", b"12345")
    assert (place.names(), place.sizes()) == (["a"], {"a/b": 5})
    assert place.read("a/b", 5) == b"12345"
    with pytest.raises(StorageError, match="larger than 4 bytes"):
        place.read("a/b", 4)
    with pytest.raises(NotFoundError):
        place.read("a/c", 4)
    place.child("a").remove()
    assert place.names() == []


def test_a_file_here_is_durable_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after a manifest takes no file that it names."""
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    place = located(str(tmp_path / "sets" / "one"))
    place.write("runs/part", b"rows")
    above = [tmp_path, tmp_path / "sets", tmp_path / "sets" / "one"]
    runs = tmp_path / "sets" / "one" / "runs"
    assert synced == [*map(str, above), str(runs / "part"), str(runs)]
    synced.clear()
    place.move_file("runs/part", "kept/part")
    assert synced == [str(above[-1]), str(above[-1] / "kept")]
    assert place.sizes() == {"kept/part": 4}
    (above[-1] / "file").touch()
    with pytest.raises(WrongFileError, match="that of a file"):
        place.write("file/part", b"rows")


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    """Reading it would wait for ever for somebody who writes."""
    os.mkfifo(tmp_path / "manifest.json")
    (tmp_path / "folder").mkdir()
    for name in ("manifest.json", "folder"):
        with pytest.raises(StorageError, match="is not a regular file"):
            located(str(tmp_path)).read(name, 100)


@pytest.mark.thorough("writes a thousand objects; the next ones have an object store too")
def test_large_files_and_long_listings_of_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file goes up in parts and comes back whole and cut; a listing of several pages is complete."""
    large = bytes(range(251)) * (12 << 12)
    with s3_bucket("audits", monkeypatch) as parameters:
        place = located(f"s3://audits/d?{parameters}")
        place.write("large", large)
        assert place.read("large", len(large)) == large
        with place.filesystem.open_input_file("audits/d/large") as file:
            assert file.read_at(7, 251 * 5000) == bytes(range(7))
            assert file.read_at(300, len(large) - 100) == large[-100:]
        many = located(f"s3://audits/many?{parameters}")
        names = [f"{number:04}/x" for number in range(1003)]
        put_objects(parameters, [f"/audits/many/{name}" for name in names], b"1")
        assert many.sizes() == dict.fromkeys(names, 1)
        assert len(many.names()) == 1003
        many.remove()
        assert (many.names(), place.sizes()) == ([], {"large": len(large)})


def test_a_directory_that_is_removed_from_an_object_store_is_no_name_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arrow deletes what is in a directory and leaves an object for the directory itself."""
    with s3_bucket("audits", monkeypatch) as parameters:
        out = located(f"s3://audits/out?{parameters}")
        work = out.child(".work")
        for folder in (work.child("exchange"), work.child("plans")):
            folder.write("x/y", b"1")
        work.child("exchange").remove()
        assert work.names() == ["plans"]
        work.remove()
        work.remove()
        assert (out.names(), work.names()) == ([], [])


def test_sets_results_and_reports_are_in_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collected, collected again after a change, audited and reported: only the bookie's files are local."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    with s3_bucket("audits", monkeypatch) as parameters:
        store = f"s3://audits/sets?{parameters}"
        collected(bookie, store)
        max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size).unlink()
        second = collected(bookie, store)
        assert (second.logs_read, second.logs_carried > 0) == (0, True)
        collected(bookie, tmp_path / "sets")
        for job in ("replication-audit",):
            local = ran(job, [tmp_path / "sets"], tmp_path / "o")
            out = f"s3://audits/results/{job}?{parameters}"
            there = ran(job, [store], Path("unused"), out_url=out)
            same_results(local, there)
            again = ran(job, [store], Path("unused"), out_url=out)
            assert again.counts == there.counts
            result = JOBS[job].result("summary")
            assert first_rows(there, result, result.order, 1)
            write_report(there, JOBS[job], f"s3://audits/report.html?{parameters}")
        place = located(f"s3://audits?{parameters}")
        assert place.read("report.html", 1 << 20).startswith(b"<!DOCTYPE html>")
        assert not [name for name in place.sizes() if re.search(r"\.work|\.runs|writing", name)]
    assert not (tmp_path / "s3:").exists()


def test_two_runs_do_not_write_to_one_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of the one would stand under the summary of the other. What a killed one left
    is in nobody's way."""
    with s3_bucket("audits", monkeypatch) as parameters:
        url = f"s3://audits/out?{parameters}"
        located(url).child(WORK_NAME).write("exchange/part", b"of a run that was killed")
        with claimed_url(url, SystemClock()) as first:
            first.place.child(WORK_NAME).write("exchange/part", b"of the first")
            with pytest.raises(RefusedError, match="a run of process"), claimed_url(url, SystemClock()):
                pass
            assert "exchange/part" in first.place.child(WORK_NAME).sizes()
        assert located(url).sizes() == {}


def test_a_run_that_another_one_has_followed_leaves_its_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_bucket("audits", monkeypatch) as parameters:
        url = f"s3://audits/out?{parameters}"
        work = located(url).child(WORK_NAME)
        clock = ManualClock()
        with claimed_url(url, clock):
            clock.advance(STALE_S + 1)
            work.write("exchange/part", b"of the next one")
        assert work.sizes() == {"exchange/part": 15}


def test_tables_of_several_versions_have_the_columns_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file may be of a version that had fewer columns, or of a type that has nothing in common."""
    tables = {"old": pa.table({"x": [1]}), "new": pa.table({"x": [2], "y": ["t"]})}
    with s3_bucket("audits", monkeypatch) as parameters, LocalEngine(jobs=1) as engine:
        place = located(f"s3://audits/tables?{parameters}")
        for order in (("old", "new"), ("new", "old")):
            for number, name in enumerate(order):
                with place.opened(f"{order[0]}/{number}.parquet") as stream:
                    pq.write_table(tables[name], stream)
            engine.load("t", [place.text_of(order[0])])
            assert engine.rows("SELECT x, y FROM t ORDER BY x") == [{"x": 1, "y": None}, {"x": 2, "y": "t"}]
        with place.opened("old/2.parquet") as stream:
            pq.write_table(pa.table({"x": ["text"]}), stream)
        with pytest.raises(CorruptionError, match=r"old/2\.parquet"):
            engine.load("t", [place.text_of("old")])


def test_what_an_hdfs_url_lacks_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.extras.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"hdfs:// URLs needs? .*bkctl\[hdfs\]"):
        located("hdfs://name-node:8020/sets")


def test_an_hdfs_url_has_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkctl.extras.find_spec", lambda name: name)
    with pytest.raises(UsageError, match="has no parameters; Hadoop's files in HADOOP_CONF_DIR"):
        located("hdfs://name-node:8020/sets?user=a")


def test_errors_of_hadoop_are_errors_of_files() -> None:
    from bkctl.pipeline.hdfs import _translated

    java = "\\n\\tat org.apache.hadoop.hdfs.A.b(A.java:1)"
    denied = "org.apache.hadoop.security.AccessControlException"
    cases = {
        f'RPCError("{denied}", "Permission denied: \\"/a\\"{java}")': (
            PermissionError,
            'Permission denied: "/a"',
        ),
        f'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Safe mode{java}")': (
            OSError,
            "SafeModeException: Safe mode",
        ),
        "something else": (OSError, "something else"),
    }
    for text, (kind, said) in cases.items():
        with pytest.raises(kind) as raised, _translated():
            raise RuntimeError(text)
        assert (type(raised.value), str(raised.value)) == (kind, said)
    with pytest.raises(FileExistsError, match=r"^/a is a directory$"), _translated():
        raise FileExistsError("/a is a directory\n\tat org.apache.hadoop.A")
