"""What a rebuild says of entries that stand in no log, where the old index cannot say it any more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild import db_rebuild
from bkctl.admin.index.rebuild.completeness import doubts_of_logs
from bkctl.admin.index.rebuild.log_files import find_logs
from bkctl.client.ops.create import NewLedger
from bkctl.client.ops.metadata_update import closed
from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.codec.file_info import (
    LIMBO,
    FileInfoHeader,
    decode_header,
    encode_header,
    encode_slots,
    index_path,
)
from bkctl.codec.journal import master_key_record
from bkctl.codec.last_id import encode_last_id
from bkctl.codec.ledger_data import encode_ledger_key
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.directory import NOT_PROVED_NAME
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support.cluster_dumps import INSTANCE, dump_file
from tests.support.log_builder import CRC32C, JournalBuilder, entry_body
from tests.unit.admin.index.rebuild.test_rebuild_census import (
    CLOSED,
    ELSEWHERE,
    HOST,
    OPEN,
    Rebuilt,
    with_cookie,
)
from tests.unit.admin.index.rebuild.test_rebuild_census import idx_bookie as idx_bookie
from tests.unit.admin.index.rebuild.test_rebuild_directory import KEY, Bookie, log, row

Cli = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    """Ledgers 0 to 3 in logs of their own; the locations are gone."""
    made = with_cookie(Bookie(tmp_path / "bookie"))
    for ledger in range(4):
        made.add(ledger, log((ledger, 0), (ledger, 1)))
    made.ledgers({encode_ledger_key(ledger): row() for ledger in range(4)})
    last_id(made, 3)
    return made


def last_id(bookie: Bookie, log_id: int) -> None:
    (bookie.current / "lastId").write_bytes(encode_last_id(log_id))


def lose(bookie: Bookie, *log_ids: int) -> None:
    for log_id in log_ids:
        (bookie.current / f"{log_id:x}.log").unlink()
        del bookie.logs[log_id]


def dump(bookie: Bookie, ledgers: dict[int, LedgerMetadata], **options: Any) -> tuple[object, ...]:
    """Metadata that are newer than all that the bookie has written."""
    options = {"time_ms": int(time.time() * 1000) + 3_600_000, **options}
    return "--metadata", dump_file(bookie.root.parent / "zk.json", ledgers, **options)


def unproved(found: Rebuilt) -> bool:
    return ("not_proved", None) in found.differences


# --- logs that are all there, or not ------------------------------------------------------------------------


def test_where_every_log_is_there_nothing_is_lost(run_cli: Cli, bookie: Bookie) -> None:
    found = Rebuilt(run_cli, bookie)
    assert (found.code, found.differences) == (0, set())
    assert found.rows == bookie.expected(0, 1, 2, 3)


@pytest.mark.parametrize("damaged", ["gone", "junk", "never written"])
@pytest.mark.parametrize("log_id", [0, 1, 3], ids=["first", "middle", "last"])
def test_a_log_that_is_gone_leaves_it_open(run_cli: Cli, bookie: Bookie, log_id: int, damaged: str) -> None:
    if damaged == "junk":
        bookie.locations(bookie.expected(0, 1, 2, 3))
        (bookie.current / "locations" / "CURRENT").write_bytes(b"junk\n")
    elif damaged == "never written":
        open_store(str(bookie.current / "locations"), LOCATIONS_PROFILE, create=True).close()
    lose(bookie, log_id)
    found = Rebuilt(run_cli, bookie)
    assert found.code == 3
    assert unproved(found)
    assert f"up to 3 some were collected or lost: {log_id}; --metadata" in found.stderr
    assert found.about("limbo_set") == {log_id}, "its row is there, and no entry"
    assert bookie.data(log_id).limbo
    assert found.rows == bookie.expected(0, 1, 2, 3)


def test_a_loss_that_the_old_locations_tell_is_no_doubt(run_cli: Cli, bookie: Bookie) -> None:
    bookie.locations(bookie.expected(0, 1, 2, 3))
    lose(bookie, 1)
    found = Rebuilt(run_cli, bookie)
    assert (found.code, found.differences) == (1, {("locations_lost", 1), ("limbo_set", 1)})


def test_what_a_collection_removed_is_not_declared_lost(run_cli: Cli, bookie: Bookie) -> None:
    """A ledger that was deleted had its row and its log removed."""
    with open_store(str(bookie.current / "locations"), LOCATIONS_PROFILE, create=True):
        pass
    lose(bookie, 1)
    shutil.rmtree(bookie.current / "ledgers")
    bookie.ledgers({encode_ledger_key(ledger): row() for ledger in (0, 2, 3)})
    found = Rebuilt(run_cli, bookie)
    assert found.code == 3
    assert {kind for kind, _ in found.differences} == {"not_proved", "note"}


def test_a_rebuild_of_locations_that_was_cut_off_says_it_in_the_end(
    run_cli: Cli, bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(bookie, 1)

    def stop(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild.DbRebuild, "finish", stop)
        assert run_cli("index", "rebuild", bookie.root, "--locations", "--yes").exit_code == 7
    found = Rebuilt(run_cli, bookie, "--locations")
    assert (found.code, unproved(found)) == (3, True)


def test_a_dry_run_says_it_as_well(run_cli: Cli, bookie: Bookie) -> None:
    lose(bookie, 1)
    words = ("index", "rebuild", bookie.root, "--dry-run")
    assert run_cli(*words).exit_code == 3
    told = run_cli(*words, *dump(bookie, {0: CLOSED}))
    assert told.exit_code == 3
    assert "the rebuild itself compares" in told.stderr


def test_a_doubt_outlives_the_rebuild_that_had_it(run_cli: Cli, bookie: Bookie) -> None:
    """The new locations can be read, and say nothing of it; only metadata settle it."""
    lose(bookie, 3)
    (bookie.current / "lastId").unlink()
    kept = bookie.current / NOT_PROVED_NAME
    assert Rebuilt(run_cli, bookie).code == 3
    # A bookie gives the id of the log that is gone once more.
    bookie.add(3, log((0, 2)))
    last_id(bookie, 3)
    for _ in range(2):
        found = Rebuilt(run_cli, bookie, "--locations")
        assert (found.code, unproved(found)) == (3, True)
        assert "the index is the work of a rebuild that could not prove it" in found.stderr
        assert "lastId is not there" in found.stderr
        assert kept.exists()
    told = Rebuilt(run_cli, bookie, *dump(bookie, dict.fromkeys(range(4), CLOSED)))
    assert (told.code, told.about("not_in_logs"), unproved(told)) == (1, {3}, False)
    assert not kept.exists()
    assert Rebuilt(run_cli, bookie).code == 0


def test_a_doubt_goes_with_the_rebuild_that_is_undone(run_cli: Cli, bookie: Bookie) -> None:
    bookie.locations(bookie.expected(0, 1, 2, 3))
    (bookie.current / "locations" / "CURRENT").write_bytes(b"junk\n")
    lose(bookie, 1)
    assert Rebuilt(run_cli, bookie).code == 3
    assert run_cli("repair", "undo", bookie.root, "--yes").exit_code == 0
    assert not (bookie.current / NOT_PROVED_NAME).exists()
    assert (bookie.current / "locations" / "CURRENT").read_bytes() == b"junk\n"


def test_doubts_that_cannot_be_read_are_doubts(run_cli: Cli, bookie: Bookie) -> None:
    bookie.locations(bookie.expected(0, 1, 2, 3))
    for content in (b"junk", b"[]", b'{"doubts": []}', b'{"doubts": [1]}'):
        (bookie.current / NOT_PROVED_NAME).write_bytes(content)
        found = Rebuilt(run_cli, bookie)
        assert (found.code, unproved(found)) == (3, True)
        assert "which says why, cannot be read" in found.stderr


@pytest.mark.parametrize("zeros", [False, True])
def test_a_log_without_a_map_that_was_cut_leaves_it_open(run_cli: Cli, bookie: Bookie, zeros: bool) -> None:
    """Its file is there, and so are all ids; its last entry is not."""
    built = log((1, 0), (1, 1), (1, 2), rolled=False)
    bookie.add(1, built)
    end = built.entries[2].offset + (0 if zeros else 10)
    (bookie.current / "1.log").write_bytes(built.data[:end] + bytes(4096 if zeros else 0))
    found = Rebuilt(run_cli, bookie)
    assert (found.code, unproved(found)) == (3, True)
    assert "logs without a map end within a record, or in zeros: 1" in found.stderr
    shutil.rmtree(bookie.current / "locations")
    known = dump(bookie, {**dict.fromkeys(range(4), CLOSED), 1: closed(OPEN, 2, 10)})
    told = Rebuilt(run_cli, bookie, *known)
    assert (told.code, told.about("not_in_logs"), unproved(told)) == (1, {1}, False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "lastId is not there"),
        (b"", "lastId cannot be read"),
        (b"2\n", "lastId says 2 and is older than log 3"),
        (b"5\n", "up to 5 some were collected or lost: 4 to 5"),
        (b"3\n", None),
    ],
)
def test_what_the_last_id_tells(bookie: Bookie, content: bytes | None, words: str | None) -> None:
    path = bookie.current / "lastId"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    doubts = found_doubts(bookie)
    assert (len(doubts), all(words is not None and words in each for each in doubts)) == (
        (0 if words is None else 1),
        True,
    )


def found_doubts(bookie: Bookie) -> list[str]:
    current = str(bookie.current)
    return doubts_of_logs(PosixFileSystem(), [current], find_logs(PosixFileSystem(), [current]))


@pytest.mark.parametrize("size", [0, 1024])
def test_an_empty_log_in_front_of_others_may_have_been_cut(bookie: Bookie, size: int) -> None:
    path = bookie.current / "1.log"
    path.write_bytes(path.read_bytes()[:size])
    assert found_doubts(bookie) == ["logs are empty, though later ones have entries: 1"]


def test_an_empty_log_at_the_end_was_made_ahead(bookie: Bookie) -> None:
    (bookie.current / "4.log").write_bytes(b"")
    last_id(bookie, 4)
    assert found_doubts(bookie) == []


# --- metadata -----------------------------------------------------------------------------------------------


def test_metadata_prove_that_nothing_is_lost(run_cli: Cli, bookie: Bookie) -> None:
    lose(bookie, 1)
    shutil.rmtree(bookie.current / "ledgers")
    bookie.ledgers({encode_ledger_key(ledger): row() for ledger in (0, 2, 3)})
    known = dump(bookie, {0: CLOSED, 1: ELSEWHERE, 2: CLOSED, 3: CLOSED})
    found = Rebuilt(run_cli, bookie, *known)
    assert (found.code, found.differences) == (0, set())


def test_metadata_tell_what_is_lost(run_cli: Cli, bookie: Bookie) -> None:
    """Of a ledger with a row and an entry less, and of one of which nothing is left here."""
    lose(bookie, 1)
    known = dump(bookie, {0: closed(OPEN, 4, 10), 1: CLOSED, 2: CLOSED, 3: CLOSED, 7: CLOSED})
    found = Rebuilt(run_cli, bookie, *known)
    assert found.code == 1
    assert found.about("not_in_logs") == found.about("limbo_set") == {0, 1, 7}
    assert "ledger 0: not_in_logs: 3 entries (2 to 4): placed on this bookie by the metadata" in found.stderr
    assert not unproved(found)
    assert all(bookie.data(ledger).limbo for ledger in (0, 1, 7))
    assert bookie.data(7).fenced
    assert not bookie.data(2).limbo


def test_an_entry_is_missing_only_where_it_is_striped_to(run_cli: Cli, bookie: Bookie) -> None:
    """Of three bookies two have each entry; the second segment has none for this bookie."""
    striped = NewLedger(3, 2, 2, DigestType.CRC32C, b"pw").metadata(("a:1", HOST, "b:1"))
    holes = [entry for entry in range(10) if entry % 3 != 2]
    bookie.add(4, log(*((9, entry) for entry in holes)))
    last_id(bookie, 4)
    assert Rebuilt(run_cli, bookie, *dump(bookie, {9: closed(striped, 9, 10)})).about("not_in_logs") == set()
    shutil.rmtree(bookie.current / "locations")
    bookie.add(4, log(*((9, entry) for entry in holes if entry != 4)))
    found = Rebuilt(run_cli, bookie, *dump(bookie, {9: closed(striped, 9, 10)}))
    assert found.about("not_in_logs") == {9}
    assert "1 entry (4)" in found.stderr


@pytest.mark.parametrize(
    ("ledgers", "options", "words"),
    [
        ({1: OPEN}, {}, "ledger 1 is not closed"),
        ({0: CLOSED}, {"time_ms": 1}, "older than what the bookie wrote last"),
        ({0: CLOSED}, {"marked": False}, "no end marker"),
        ({0: ELSEWHERE}, {}, "place no ledger on bookie:3181, which may have had another id"),
    ],
)
def test_metadata_that_do_not_tell_it_all(
    run_cli: Cli, bookie: Bookie, ledgers: dict[int, LedgerMetadata], options: dict[str, Any], words: str
) -> None:
    lose(bookie, 1)
    found = Rebuilt(run_cli, bookie, *dump(bookie, ledgers, **options))
    assert (found.code, unproved(found)) == (3, True)
    assert words in found.stderr


@pytest.mark.parametrize("first", [None, "--ledgers", "without"])
def test_an_open_ledger_that_lost_row_and_log_is_in_limbo(
    run_cli: Cli, bookie: Bookie, first: str | None
) -> None:
    """The bookie would answer "no such ledger" of what it has acknowledged."""
    lose(bookie, 1)
    shutil.rmtree(bookie.current / "ledgers")
    known = dump(bookie, {0: CLOSED, 1: OPEN, 2: OPEN, 3: CLOSED, 4: ELSEWHERE})
    words: tuple[object, ...] = ("--storage", "db", "--yes")
    added = {0, 1, 2, 3}
    if first is not None:
        words += (first, *known) if first == "--ledgers" else ()
        assert run_cli("index", "rebuild", bookie.root, *words).exit_code == 3
        added = set() if first == "--ledgers" else {1}
    found = Rebuilt(run_cli, bookie, "--storage", "db", *known)
    assert (found.code, unproved(found)) == (3, True)
    assert bookie.data(1).limbo
    assert found.about("ledger_added") == added


def test_an_open_ledger_whose_row_was_never_lost_needs_none(run_cli: Cli, bookie: Bookie) -> None:
    lose(bookie, 1)
    found = Rebuilt(run_cli, bookie, *dump(bookie, {0: CLOSED, 2: CLOSED, 3: CLOSED, 7: OPEN}))
    assert (found.code, found.about("ledger_added")) == (3, set())


def test_what_the_next_start_replays_is_not_lost(run_cli: Cli, bookie: Bookie) -> None:
    lose(bookie, 3)
    journal = JournalBuilder()
    journal.special(master_key_record(3, KEY))
    for entry in range(2):
        journal.add(entry_body(3, entry, b"payload", CRC32C))
    journal.flush()
    folder = bookie.root / "journal/current"
    folder.mkdir(parents=True)
    (folder / "1.txn").write_bytes(journal.build().data)
    found = Rebuilt(run_cli, bookie, *dump(bookie, dict.fromkeys(range(4), CLOSED)))
    assert (found.code, found.differences) == (0, set())


def test_over_index_files_a_loss_is_to_be_accepted(run_cli: Cli, idx_bookie: Bookie) -> None:
    """A Java bookie over them knows no limbo."""
    last_id(idx_bookie, 3)
    lose(idx_bookie, 1)
    for ledger in range(4):
        (idx_bookie.current / index_path(ledger)).unlink()
    words = ("--storage", "idx", *dump(idx_bookie, dict.fromkeys(range(4), CLOSED)))
    refused = run_cli("index", "rebuild", idx_bookie.root, "--yes", *words)
    assert refused.exit_code == 4
    assert "entries are placed on this bookie by the metadata and stand in no log: ledger 1" in refused.stderr
    found = Rebuilt(run_cli, idx_bookie, *words, "--accept-loss")
    assert (found.code, found.about("not_in_logs"), found.about("entries_lost")) == (1, {1}, {1})
    header = decode_header((idx_bookie.current / index_path(1)).read_bytes()[:1024])
    assert header.state & LIMBO


def test_an_open_ledger_that_lost_index_file_and_log_is_in_limbo(run_cli: Cli, idx_bookie: Bookie) -> None:
    last_id(idx_bookie, 3)
    lose(idx_bookie, 1)
    for ledger in range(4):
        (idx_bookie.current / index_path(ledger)).unlink()
    words = ("--storage", "idx", *dump(idx_bookie, {0: CLOSED, 1: OPEN, 2: OPEN, 3: CLOSED}))
    refused = run_cli("index", "rebuild", idx_bookie.root, "--yes", *words)
    assert (refused.exit_code, "not closed (the first: 1)" in refused.stderr) == (4, True), refused.stderr
    found = Rebuilt(run_cli, idx_bookie, *words, "--accept-loss")
    assert (found.code, found.about("entries_lost")) == (3, {1, 2})
    header = decode_header((idx_bookie.current / index_path(1)).read_bytes()[:1024])
    assert header.state & LIMBO


def test_index_files_that_are_gone_and_a_log_that_is_gone(run_cli: Cli, idx_bookie: Bookie) -> None:
    last_id(idx_bookie, 3)
    lose(idx_bookie, 1)
    for ledger in range(4):
        (idx_bookie.current / index_path(ledger)).unlink()
    found = Rebuilt(run_cli, idx_bookie, "--storage", "idx")
    assert (found.code, unproved(found)) == (3, True)


@pytest.fixture
def two_folders(tmp_path: Path) -> Path:
    """A bookie over ``.idx`` files in two directories, with ledgers, logs and index files in both."""
    root = tmp_path / "bookie"
    cookie = encode_cookie(Cookie(5, HOST, "/data/j", f"2\t{root / 'l0'}\t{root / 'l1'}", INSTANCE))
    for name, ledgers in (("l0", (0, 1)), ("l1", (2, 3))):
        current = root / name / "current"
        for ledger in ledgers:
            built = log((ledger, 0), (ledger, 1))
            file = current / index_path(ledger)
            file.parent.mkdir(parents=True, exist_ok=True)
            slots = [(each.entry, ledger << 32 | each.offset + 4) for each in built.entries]
            pages = b"".join(page for _, page in encode_slots(slots))
            file.write_bytes(encode_header(FileInfoHeader(1, KEY, 0, None)) + pages)
            (current / f"{ledger:x}.log").write_bytes(built.data)
        (current / "VERSION").write_bytes(cookie)
        (current / "lastId").write_bytes(encode_last_id(max(ledgers)))
        (current / "lastMark").write_bytes(bytes(16))
    return root


def test_a_directory_without_index_files_that_is_in_use_is_no_doubt(run_cli: Cli, two_folders: Path) -> None:
    current = two_folders / "l1/current"
    for path in list(current.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
    for log_id in (2, 3):
        (current / f"{log_id}.log").unlink()
    assert run_cli("index", "rebuild", two_folders, "--yes").exit_code == 0


@pytest.mark.parametrize("name", ["l0", "l1"])
def test_doubts_count_in_whichever_directory_over_index_files_they_are(
    run_cli: Cli, two_folders: Path, name: str
) -> None:
    """The other one may have come in front since, or the index was one for each directory (a conversion)."""
    (two_folders / name / "current" / NOT_PROVED_NAME).write_text('{"doubts": ["lastId is not there"]}')
    found = run_cli("index", "rebuild", two_folders, "--yes")
    assert found.exit_code == 3
    assert "lastId is not there" in found.stderr
    assert all((two_folders / each / "current" / NOT_PROVED_NAME).exists() for each in ("l0", "l1"))


@pytest.mark.parametrize(
    ("left", "words"), [(None, "is not here"), ("VERSION", "neither logs nor index files"), ("", "l1")]
)
def test_a_directory_over_index_files_that_is_gone_leaves_it_open(
    run_cli: Cli, two_folders: Path, left: str | None, words: str
) -> None:
    """What the other one has cannot say which ledgers it had."""
    current = two_folders / "l1/current"
    cookie = (current / "VERSION").read_bytes()
    shutil.rmtree(current.parent)
    if left is not None:
        current.mkdir(parents=True)
    if left:
        (current / left).write_bytes(cookie)
    found = run_cli("index", "rebuild", two_folders, "--yes")
    assert found.exit_code == 3
    assert words in found.stderr
    # What was emptied stays in doubt when the bookie has used it again; what was not here may be whole.
    current.mkdir(parents=True, exist_ok=True)
    (current / "VERSION").write_bytes(cookie)
    (current / "lastMark").write_bytes(bytes(16))
    assert run_cli("index", "rebuild", two_folders, "--yes").exit_code == (3 if left else 0)


def test_doubts_of_several_directories_go_with_the_rebuild_that_is_undone(
    run_cli: Cli, two_folders: Path
) -> None:
    kept = [two_folders / name / "current" / NOT_PROVED_NAME for name in ("l0", "l1")]
    (two_folders / "l0/current" / index_path(0)).write_bytes(b"junk")
    (two_folders / "l0/current/lastId").unlink()
    assert run_cli("index", "rebuild", two_folders, "--yes", "--accept-loss").exit_code == 3
    assert all(path.exists() for path in kept)
    undone = run_cli("repair", "undo", two_folders, "--yes")
    assert undone.exit_code == 0, undone.stderr
    assert not any(path.exists() for path in kept)
    assert (two_folders / "l0/current" / index_path(0)).read_bytes() == b"junk"
