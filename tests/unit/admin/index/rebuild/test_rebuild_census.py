"""Which ledgers a rebuild keeps: all that any source has, but those that the cluster proves to be gone."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.ops.create import NewLedger
from bkctl.client.ops.metadata_update import closed
from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.codec.digest import master_key
from bkctl.codec.file_info import FileInfoHeader, encode_header, encode_slots, index_path
from bkctl.codec.journal import master_key_record
from bkctl.codec.ledger_data import encode_ledger_data, encode_ledger_key
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.kvstore.base import Delete, Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.metadata_dump import DumpKind
from bkctl.types import DigestType
from tests.support.cluster_dumps import INSTANCE, dump_file
from tests.support.rows import from_ndjson
from tests.support.stored_metadata import create_ledgers
from tests.unit.admin.index.rebuild.test_rebuild_directory import KEY, Bookie, log, row

Cli = Callable[..., Any]
HOST = "bookie:3181"
DEMO = Path(__file__).parents[4] / "data" / "demo"
OPEN = NewLedger(1, 1, 1, DigestType.CRC32C, b"pw").metadata((HOST,))
CLOSED = closed(OPEN, 1, 10)
ELSEWHERE = closed(NewLedger(1, 1, 1, DigestType.CRC32C, b"pw").metadata(("other:3181",)), 1, 10)


def with_cookie(bookie: Bookie, instance_id: str = INSTANCE) -> Bookie:
    cookie = Cookie(5, HOST, "/data/j", f"1\t{bookie.root / 'ledgers'}", instance_id)
    (bookie.current / "VERSION").write_bytes(encode_cookie(cookie))
    return bookie


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    """Ledgers 0 to 3 in logs of their own, all of them in the index."""
    made = with_cookie(Bookie(tmp_path / "bookie"))
    for ledger in range(4):
        made.add(ledger, log((ledger, 0), (ledger, 1)))
    made.ledgers({encode_ledger_key(ledger): row() for ledger in range(4)})
    made.locations(made.expected(0, 1, 2, 3))
    return made


@pytest.fixture
def idx_bookie(tmp_path: Path) -> Bookie:
    """The same with ``.idx`` files."""
    made = with_cookie(Bookie(tmp_path / "bookie"))
    for ledger in range(4):
        made.add(ledger, log((ledger, 0), (ledger, 1)))
        slots = [(entry, at << 32 | offset) for (_, entry), (at, offset) in made.expected(ledger).items()]
        path = made.current / index_path(ledger)
        path.parent.mkdir(parents=True, exist_ok=True)
        pages = b"".join(page for _, page in encode_slots(slots))
        path.write_bytes(encode_header(FileInfoHeader(1, KEY, 0, None)) + pages)
    return made


class Rebuilt:
    """What a run said and left."""

    def __init__(self, run_cli: Cli, bookie: Bookie, *options: object) -> None:
        result = run_cli("index", "rebuild", bookie.root, "--yes", "-o", "json", *options)
        self.code = result.exit_code
        self.stderr = result.stderr
        answer = json.loads(result.stdout) if result.stdout else {"differences": []}
        self.differences = {(each["kind"], each["ledger"]) for each in answer["differences"]}
        scanned = run_cli("index", "scan", bookie.root, "-o", "json")
        self.rows = {
            (each["ledger"], each["entry"]): (each["log_id"], each["offset"])
            for each in json.loads(scanned.stdout)
        }

    def about(self, kind: str) -> set[int | None]:
        return {ledger for found, ledger in self.differences if found == kind}


def lose_databases(bookie: Bookie) -> None:
    for name in ("ledgers", "locations"):
        shutil.rmtree(bookie.current / name)


def lose_row(bookie: Bookie, ledger: int) -> None:
    with open_store(str(bookie.current / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([Delete(encode_ledger_key(ledger))], sync=True)


def set_key(bookie: Bookie, ledger: int, key: bytes) -> None:
    """Give the row of a ledger another master key."""
    data = dataclasses.replace(bookie.data(ledger), master_key=key)
    with open_store(str(bookie.current / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([Put(encode_ledger_key(ledger), encode_ledger_data(data))], sync=True)


def dump(bookie: Bookie, ledgers: dict[int, LedgerMetadata], **options: object) -> Path:
    return dump_file(bookie.root.parent / "zk.json", ledgers, **options)


def check_kinds(run_cli: Cli, bookie: Bookie, *options: object) -> set[str]:
    """Findings of damage."""
    checked = run_cli("index", "check", bookie.root, "-o", "json", *options)
    return {each["kind"] for each in json.loads(checked.stdout) if each["severity"] == "damage"}


# --- nothing is left out without proof ----------------------------------------------------------------------


def test_a_lost_tree_of_idx_files_comes_back_with_every_ledger_of_the_logs(
    run_cli: Cli, idx_bookie: Bookie
) -> None:
    """The journals, which go with the last mark, do not say which ledgers there are."""
    for ledger in range(4):
        os.unlink(idx_bookie.current / index_path(ledger))
    found = Rebuilt(run_cli, idx_bookie, "--storage", "idx")
    assert found.rows == idx_bookie.expected(0, 1, 2, 3)
    assert found.code == 3, "the file lastId, which names the last log, is not there"
    assert found.about("ledger_added") == {0, 1, 2, 3}
    assert found.about("fenced") == {0, 1, 2, 3}
    assert not check_kinds(run_cli, idx_bookie)


@pytest.mark.parametrize("with_dump", [False, True])
def test_one_lost_idx_file_comes_back(run_cli: Cli, idx_bookie: Bookie, with_dump: bool) -> None:
    os.unlink(idx_bookie.current / index_path(2))
    everything = dict.fromkeys(range(4), CLOSED)
    options = ["--metadata", dump(idx_bookie, everything)] if with_dump else []
    assert check_kinds(run_cli, idx_bookie, *options) == ({"missing_ledger"} if with_dump else set())
    found = Rebuilt(run_cli, idx_bookie, "--all", *options)
    assert found.rows == idx_bookie.expected(0, 1, 2, 3)
    assert (found.code, found.about("ledger_added")) == (1, {2})
    assert not check_kinds(run_cli, idx_bookie, *options)
    again = Rebuilt(run_cli, idx_bookie, "--all", *options)
    assert (again.code, again.differences) == (0, set())


@pytest.mark.parametrize("option", ["--ledgers", "--all", "--locations"])
@pytest.mark.parametrize("with_dump", [False, True])
def test_a_lost_ledger_row_comes_back(run_cli: Cli, bookie: Bookie, option: str, with_dump: bool) -> None:
    lose_row(bookie, 2)
    options = ["--metadata", dump(bookie, dict.fromkeys(range(4), CLOSED))] if with_dump else []
    assert check_kinds(run_cli, bookie, *options) == {"locations_without_ledger"}
    found = Rebuilt(run_cli, bookie, option, *options)
    assert found.rows == bookie.expected(0, 1, 2, 3)
    assert (found.code, found.about("ledger_added"), found.about("limbo_set")) == (1, {2}, {2})
    data = bookie.data(2)
    assert (data.fenced, data.limbo) == (True, True)
    assert data.master_key == (master_key(b"pw") if with_dump else b"")
    assert not check_kinds(run_cli, bookie, *options)


def test_a_ledger_whose_row_and_locations_are_lost_comes_back_from_the_logs(
    run_cli: Cli, bookie: Bookie
) -> None:
    lose_row(bookie, 2)
    shutil.rmtree(bookie.current / "locations")
    bookie.locations(bookie.expected(0, 1, 3))
    known = dump(bookie, dict.fromkeys(range(4), CLOSED))
    assert check_kinds(run_cli, bookie, "--metadata", known) == {"missing_ledger"}
    found = Rebuilt(run_cli, bookie, "--all", "--metadata", known)
    assert found.rows == bookie.expected(0, 1, 2, 3)
    assert (found.code, found.about("ledger_added")) == (1, {2})
    assert not check_kinds(run_cli, bookie, "--metadata", known)


def test_entries_that_only_the_old_index_knew_put_their_ledger_into_limbo(
    run_cli: Cli, bookie: Bookie
) -> None:
    """A log that somebody removed: the old index fails to read it, a new one would say that it never was."""
    (bookie.current / "2.log").unlink()
    rehearsed = Rebuilt(run_cli, bookie, "--dry-run")
    assert (rehearsed.code, rehearsed.about("locations_lost")) == (1, {2})
    found = Rebuilt(run_cli, bookie)
    assert (found.code, found.about("locations_lost"), found.about("limbo_set")) == (1, {2}, {2})
    assert found.rows == bookie.expected(0, 1, 3)
    assert [bool(bookie.data(ledger).limbo) for ledger in range(4)] == [False, False, True, False]


def test_an_entry_that_a_log_lacks_while_others_of_it_stand_there_is_lost(
    run_cli: Cli, bookie: Bookie
) -> None:
    bookie.locations({(3, 7): (3, 9999)})
    found = Rebuilt(run_cli, bookie)
    assert (found.code, found.about("locations_lost")) == (1, {3})
    assert found.rows == bookie.expected(0, 1, 2, 3)
    assert bookie.data(3).limbo


def test_lost_limbo_is_limbo(run_cli: Cli, bookie: Bookie) -> None:
    shutil.rmtree(bookie.current / "ledgers")
    bookie.ledgers({encode_ledger_key(1): row(limbo=True)})
    shutil.rmtree(bookie.current / "ledgers")
    found = Rebuilt(run_cli, bookie, "--ledgers", "--metadata", dump(bookie, dict.fromkeys(range(4), CLOSED)))
    assert found.code == 1
    assert found.about("limbo_set") == {0, 1, 2, 3}
    assert all(bookie.data(ledger).limbo for ledger in range(4))


# --- what proves that a ledger is gone ----------------------------------------------------------------------


def test_a_complete_dump_proves_older_ledgers_gone_and_says_nothing_of_newer_ones(
    run_cli: Cli, bookie: Bookie
) -> None:
    """Ledger 1 was deleted before the dump was made; 2 and 3 are newer than the dump."""
    lose_databases(bookie)
    known = dump(bookie, {0: CLOSED}, next_ledger=2)
    found = Rebuilt(run_cli, bookie, "--storage", "db", "--metadata", known)
    assert found.rows == bookie.expected(0, 2, 3)
    assert (found.code, found.about("ledger_not_in_metadata")) == (1, {1})
    assert found.about("ledger_added") == {0, 2, 3}
    planned = run_cli("gc", "run", bookie.root, "--dry-run", "-o", "ndjson")
    actions = [json.loads(line) for line in planned.stdout.splitlines()]
    assert [each["log_id"] for each in actions if each["action"] == "remove"] == [1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"marked": False}, "no end marker"),
        ({"root": False}, "no ledgers root"),
        ({"instance_id": None}, "no instance id"),
    ],
)
def test_a_dump_that_is_not_all_of_this_cluster_proves_nothing(
    run_cli: Cli, bookie: Bookie, options: dict[str, object], reason: str
) -> None:
    lose_databases(bookie)
    known = dump(bookie, {0: CLOSED, 9: CLOSED}, **options)
    found = Rebuilt(run_cli, bookie, "--storage", "db", "--metadata", known)
    assert found.rows == bookie.expected(0, 1, 2, 3)
    assert found.code == 3
    assert reason in found.stderr
    assert bookie.data(0).master_key == master_key(b"pw"), "it still describes ledgers"


def test_an_operator_may_trust_a_dump_of_an_older_tool(run_cli: Cli, bookie: Bookie) -> None:
    lose_databases(bookie)
    known = dump(bookie, {0: CLOSED, 2: CLOSED}, marked=False)
    found = Rebuilt(run_cli, bookie, "--storage", "db", "--metadata", known, "--trust-dump")
    assert found.rows == bookie.expected(0, 2, 3)
    assert found.about("ledger_not_in_metadata") == {1}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kind": DumpKind.UNDO, "root": False, "instance_id": None}, "undo file"),
        ({"instance_id": "another"}, "is of cluster another"),
    ],
)
@pytest.mark.parametrize("command", ["rebuild", "repair", "check"])
def test_undo_files_and_other_clusters_dumps_are_refused_by_name(
    run_cli: Cli, bookie: Bookie, options: dict[str, object], reason: str, trust: bool, command: str
) -> None:
    known = dump(bookie, {3: CLOSED}, **options)
    words = ["--trust-dump"] if trust and command != "check" else []
    words += [] if command == "check" else ["--yes"]
    done = run_cli("index", command, bookie.root, "--metadata", known, *words)
    assert done.exit_code == 4, done
    assert str(known) in done.stderr
    assert reason in done.stderr
    assert Rebuilt(run_cli, bookie, "--dry-run").rows == bookie.expected(0, 1, 2, 3)


def test_a_live_store_proves_it_and_gives_keys_and_states(
    run_cli: Cli, bookie: Bookie, tmp_path: Path
) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        with_cookie(bookie, store.layout.initialise_cluster())
        for ledger, metadata in {0: CLOSED, 2: OPEN}.items():
            assert store.ledgers.upcoming_ledger_id() <= ledger
            while store.ledgers.new_ledger_id() < ledger:
                pass
            store.ledgers.create_ledger(ledger, metadata)
        store.ledgers.new_ledger_id()
    lose_databases(bookie)
    found = Rebuilt(run_cli, bookie, "--storage", "db", "--metadata", uri)
    assert found.rows == bookie.expected(0, 2)
    assert (found.code, found.about("ledger_not_in_metadata")) == (3, {1, 3})
    assert found.about("not_proved"), "a ledger is open, and the last log is not known"
    assert [bookie.data(ledger).fenced for ledger in (0, 2)] == [True, False]
    assert bookie.data(2).master_key == master_key(b"pw")


def test_a_store_that_went_back_proves_nothing(run_cli: Cli, bookie: Bookie, tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        with_cookie(bookie, store.layout.initialise_cluster())
        for _ in range(2):
            store.ledgers.new_ledger_id()
        store.ledgers.create_ledger(1, CLOSED)
    lose_databases(bookie)
    found = Rebuilt(run_cli, bookie, "--storage", "db", "--metadata", uri)
    assert found.rows == bookie.expected(0, 1, 2, 3)
    assert found.code == 1
    assert "brought back from an older copy" in found.stderr


def test_what_a_live_store_places_elsewhere_only_gets_no_row(
    run_cli: Cli, bookie: Bookie, tmp_path: Path
) -> None:
    """Replicated away and deleted here, but for the bytes; of a ledger with a row only gc decides."""
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        with_cookie(bookie, store.layout.initialise_cluster())
        while store.ledgers.new_ledger_id() < 3:
            pass
        for ledger, metadata in {0: CLOSED, 1: ELSEWHERE, 2: ELSEWHERE, 3: CLOSED}.items():
            store.ledgers.create_ledger(ledger, metadata)
    lose_row(bookie, 2)
    found = Rebuilt(run_cli, bookie, "--metadata", uri)
    assert found.rows == bookie.expected(0, 1, 3)
    assert (found.code, found.differences) == (1, {("ledger_not_here", 2)})


@pytest.mark.parametrize("newer", [False, True])
def test_open_in_a_dump_leaves_a_fence_open_only_if_the_dump_is_newer_than_the_bookies_last_write(
    run_cli: Cli, bookie: Bookie, newer: bool
) -> None:
    lose_databases(bookie)
    time_ms = int((time.time() + (3_600 if newer else -3_600)) * 1000)
    known = dump(bookie, dict.fromkeys(range(4), OPEN), time_ms=time_ms)
    found = Rebuilt(run_cli, bookie, "--storage", "db", "--metadata", known)
    assert found.about("fenced") == (set() if newer else {0, 1, 2, 3})
    assert [bookie.data(ledger).fenced for ledger in range(4)] == [not newer] * 4


def test_sound_rows_and_a_complete_dump_leave_garbage_where_it_is(run_cli: Cli, bookie: Bookie) -> None:
    """A deleted ledger whose entries still stand in a log: nothing to say, nothing to do."""
    lose_row(bookie, 2)
    shutil.rmtree(bookie.current / "locations")
    bookie.locations(bookie.expected(0, 1, 3))
    known = dump(bookie, {0: CLOSED, 1: CLOSED, 3: dataclasses.replace(CLOSED, c_token=1)})
    found = Rebuilt(run_cli, bookie, "--metadata", known)
    assert (found.code, found.differences) == (0, set())
    assert found.rows == bookie.expected(0, 1, 3)


def test_a_live_store_is_asked_for_keys_of_ledgers_that_stand_behind_damage(
    run_cli: Cli, tmp_path: Path
) -> None:
    """The id of a damaged record is no entry's: a row of it would send Java's reader of the LAC astray."""
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        instance = store.layout.initialise_cluster()
        create_ledgers(store, DEMO / "zk.json")
    current = tmp_path / "bookie" / "ledgers" / "current"
    shutil.copytree(DEMO / "bookie1", tmp_path / "bookie")
    for version in (tmp_path / "bookie").rglob("VERSION"):
        version.write_text(re.sub('(?<=instanceId: ")[^"]*', instance, version.read_text()))
    records = from_ndjson(run_cli("entrylog", "scan", current / "0.log", "-o", "ndjson").stdout)
    damaged = records[0], [row for row in records if row["ledger"] == 2][50]
    with (current / "0.log").open("r+b") as log:
        log.seek(8)
        log.write(bytes(12))  # there is no ledgers map
        log.seek(damaged[0]["offset"] - 4)
        log.write(b"\x7f")  # and the first records do not say which ledgers the log has
        log.seek(damaged[1]["offset"] + 8)
        log.write(b"\x10")  # the entry's id, which a MAC protects
    words = ("--metadata", uri, "--accept-loss", "--yes")
    assert run_cli("index", "rebuild", tmp_path / "bookie", *words).exit_code == 1
    rows = from_ndjson(run_cli("index", "scan", tmp_path / "bookie", "-o", "ndjson").stdout)
    assert [row["entry"] for row in rows if row["ledger"] == 2] == [
        row["entry"] for row in records if row["ledger"] == 2 and row is not damaged[1]
    ]


def test_a_key_with_a_changed_byte_in_a_journal_becomes_that_of_the_metadata(
    run_cli: Cli, bookie: Bookie
) -> None:
    lose_row(bookie, 2)
    bookie.journal(master_key_record(2, bytes([KEY[0] ^ 1]) + KEY[1:]))
    known = dump(bookie, dict.fromkeys(range(4), CLOSED))
    done = run_cli("index", "rebuild", bookie.root, "--ledgers", "--metadata", known, "--yes", "-o", "json")
    assert done.exit_code in (0, 1), done.stderr
    assert bookie.data(2).master_key == KEY
    told = {row["kind"] for row in json.loads(done.stdout)["differences"] if row["ledger"] == 2}
    assert "master_key_from_metadata" in told


def differences_of(bookie: Bookie, run_cli: Cli, ledger: int, *words: object) -> dict[str, str]:
    """Rebuild the rows; the differences of a ledger, kind to detail. They are alarming: exit code 1."""
    done = run_cli("index", "rebuild", bookie.root, "--ledgers", *words, "--yes", "-o", "json")
    assert done.exit_code == 1, done.stderr
    rows = json.loads(done.stdout)["differences"]
    return {row["kind"]: row["detail"] for row in rows if row["ledger"] == ledger}


@pytest.mark.parametrize("journaled", [bytes(range(20)), KEY[:4] + bytes(16), b"abcd"])
def test_a_key_of_a_journal_does_not_win_over_that_of_the_metadata(
    run_cli: Cli, bookie: Bookie, journaled: bytes
) -> None:
    """Nothing proves a key in a journal; with a wrong one no client could add, copy or fence any more."""
    lose_row(bookie, 2)
    bookie.journal(master_key_record(2, journaled))
    known = dump(bookie, dict.fromkeys(range(4), CLOSED))
    assert "master_key_from_metadata" in differences_of(bookie, run_cli, 2, "--metadata", known)
    assert bookie.data(2).master_key == KEY


@pytest.mark.parametrize("stored", [KEY[:4], KEY + b"more", b"\xff" * 90, KEY[:4] + bytes(16)])
def test_a_row_with_a_key_that_no_client_can_bring_gets_that_of_the_metadata(
    run_cli: Cli, bookie: Bookie, stored: bytes
) -> None:
    set_key(bookie, 2, stored)
    known = dump(bookie, dict.fromkeys(range(4), CLOSED))
    checked = run_cli("index", "check", bookie.root, "--metadata", known, "-o", "ndjson")
    assert checked.exit_code == 1, checked.stderr
    kinds = {(row["kind"], row["ledger"]) for row in from_ndjson(checked.stdout)}
    assert ("damaged_master_key", 2) in kinds
    assert "master_key_from_metadata" in differences_of(bookie, run_cli, 2, "--metadata", known)
    assert bookie.data(2).master_key == KEY


def test_a_key_of_another_length_is_damage_without_any_metadata(run_cli: Cli, bookie: Bookie) -> None:
    set_key(bookie, 2, KEY[:10])
    checked = run_cli("index", "check", bookie.root, "-o", "ndjson")
    assert checked.exit_code == 1, checked.stderr
    (finding,) = [row for row in from_ndjson(checked.stdout) if row["kind"] == "damaged_master_key"]
    assert finding["ledger"] == 2
    assert "has 10 bytes" in finding["detail"]
    assert "master_key_damaged" in differences_of(bookie, run_cli, 2)
    assert bookie.data(2).master_key == KEY[:10], "there is no better one"
