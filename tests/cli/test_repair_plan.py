"""``bkctl repair plan`` and ``run``: from a bookie that lost its index back to one that has everything."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.repairs.repair_plan import KIND, ByHand, Needs, Plan, Step, encode_plan
from bkctl.client.bookkeeper import BookKeeper
from bkctl.codec.file_info import index_path
from bkctl.codec.last_mark import LastMark
from bkctl.commands.frame.own_command import read_own_command
from bkctl.commands.repair.log_salvages import in_order
from bkctl.errors import BookieIOError, LedgerLimboError
from bkctl.scan.entrylog import EntryLogScan
from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster
from bkctl.vfs import PosixFileSystem
from tests.support.checked_bookie import JOURNAL_ID, CheckedBookie
from tests.support.grades import one_kept
from tests.support.java_cluster import free_port
from tests.support.readable import readable
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import DELETED, TruthfulBookie, started

Run = Callable[..., Any]


def written(uri: str, replicas: int = 3) -> int:
    async def write() -> int:
        async with await BookKeeper.connect(uri) as client:
            ledger = await client.create(replicas, replicas, min(replicas, 2))
            for number in range(20):
                await ledger.append(b"%d" % number * 50)
            await ledger.close()
            return ledger.ledger

    return asyncio.run(write())


@pytest.mark.parametrize(
    "disk",
    [
        pytest.param(False, id="index lost", marks=pytest.mark.thorough("a lost disk has a lost index")),
        pytest.param(True, id="disk lost"),
    ],
)
def test_a_plan_is_made_and_run_across_a_start_of_the_bookie(
    run_cli: Run, tmp_path: Path, disk: bool
) -> None:
    with LocalCluster(2, tmp_path / "others") as others:
        mine, conf, plan = tmp_path / "mine", tmp_path / "bk_server.conf", tmp_path / "plan.json"
        keys = {
            "metadataServiceUri": others.metadata_uri,
            "bookieId": "mine",
            "bookiePort": str(free_port()),
            "journalDirectories": str(mine / "journal"),
            "ledgerDirectories": str(mine / "ledgers"),
            "httpServerEnabled": "true",
            "httpServerHost": "127.0.0.1",
            "httpServerPort": str(free_port()),
            "allowLoopback": "true",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

        def bookie() -> EmbeddedBookie:
            return EmbeddedBookie(mine, metadata_uri=others.metadata_uri, overrides=keys)

        with bookie():
            ledgers = [written(others.metadata_uri) for _ in range(3)]
        current = mine / "ledgers" / "current"
        options: tuple[object, ...] = ()
        if disk:
            shutil.rmtree(current)
            current.mkdir()
            unsaid = run_cli("repair", "plan", "--conf", conf)
            assert ["bookie", "rebuild"] not in [
                (row["command"] or [])[1:3] for row in from_ndjson(unsaid.stdout)
            ]
            assert run_cli("repair", "plan", "--conf", conf, "--lost-disk", mine / "journal").exit_code == 2
            options = ("--lost-disk", mine / "ledgers")
        else:
            shutil.rmtree(current / "locations")
        made = run_cli("repair", "plan", "--conf", conf, *options, "--out", plan)
        assert made.exit_code in (1, 3), made.stderr
        rows = [row for row in from_ndjson(made.stdout) if row["number"] is not None]
        assert [(row["needs"], row["command"][1:3]) for row in rows][-1] == ("running", ["ledger", "repair"])
        first_verb = ["bookie", "rebuild"] if disk else ["index", "rebuild"]
        assert first_verb in [row["command"][1:3] for row in rows]
        assert run_cli("repair", "plan", "--conf", conf, "--out", plan).exit_code == 4, "there is one"
        assert run_cli("repair", "run", plan).exit_code == 4, "nobody said yes"

        first = run_cli("repair", "run", plan, "--yes")
        assert first.exit_code == 3, first.stderr
        ends = from_ndjson(first.stdout)
        assert [row["exit_code"] in (0, 1) for row in ends] == [True] * (len(rows) - 1) + [False]
        assert "start the bookie" in first.stderr
        with bookie():
            second = run_cli("repair", "run", plan, "--yes")
            assert second.exit_code == 0, second.stderr
            assert [row["was_done"] for row in from_ndjson(second.stdout)] == [True] * (len(rows) - 1) + [
                False
            ]
            for ledger in ledgers:
                uri = ("--metadata-uri", others.metadata_uri)
                assert run_cli("ledger", "compare", ledger, *uri).exit_code == 0
        events = [json.loads(line) for line in Path(f"{plan}.log").read_text().splitlines()]
        assert [event["event"] for event in events] == ["begun", "ended"] * (len(rows) + 1)
        third = run_cli("repair", "run", plan)
        assert (third.exit_code, {row["was_done"] for row in from_ndjson(third.stdout)}) == (0, {True})


def test_the_metadata_store_that_the_configuration_names_is_asked_for_what_is_lost(
    run_cli: Run, tmp_path: Path
) -> None:
    """The journals are gone, and with them all that the bookie itself knew of some ledgers, perhaps."""
    conf, mine = tmp_path / "bk.conf", tmp_path / "mine"
    keys = {
        "journalDirectories": str(mine / "journal"),
        "ledgerDirectories": str(mine / "ledgers"),
        "metadataServiceUri": f"embedded://{tmp_path}/metadata.db",
        "allowLoopback": "true",
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    with EmbeddedBookie(mine, metadata_uri=keys["metadataServiceUri"], overrides=keys):
        written(keys["metadataServiceUri"], 1)
    for journal in (mine / "journal" / "current").glob("*.txn"):
        journal.unlink()

    def salvages(*options: object) -> list[list[str]]:
        made = run_cli("repair", "plan", "--conf", conf, *options)
        words = [row["command"] or [] for row in from_ndjson(made.stdout)]
        return [each for each in words if each[1:3] == ["journal", "salvage"]]

    (salvage,) = salvages()
    assert salvage[salvage.index("--metadata") + 1] == keys["metadataServiceUri"]
    # A store that does not answer is not asked: the repair goes on without it.
    conf.write_text(conf.read_text().replace("metadata.db", "gone.db"))
    (salvage,) = salvages()
    assert "--metadata" not in salvage


DEMO = Path(__file__).parents[1] / "data" / "demo"


def demo_with_a_damaged_log(folder: Path) -> Path:
    """A copy of the demo's bookie; the size word of a record in its log is damaged."""
    bookie = folder / "bookie"
    shutil.copytree(DEMO / "bookie1", bookie)
    with (bookie / "ledgers" / "current" / "0.log").open("r+b") as stream:
        stream.seek(15259)
        stream.write(b"\x7f\xff\xff\xff")
    return bookie


