"""``bkctl entrylog salvage`` and ``quarantine``: what proves itself is served, the rest is listed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.losses import decode_losses
from bkctl.codec.quarantine_manifest import decode_manifest
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import BookieIOError, CorruptionError, LedgerLimboError
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.directory import QUARANTINE_NAME
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import PosixFileSystem
from tests.support.checked_bookie import HOST, CheckedBookie
from tests.support.cluster_dump import write_dump
from tests.support.readable import readable
from tests.support.truthful_bookie import DELETED, Entry, TruthfulBookie, started

Run = Callable[..., Any]


@pytest.fixture
def log(bookie: TruthfulBookie) -> Path:
    """A log with several ledgers that live."""
    return max(bookie.logs(), key=lambda path: len(set(ledgers_in(path)) - {DELETED}))


def ledgers_in(log: Path) -> list[int]:
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        return [ledger for batch in scan.batches() for ledger in batch.ledgers]


def entries_in(log: Path, bookie: TruthfulBookie) -> set[Entry]:
    """What of a log the index serves."""
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        found = [
            entry for batch in scan.batches() for entry in zip(batch.ledgers, batch.entries, strict=True)
        ]
    return set(found) & readable(bookie.root).keys()


def content(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def rows(done: Any, code: int = 0) -> list[dict[str, Any]]:
    assert done.exit_code == code, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def damage(log: Path, bookie: TruthfulBookie) -> Entry:
    """Overwrite the header of an entry in the middle that the index serves; the entry."""
    served = entries_in(log, bookie)
    with EntryLogScan(PosixFileSystem(), str(log)) as scan:
        places = [
            (batch.offset(index), entry)
            for batch in scan.batches()
            for index, entry in enumerate(zip(batch.ledgers, batch.entries, strict=True))
            if entry in served
        ]
    offset, entry = places[len(places) // 2]
    data = bytearray(log.read_bytes())
    data[offset : offset + 40] = b"\xee" * 40
    log.write_bytes(data)
    return entry


def test_what_proves_itself_is_served_and_the_rest_is_listed(
    run_cli: Run, bookie: TruthfulBookie, log: Path, tmp_path: Path
) -> None:
    whole = readable(bookie.root)
    entry = damage(log, bookie)
    before, broken = content(bookie.root), log.read_bytes()
    losses = tmp_path / "losses.json"
    words = ("entrylog", "salvage", log, "-o", "json")
    planned = rows(run_cli(*words, "--dry-run"), 1)
    assert content(bookie.root) == before
    assert run_cli(*words).exit_code == 4
    done = rows(run_cli(*words, "--losses", losses, "--yes"), 1)
    assert done == planned
    (lost,) = (row for row in done if row["kind"] == "lost")
    assert (lost["ledger"], lost["entries"]) == (entry[0], str(entry[1]))
    (copy,) = (row for row in done if row["kind"] == "copy")
    assert copy["by_digest"] == copy["records"] > 0
    (listed,) = decode_losses(losses.read_bytes()).losses
    assert (listed.ledger, listed.entries) == (entry[0], (entry[1:] * 2,))
    assert readable(bookie.root) == {each: body for each, body in whole.items() if each != entry}
    assert not log.exists()
    assert (log.parent / QUARANTINE_NAME / log.name).read_bytes() == broken
    assert run_cli("entrylog", "verify", copy["path"]).exit_code in (0, 3)
    with started(bookie.root, bookie.directories) as running:
        with pytest.raises((LedgerLimboError, BookieIOError, CorruptionError)):
            running.reads.read(*entry)
        for each, body in bookie.truth.bodies.items():
            if each[0] not in (DELETED, entry[0]):
                assert running.reads.read(*each) == body


def test_it_is_undone_byte_for_byte(run_cli: Run, bookie: TruthfulBookie, log: Path) -> None:
    damage(log, bookie)
    before = content(bookie.root)
    assert run_cli("entrylog", "salvage", log, "--yes").exit_code == 1
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert content(bookie.root) == before


def test_a_log_without_damage_is_left_alone(run_cli: Run, bookie: TruthfulBookie, log: Path) -> None:
    before = content(bookie.root)
    (row,) = rows(run_cli("entrylog", "salvage", log, "--yes", "-o", "json"))
    assert "no damage" in row["detail"]
    assert content(bookie.root) == before


def test_a_log_in_quarantine_is_unknown_and_comes_back(
    run_cli: Run, bookie: TruthfulBookie, log: Path
) -> None:
    before, whole = content(bookie.root), readable(bookie.root)
    inside = entries_in(log, bookie)
    assert inside
    words = ("entrylog", "quarantine", log.name, log.parent, "-o", "json")
    planned = rows(run_cli(*words, "--reason", "bad sectors", "--dry-run"))
    assert content(bookie.root) == before
    assert rows(run_cli(*words, "--reason", "bad sectors", "--yes")) == planned
    (listed,) = rows(run_cli("entrylog", "quarantine", bookie.root, "--list", "-o", "json"))
    assert (listed["action"], listed["reason"]) == ("in_quarantine", "bad sectors")
    assert not log.exists()
    with started(bookie.root, bookie.directories) as running:
        for each in sorted(inside):
            with pytest.raises((BookieIOError, CorruptionError)):
                running.reads.read(*each)
        for each in sorted(whole.keys() - inside):
            assert running.reads.read(*each) == whole[each]
    refused = run_cli("index", "rebuild", bookie.root, "--yes", "--accept-loss")
    assert refused.exit_code == 4
    assert "in quarantine" in refused.stderr
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 4
    assert run_cli(*words, "--release", "--yes").exit_code == 0
    assert readable(bookie.root).items() >= whole.items()
    none = run_cli("entrylog", "quarantine", bookie.root, "--list", "-o", "json")
    assert (none.stdout.strip(), none.stderr) == (
        "[]",
        "bkctl: logs in quarantine in 3 directories, nothing found\n",
    )
    one = run_cli("entrylog", "quarantine", "0x1c", bookie.root, "--list")
    assert (one.stdout, one.stderr) == (
        "",
        "bkctl: log 1c.log in quarantine in 3 directories, nothing found\n",
    )


@pytest.mark.parametrize("release", [False, True])
def test_a_move_is_undone_byte_for_byte(
    run_cli: Run, bookie: TruthfulBookie, log: Path, release: bool
) -> None:
    words: tuple[object, ...] = ("entrylog", "quarantine", log, "--yes")
    if release:
        assert run_cli(*words).exit_code == 0
        words += ("--release",)
    before = content(bookie.root)
    assert run_cli(*words).exit_code == 0
    assert content(bookie.root) != before
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert content(bookie.root) == before


def test_what_is_in_quarantine_is_salvaged_there(run_cli: Run, bookie: TruthfulBookie, log: Path) -> None:
    whole = readable(bookie.root)
    entry = damage(log, bookie)
    assert run_cli("entrylog", "quarantine", log, "--yes").exit_code == 0
    assert run_cli("entrylog", "salvage", log.name, log.parent, "--yes").exit_code == 1
    assert readable(bookie.root) == {each: body for each, body in whole.items() if each != entry}
    refused = run_cli("entrylog", "quarantine", log.name, log.parent, "--release", "--yes")
    assert refused.exit_code == 4
    assert "were copied to another log" in refused.stderr
    assert run_cli("index", "rebuild", bookie.root, "--yes", "--accept-loss").exit_code in (0, 1)


def test_where_the_records_went_is_known_behind_a_second_salvage(
    run_cli: Run, bookie: TruthfulBookie, log: Path
) -> None:
    damage(log, bookie)
    assert run_cli("entrylog", "salvage", log, "--yes").exit_code == 1
    manifest = log.parent / QUARANTINE_NAME / f"{log.stem}.json"
    first = decode_manifest(manifest.read_bytes()).salvaged_to
    assert first is not None
    again = run_cli("entrylog", "salvage", log.name, log.parent, "--yes", "-o", "json")
    assert again.exit_code in (0, 1)
    copied = [int(Path(row["path"]).stem, 16) for row in json.loads(again.stdout) if row["kind"] == "copy"]
    assert decode_manifest(manifest.read_bytes()).salvaged_to == (copied or [first])[0]


def test_the_id_of_a_log_in_quarantine_never_comes_again(
    run_cli: Run, bookie: TruthfulBookie, log: Path
) -> None:
    if bookie.storage == "idx":  # one space of ids
        log = max(bookie.logs(), key=lambda path: int(path.stem, 16))
    newest = max(log.parent.glob("*.log"), key=lambda path: int(path.stem, 16))
    for path in bookie.root.glob("l*/current/lastId") if bookie.storage == "idx" else [log.parent / "lastId"]:
        path.unlink()
    assert run_cli("entrylog", "quarantine", newest, "--yes").exit_code == 0
    assert int((log.parent / "lastId").read_text(), 16) == int(newest.stem, 16)
    (log.parent / "lastId").unlink()
    with started(bookie.root, bookie.directories):
        pass
    assert not newest.exists()


def test_refusals(run_cli: Run, bookie: TruthfulBookie, log: Path) -> None:
    with DirectoryLock(str(log.parent)):
        assert run_cli("entrylog", "quarantine", log, "--yes").exit_code == 4
    refused = run_cli("entrylog", "quarantine", log.name, log.parent, "--release", "--yes")
    assert (refused.exit_code, f") in quarantine in {log.parent}" in refused.stderr) == (6, True)
    assert run_cli("entrylog", "quarantine", "fff.log", log.parent, "--yes").exit_code == 6
    assert run_cli("entrylog", "quarantine", bookie.root, "--yes").exit_code == 2
    for verb in ("quarantine", "salvage"):
        refused = run_cli("entrylog", verb, bookie.root / "nowhere/1.log", "--yes")
        assert (refused.exit_code, "nowhere/1.log: no such file or directory" in refused.stderr) == (6, True)


def test_a_record_of_a_ledger_that_nobody_knows_stays_in_quarantine(run_cli: Run, tmp_path: Path) -> None:
    """A bit of its id was flipped, or it was deleted: copied, it would be checked in vain for ever."""
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([1, 2])
    _, place = bookie.store(1 << 50, 0)
    bookie.write()
    log = bookie.current() / "0.log"
    data = bytearray(log.read_bytes())
    data[place + 40] ^= 1
    data[1500:1510] = b"\xee" * 10
    log.write_bytes(data)
    dump = tmp_path / "zk.json"
    write_dump(dump, (), bookie=HOST, instance_id="instance", next_ledger=3)
    found, *_ = rows(run_cli("entrylog", "salvage", log, "--dry-run", "-o", "json"), 1)
    assert found["unknown"] == 0
    found, *others = rows(run_cli("entrylog", "salvage", log, "--metadata", dump, "--yes", "-o", "json"), 1)
    assert (found["unknown"], found["superseded"]) == (1, 0)
    (copy,) = (row for row in others if row["kind"] == "copy")
    assert set(ledgers_in(Path(copy["path"]))) == {1, 2}
    (kept,) = (row for row in others if row["kind"] == "kept")
    assert Path(kept["path"]).read_bytes() == bytes(data)


def test_entries_of_which_nothing_proves_that_they_were_here_are_counted_apart(
    run_cli: Run, tmp_path: Path
) -> None:
    """Of a ledger on three bookies with two copies of each entry not every entry is on each of them."""
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.ledger(1)
    for entry in (0, 2, 4, 6):
        bookie.add(1, entry)
    places = [offset for _, offset in bookie.locations.values()]
    bookie.write()
    log = bookie.current() / "0.log"
    data = bytearray(log.read_bytes())
    data[places[1] - 4 : places[3] - 4] = b"\xee" * (places[3] - places[1])
    log.write_bytes(data)
    words = ("entrylog", "salvage", log, "-o", "json")
    asked = run_cli(*words)
    assert "give up 2 entries and up to 3 more of 1 ledger" in asked.stderr
    (lost,) = (row for row in rows(run_cli(*words, "--dry-run"), 1) if row["kind"] == "lost")
    assert lost["entries"] == "1-5"
    assert "perhaps never here: 1, 3, 5" in lost["detail"]


def test_rows_in_limbo_hide_no_rows_of_ledgers_that_are_lost(run_cli: Run, tmp_path: Path) -> None:
    """A start was killed that had made an empty database: the next one would take it for the bookie's."""
    bookie = TruthfulBookie.make(tmp_path / "bookie", "db", 1)
    log = bookie.logs()[0]
    damage(log, bookie)
    path = bookie.current() / "ledgers"
    shutil.rmtree(path)
    open_store(str(path), LEDGERS_PROFILE, create=True).close()
    before = content(bookie.root)
    refused = run_cli("entrylog", "salvage", log, "--yes")
    assert (refused.exit_code, content(bookie.root)) == (4, before)
    assert "ledgers: has no row; rebuild the index first" in refused.stderr
    assert f"bkctl index rebuild {bookie.current().parent}" in refused.stderr


@pytest.mark.parametrize("name", ["ledgers", "locations"])
def test_a_database_that_cannot_be_read_ends_a_salvage_with_its_rebuild(
    run_cli: Run, tmp_path: Path, name: str
) -> None:
    bookie = TruthfulBookie.make(tmp_path / "bookie", "db", 1)
    log = bookie.logs()[0]
    damage(log, bookie)
    (bookie.current() / name / "CURRENT").write_bytes(b"x" * 1000)
    before = content(bookie.root)
    refused = run_cli("entrylog", "salvage", log, "--yes")
    assert (refused.exit_code, content(bookie.root)) == (7, before)
    assert f"rebuild it first: bkctl index rebuild {bookie.current().parent} --{name} (" in refused.stderr
    assert "x" * 100 not in refused.stderr
    assert run_cli("index", "get", bookie.current(), "3", "1").stderr.count("index rebuild") == (
        name == "locations"
    )
    words = ("index", "rebuild", bookie.current().parent, f"--{name}", "--accept-loss", "--yes")
    assert run_cli(*words).exit_code in (1, 3)
    assert run_cli("entrylog", "salvage", log, "--yes").exit_code in (0, 1)
