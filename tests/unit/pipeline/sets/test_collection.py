"""One pass over a bookie: what a set says is what its files say, and what did not change is not read."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkctl.errors import NotFoundError, RefusedError, StorageError, UsageError
from bkctl.pipeline import set_inputs
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.sets import collection
from bkctl.pipeline.sets.choice import Cluster
from bkctl.pipeline.sets.collection import Collected
from bkctl.pipeline.sets.pace import Pace
from bkctl.pipeline.sets.reading import ReadTask, read_logs
from bkctl.pipeline.sets.store import CompleteSet, SetStore
from bkctl.pipeline.tables.options import TableOptions
from bkctl.reporting import Advance, nobody
from tests.support.pipeline_tables import same_results
from tests.support.sets import DEMO, collected, ran

#: Over sets these count what blocks say.
OF_BLOCKS = {"records", "entries", "entries_compared", "blocks", "blocks_undecided"}


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(DEMO, folder))


def logs_of(bookie: Path) -> list[Path]:
    return sorted(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size)


def break_digest(log: Path) -> None:
    """Change a byte of the first entry's digest or payload."""
    data = bytearray(log.read_bytes())
    data[1024 + 4 + 40] ^= 1
    log.write_bytes(bytes(data))


def rows_of_set(one: Collected, table: str) -> list[dict[str, Any]]:
    found = [row for file in one.complete.files(table) for row in pq.read_table(file).to_pylist()]
    return sorted(found, key=repr)