def test_a_damaged_log_is_salvaged_by_its_plan_and_comes_back_by_undo(run_cli: Run, tmp_path: Path) -> None:
    bookie, plan = demo_with_a_damaged_log(tmp_path), tmp_path / "plan.json"
    log = bookie / "ledgers" / "current" / "0.log"
    damaged = log.read_bytes()
    words = (bookie, "--metadata", DEMO / "zk.json")
    made = run_cli("repair", "plan", *words, "--deep", "--out", plan)
    assert made.exit_code == 1, made.stderr
    (row,) = from_ndjson(made.stdout)
    assert (row["needs"], row["command"][1:4]) == ("stopped", ["entrylog", "salvage", str(log)])
    done = run_cli("repair", "run", plan, "--yes")
    assert done.exit_code == 0, done.stderr
    assert run_cli("doctor", *words, "--deep").exit_code == 0
    assert run_cli("index", "check", *words).exit_code == 0
    assert not log.exists()
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    assert log.read_bytes() == damaged


@pytest.mark.thorough("a plan of several commands, as others here")
def test_a_rebuild_that_was_refused_over_a_damaged_log_leaves_the_plan_as_it_was(
    run_cli: Run, tmp_path: Path
) -> None:
    bookie = demo_with_a_damaged_log(tmp_path)
    words = (bookie, "--metadata", DEMO / "zk.json")

    def planned() -> list[list[str]]:
        done = run_cli("repair", "plan", *words, "--deep")
        return [row["command"][1:3] for row in from_ndjson(done.stdout) if row["command"]]

    before = planned()
    work = bookie / "ledgers" / "current" / "locations.bkctl-rebuild"
    work.mkdir(mode=0o700)  # as a run leaves it that was killed while it read the logs
    refused = run_cli("index", "rebuild", bookie / "ledgers" / "current", *words[1:], "--yes")
    assert refused.exit_code == 4
    assert "\\x0a" not in refused.stderr
    assert list(work.iterdir()), "the next run goes on with it"
    assert planned() == before == [["entrylog", "salvage"]]
    log = bookie / "ledgers" / "current" / "0.log"
    assert run_cli("entrylog", "salvage", log, *words[1:], "--yes").exit_code in (0, 3)
    # Only now what the rebuild has left behind, and without a loss.
    done = run_cli("repair", "plan", *words, "--deep")
    commands = [row["command"] for row in from_ndjson(done.stdout) if row["command"]]
    assert [command[1:3] for command in commands] == [["index", "rebuild"]]
    assert "--accept-loss" not in commands[0]


