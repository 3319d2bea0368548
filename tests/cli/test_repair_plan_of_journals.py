"""``bkctl repair plan`` and ``run`` over damaged journals and last marks: a start goes on again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.commands.frame.bookie_options import ConfigurationOptions
from bkctl.commands.repair.plan import _with_digests
from bkctl.errors import LedgerLimboError, RefusedError
from bkctl.scan.journal import JournalScan
from bkctl.vfs import PosixFileSystem
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import DELETED, Entry, TruthfulBookie, started

Run = Callable[..., Any]
COUNT = 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", COUNT)


@pytest.fixture
def bookie(made: TruthfulBookie, tmp_path: Path) -> TruthfulBookie:
    return made.copy(tmp_path / "bookie")


def mark_paths(bookie: TruthfulBookie) -> list[Path]:
    return sorted(bookie.root.glob("l*/current/lastMark"))


def planned_and_run(run_cli: Run, bookie: TruthfulBookie, plan: Path) -> list[list[str]]:
    """Make a plan, run it and look once more: nothing of marks and journals is left. Its commands' words."""
    made = run_cli("repair", "plan", bookie.root, "--out", plan)
    commands = [row["command"][1:3] for row in from_ndjson(made.stdout) if row["number"] is not None]
    done = run_cli("repair", "run", plan, "--yes")
    assert done.exit_code in (0, 1), done.stderr
    assert {row["exit_code"] for row in from_ndjson(done.stdout)} <= {0, 1}
    again = run_cli("doctor", bookie.root, "--only", "marks,journals", "-o", "ndjson")
    assert from_ndjson(again.stdout) == []
    return commands


def assert_served(bookie: TruthfulBookie, lost: Entry | None = None) -> None:
    with started(bookie.root, COUNT) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if (ledger, entry) == lost:
                with pytest.raises(LedgerLimboError):
                    running.reads.read(ledger, entry)
            elif ledger != DELETED:
                assert running.reads.read(ledger, entry) == body