@pytest.mark.parametrize("job", list(JOBS))
def test_a_job_says_over_a_set_what_it_says_over_files(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    break_digest(logs_of(bookie)[-1])
    one = collected(bookie, tmp_path / "sets")
    assert (one.complete.manifest.verdict, one.exit_code) == ("found", 1)
    monkeypatch.setattr(set_inputs, "read_cluster", lambda *_: Cluster())
    direct = ran(job, [bookie], tmp_path / "direct")
    over = ran(job, [tmp_path / "sets"], tmp_path / "over")
    if job == "replica-compare":
        kept = {name: value for name, value in over.counts.items() if name not in OF_BLOCKS}
        assert kept == {name: value for name, value in direct.counts.items() if name in kept}
        assert over.counts["records"] == direct.counts["records"]
        return
    same_results(direct, over)


def test_a_log_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    first = collected(bookie, tmp_path / "sets")
    assert (first.logs_read, first.logs_carried) == (len(logs_of(bookie)), 0)
    changed = logs_of(bookie)[-1]
    with changed.open("ab") as stream:
        stream.write(b"\0" * 64)
    second = collected(bookie, tmp_path / "sets")
    assert (second.logs_read, second.logs_carried) == (1, len(logs_of(bookie)) - 1)
    assert second.bytes_read == changed.stat().st_size
    assert second.complete.manifest.base == first.complete.manifest.set_id
    everything = collected(bookie, tmp_path / "sets", full=True)
    assert everything.logs_carried == 0
    for table in ("runs", "blocks", "log_ledgers", "verification"):
        assert rows_of_set(second, table) == rows_of_set(everything, table), table


@pytest.mark.parametrize("table", ["runs", "index_runs"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_set_before_that_has_rotted_costs_its_rows_and_no_set(
    table: str, gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    first = collected(bookie, tmp_path / "sets")
    files = [Path(first.complete.location.path) / part.name for part in first.complete.manifest.tables[table]]
    real = SetStore.newest

    def newest_then_rotten(store: SetStore, of: str) -> CompleteSet | None:
        found = real(store, of)
        for file in files:
            if gone:  # as the store's rules of expiry remove it
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(bytes(file.stat().st_size))
        return found

    monkeypatch.setattr(SetStore, "newest", newest_then_rotten)
    second = collected(bookie, tmp_path / "sets")
    assert (second.complete.manifest.verdict, second.exit_code) == ("clean", 0)
    assert any("taken over from the set before" in guard for guard in second.complete.manifest.guards)
    whole = collected(bookie, tmp_path / "other")
    for name in ("runs", "blocks", "logs", "verification", "index_runs"):
        assert rows_of_set(second, name) == rows_of_set(whole, name), name


def test_a_log_with_the_same_size_and_time_but_other_bytes_at_its_end_is_read(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    collected(bookie, tmp_path / "sets")
    log = logs_of(bookie)[-1]
    times = log.stat()
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(bytes(data))
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert collected(bookie, tmp_path / "sets").logs_read == 1


def test_a_pass_that_was_ended_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = copied(tmp_path / "bookie")
    done: list[ReadTask] = []

    def killed(task: ReadTask, advance: Advance) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(task)
        return read_logs(task, advance)

    monkeypatch.setattr(collection, "read_logs", killed)
    monkeypatch.setattr(collection, "packed", lambda files, *_: [(file,) for file in files])
    with pytest.raises(KeyboardInterrupt):
        collected(bookie, tmp_path / "sets")
    monkeypatch.undo()
    resumed = collected(bookie, tmp_path / "sets", resume=True)
    assert (resumed.logs_carried, resumed.logs_read) == (1, len(logs_of(bookie)) - 1 + 1)
    whole = collected(bookie, tmp_path / "other")
    for table in ("runs", "blocks", "verification", "unflushed"):
        assert rows_of_set(resumed, table) == rows_of_set(whole, table), table


def test_rows_whose_digests_were_not_checked_are_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    break_digest(logs_of(bookie)[-1])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SetStore, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        collected(bookie, tmp_path / "sets", options=TableOptions(damage="rows", digest="off"))
    monkeypatch.undo()
    resumed = collected(bookie, tmp_path / "sets", resume=True)
    assert resumed.complete.manifest.digest_known == "auto+metadata"
    assert (resumed.logs_carried, resumed.complete.manifest.verdict, resumed.exit_code) == (0, "found", 1)


def test_a_log_that_goes_while_it_is_read_leaves_an_audit_unexamined(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    log = logs_of(bookie)[-1]

    @contextmanager
    def compacted(_: str, __: int) -> Iterator[Advance]:
        log.unlink()
        yield nobody

    from bkctl.pipeline.locations import located
    from bkctl.pipeline.sets.collection import CollectRequest, collect
    from bkctl.vfs import PosixFileSystem

    store = SetStore(located(str(tmp_path / "sets")))
    one = collect(PosixFileSystem(), store, CollectRequest((str(bookie),)), compacted)
    assert (one.complete.manifest.verdict, one.exit_code) == ("unexamined", 3)
    outcome = ran("replication-audit", [tmp_path / "sets"], tmp_path / "o")
    assert (outcome.verdict, "logs_gone" in outcome.found) == ("unexamined", True)


def fail_with_eio(monkeypatch: pytest.MonkeyPatch, call: str, path: Path) -> None:
    """Have ``os.open`` of a file fail, or ``os.pread`` of its first 4 KiB."""
    real = getattr(os, call)

    def failing(what: Any, *rest: Any, **how: Any) -> Any:
        if call == "open":
            meant = str(what) == str(path)
        else:
            meant = rest[1] < 4096 and os.readlink(f"/proc/self/fd/{what}") == str(path)
        if meant:
            raise OSError(errno.EIO, "Input/output error")
        return real(what, *rest, **how)

    monkeypatch.setattr(os, call, failing)


@pytest.mark.parametrize("name", ["ledgers/current/*.log", "journal/current/*.txn"])
def test_a_sector_that_cannot_be_read_costs_no_set(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    fail_with_eio(monkeypatch, "pread", max(bookie.glob(name), key=lambda path: path.stat().st_size))
    first = collected(bookie, tmp_path / "sets")
    assert (first.complete.manifest.verdict, first.exit_code) == ("unexamined", 3)
    assert collected(bookie, tmp_path / "sets").logs_read == (1 if name.endswith("log") else 0)
    assert ran("verify", [tmp_path / "sets"], tmp_path / "o").found == ("damages", "sets_missing")


def test_a_log_that_cannot_be_opened_leaves_every_audit_without_a_clean_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = copied(tmp_path / "bookie")
    fail_with_eio(monkeypatch, "open", logs_of(bookie)[-1])
    one = collected(bookie, tmp_path / "sets")
    assert (one.complete.manifest.verdict, one.exit_code) == ("unexamined", 3)
    assert {file.state for file in one.complete.manifest.files} == {"read", "unreadable"}
    monkeypatch.setattr(set_inputs, "read_cluster", lambda *_: Cluster())
    for job in JOBS:
        outcome = ran(job, [tmp_path / "sets"], tmp_path / job)
        assert outcome.verdict == ("found" if job == "verify" else "unexamined"), job
        assert any("could not be read" in guard for guard in outcome.guards)


def test_an_index_that_cannot_be_read_leaves_an_audit_unexamined(tmp_path: Path) -> None:
    bookie = copied(tmp_path / "bookie")
    shutil.rmtree(bookie / "ledgers" / "current" / "locations")
    one = collected(bookie, tmp_path / "sets")
    assert one.exit_code == 3
    outcome = ran("orphans", [tmp_path / "sets"], tmp_path / "o")
    assert (outcome.verdict, "unread_indexes" in outcome.found) == ("unexamined", True)


def test_blocks_that_do_not_decide_are_compared_entry_by_entry(tmp_path: Path) -> None:
    """The second bookie is the first with another name and one byte of a payload that differs."""
    one, two = copied(tmp_path / "one"), copied(tmp_path / "two")
    for cookie in two.rglob("VERSION"):
        cookie.write_text(cookie.read_text().replace("127.0.0.1:4100", "127.0.0.1:4101"))
    log = logs_of(two)[-1]
    data = bytearray(log.read_bytes())
    data[1024 + 4 + 70] ^= 1
    log.write_bytes(bytes(data))
    direct = ran("replica-compare", [one, two], tmp_path / "direct")
    assert direct.counts["payload_differs"] == 1
    store = tmp_path / "sets"
    collected(one, store)
    collected(two, store)
    first = ran("replica-compare", [store], tmp_path / "first")
    assert first.verdict == "unexamined"
    assert first.counts["blocks_undecided"] == 1
    for bookie in (one, two):
        collected(bookie, store, blocks=str(tmp_path / "first" / "blocks_to_compare"))
    second = ran("replica-compare", [store], tmp_path / "second")
    assert second.counts["blocks_undecided"] == 0
    assert second.counts["payload_differs"] == 1
    assert second.counts["entries"] == direct.counts["entries"]
    assert second.counts["entries_compared"] == direct.counts["entries_compared"]


def test_blocks_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    bookie, table = copied(tmp_path / "bookie"), tmp_path / "blocks"
    with pytest.raises(NotFoundError, match=f"--blocks {table}: no such directory"):
        collected(bookie, tmp_path / "sets", blocks=str(table))
    table.mkdir()
    (table / "part-0.parquet").write_bytes(b"junk")
    with pytest.raises(StorageError, match=f"--blocks {table}: .*part-0.parquet"):
        collected(bookie, tmp_path / "sets", blocks=str(table))
    # It is known before anything of the bookie is read.
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["bkctl-sets.json"]


def test_a_place_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RefusedError, match="no sets"):
        collected(DEMO, tmp_path / "full")
    two = copied(tmp_path / "both" / "two")
    for cookie in two.rglob("VERSION"):
        cookie.write_text(cookie.read_text().replace("127.0.0.1:4100", "127.0.0.1:4101"))
    copied(tmp_path / "both" / "one")
    with pytest.raises(UsageError, match="2 bookies"):
        collected(tmp_path / "both", tmp_path / "sets")


def test_a_manifest_says_what_the_set_is_of(tmp_path: Path) -> None:
    one = collected(DEMO, tmp_path / "sets").complete
    assert isinstance(one, CompleteSet)
    manifest = one.manifest
    text = json.loads((Path(one.location.text) / "manifest.json").read_text())["manifest"]
    assert text["bookie"] == manifest.bookie == "127.0.0.1:4100"
    assert manifest.instance_id
    assert manifest.started_ms <= manifest.ended_ms
    assert manifest.last_marks[0]["journal_id"] >= 0
    logs = [file for file in manifest.files if file.kind == "entry_log"]
    assert {(file.path, file.bytes) for file in logs} == {
        (str(path), path.stat().st_size) for path in logs_of(DEMO)
    }
    assert "kernels" in manifest.kernel


def test_a_pace_waits_until_bytes_were_due() -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1000, lambda: now[0], sleep)
    for _ in range(10):
        pace.spend(1000)
    assert sum(slept) == pytest.approx(10, abs=1.01)
    Pace(0, lambda: now[0], sleep).spend(1 << 40)
    assert sum(slept) == pytest.approx(10, abs=1.01)