def test_what_a_refused_rebuild_has_left_stays_in_a_plan_without_a_salvage() -> None:
    """No salvage is planned where the log's index cannot be told: then nothing else would repair it."""
    rebuild = ["bkctl", "index", "rebuild", "/b", "--yes"]
    left = {"kind": "unfinished_rebuild", "dir": "/b", "path": "/b/work", "commands": [rebuild]}
    log = {"kind": "damaged_log", "dir": "/b", "path": "/b/0.log", "commands": []}
    (row,) = in_order([log, left])
    assert row["commands"] == [[*rebuild[:-1], "--accept-loss", "--yes"]]
    salvage = ["bkctl", "entrylog", "salvage", "/b/0.log", "--yes"]
    assert in_order([{**log, "commands": [salvage]}, left]) == [{**log, "commands": [salvage]}]


def test_a_plan_says_that_damaged_logs_are_left_to_the_next_one() -> None:
    """Beside an index that is rebuilt first they are salvaged behind it, and no step is theirs."""
    rebuild = ["bkctl", "index", "rebuild", "/b", "--ledgers", "--yes"]
    salvage = ["bkctl", "entrylog", "salvage", "/b/0.log", "--yes"]
    log = {"kind": "damaged_log", "dir": "/b", "path": "/b/0.log", "commands": [salvage]}
    index = {"kind": "unreadable_database", "dir": "/b", "path": "/b/ledgers", "commands": [rebuild]}
    (row,) = in_order([log, {**index, "instead": None}])
    assert row["commands"] == [[*rebuild[:-1], "--accept-loss", "--yes"]]
    assert row["instead"].startswith("after this step the damaged logs are salvaged: then make a new plan")


def test_what_a_plan_prints_is_not_taken_for_one(run_cli: Run, tmp_path: Path) -> None:
    bookie = demo_with_a_damaged_log(tmp_path)
    for form in ("json", "ndjson"):
        printed = tmp_path / form
        printed.write_text(
            run_cli("repair", "plan", bookie, "--metadata", DEMO / "zk.json", "-o", form).stdout
        )
        done = run_cli("repair", "run", printed, "--yes")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "'bkctl repair plan --out FILE'" in done.stderr


@pytest.mark.thorough("a plan of several commands, as others here")
def test_a_plan_that_was_undone_repairs_again(run_cli: Run, tmp_path: Path) -> None:
    bookie, plan = demo_with_a_damaged_log(tmp_path), tmp_path / "plan.json"
    words = (bookie, "--metadata", DEMO / "zk.json")
    assert run_cli("repair", "plan", *words, "--deep", "--out", plan).exit_code == 1

    def was_done() -> list[bool]:
        done = run_cli("repair", "run", plan, "--yes")
        assert done.exit_code == 0, done.stderr
        assert run_cli("doctor", *words, "--deep").exit_code == 0
        return [row["was_done"] for row in from_ndjson(done.stdout)]

    assert was_done() == [False]
    assert was_done() == [True]
    assert run_cli("repair", "undo", bookie, "--yes").exit_code == 0
    assert run_cli("doctor", *words, "--deep").exit_code == 1
    assert was_done() == [False]


@pytest.mark.parametrize("lost_header", one_kept("the log alone", False, True))
def test_over_index_files_a_damaged_log_of_another_directory_is_salvaged_by_its_plan(
    run_cli: Run, tmp_path: Path, lost_header: bool
) -> None:
    """Where the index is rebuilt first, that accepts the loss, and the next plan has the salvage."""
    bookie, plan = TruthfulBookie.make(tmp_path / "bookie", "idx", 2), tmp_path / "plan.json"
    (log,) = bookie.current(1).glob("*.log")
    whole = readable(bookie.root)
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        places = [
            (batch.offset(index), (batch.ledgers[index], batch.entries[index]))
            for batch in scan.batches()
            for index in range(len(batch))
        ]
    offset, lost = next(place for place in places if place[1] in whole)
    with log.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xee" * 40)
    if lost_header:
        (bookie.current() / index_path(6)).write_bytes(b"no header")
    for _ in range(1 + lost_header):
        made = run_cli("repair", "plan", bookie.root, "--deep", "--out", plan)
        assert made.exit_code in (1, 3), made.stderr
        done = run_cli("repair", "run", plan, "--yes")
        assert done.exit_code in (0, 1, 3), done.stderr
        plan.unlink()
        Path(f"{plan}.log").unlink()
    assert not log.exists()
    with started(bookie.root, 2) as running:
        for each in sorted(whole.keys() - {lost}):
            if each[0] != DELETED:
                assert running.reads.read(*each) == whole[each]
        with pytest.raises((BookieIOError, LedgerLimboError)):
            running.reads.read(*lost)


