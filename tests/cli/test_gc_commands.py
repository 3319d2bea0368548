"""``bkctl gc explain | plan | run`` from the command line: rows, exit codes, consent, refusals."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.cookie import decode_cookie
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.metadata_dump import DumpKind
from bkctl.vfs import DiskSpace, PosixFileSystem
from tests.support import cluster_dumps
from tests.unit.admin.gc.stopped_bookie import LIVE, Stopped, cluster_of, some_metadata

HOST = "bookie:3181"
METADATA = Path(__file__).parents[1] / "data" / "metadata" / "zk-sample.json"

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path / "b").build()


@pytest.fixture
def uri(bookie: Stopped, tmp_path: Path) -> str:
    """A cluster of which the bookie is a part, with ledgers 1 and 7."""
    text = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(text) as store:
        instance_id = store.layout.initialise_cluster()
        cluster_of(store, [1, 7], HOST)
    for cookie in bookie.root.rglob("VERSION"):
        cookie.write_text(cookie.read_text().replace('"instance"', f'"{instance_id}"'))
        assert decode_cookie(cookie.read_bytes()).instance_id == instance_id
    return text


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Ledgers 1 and 7 in a dump."""
    znodes = json.loads(METADATA.read_text())
    some = next(node for node in znodes.values() if base64.b64decode(node["data"] or "")[:4] == b"Book")
    names = ["/ledgers", "/ledgers/00/0000/L0001", "/ledgers/00/0000/L0007"]
    file = tmp_path / "zk.json"
    file.write_text(
        json.dumps({name: {**some, "data": some["data"] if "L0" in name else ""} for name in names})
    )
    return file


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def content(path: Path) -> dict[str, str]:
    """Every file's digest: what a refusal or a dry run must not change."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


# --- explain


def test_explain_tells_each_log(run_cli: Run, bookie: Stopped) -> None:
    before = content(bookie.root)
    done = run_cli("gc", "explain", bookie.root, "-o", "ndjson")
    assert done.exit_code == 0
    assert "no metadata store was named" in done.stderr
    rows = rows_of(done.stdout)
    assert [(row["log_id"], row["eligible"]) for row in rows] == [
        (0, "major"),
        (1, "garbage"),
        (2, "minor"),
        (3, "no"),
    ]
    assert rows[0]["dir"] == str(bookie.current())
    assert rows[0]["path"] == str(bookie.current() / "0.log")
    assert rows[0]["live_ledgers"] == [{"ledger": 1, "bytes": 2000}]
    assert content(bookie.root) == before


def test_explain_as_a_table(run_cli: Run, bookie: Stopped) -> None:
    done = run_cli("gc", "explain", bookie.root, "-o", "table")
    assert done.exit_code == 0
    assert "1: 2000" in done.stdout
    assert "garbage" in done.stdout


def test_explain_asks_the_metadata_store(run_cli: Run, bookie: Stopped, uri: str, dump: Path) -> None:
    for source in (["--metadata", uri], ["--metadata", dump, "--trust-dump"]):
        done = run_cli("gc", "explain", bookie.root, *source)
        assert done.exit_code == 0
        assert done.stderr == ""
        assert [row["eligible"] for row in rows_of(done.stdout)] == ["major", "garbage", "minor", "garbage"]
    done = run_cli("gc", "explain", bookie.root, env={"BKCTL_METADATA_URI": uri})
    assert rows_of(done.stdout)[3]["eligible"] == "garbage"
    both = run_cli("gc", "explain", bookie.root, "--metadata-uri", uri, "--ledger-metadata", dump)
    assert both.exit_code == 2


def test_a_dump_without_an_end_marker_proves_nothing(run_cli: Run, bookie: Stopped, dump: Path) -> None:
    done = run_cli("gc", "explain", bookie.root, "--metadata", dump)
    assert done.exit_code == 0
    assert "has no end marker" in done.stderr
    assert [row["eligible"] for row in rows_of(done.stdout)] == ["major", "garbage", "minor", "no"]
    done = run_cli("gc", "plan", bookie.root, "--metadata", dump)
    assert "has no end marker" in done.stderr


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("command", ["explain", "plan", "run"])
def test_an_undo_file_is_refused(
    run_cli: Run, bookie: Stopped, tmp_path: Path, command: str, marked: bool
) -> None:
    """One of today by its kind, one of an older version because it has no root."""
    undo = cluster_dumps.dump_file(
        tmp_path / "undo.json",
        {3: some_metadata()},
        kind=DumpKind.UNDO,
        root=False,
        instance_id=None,
        marked=marked,
    )
    before = content(bookie.root)
    words = ["--delete-ledgers", "--yes"] if command == "run" else []
    done = run_cli("gc", command, bookie.root, "--metadata", undo, "--trust-dump", *words)
    assert done.exit_code == 4
    assert "undo file" in done.stderr
    assert str(undo) in done.stderr
    assert content(bookie.root) == before


def test_the_dump_of_another_cluster_is_refused_by_name(
    run_cli: Run, bookie: Stopped, tmp_path: Path
) -> None:
    dump = cluster_dumps.dump_file(tmp_path / "zk.json", {1: some_metadata()}, instance_id="another")
    done = run_cli("gc", "run", bookie.root, "--metadata", dump, "--dry-run")
    assert done.exit_code == 4
    assert str(dump) in done.stderr
    assert "of cluster another" in done.stderr
    assert "of cluster instance" in done.stderr


def test_a_complete_dump_says_nothing_of_ledgers_that_are_newer(
    run_cli: Run, bookie: Stopped, tmp_path: Path
) -> None:
    """Ledger 3 is newer than the dump, though a ledger with an id that a client chose is in it."""
    ledgers = {1: some_metadata(), 500: some_metadata()}
    dump = cluster_dumps.dump_file(tmp_path / "zk.json", ledgers, next_ledger=3)
    line = ["gc", "run", bookie.root, "--metadata", dump, "--delete-ledgers", "--trust-dump", "--yes"]
    assert run_cli(*line).exit_code == 0
    assert bookie.logs_left() == [0, 2, 3]


def test_a_store_that_went_back_is_told_and_deletes_nothing(run_cli: Run, bookie: Stopped, uri: str) -> None:
    """The copy is older than ledger 3: its generator would give that id again."""
    with open_metadata_store(uri) as store:
        upcoming = store.ledgers.upcoming_ledger_id()
        instance_id = store.layout.instance_id().encode()
    older = f"embedded://{bookie.root.parent}/older.db"
    with open_metadata_store(older) as store:
        store.layout.initialise_cluster()
        copied = store.layout.instance_id().encode()
        cluster_of(store, [1], issued=3)
    for cookie in bookie.root.rglob("VERSION"):
        cookie.write_bytes(cookie.read_bytes().replace(instance_id, copied))
    assert upcoming > 3
    explained = run_cli("gc", "explain", bookie.root, "--metadata", older)
    assert explained.exit_code == 1
    assert "brought back from an older copy" in explained.stderr
    refused = run_cli("gc", "run", bookie.root, "--metadata", older, "--delete-ledgers", "--yes")
    assert refused.exit_code == 4
    assert "brought back from an older copy" in refused.stderr
    assert bookie.logs_left() == [0, 1, 2, 3]


def test_another_cluster_is_refused(run_cli: Run, bookie: Stopped, tmp_path: Path) -> None:
    text = f"embedded://{tmp_path}/other.db"
    with open_metadata_store(text) as store:
        store.layout.initialise_cluster()
    for verb in ("explain", "plan"):
        done = run_cli("gc", verb, bookie.root, "--metadata", text)
        assert done.exit_code == 4
        assert "another cluster" in done.stderr
    before = bookie.logs_left()
    assert run_cli("gc", "run", bookie.root, "--metadata", text, "--yes").exit_code == 4
    assert bookie.logs_left() == before


def test_a_store_that_is_not_there_is_no_answer(run_cli: Run, bookie: Stopped, tmp_path: Path) -> None:
    missing = f"embedded://{tmp_path}/missing.db"
    done = run_cli("gc", "run", bookie.root, "--metadata", missing, "--delete-ledgers", "--yes")
    assert done.exit_code in (5, 6)
    assert bookie.readable() == LIVE
    assert bookie.logs_left() == [0, 1, 2, 3]


def test_explain_one_log(run_cli: Run, bookie: Stopped) -> None:
    done = run_cli("gc", "explain", bookie.root, "--log", "0x2", "-o", "json")
    assert [row["log_id"] for row in json.loads(done.stdout)] == [2]
    assert run_cli("gc", "explain", bookie.root, "--log", "77").exit_code == 6


def test_thresholds_are_those_of_the_bookie(run_cli: Run, bookie: Stopped) -> None:
    done = run_cli("gc", "explain", bookie.root, "--minor", "0.01", "--major", "0.3")
    assert [row["eligible"] for row in rows_of(done.stdout)] == ["no", "garbage", "major", "no"]
    assert run_cli("gc", "explain", bookie.root, "--minor", "0.9").exit_code == 2
    assert run_cli("gc", "explain", bookie.root, "--major", "80").exit_code == 2


def test_damage_is_named_and_gives_1(run_cli: Run, bookie: Stopped) -> None:
    path = bookie.current() / "2.log"
    data = bytearray(path.read_bytes())
    data[1500:1600] = b"\xee" * 100
    path.write_bytes(data)
    done = run_cli("gc", "explain", bookie.root)
    assert done.exit_code == 1
    assert f"{path}: damaged, set aside" in done.stderr
    assert [row["damaged"] for row in rows_of(done.stdout)] == [False, False, True, False]
    assert run_cli("gc", "plan", bookie.root).exit_code == 1
    ran = run_cli("gc", "run", bookie.root, "--threshold", "0.6", "--yes")
    assert ran.exit_code == 1
    assert [row["action"] for row in rows_of(ran.stdout)] == ["remove", "compact", "set_aside"]


# --- plan


def test_plan_draws_the_curve(run_cli: Run, bookie: Stopped) -> None:
    done = run_cli("gc", "plan", bookie.root)
    assert done.exit_code == 0
    rows = rows_of(done.stdout)
    assert [row["threshold"] for row in rows] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    sizes = {log_id: (bookie.current() / f"{log_id:x}.log").stat().st_size for log_id in range(4)}
    assert {row["garbage_bytes"] for row in rows} == {sizes[1]}
    assert [(row["logs"], row["copied_bytes"]) for row in rows] == [(1, 100)] * 5 + [(2, 2100)] * 4
    assert rows[0]["freed_bytes"] == sizes[2] - 100
    assert rows[8]["reclaimed_bytes"] == sizes[0] + sizes[1] + sizes[2] - 2100


def test_plan_with_a_threshold_is_the_order_of_work(run_cli: Run, bookie: Stopped) -> None:
    rows = rows_of(run_cli("gc", "plan", bookie.root, "--threshold", "0.6").stdout)
    assert [(row["action"], row["log_id"], row["fits"]) for row in rows] == [
        ("remove", 1, True),
        ("compact", 2, True),
        ("compact", 0, True),
    ]


def test_plan_tells_what_is_held_back(run_cli: Run, tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.journaled(5, range(3))
    made.build()
    done = run_cli("gc", "plan", tmp_path)
    assert done.exit_code == 0
    assert "1 log held back" in done.stderr


# --- run


def test_run_wants_a_yes(run_cli: Run, bookie: Stopped) -> None:
    before = content(bookie.root)
    done = run_cli("gc", "run", bookie.root, "--threshold", "0.6")
    assert done.exit_code == 4
    assert "remove 1 entry log and compact 2" in done.stderr
    assert "--yes" in done.stderr
    assert done.stdout == ""
    assert content(bookie.root) == before
    dry = run_cli("gc", "run", bookie.root, "--threshold", "0.6", "--dry-run")
    assert dry.exit_code == 0
    assert [(row["action"], row["done"]) for row in rows_of(dry.stdout)] == [
        ("remove", False),
        ("compact", False),
        ("compact", False),
    ]
    assert content(bookie.root) == before


def test_run_does_it_once(run_cli: Run, bookie: Stopped) -> None:
    done = run_cli("gc", "run", bookie.root, "--threshold", "0.6", "--yes")
    assert done.exit_code == 0
    assert all(row["done"] for row in rows_of(done.stdout))
    assert bookie.logs_left() == [3, 4]
    assert bookie.readable() == LIVE
    again = run_cli("gc", "run", bookie.root, "--threshold", "0.6")  # nothing to do, nothing to ask
    assert (again.exit_code, again.stdout) == (0, "")


def test_run_says_by_its_exit_code_that_a_full_disk_left_logs(
    run_cli: Run, bookie: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PosixFileSystem, "disk_space", lambda self, path: DiskSpace(1, 1 << 30, 1 << 20))
    line = ["gc", "run", bookie.root, "--threshold", "0.6"]
    for words in (["--dry-run"], ["--yes"], ["--yes"]):  # the last one has nothing else to do any more
        done = run_cli(*line, *words)
        assert done.exit_code == 3
        assert [row["log_id"] for row in rows_of(done.stdout) if row["action"] == "left"] == [2, 0]
    assert bookie.logs_left() == [0, 2, 3]
    assert bookie.readable() == LIVE


def test_run_refuses_what_is_in_use(run_cli: Run, bookie: Stopped) -> None:
    """Held by this very process, as an embedded bookie would."""
    with open_store(str(bookie.current() / "ledgers"), LEDGERS_PROFILE, create=False):
        done = run_cli("gc", "run", bookie.root, "--yes")
    assert done.exit_code == 4
    assert "in use by" in done.stderr
    assert bookie.logs_left() == [0, 1, 2, 3]


def test_run_deletes_ledgers_by_the_store(run_cli: Run, bookie: Stopped, uri: str) -> None:
    done = run_cli("gc", "run", bookie.root, "--metadata", uri, "--delete-ledgers", "--yes")
    assert done.exit_code == 0
    assert [(row["action"], row["log_id"], row["ledgers"]) for row in rows_of(done.stdout)] == [
        ("delete_ledgers", None, 1),
        ("remove", 1, 0),
        ("remove", 3, 0),
    ]
    assert bookie.readable() == {key for key in LIVE if key[0] == 1}


def test_a_dump_deletes_no_ledger_unless_trusted(run_cli: Run, bookie: Stopped, dump: Path) -> None:
    line = ["gc", "run", bookie.root, "--metadata", dump, "--yes"]
    refused = run_cli(*line, "--delete-ledgers")
    assert refused.exit_code == 2
    assert "--trust-dump" in refused.stderr
    assert run_cli("gc", "run", bookie.root, "--delete-ledgers", "--yes").exit_code == 2
    assert run_cli(*line).exit_code == 0
    assert bookie.logs_left() == [0, 2, 3]
    assert bookie.readable() == LIVE
    assert run_cli(*line, "--delete-ledgers", "--trust-dump").exit_code == 0
    assert bookie.logs_left() == [0, 2]


def test_a_lost_ledger_index_deletes_nothing(run_cli: Run, bookie: Stopped) -> None:
    shutil.rmtree(bookie.current() / "ledgers")
    with open_store(str(bookie.current() / "ledgers"), LEDGERS_PROFILE, create=True):
        pass
    done = run_cli("gc", "run", bookie.root, "--yes", "--confirm-deletions")
    assert done.exit_code == 4
    assert "bkctl index rebuild" in done.stderr
    assert bookie.logs_left() == [0, 1, 2, 3]
    told = run_cli("gc", "explain", bookie.root)
    assert told.exit_code == 1
    assert {row["eligible"] for row in rows_of(told.stdout)} == {"no"}


def test_idx_files_are_explained_and_collected(run_cli: Run, tmp_path: Path) -> None:
    made = Stopped(tmp_path, storage="idx").build()
    assert run_cli("gc", "explain", tmp_path).exit_code == 0
    assert len(rows_of(run_cli("gc", "plan", tmp_path).stdout)) == 9
    done = run_cli("gc", "run", tmp_path, "--yes")
    assert done.exit_code == 0
    assert made.logs_left() == [0, 2, 3]
    assert run_cli("index", "check", tmp_path).exit_code == 0


def test_two_ledger_directories(run_cli: Run, tmp_path: Path) -> None:
    made = Stopped(tmp_path, count=2)
    made.ledger(4)
    made.build()
    rows = rows_of(run_cli("gc", "explain", tmp_path).stdout)
    assert [(row["dir"], row["log_id"], row["eligible"]) for row in rows] == [
        *((str(made.current(0)), log_id, "garbage") for log_id in range(3)),
        *((str(made.current(1)), log_id, "no") for log_id in (0, 2, 3)),
    ]
    one = rows_of(run_cli("gc", "explain", made.current(1)).stdout)
    assert [{**row, "age_s": 0} for row in one] == [{**row, "age_s": 0} for row in rows[3:]]
    done = run_cli("gc", "run", tmp_path, "--threshold", "0.6", "--yes")
    assert done.exit_code == 0
    assert not list(made.current(0).glob("*.log"))
    assert len(list(made.current(1).glob("*.log"))) == 3


def test_a_directory_without_rows_stops_the_others_too(run_cli: Run, tmp_path: Path) -> None:
    """Directory 0 has entries of ledger 2 and no ledger row; nothing is done in either."""
    made = Stopped(tmp_path, count=2).build()
    assert run_cli("gc", "run", tmp_path, "--threshold", "0.6", "--yes").exit_code == 4
    assert len(list(tmp_path.glob("l*/current/*.log"))) == 6
    assert len(list(made.current(0).glob("*.log"))) == 3


def test_schemas_name_every_key(run_cli: Run, bookie: Stopped) -> None:
    lines = {
        ("explain",): ["gc", "explain", bookie.root],
        ("plan",): ["gc", "plan", bookie.root],
        ("plan", "steps"): ["gc", "plan", bookie.root, "--threshold", "0.6"],
        ("run",): ["gc", "run", bookie.root, "--dry-run"],
    }
    for name, line in lines.items():
        keys = {row["key"] for row in rows_of(run_cli("gc", name[0], "--schema", "-o", "ndjson").stdout)}
        for row in rows_of(run_cli(*line, "-o", "ndjson").stdout):
            assert row.keys() <= keys


def test_a_scratch_directory_is_one(run_cli: Run, bookie: Stopped, tmp_path: Path) -> None:
    line = ["gc", "run", bookie.root, "--threshold", "0.6", "--yes", "--scratch"]
    assert run_cli(*line, tmp_path / "missing").exit_code == 6
    (tmp_path / "scratch").mkdir()
    # The disk has room, so it is not used.
    assert run_cli(*line, tmp_path / "scratch").exit_code == 0
    assert bookie.readable() == LIVE
    assert not list((tmp_path / "scratch").iterdir())


def test_the_help_of_a_plan_explains_its_columns(run_cli: Run) -> None:
    """A table has no room for what '--schema' says of its keys."""
    said = " ".join(run_cli("gc", "plan", "--help").stdout.split())
    for column in ("garbage", "garbage_logs", "logs", "copied", "freed"):
        assert f"'{column}'" in said
    assert "'reclaimed' is the sum of garbage and freed" in said
