"""Each prepared fault is found by exactly its kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.index.check.finding import Finding, Kind, Severity
from bkctl.admin.index.check.next_steps import next_step
from bkctl.codec import ledger_data, location
from bkctl.codec.entrylog import log_name
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.codec.location import ID_MAX, Location
from bkctl.scan.directory import NOT_PROVED_NAME
from tests.support import cluster_dump
from tests.support.checked_bookie import HOST, KEY, CheckedBookie, check, damage, kinds

STORAGES = ("db", "idx")
Make = Callable[..., CheckedBookie]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def bookie(storage: str = "db", count: int = 1) -> CheckedBookie:
        made = CheckedBookie(tmp_path / "bookie", storage, count)
        made.fill([4, 5, 6, 7])
        made.fill([8, 9], log_id=1)
        return made

    return bookie


def metadata_of(ledger: int, bookie: str = HOST) -> dict[int, LedgerMetadata]:
    return {ledger: cluster_dump.metadata_of(bookie)}


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("digest", ["auto", "off"])
def test_a_sound_bookie_has_no_findings(make: Make, storage: str, count: int, digest: str) -> None:
    assert make(storage, count).write().check(digest=digest) == []


@pytest.mark.parametrize("storage", STORAGES)
def test_a_removed_row(make: Make, storage: str) -> None:
    bookie = make(storage)
    log_id, offset = bookie.locations.pop((0, 5, 7))
    found = only(bookie.write().check())
    assert (found.kind.value, found.ledger, found.entry) == ("missing_location", 5, 7)
    assert (found.log_id, found.offset, found.severity) == (log_id, offset, Severity.DAMAGE)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("shift", [-4, -1, 1, 8, 40])
def test_a_wrong_offset(make: Make, storage: str, shift: int) -> None:
    bookie = make(storage)
    log_id, offset = bookie.locations[0, 5, 7]
    bookie.locations[0, 5, 7] = log_id, offset + shift
    found = only(bookie.write().check())
    assert (found.kind.value, found.ledger, found.entry) == ("dangling_location", 5, 7)
    assert found.offset == offset + shift
    assert f"log {log_id} at {offset}" in found.detail, "where the entry stands"


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("where", "says"),
    [((9, 1028), "no log 9"), ((0, 1 << 30), "outside"), ((0, 5), "header"), ((1, 4000), "")],
)
def test_a_wrong_log_or_a_place_outside(make: Make, storage: str, where: tuple[int, int], says: str) -> None:
    bookie = make(storage)
    bookie.locations[0, 5, 7] = where
    found = only(bookie.write().check())
    assert (found.kind.value, found.ledger, found.entry, found.log_id) == (
        "dangling_location",
        5,
        7,
        where[0],
    )
    assert says in found.detail


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("other", [(6, 7), (5, 8), (8, 0), (9, 19)])
def test_a_foreign_entry(make: Make, storage: str, other: tuple[int, int]) -> None:
    bookie = make(storage)
    bookie.locations[0, 5, 7] = bookie.locations[(0, *other)]
    found = only(bookie.write().check())
    assert (found.kind.value, found.ledger, found.entry) == ("foreign_entry", 5, 7)
    assert f"ledger {other[0]} entry {other[1]}" in found.detail


@pytest.mark.parametrize("storage", STORAGES)
def test_any_valid_copy_is_right(make: Make, storage: str) -> None:
    bookie = make(storage)
    for entry in range(5):
        bookie.store(5, entry, 1)
        bookie.store(5, entry, 2)
    bookie.locations[0, 5, 1] = bookie.store(5, 1, 0)
    assert bookie.write().check() == []


def test_a_missing_entry_is_told_once_at_its_last_copy(make: Make) -> None:
    bookie = make()
    copies = [bookie.store(5, 20, log_id) for log_id in (1, 0, 1)]
    found = only(bookie.write().check())
    assert (found.log_id, found.offset) == max(copies)


def test_a_wide_key(make: Make) -> None:
    bookie = make()
    row = ledger_data.encode_ledger_data(LedgerData(True, b""))
    bookie.raw_rows.append((0, "ledgers", (5).to_bytes(8, "big") + bytes(8), row))
    bookie.raw_rows.append((0, "ledgers", (6).to_bytes(8, "big") + bytes(8), row))
    del bookie.ledgers[0, 6]
    found = bookie.write().check()
    assert [(finding.kind.value, finding.ledger) for finding in found] == [("wide_key", 5), ("wide_key", 6)]
    assert "overrides" in found[0].detail
    assert "overrides" not in found[1].detail


def test_a_missing_ledger_row(make: Make) -> None:
    bookie = make()
    del bookie.ledgers[0, 5]
    found = only(bookie.write().check())
    assert (found.kind.value, found.ledger, found.entry) == ("locations_without_ledger", 5, None)
    assert "20 locations (entries 0 to 19)" in found.detail


@pytest.mark.parametrize("storage", STORAGES)
def test_garbage_of_deleted_ledgers_is_no_finding(make: Make, storage: str) -> None:
    bookie = make(storage)
    bookie.store(77, 0)
    assert bookie.write().check() == []
    assert check([bookie.root], metadata=metadata_of(5)) == []
    assert check([bookie.root], metadata=metadata_of(77, "another:3181")) == []


@pytest.mark.parametrize("storage", STORAGES)
def test_a_ledger_that_only_metadata_and_logs_know(make: Make, storage: str) -> None:
    bookie = make(storage)
    bookie.store(77, 3)
    found = only(bookie.write().check(metadata=metadata_of(77)))
    assert (found.kind.value, found.ledger) == ("missing_ledger", 77)
    assert "entry 3 in log 0" in found.detail


def test_rows_that_do_not_decode(make: Make) -> None:
    bookie = make()
    del bookie.locations[0, 5, 7]
    del bookie.ledgers[0, 6]
    bookie.raw_rows += [
        (0, "locations", location.encode_key(5, 7), b"short"),
        (0, "locations", b"odd key", bytes(8)),
        (0, "ledgers", ledger_data.encode_ledger_key(6), b"\xff"),
    ]
    found = bookie.write().check()
    assert kinds(found) == ["undecodable_row"]
    assert {(finding.ledger, finding.entry) for finding in found} == {(5, 7), (None, None), (6, None)}


def test_limbo_the_integrity_flag_and_ledgers_without_entries_are_notes(make: Make) -> None:
    bookie = make()
    bookie.ledger(5, limbo=True)
    bookie.ledger(50)
    flags = ledger_data.encode_ledger_key(ledger_data.FLAGS_ID), ledger_data.encode_flags(1)
    bookie.raw_rows.append((0, "ledgers", *flags))
    found = bookie.write().check()
    assert kinds(found) == ["integrity_flag", "ledger_without_entries", "limbo"]
    assert damage(found) == []


@pytest.mark.parametrize("storage", ["db", "idx"])
def test_what_a_rebuild_could_not_prove_is_a_note(make: Make, storage: str) -> None:
    bookie = make(storage, count=2).write()
    assert bookie.check() == []
    (bookie.current(1) / NOT_PROVED_NAME).write_text('{"doubts": ["lastId is not there", "log 3 is not"]}')
    (found,) = bookie.check()
    assert (found.kind, found.severity) == (Kind.NOT_PROVED, Severity.NOTE)
    assert "could not prove" in found.detail
    assert "lastId is not there; log 3 is not" in found.detail
    assert next_step(found, ("--metadata", "zk.json")).commands == ()


def test_locations_that_a_deletion_does_not_reach(make: Make) -> None:
    bookie = make()
    bookie.locations[0, 60, ID_MAX] = (44, 1028)
    bookie.raw_rows.append(
        (0, "locations", location.encode_key(61, -5), location.encode_value(Location(0, 1)))
    )
    found = bookie.write().check()
    assert [(finding.kind.value, finding.ledger) for finding in found] == [
        ("leaked_location", 60),
        ("leaked_location", 61),
    ]


@pytest.mark.parametrize("storage", STORAGES)
def test_what_a_truncation_leaves_dangling(make: Make, storage: str) -> None:
    bookie = make(storage).write()
    path = bookie.current() / log_name(0)
    data = path.read_bytes()
    cut = bookie.locations[0, 6, 15][1] + 30
    path.write_bytes(data[:cut])
    found = bookie.check()
    assert kinds(found) == ["dangling_location"]
    gone = {
        (ledger, entry)
        for (_, ledger, entry), at in bookie.locations.items()
        if at[0] == 0 and at[1] > cut - 31
    }
    assert {(finding.ledger, finding.entry) for finding in found} == gone
    assert "begins here" in next(finding.detail for finding in found if finding.entry == 15)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_missing_log(make: Make, storage: str) -> None:
    bookie = make(storage).write()
    (bookie.current() / log_name(1)).unlink()
    found = bookie.check()
    assert kinds(found) == ["dangling_location"]
    assert len(found) == 40


def test_damage_of_a_log_is_told_once_with_what_pointed_into_it(make: Make) -> None:
    bookie = make().write()
    path = bookie.current() / log_name(0)
    data = bytearray(path.read_bytes())
    offset = bookie.locations[0, 5, 7][1]
    data[offset - 4 : offset + 40] = bytes(44)
    path.write_bytes(data)
    found = bookie.check()
    assert kinds(found) == ["damaged_log", "dangling_location"]
    by_kind = {finding.kind.value: finding for finding in found}
    assert len(found) == 2
    assert by_kind["damaged_log"].offset == offset - 4
    assert (by_kind["dangling_location"].ledger, by_kind["dangling_location"].entry) == (5, 7)
    assert "damage" in by_kind["dangling_location"].detail


def test_an_entry_that_fails_its_digest_is_damage_of_the_log_alone(make: Make) -> None:
    bookie = make().write()
    path = bookie.current() / log_name(0)
    data = bytearray(path.read_bytes())
    data[bookie.locations[0, 5, 7][1] + 50] ^= 1
    path.write_bytes(data)
    found = only(bookie.check())
    assert (found.kind.value, found.ledger, found.entry) == ("damaged_log", 5, 7)
    assert bookie.check(digest="off") == []


def test_a_damaged_idx_header(make: Make) -> None:
    bookie = make("idx").write()
    path = bookie.idx_path(5)
    path.write_bytes(b"JUNK" + path.read_bytes()[4:])
    found = only(bookie.check())
    assert (found.kind.value, found.ledger) == ("damaged_idx_header", 5)


def test_a_negative_slot(make: Make) -> None:
    bookie = make("idx").write()
    path = bookie.idx_path(5)
    data = bytearray(path.read_bytes())
    data[1024 + 8 * 7] = 0x80
    path.write_bytes(data)
    found = only(bookie.check())
    assert (found.kind.value, found.ledger, found.entry) == ("undecodable_row", 5, 7)


def test_swapped_directories(make: Make) -> None:
    bookie = make(count=2).write()
    aside = bookie.root / "aside"
    (bookie.root / "l0").rename(aside)
    (bookie.root / "l1").rename(bookie.root / "l0")
    aside.rename(bookie.root / "l1")
    found = bookie.check()
    assert kinds(found) == ["wrong_directory"]
    assert sorted(finding.ledger or 0 for finding in found) == [4, 5, 6, 7, 8, 9]


def test_swapped_indexes_are_the_same_finding(make: Make) -> None:
    bookie = make(count=2).write()
    for name in ("locations", "ledgers"):
        one, other = (bookie.current(place) / name for place in range(2))
        one.rename(bookie.root / "aside")
        other.rename(one)
        (bookie.root / "aside").rename(other)
    assert kinds(bookie.check()) == ["wrong_directory"]


def test_a_location_of_another_log_id_space(make: Make) -> None:
    bookie = make(count=2)
    bookie.ledger(11)
    bookie.locations[1, 11, 0] = bookie.store(11, 0, 3, place=0)
    found = only(bookie.write().check())
    assert (found.kind.value, found.ledger, found.entry, found.log_id) == ("wrong_log_id_space", 11, 0, 3)
    assert found.dir == str(bookie.current(1))


def test_one_of_two_directories_is_checked_with_the_other_in_sight(make: Make) -> None:
    bookie = make(count=2)
    bookie.ledger(11)
    bookie.locations[1, 11, 0] = bookie.store(11, 0, 3, place=0)
    bookie.write()
    assert check([bookie.current(0)]) == []
    assert kinds(check([bookie.root / "l1"])) == ["wrong_log_id_space"]


@pytest.mark.parametrize("storage", STORAGES)
def test_what_the_journal_brings_back_is_a_note(make: Make, storage: str) -> None:
    bookie = make(storage)
    del bookie.locations[0, 5, 7]
    bookie.locations[0, 5, 9] = (33, 1028)
    bookie.ledger(70)
    bookie.store(71, 0)
    bookie.journaled(5, range(5, 12))
    bookie.journaled(70, range(3))
    bookie.journaled(71, range(1))
    found = bookie.write().check()
    assert kinds(found) == ["ledger_without_entries", "pending_replay"]
    notes = {finding.ledger: finding.detail for finding in found}
    assert set(notes) == {5, 70}
    assert "1 with a location that is wrong, 1 with no location" in notes[5]
    assert "journal alone" in notes[70]
    notes = {finding.ledger: finding.detail for finding in bookie.check(metadata=metadata_of(71))}
    assert "master key" in notes[71]


def test_what_is_in_front_of_the_mark_does_not_come_back(make: Make) -> None:
    bookie = make()
    del bookie.locations[0, 5, 7]
    bookie.journaled(5, range(5, 12))
    bookie.mark = type(bookie.mark)(bookie.mark.journal_id, bookie.journal.position)
    assert kinds(bookie.write().check()) == ["missing_location"]


def test_a_ledger_row_that_was_not_written_before_the_crash(make: Make) -> None:
    bookie = make()
    del bookie.ledgers[0, 5]
    bookie.journaled(5, range(20))
    found = only(bookie.write().check())
    assert (found.kind.value, found.severity) == ("pending_replay", Severity.NOTE)


def test_a_lost_database(make: Make) -> None:
    bookie = make().write()
    (bookie.current() / "locations").rename(bookie.root / "gone")
    found = damage(bookie.check())
    assert kinds(found) == ["unreadable_index"]
    (bookie.current() / "ledgers").rename(bookie.root / "gone-too")
    assert kinds(bookie.check()) == ["lost_index"]


def test_an_index_that_is_gone_with_all_logs(make: Make) -> None:
    """Entries in front of the last mark were flushed, so this is no bookie in front of its first flush."""
    bookie = make()
    bookie.journaled(5, range(20))
    bookie.mark = LastMark(bookie.mark.journal_id, bookie.journal.position)
    bookie.write()
    for path in bookie.current().iterdir():
        if path.name in ("ledgers", "locations"):
            shutil.rmtree(path)
        elif path.suffix == ".log":
            path.unlink()
    found = only(bookie.check())
    assert found.kind.value == "lost_index"
    assert "ledger 5" in found.detail
    mark = encode_last_mark(LastMark(bookie.mark.journal_id, 512))
    (bookie.current() / "lastMark").write_bytes(mark)
    assert kinds(bookie.check()) == ["no_index"]


def test_the_folders_of_idx_files_say_that_all_ledgers_were_deleted(tmp_path: Path) -> None:
    """A bookie leaves them behind when the file of the last ledger goes; without them the index was lost."""
    bookie = CheckedBookie(tmp_path / "bookie", "idx")
    bookie.fill([4, 5])
    bookie.write()
    for path in bookie.current().rglob("*.idx"):
        path.unlink()
    assert bookie.check() == []
    # Metadata that have one of them say that its file was lost.
    assert only(bookie.check(metadata=metadata_of(5))).kind.value == "missing_ledger"
    for path in bookie.current().iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    assert kinds(bookie.check()) == ["lost_index"]


def test_an_index_directory_that_is_not_found_is_told(make: Make) -> None:
    """Ledgers whose index files are there look like those that were deleted."""
    bookie = make("idx", 2).write()
    shutil.rmtree(bookie.root / "l1")
    found = only(bookie.check())
    assert found.kind.value == "position_unknown"
    assert "/l1, which the cookie names, is not found" in found.detail


def test_a_bookie_that_never_flushed(make: Make, tmp_path: Path) -> None:
    bookie = CheckedBookie(tmp_path / "young", "idx")
    bookie.store(5, 0)
    bookie.journaled(5, [0])
    assert kinds(bookie.write().check()) == ["no_index"]


def test_tiny_memory_gives_the_same(make: Make) -> None:
    bookie = make()
    for ledger in range(100, 200):
        bookie.fill([ledger], entries=150, log_id=ledger % 3)
    for entry in range(0, 150, 7):
        del bookie.locations[0, 150, entry]
        bookie.locations[0, 151, entry] = (0, 1500 + entry)
    bookie.write()
    large = bookie.check()
    assert large == bookie.check(memory_bytes=1 << 20)
    assert {"missing_location", "dangling_location"} <= set(kinds(large))
    assert len(large) == 44


def test_secrets_are_not_among_the_findings(make: Make) -> None:
    bookie = make()
    del bookie.ledgers[0, 5]
    assert KEY.hex() not in repr(bookie.write().check())


def test_a_ledger_directory_of_which_the_cookie_alone_is_left(make: Make) -> None:
    """A disk that was emptied, and in which somebody has put the cookie back."""
    bookie = make(count=2).write()
    for path in bookie.current(1).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "VERSION":
            path.unlink()
    found = only(bookie.check())
    assert (found.kind.value, found.dir) == ("emptied_directory", str(bookie.current(1)))