def test_an_entry_whose_id_is_damaged_is_no_reason_to_rebuild_the_index(run_cli: Run, tmp_path: Path) -> None:
    """A rebuild would leave out the entry whose size alone is damaged, which a salvage keeps."""
    bookie, plan = tmp_path / "bookie", tmp_path / "plan.json"
    shutil.copytree(DEMO / "bookie1", bookie)
    log = bookie / "ledgers" / "current" / "0.log"
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        records = [
            (batch.offset(index), batch.ledgers[index], batch.entries[index])
            for batch in scan.batches()
            for index in range(len(batch))
        ]
    (renamed, ledger, entry), (resized, kept_ledger, kept_entry) = records[20], records[40]
    with log.open("r+b") as stream:
        stream.seek(renamed + 4 + 8)  # two bits of the id: no digest proves which entry it is
        stream.write(b"\x11")
        stream.seek(resized)
        stream.write(b"\x40")
    words = (bookie, "--metadata", DEMO / "zk.json")
    made = run_cli("repair", "plan", *words, "--deep", "--out", plan)
    assert made.exit_code == 1, made.stderr
    (step,) = [row for row in from_ndjson(made.stdout) if row["number"] is not None]
    assert step["command"][1:4] == ["entrylog", "salvage", str(log)]
    tried = run_cli("entrylog", "salvage", log, *words[1:], "--dry-run", "-o", "ndjson")
    (lost,) = [row for row in from_ndjson(tried.stdout) if row["kind"] == "lost"]
    assert (lost["ledger"], lost["entries"]) == (ledger, str(entry)), "not under the id that is damaged, too"
    done = run_cli("repair", "run", plan, "--yes")
    assert (done.exit_code, json.loads(done.stdout)["exit_code"]) == (1, 1), done.stderr
    assert "step 1 has lost entries" in done.stderr
    found = from_ndjson(run_cli("index", "check", *words).stdout)
    assert [(row["ledger"], row["entry"]) for row in found if row["kind"] == "salvaged_location"] == [
        (ledger, entry)
    ]
    place = run_cli("index", "get", kept_ledger, kept_entry, bookie, "-o", "ndjson").stdout
    assert [row["log_id"] for row in from_ndjson(place)] == [3], "it is in the fresh log"


@pytest.mark.thorough("a plan of several commands, as others here")
def test_logs_that_were_exchanged_between_directories_go_into_quarantine(
    run_cli: Run, tmp_path: Path
) -> None:
    """What stands in them is kept there: somebody may have moved them, and moves them back."""
    bookie, plan = CheckedBookie(tmp_path / "bookie", count=2), tmp_path / "plan.json"
    bookie.mark = LastMark(JOURNAL_ID, 512)
    bookie.fill(range(4))
    bookie.write()
    one, other = (bookie.current(place) / "0.log" for place in (0, 1))
    content = [one.read_bytes(), other.read_bytes()]
    one.write_bytes(content[1])
    other.write_bytes(content[0])
    made = run_cli("repair", "plan", bookie.root, "--out", plan)
    assert made.exit_code == 1, made.stderr
    rows = from_ndjson(made.stdout)
    commands = [row["command"][1:4] for row in rows if row["number"]]
    assert commands == [["entrylog", "salvage", str(one)], ["entrylog", "salvage", str(other)]]
    assert all("move it back instead" in row["know"][0] for row in rows if row["number"])
    assert run_cli("repair", "run", plan, "--yes").exit_code in (0, 1, 3)
    kept = [path.parent / "bkctl-quarantine" / path.name for path in (one, other)]
    assert [path.read_bytes() for path in kept] == content[::-1]
    left = from_ndjson(run_cli("index", "check", bookie.root, "-o", "ndjson").stdout)
    assert {row["kind"] for row in left} == {"limbo", "salvaged_location"}
    assert {row["ledger"] for row in left if row["kind"] == "limbo"} == set(range(4))