def test_a_mark_within_a_record_is_set_to_where_the_record_begins(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    first, second = mark_paths(bookie)
    mark = decode_last_mark(second.read_bytes())
    second.write_bytes(encode_last_mark(LastMark(mark.journal_id, mark.offset + 3)))
    first.write_bytes(b"short")
    # From such a mark a replay reads nothing that makes sense: a row that it would write is missing, too.
    assert planned_and_run(run_cli, bookie, tmp_path / "plan.json")[0] == ["lastmark", "set"]
    assert {decode_last_mark(path.read_bytes()) for path in mark_paths(bookie)} == {mark}


@pytest.mark.parametrize("content", [None, b"short", bytes(7) + b"\xff" * 9])
def test_a_mark_that_is_gone_or_unreadable_gets_that_of_the_other_directories(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, content: bytes | None
) -> None:
    first, second = mark_paths(bookie)
    counts = max(decode_last_mark(path.read_bytes()) for path in (first, second))
    second.write_bytes(first.read_bytes())
    if content is None:
        first.unlink()
        counts = decode_last_mark(second.read_bytes())
        made = run_cli("doctor", bookie.root, "--only", "marks", "--notes", "-o", "ndjson")
        (row,) = [row for row in from_ndjson(made.stdout) if row["kind"] == "no_mark"]
        assert row["severity"] == "note"
        (command,) = row["commands"]
        assert run_cli(*command[1:]).exit_code == 0
    else:
        first.write_bytes(content)
        counts = decode_last_mark(second.read_bytes())
        assert planned_and_run(run_cli, bookie, tmp_path / "plan.json") == [["lastmark", "set"]]
    assert {decode_last_mark(path.read_bytes()) for path in mark_paths(bookie)} == {counts}
    assert_served(bookie)


def test_without_any_mark_all_journals_are_replayed(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    for path in mark_paths(bookie):
        path.write_bytes(b"\xff")
    assert planned_and_run(run_cli, bookie, tmp_path / "plan.json") == [["lastmark", "set"]]
    assert {decode_last_mark(path.read_bytes()) for path in mark_paths(bookie)} == {
        LastMark(int(bookie.journals()[0].stem, 16), 0)
    }
    assert_served(bookie)


def test_a_journal_that_refuses_a_start_is_replaced_by_its_copy(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    places: dict[Entry, tuple[Path, int]] = {}
    for path in bookie.journals():
        with JournalScan(PosixFileSystem(), str(path)) as scan:
            for batch in scan.batches():
                for index, entry in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
                    places[entry] = path, batch.offset(index)
    lost = sorted(bookie.truth.journaled, key=lambda each: places[each])[10]
    path, offset = places[lost]
    data = bytearray(path.read_bytes())
    data[offset : offset + 40] = b"\xee" * 40
    path.write_bytes(data)
    with pytest.raises(RefusedError), started(bookie.root, COUNT):
        pass
    assert ["journal", "salvage"] in planned_and_run(run_cli, bookie, tmp_path / "plan.json")
    assert_served(bookie, lost)


def test_a_journal_directory_without_any_journal_gets_a_mark_that_names_none(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    for path in bookie.journals():
        path.unlink()
    with pytest.raises(RefusedError), started(bookie.root, COUNT):
        pass
    assert ["journal", "salvage"] in planned_and_run(run_cli, bookie, tmp_path / "plan.json")
    assert {decode_last_mark(path.read_bytes()) for path in mark_paths(bookie)} == {LastMark(0, 0)}
    # A ledger of which only the journals had anything is known to nobody here: the metadata have to tell.
    journaled = bookie.truth.journaled
    flushed = {ledger for ledger, entry in bookie.truth.bodies if (ledger, entry) not in journaled} - {
        DELETED
    }
    assert flushed & {ledger for ledger, _ in journaled}
    with started(bookie.root, COUNT) as running:
        for ledger, entry in journaled:
            if ledger in flushed:
                with pytest.raises(LedgerLimboError):
                    running.reads.read(ledger, entry)


def test_an_empty_disk_beside_a_damaged_journal_hinders_no_plan(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path
) -> None:
    """Its rebuild is planned with --lost-disk; what comes before it are the steps for the journals."""
    root, conf = bookie.root, tmp_path / "bk.conf"
    ledgers = ",".join(str(root / f"l{number}") for number in range(COUNT))
    conf.write_text(
        f"journalDirectories={root}/j\nledgerDirectories={ledgers}\nallowLoopback=true\n"
        f"metadataServiceUri=embedded://{tmp_path}/metadata.db\n"
    )
    for path in bookie.journals():
        path.write_bytes(b"")
    shutil.rmtree(root / "l0")
    (root / "l0").mkdir()
    made = run_cli("repair", "plan", "--conf", conf, "--lost-disk", root / "l0", "-o", "ndjson")
    assert made.exit_code in (1, 3), made.stderr
    commands = [row["command"] for row in from_ndjson(made.stdout) if row["number"] is not None]
    assert ["bookie", "rebuild"] in [words[1:3] for words in commands]
    salvage = next(words for words in commands if words[1:3] == ["journal", "salvage"])
    assert {f"{root}/l0", f"{root}/l1", f"{root}/j"} <= set(salvage)


def test_every_salvage_of_a_plan_asks_the_metadata_that_the_plan_was_made_with() -> None:
    """The doctor's own command, too, which names no store: a MAC is checked by the password there."""
    salvage = ["bkctl", "journal", "salvage", "/b", "--in-place", "--journal", "0x1a", "--yes"]
    asked = [*salvage[:-1], "--metadata", "zk://z/ledgers", "--yes"]
    rows = [{"commands": [salvage, asked, ["bkctl", "lastmark", "set", "/b", "--yes"]]}]
    (row,) = _with_digests(rows, ConfigurationOptions(metadata_uri="zk://z/ledgers"))
    assert row["commands"] == [asked, asked, ["bkctl", "lastmark", "set", "/b", "--yes"]]
    assert _with_digests(rows, ConfigurationOptions()) == rows