def test_a_rebuild_that_has_lost_entries_does_not_end_a_run_with_0(run_cli: Run, tmp_path: Path) -> None:
    """Without --metadata URI nobody brings them back."""
    bookie, plan = tmp_path / "bookie", tmp_path / "plan.json"
    shutil.copytree(DEMO / "bookie1", bookie)
    (bookie / "ledgers" / "current" / "0.log").unlink()
    words = (bookie, "--metadata", DEMO / "zk.json")
    made = run_cli("repair", "plan", *words, "--out", plan)
    assert made.exit_code == 1, made.stderr
    verbs = [row["command"][1:3] for row in from_ndjson(made.stdout) if row["number"] is not None]
    assert verbs == [["index", "rebuild"]]
    done = run_cli("repair", "run", plan, "--yes")
    assert (done.exit_code, json.loads(done.stdout)["exit_code"]) == (1, 1), done.stderr
    assert "step 1 has lost entries" in done.stderr
    assert run_cli("repair", "run", plan).exit_code == 1, "nor does the next run"


def test_a_run_that_leaves_findings_to_a_person_does_not_end_with_0(run_cli: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    by_hand = (ByHand("error full_disk: /b: no room", "make room", None),)
    plan.write_bytes(encode_plan(Plan(("bkctl", "doctor", "/b"), (), by_hand)))
    done = run_cli("repair", "run", plan)
    assert done.exit_code == 3
    assert "left to you" in done.stderr


def test_an_examination_that_fails_is_not_taken_for_one_without_findings(
    run_cli: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A dump of the metadata is cut: the examination ends with 1, as it does with findings."""
    bookie, dump = tmp_path / "bookie", tmp_path / "zk.json"
    shutil.copytree(DEMO / "bookie1", bookie)
    dump.write_bytes((DEMO / "zk.json").read_bytes()[:-200])
    done = run_cli("repair", "plan", bookie, "--metadata", dump, "--out", tmp_path / "plan.json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert str(dump) in capfd.readouterr().err
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    "change", [{"number": math.inf}, {"command": ["bkctl", "gc", "run", "\ud800x"]}, {"command": ["bkctl"]}]
)
def test_a_file_that_is_no_plan_is_wrong_usage(run_cli: Run, tmp_path: Path, change: dict[str, Any]) -> None:
    plan = tmp_path / "plan.json"
    step = {"number": 1, "command": ["bkctl", "gc", "run"], "needs": "stopped", "changes": ""}
    step |= {"findings": [], "know": [], **change}
    document = {"kind": KIND, "version": 1, "examined": ["bkctl"], "steps": [step], "by_hand": []}
    plan.write_text(json.dumps(document))
    done = run_cli("repair", "run", plan, "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "not a plan" in done.stderr


def test_a_plan_that_runs_itself_is_refused(run_cli: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command = ("bkctl", "repair", "run", str(plan), "--yes")
    plan.write_bytes(encode_plan(Plan(("bkctl",), (Step(1, command, Needs.EITHER, ""),), ())))
    done = run_cli("repair", "run", plan, "--yes")
    assert done.exit_code == 2
    assert "'repair'" in done.stderr
    assert not Path(f"{plan}.log").exists()


def test_a_plan_is_run_on_no_other_bookie_that_has_taken_the_path(run_cli: Run, tmp_path: Path) -> None:
    bookie, plan = tmp_path / "bookie", tmp_path / "plan.json"
    shutil.copytree(DEMO / "bookie1", bookie)
    (bookie / "ledgers" / "current" / "locations" / "CURRENT").unlink()
    assert run_cli("repair", "plan", bookie, "--out", plan).exit_code in (1, 3)
    shutil.rmtree(bookie)
    shutil.copytree(DEMO / "bookie1", bookie)
    for cookie in bookie.rglob("VERSION"):
        cookie.write_text(cookie.read_text().replace("127.0.0.1:4100", "127.0.0.1:4200"))
    before = sorted(path.relative_to(bookie) for path in bookie.rglob("*"))
    done = run_cli("repair", "run", plan, "--yes")
    assert done.exit_code == 4
    assert "made for bookie 127.0.0.1:4100" in done.stderr
    assert "this is bookie 127.0.0.1:4200" in done.stderr
    assert sorted(path.relative_to(bookie) for path in bookie.rglob("*")) == before
    assert not Path(f"{plan}.log").exists()


def test_a_plan_of_relative_paths_is_run_from_anywhere(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        shutil.copytree(DEMO / "bookie1", place / "bookie")
        (place / "bookie" / "ledgers" / "current" / "locations" / "CURRENT").unlink()
    shutil.copy(DEMO / "zk.json", here / "zk.json")
    monkeypatch.chdir(here)
    made = run_cli("repair", "plan", "bookie", "--metadata", "zk.json", "--deep", "--out", "plan.json")
    assert made.exit_code in (1, 3), made.stderr
    (row,) = [row for row in from_ndjson(made.stdout) if row["number"] is not None]
    assert {word for word in row["command"] if "/" in word} == {
        str(here / "bookie" / "ledgers" / "current"),
        str(here / "zk.json"),
    }
    monkeypatch.chdir(there)
    done = run_cli("repair", "run", here / "plan.json", "--yes")
    assert done.exit_code == 0, done.stderr
    assert (here / "bookie" / "ledgers" / "current" / "locations" / "CURRENT").exists()
    assert not (there / "bookie" / "ledgers" / "current" / "locations" / "CURRENT").exists()


@pytest.mark.thorough("a plan of several commands, as others here")
def test_relative_directories_of_a_configuration_are_those_of_where_the_plan_was_made(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, conf = tmp_path / "here", tmp_path / "here" / "bk.conf"
    shutil.copytree(DEMO / "bookie1", here)
    uri = f"metadataServiceUri=embedded://{tmp_path}/metadata.db\n"
    conf.write_text(f"journalDirectories=journal\nledgerDirectories=ledgers\nallowLoopback=true\n{uri}")
    (here / "ledgers" / "current" / "locations" / "CURRENT").unlink()
    monkeypatch.chdir(here)
    made = run_cli("repair", "plan", "--conf", "bk.conf", "--out", tmp_path / "plan.json")
    assert made.exit_code in (1, 3), made.stderr
    monkeypatch.chdir(tmp_path)
    done = run_cli("repair", "run", tmp_path / "plan.json", "--yes")
    ends = from_ndjson(done.stdout)
    rebuilt = [end["exit_code"] for end in ends if "index rebuild" in end["line"]]
    assert rebuilt == [0], done.stderr
    assert (here / "ledgers" / "current" / "locations" / "CURRENT").exists()
    here.rename(tmp_path / "elsewhere")
    Path(tmp_path / "plan.json.log").unlink()
    assert run_cli("repair", "run", tmp_path / "plan.json", "--yes").exit_code == 4


def test_findings_of_an_examination_that_did_not_end_make_no_plan(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error behind them may have the exit code of findings."""
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([1])
    bookie.write()
    (bookie.current() / "lastMark").unlink()
    _, whole = read_own_command(["bkctl", "doctor", str(bookie.root), "-o", "json"])
    cut = whole.rstrip().removesuffix(b"]")
    assert cut.startswith(b"[\n{")
    monkeypatch.setattr("bkctl.commands.repair.plan.read_own_command", lambda words: (1, cut))
    plan = tmp_path / "plan.json"
    done = run_cli("repair", "plan", bookie.root, "--out", plan)
    assert done.exit_code == 7
    assert "failed before its end" in done.stderr
    assert not plan.exists()


def test_a_loss_of_index_and_logs_is_left_to_a_person(run_cli: Run, tmp_path: Path) -> None:
    bookie, plan = TruthfulBookie.make(tmp_path / "bookie", "db", 1), tmp_path / "plan.json"
    for name in ("ledgers", "locations"):
        shutil.rmtree(bookie.current() / name)
    for log in bookie.logs():
        log.unlink()
    planned = run_cli("repair", "plan", bookie.root, "--out", plan, "-o", "json")
    assert planned.exit_code == 1
    (row,) = [row for row in json.loads(planned.stdout) if "lost_index" in row["findings"][0]]
    assert (row["number"], row["line"]) == (None, f"bkctl index check {bookie.current()}")
    assert "bkctl bookie start --accept-loss" in row["changes"]
    # The plan is one that can be run.
    assert run_cli("repair", "run", plan, "--yes").exit_code == 3
    # Journals that are damaged as well are accepted with it: a salvage has no index for its limbo.
    bookie.journals()[-2].unlink()
    planned = run_cli("repair", "plan", bookie.root, "-o", "json")
    rows = {row["findings"][0].split()[1]: row for row in json.loads(planned.stdout) if not row["command"]}
    assert "start --accept-loss' accepts both" in rows["missing_journal:"]["changes"]
    assert "salvage" not in planned.stdout
