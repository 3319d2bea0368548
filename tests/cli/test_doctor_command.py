"""``bkctl doctor``: silent on a sound bookie; every prepared fault is named, with the right next command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkctl.codec import ledger_data, location
from bkctl.codec.journal import encode_header
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import Location
from bkctl.kvstore.base import Delete, Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from bkctl.storage_kinds import SORTED_LEDGER_STORAGE
from tests.support.checked_bookie import JOURNAL_ID, CheckedBookie
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_csv, from_ndjson
from tests.support.truthful_bookie import DELETED, TruthfulBookie, started

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"
LEDGER = 2

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]
Break = Callable[[DoctoredBookie], object]


@pytest.fixture
def bookie(tmp_path: Path) -> DoctoredBookie:
    return DoctoredBookie.of(DEMO, tmp_path / "bookie1")


def examined(run_cli: Run, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    result = run_cli("doctor", *words, "-o", "ndjson", env={"BKCTL_METADATA_URI": None})
    return result.exit_code, from_ndjson(result.stdout), result.stderr


def test_a_sound_bookie_is_silent(run_cli: Run, bookie: DoctoredBookie) -> None:
    for words in (
        ("--conf", bookie.conf),
        ("--conf", bookie.conf, "--deep"),
        (bookie.root, "--metadata", bookie.dump),
        (bookie.root, "--metadata", bookie.uri),
        (bookie.root, "--metadata", bookie.uri, "--deep"),
        (bookie.ledgers, "--metadata", bookie.dump),
    ):
        result = run_cli("doctor", *words, env={"BKCTL_METADATA_URI": None})
        assert (result.exit_code, result.stdout) == (0, ""), words
        assert "checks, nothing found" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        # What was not looked at is not called sound.
        assert ("digests of entries in logs were not checked" in result.stderr) is ("--deep" not in words)


def test_notes_are_shown_when_asked_for(run_cli: Run, bookie: DoctoredBookie) -> None:
    (bookie.ledgers / "DIRTY").touch()
    code, rows, said = examined(run_cli, bookie.root, "--notes", "--metadata", bookie.dump)
    assert code == 0
    assert {row["severity"] for row in rows} == {"note"}
    dirty = next(row for row in rows if row["check"] == "leftovers")
    assert dirty["path"] == str(bookie.ledgers / "DIRTY")
    assert dirty["next"] == f"bkctl journal verify {bookie.journal}"
    assert said.endswith(f"(--deep checks them); {len(rows)} notes\n")


def databases_gone(bookie: DoctoredBookie) -> None:
    for name in ("ledgers", "locations"):
        shutil.rmtree(bookie.ledgers / name)


def databases_emptied(bookie: DoctoredBookie) -> None:
    databases_gone(bookie)
    for name, profile in (("ledgers", LEDGERS_PROFILE), ("locations", LOCATIONS_PROFILE)):
        open_store(str(bookie.ledgers / name), profile, create=True).close()


def put_location(bookie: DoctoredBookie, entry: int, at: tuple[int, int] | None) -> None:
    key = location.encode_key(LEDGER, entry)
    change = Delete(key) if at is None else Put(key, location.encode_value(Location(*at)))
    with open_store(str(bookie.ledgers / "locations"), LOCATIONS_PROFILE, create=False) as store:
        store.write([change], sync=True)


def put_ledger(bookie: DoctoredBookie, key: bytes, row: LedgerData) -> None:
    with open_store(str(bookie.ledgers / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([Put(key, ledger_data.encode_ledger_data(row))], sync=True)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def the_journal(bookie: DoctoredBookie) -> Path:
    return next(bookie.journal.glob("*.txn"))


def another_bookies_cookie(bookie: DoctoredBookie) -> None:
    bookie.stamp("ledgers", replace(bookie.cookie, bookie_host="10.0.0.9:3181"))


def another_instances_cookie(bookie: DoctoredBookie) -> None:
    for name in ("journal", "ledgers"):
        bookie.stamp(name, replace(bookie.cookie, instance_id="another-cluster"))


def store_has_other_directories(bookie: DoctoredBookie) -> None:
    bookie.change_store(lambda cookie: replace(cookie, journal_dirs="/old/journal"))


def the_cookie_is_not_in_the_store(bookie: DoctoredBookie) -> None:
    bookie.change_store(lambda _: None)


def an_unmounted_disk(bookie: DoctoredBookie) -> None:
    shutil.rmtree(bookie.root / "ledgers")


def mark_a_journal(bookie: DoctoredBookie, journal_id: int, offset: int) -> None:
    (bookie.ledgers / "lastMark").write_bytes(encode_last_mark(LastMark(journal_id, offset)))


def mark_beyond_data(bookie: DoctoredBookie) -> None:
    mark = decode_last_mark((bookie.ledgers / "lastMark").read_bytes())
    mark_a_journal(bookie, mark.journal_id, 1 << 30)


def mark_in_zeros(bookie: DoctoredBookie) -> None:
    """The file is longer than the mark, its records are not."""
    mark_a_journal(bookie, decode_last_mark((bookie.ledgers / "lastMark").read_bytes()).journal_id, 1 << 20)
    with the_journal(bookie).open("r+b") as file:
        file.truncate(2 << 20)


def mark_of_a_newer_journal(bookie: DoctoredBookie) -> None:
    mark_a_journal(bookie, decode_last_mark((bookie.ledgers / "lastMark").read_bytes()).journal_id + 1, 512)


def mark_behind_the_end_and_one_that_is_unreadable(bookie: DoctoredBookie) -> None:
    """The mark that counts cannot be written again: no record ends where it says."""
    journal = the_journal(bookie)
    mark_a_journal(bookie, int(journal.stem, 16), journal.stat().st_size + 4711)
    (bookie.ledgers / "lastMark.0").write_bytes(b"seven b")


def sixteen_byte_row(bookie: DoctoredBookie) -> None:
    put_ledger(bookie, ledger_data.encode_ledger_key(LEDGER) + bytes(8), LedgerData(True, b""))


def limbo(bookie: DoctoredBookie) -> None:
    put_ledger(bookie, ledger_data.encode_ledger_key(LEDGER), LedgerData(False, b"", None, True))


def damaged_journal(bookie: DoctoredBookie) -> None:
    overwrite(the_journal(bookie), 100_000, b"\xff" * 2_000)


def damaged_journal_that_is_replayed(bookie: DoctoredBookie) -> None:
    """Behind the mark, and no power cut explains it: there is a newer journal."""
    shutil.copy(the_journal(bookie), bookie.journal / "1a1fe14809f.txn")
    overwrite(bookie.journal / "1a1fe14808f.txn", 400_000, b"\xff" * 2_000)


def damaged_log(bookie: DoctoredBookie) -> None:
    overwrite(bookie.ledgers / "1.log", 5_000, b"\xff" * 600)


def damaged_map(bookie: DoctoredBookie) -> None:
    data = (bookie.ledgers / "0.log").read_bytes()
    (map_offset,) = struct.unpack_from(">q", data, 8)
    overwrite(bookie.ledgers / "0.log", map_offset + 4, b"\xee" * 16)


def missing_log(bookie: DoctoredBookie) -> None:
    (bookie.ledgers / "0.log").unlink()


def unreadable_database(bookie: DoctoredBookie) -> None:
    (bookie.ledgers / "locations/CURRENT").write_text("no manifest")


def in_ledgers(name: str, content: bytes) -> Break:
    """Give a file of the ledger directory this content."""

    def do(bookie: DoctoredBookie) -> None:
        (bookie.ledgers / name).write_bytes(content)

    return do


def in_conf(old: str, new: str) -> Break:
    """Replace text in the configuration; "" is its end."""

    def do(bookie: DoctoredBookie) -> None:
        text = bookie.conf.read_text()
        bookie.conf.write_text(text.replace(old, new) if old else text + new)

    return do


class Fault(NamedTuple):
    """What is broken, and the finding that must be among those; ``{b}`` is the bookie's folder."""

    name: str
    do: Break
    check: str
    severity: str
    found: str
    following: str


FAULTS = (
    Fault(
        "wrong cookie",
        another_bookies_cookie,
        "cookies",
        "error",
        "bookie_host is 10.0.0.9:3181",
        "bkctl cookie diff --conf {b}/bk_server.conf",
    ),
    Fault(
        "cookie of another instance",
        another_instances_cookie,
        "cookies",
        "error",
        "instance_id is another-cluster (the cluster was formatted since",
        "bkctl cookie diff --conf {b}/bk_server.conf",
    ),
    Fault(
        "stored cookie with other directories",
        store_has_other_directories,
        "cookies",
        "error",
        "metadata store, cookie of bookie 127.0.0.1:4100: journal_dirs is /old/journal (moved",
        "bkctl cookie diff --conf {b}/bk_server.conf",
    ),
    Fault(
        "cookie missing in the store",
        the_cookie_is_not_in_the_store,
        "cookies",
        "error",
        "has no cookie of bookie 127.0.0.1:4100",
        "bkctl cookie create 127.0.0.1:4100 --file {b}/journal/current/VERSION --conf {b}/bk_server.conf",
    ),
    Fault(
        "missing cookie",
        lambda bookie: (bookie.ledgers / "VERSION").unlink(),
        "cookies",
        "error",
        "no cookie in a directory that holds data",
        "bkctl cookie create {b}/ledgers/current --file {b}/journal/current/VERSION",
    ),
    Fault(
        "unreadable cookie",
        in_ledgers("VERSION", b"five\n"),
        "cookies",
        "error",
        "expected a layout version on line 1",
        "bkctl cookie update {b}/ledgers/current --file {b}/journal/current/VERSION",
    ),
    Fault(
        "directory that is not mounted",
        an_unmounted_disk,
        "directories",
        "error",
        "the configuration names it, but it is missing",
        "bkctl doctor --conf {b}/bk_server.conf --only directories",
    ),
    Fault(
        "missing journal",
        lambda bookie: the_journal(bookie).unlink(),
        "marks",
        "error",
        "1a1fe14808f.txn, which the last mark names, is gone, and there is no other journal",
        "bkctl bookie start --conf {b}/bk_server.conf --accept-loss",
    ),
    Fault(
        "mark of a newer journal",
        mark_of_a_newer_journal,
        "marks",
        "error",
        "the only journal is older",
        "bkctl bookie start --conf {b}/bk_server.conf --accept-loss",
    ),
    Fault(
        "mark behind the journal's end, another unreadable",
        mark_behind_the_end_and_one_that_is_unreadable,
        "marks",
        "warning",
        "it does not count",
        "bkctl lastmark show {b}/ledgers/current",
    ),
    Fault(
        "marked journal gone, newer ones there",
        lambda bookie: the_journal(bookie).replace(bookie.journal / "1a1fe14809f.txn"),
        "marks",
        "error",
        "1a1fe14808f.txn, which the last mark names, is gone, but there is 1 newer journal",
        "bkctl bookie start --conf {b}/bk_server.conf --accept-loss",
    ),
    Fault(
        "journal gone between others",
        lambda bookie: (bookie.journal / "1a1fe148092.txn").write_bytes(encode_header(6)),
        "marks",
        "error",
        "1a1fe148090.txn to 1a1fe148091.txn: 2 journals between 1a1fe14808f.txn and 1a1fe148092.txn are gone",
        "bkctl journal list {b}/journal/current",
    ),
    Fault(
        "databases gone",
        databases_gone,
        "databases",
        "error",
        "ledgers is gone and locations is gone, but",
        "bkctl index rebuild {b}/ledgers --storage db",
    ),
    Fault(
        "databases empty",
        databases_emptied,
        "databases",
        "error",
        "ledgers is empty and locations is empty, but",
        "bkctl index rebuild {b}/ledgers",
    ),
    Fault(
        "no id for the bookie",
        in_conf("advertisedAddress=127.0.0.1", "advertisedAddress=fe80::1"),
        "configuration",
        "error",
        "so it cannot be the host in host:port",
        "bkctl doctor --conf {b}/bk_server.conf --only configuration",
    ),
    Fault(
        "rebuild that was cut off",
        lambda bookie: (bookie.ledgers / "locations.bkctl-rebuild").mkdir(),
        "leftovers",
        "warning",
        "an index rebuild that was interrupted",
        "bkctl index rebuild {b}/ledgers/current",
    ),
    Fault(
        "mark beyond the file",
        mark_beyond_data,
        "marks",
        "error",
        "the last mark is at 1073741824, but the journal's records end at 458752",
        "bkctl journal verify {b}/journal/current/1a1fe14808f.txn",
    ),
    Fault(
        "mark beyond the records",
        mark_in_zeros,
        "marks",
        "error",
        "the last mark is at 1048576, but the journal's records end at ",
        "bkctl journal verify {b}/journal/current/1a1fe14808f.txn",
    ),
    Fault(
        "unreadable mark",
        in_ledgers("lastMark", b"short"),
        "marks",
        "warning",
        "expected 16 bytes, found 5 bytes; it does not count",
        "bkctl lastmark set {b}/journal/current {b}/ledgers/current --journal 0x0 --offset 0",
    ),
    Fault(
        "damaged journal middle",
        damaged_journal,
        "journals",
        "warning",
        "in front of the last mark: what was there is in the entry logs already",
        "bkctl journal verify {b}/journal/current/1a1fe14808f.txn",
    ),
    Fault(
        "damaged journal behind the mark",
        damaged_journal_that_is_replayed,
        "journals",
        "error",
        "cannot be read as records",
        "bkctl journal salvage {b}/journal/current {b}/ledgers/current --in-place --journal 0x1a1fe14808f",
    ),
    Fault(
        "damaged log",
        damaged_log,
        "entry_logs",
        "error",
        "cannot be read as records",
        "bkctl entrylog verify {b}/ledgers/current/1.log",
    ),
    Fault(
        "damaged ledgers map",
        damaged_map,
        "entry_logs",
        "error",
        "ledgers map",
        "bkctl entrylog verify {b}/ledgers/current/0.log",
    ),
    Fault(
        "missing log file",
        missing_log,
        "index",
        "error",
        "log 0 (0.log) is gone",
        "bkctl index rebuild {b}/ledgers/current",
    ),
    Fault(
        "missing index rows",
        lambda bookie: put_location(bookie, 4, None),
        "index",
        "error",
        f"missing_location: ledger {LEDGER} entry 4",
        "bkctl index rebuild {b}/ledgers/current",
    ),
    Fault(
        "dangling index rows",
        lambda bookie: put_location(bookie, 4, (0, 4321)),
        "index",
        "error",
        f"dangling_location: ledger {LEDGER} entry 4",
        "bkctl index rebuild {b}/ledgers/current",
    ),
    Fault(
        "16-byte rows",
        sixteen_byte_row,
        "index",
        "error",
        f"wide_key: ledger {LEDGER}",
        "bkctl index repair {b}/ledgers/current",
    ),
    Fault(
        "limbo flag",
        limbo,
        "index",
        "warning",
        f"limbo: ledger {LEDGER}",
        "bkctl index ledgers {b}/ledgers/current",
    ),
    Fault(
        "unreadable RocksDB",
        unreadable_database,
        "databases",
        "error",
        "locations: ",
        "bkctl index rebuild {b}/ledgers/current --locations",
    ),
    Fault(
        "leftover compaction",
        in_ledgers("7.log.compacting", b""),
        "leftovers",
        "warning",
        "the target of an interrupted compaction",
        "bkctl gc run {b}/ledgers/current",
    ),
    Fault(
        "wrong lastId",
        in_ledgers("lastId", b"0\n"),
        "last_id",
        "warning",
        "0 (0), but there is a log 2 (2)",
        "bkctl entrylog list {b}/ledgers/current",
    ),
    Fault(
        "full disk",
        in_conf("0.99", "0.001"),
        "disks",
        "error",
        "the disk is full, so the bookie becomes read-only",
        "bkctl gc plan {b}/ledgers/current",
    ),
    Fault(
        "value out of bounds",
        in_conf("", "numReadWorkerThreads=-7\n"),
        "configuration",
        "error",
        "numReadWorkerThreads",
        "bkctl doctor --conf {b}/bk_server.conf --only configuration",
    ),
    Fault(
        "contradictory keys",
        in_conf("", "journalAlignmentSize=1000\n"),
        "configuration",
        "error",
        "journalAlignmentSize: expected a multiple of 512, found 1000",
        "bkctl doctor --conf {b}/bk_server.conf --only configuration",
    ),
    Fault(
        "unknown key",
        in_conf("", "journalMaxSizeMiB=/x\n"),
        "configuration",
        "warning",
        "'journalMaxSizeMiB' is not a known key; did you mean journalMaxSizeMB?",
        "bkctl doctor --conf {b}/bk_server.conf --only configuration",
    ),
    Fault(
        "journal that is not synced",
        in_conf("", "journalSyncData=false\n"),
        "configuration",
        "warning",
        "journalSyncData=false: acknowledged entries are lost with the power",
        "bkctl doctor --conf {b}/bk_server.conf --only configuration",
    ),
    Fault(
        "caches larger than the machine",
        in_conf("CacheMaxSizeMb=32", "CacheMaxSizeMb=9000000"),
        "memory",
        "warning",
        "the caches take up to ",
        "bkctl doctor --conf {b}/bk_server.conf --only memory",
    ),
    Fault(
        "directory that its owner cannot write",
        lambda bookie: bookie.ledgers.chmod(0o500),
        "permissions",
        "error",
        "mode 0500: its owner",
        "bkctl doctor --conf {b}/bk_server.conf --only permissions",
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_is_named(run_cli: Run, bookie: DoctoredBookie, fault: Fault) -> None:
    fault.do(bookie)
    code, rows, said = examined(run_cli, "--conf", bookie.conf)
    if bookie.ledgers.exists():
        bookie.ledgers.chmod(0o755)
    # The digest types of another cluster's ledgers say nothing of the entries here, so some are unchecked.
    assert code == (3 if fault.name == "cookie of another instance" else 1), said
    named = [row for row in rows if row["check"] == fault.check and fault.found in row["found"]]
    assert named, rows
    for row in named:
        assert row["severity"] == fault.severity
        assert row["next"] == fault.following.format(b=bookie.root)
        assert row["expected"]
    assert "checks: " in said


def test_a_digest_that_fails_in_a_mapped_log(run_cli: Run, bookie: DoctoredBookie) -> None:
    """The map accounts for all bytes: the quick look passes, the index check and --deep find it."""
    overwrite(bookie.ledgers / "0.log", 60_000, b"\x55" * 8)
    code, rows, _ = examined(run_cli, bookie.root, "--only", "entry_logs")
    assert (code, rows) == (0, [])
    words = ("--only", "entry_logs", "--deep", "--metadata", bookie.dump)
    code, rows, _ = examined(run_cli, bookie.root, *words)
    assert code == 1
    assert rows[0]["next"] == f"bkctl entrylog verify {bookie.ledgers}/0.log"
    assert rows[0]["offset"] is not None
    code, rows, _ = examined(run_cli, bookie.root, "--metadata", bookie.dump)
    assert {row["next"] for row in rows if row["log_id"] == 0} >= {
        f"bkctl entrylog verify {bookie.ledgers}/0.log"
    }
    assert code == 1


def test_swapped_databases_are_few_findings(run_cli: Run, bookie: DoctoredBookie) -> None:
    """One cause, and one command that mends it: not a finding for every row or ledger."""
    ledgers, locations, aside = (Path(bookie.ledgers) / name for name in ("ledgers", "locations", "aside"))
    ledgers.rename(aside)
    locations.rename(ledgers)
    aside.rename(locations)
    code, rows, _ = examined(run_cli, bookie.root, "--only", "index")
    assert code == 1
    (undecodable,) = [row for row in rows if row["found"].startswith("undecodable_row: ")]
    assert undecodable["count"] > 500
    assert undecodable["ledger"] is None
    assert undecodable["next"] == f"bkctl index rebuild {bookie.ledgers}"
    assert len(rows) < 10


def test_swapped_ledger_directories(run_cli: Run, tmp_path: Path) -> None:
    bookie = CheckedBookie(tmp_path, count=2)
    bookie.fill(range(1, 7))
    bookie.mark = LastMark(JOURNAL_ID, 512)
    bookie.write()
    assert examined(run_cli, tmp_path)[0] == 0
    (tmp_path / "l0").rename(tmp_path / "x")
    (tmp_path / "l1").rename(tmp_path / "l0")
    (tmp_path / "x").rename(tmp_path / "l1")
    code, rows, _ = examined(run_cli, tmp_path)
    assert code == 1
    swapped = [row for row in rows if "wrong_directory" in row["found"]]
    assert {row["dir"] for row in swapped} == {f"{tmp_path}/l0/current", f"{tmp_path}/l1/current"}
    assert all(row["next"].startswith("bkctl cookie get ") and row["count"] == 3 for row in swapped)


def test_directories_of_two_bookies_swapped(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    other = DoctoredBookie.of(DEMO, tmp_path / "bookie2")
    for name in ("journal", "ledgers"):
        other.stamp(name, replace(other.cookie, bookie_host="127.0.0.1:4101"))
    (bookie.root / "ledgers").rename(tmp_path / "x")
    (other.root / "ledgers").rename(bookie.root / "ledgers")
    (tmp_path / "x").rename(other.root / "ledgers")
    code, rows, _ = examined(run_cli, tmp_path, "--only", "cookies,directories")
    assert code == 1
    found = {(row["bookie"], row["path"], row["found"].split(": ")[1].split(" ")[0]) for row in rows}
    assert ("127.0.0.1:4100", f"{bookie.ledgers}/VERSION", "bookie_host") in found
    assert ("127.0.0.1:4101", f"{other.ledgers}/VERSION", "bookie_host") in found
    # No metadata store was asked, so nothing is said of it.
    assert {row["expected"].partition(", ")[2] for row in rows} == {"as the other directories have it"}


def test_order_of_directories_in_the_configuration(run_cli: Run, bookie: DoctoredBookie) -> None:
    lines = bookie.conf.read_text().splitlines()
    swapped = [
        line.replace("/ledgers", "/journal")
        if line.startswith("ledgerDir")
        else line.replace("/journal", "/ledgers")
        if line.startswith("journalDir")
        else line
        for line in lines
    ]
    bookie.conf.write_text("\n".join(swapped))
    code, rows, _ = examined(run_cli, "--conf", bookie.conf)
    assert code == 1
    assert {row["found"].split(": ")[1].split(" ")[0] for row in rows if row["check"] == "cookies"} >= {
        "journal_dirs",
        "ledger_dirs",
    }


def test_checks_are_listed_chosen_and_left_out(run_cli: Run, bookie: DoctoredBookie) -> None:
    listed = json.loads(run_cli("doctor", "--list-checks", "-o", "json").stdout)
    names = [row["check"] for row in listed]
    assert {"cookies", "marks", "index", "queues", "registration"} <= set(names)
    assert [row["check"] for row in listed if row["long"]] == ["journals", "entry_logs", "index"]
    (bookie.ledgers / "lastId").write_text("0\n")
    damaged_log(bookie)
    _, rows, said = examined(run_cli, bookie.root, "--only", "last_id")
    assert {row["check"] for row in rows} == {"last_id"}
    assert said.startswith("bkctl: 1 check: 0 errors, 1 warning")
    _, rows, _ = examined(run_cli, bookie.root, "--skip", "last_id,index", "--skip", "entry_logs,journals")
    assert rows == []
    # What no check has looked at is not sound.
    for words in ((bookie.root, "--only", "queues"), (bookie.root, "--only", "disks", "--skip", "disks")):
        result = run_cli("doctor", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "none of the chosen checks can be done" in result.stderr
    result = run_cli("doctor", bookie.root, "--only", "nonsense")
    assert result.exit_code == 2
    assert "--only nonsense: no such check" in result.stderr


def test_a_block_for_people(run_cli: Run, bookie: DoctoredBookie) -> None:
    damaged_log(bookie)
    result = run_cli("doctor", bookie.root, "-o", "table", "--skip", "index,journals")
    first = result.stdout.splitlines()[:4]
    assert first[0].startswith(f"ERROR entry_logs: {bookie.ledgers}/1.log, offset ")
    assert first[3] == f"  look:     bkctl entrylog verify {bookie.ledgers}/1.log"


def test_columns_and_rows_are_chosen_as_of_other_tables(run_cli: Run, bookie: DoctoredBookie) -> None:
    (bookie.ledgers / "lastMark").write_bytes(b"short")
    (bookie.journal / "VERSION").unlink()
    words = ("doctor", bookie.root, "--skip", "journals,entry_logs,index")
    whole = run_cli(*words, "-o", "ndjson")
    kinds = [row["kind"] for row in from_ndjson(whole.stdout)]
    assert len(kinds) > 1
    table = run_cli(*words, "--columns", "kind,severity", "--sort", "-kind", "-o", "table")
    heading, _, *lines = table.stdout.splitlines()
    assert heading.split() == ["kind", "severity"]
    assert [line.split()[0] for line in lines] == sorted(kinds, reverse=True)
    blocks = run_cli(*words, "--limit", 1, "-o", "table")
    assert blocks.stdout.count("found:") == 1
    assert whole.exit_code == table.exit_code == blocks.exit_code == 1  # of all findings
    assert run_cli(*words, "--columns", "nothing").exit_code == 2


def test_the_next_command_works(run_cli: Run, bookie: DoctoredBookie) -> None:
    """Taken as it stands, the line is one that the program understands."""
    (bookie.ledgers / "VERSION").unlink()
    damaged_log(bookie)
    sixteen_byte_row(bookie)
    (bookie.ledgers / "7.log.compacting").touch()
    _, rows, _ = examined(run_cli, "--conf", bookie.conf)
    assert len(rows) >= 4
    for row in rows:
        program, *words = shlex.split(row["next"])
        assert program == "bkctl"
        # Nobody can be asked here: what would write is refused, and says so.
        result = run_cli(*words)
        assert result.exit_code in ((4,) if row["commands"] else (0, 1)), (row["next"], result.stderr)


def test_a_bookie_that_is_not_made_yet(run_cli: Run, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text(
        f"journalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\nbookieId=new\n"
        f"metadataServiceUri=embedded://{tmp_path}/m.db\n"
        "diskUsageThreshold=0.98\ndiskUsageWarnThreshold=0.98\n"
    )
    code, rows, _ = examined(run_cli, "--conf", conf)
    assert code == 1
    assert [(row["check"], row["severity"], row["next"]) for row in rows] == [
        ("directories", "warning", f"bkctl bookie init --conf {conf}")
    ] * 2
    assert run_cli("bookie", "init", "--conf", conf).exit_code == 0
    assert examined(run_cli, "--conf", conf)[:2] == (0, [])


def test_without_arguments_it_is_the_bookie_here(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli("doctor", env={"BKCTL_METADATA_URI": None}).exit_code == 2
    assert run_cli("bookie", "init").exit_code == 0
    assert examined(run_cli, "--skip", "disks")[:2] == (0, [])
    (tmp_path / "bkctl-data/metadata.db").unlink()
    (tmp_path / "bkctl-data/ledgers/current/VERSION").unlink()
    code, rows, _ = examined(run_cli, "--skip", "disks")
    assert (code, [row["check"] for row in rows]) == (1, ["cookies"])


def test_a_registration_without_a_process(run_cli: Run, bookie: DoctoredBookie) -> None:
    with open_metadata_store(bookie.uri) as store:
        store.registration.register(bookie.cookie.bookie_host, RegistrationMode.WRITABLE, b"")
        code, (row,), _ = examined(run_cli, "--conf", bookie.conf)
    assert (code, row["check"], row["severity"]) == (1, "metadata", "warning")
    assert "is registered (rw), and no process here uses its directories" in row["found"]


def test_wrong_usage(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of a bookie's")
    for words, code, text in (
        ((tmp_path / "notes.txt",), 2, "notes.txt: a file, and no journal, entry log, index or cookie"),
        ((tmp_path / "none",), 6, "no such file"),
        ((tmp_path,), 2, "no journal, entry log, index or cookie"),
        (("--conf", tmp_path / "none.conf"), 6, "no such file"),
        ((tmp_path, "-X", "a=b"), 2, "-X goes with --conf"),
        (("--url", "http://127.0.0.1:1"), 5, "no answer from a bookie's HTTP admin: Connection refused"),
    ):
        result = run_cli("doctor", *words)
        assert (result.exit_code, result.stdout) == (code, ""), words
        assert text in result.stderr


def test_a_metadata_store_that_does_not_answer(run_cli: Run, bookie: DoctoredBookie) -> None:
    bookie.uri = "embedded:///nowhere/at/all.db"
    bookie.configure("bookiePort=4100\nadvertisedAddress=127.0.0.1\nallowLoopback=true\n")
    code, rows, _ = examined(run_cli, "--conf", bookie.conf, "--only", "metadata,cookies")
    assert code == 1
    assert [row["check"] for row in rows] == ["metadata"]


def test_schema(run_cli: Run) -> None:
    keys = [row["key"] for row in from_csv(run_cli("doctor", "--schema", "-o", "csv").stdout)]
    assert keys[:5] == ["bookie", "check", "kind", "severity", "dir"]
    assert keys[-6:] == ["found", "expected", "next", "commands", "instead", "steps"]


def index_files_subject(tmp_path: Path) -> tuple[TruthfulBookie, Path]:
    """Return a bookie of two ledger directories, all index files in the first, and its configuration."""
    bookie, conf = TruthfulBookie.make(tmp_path / "bookie", "idx", 2), tmp_path / "bk_server.conf"
    keys = {
        "journalDirectories": bookie.journal.parent,
        "ledgerDirectories": f"{bookie.current().parent},{bookie.current(1).parent}",
        "ledgerStorageClass": SORTED_LEDGER_STORAGE,
        "metadataServiceUri": f"embedded://{tmp_path}/m.db",
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return bookie, conf


def lost_indexes(run_cli: Run, *words: object) -> list[list[list[str]]]:
    found = json.loads(run_cli("doctor", *words, "-o", "json").stdout)
    return [row["commands"] for row in found if row["kind"] == "lost_index"]


def test_index_files_may_all_be_in_one_of_several_directories(run_cli: Run, tmp_path: Path) -> None:
    """The other one has logs and no index, and no database is to be made there."""
    bookie, conf = index_files_subject(tmp_path)
    assert lost_indexes(run_cli, bookie.root) == []
    assert lost_indexes(run_cli, "--conf", conf) == []


def test_index_files_that_are_lost_are_told_with_their_kind(run_cli: Run, tmp_path: Path) -> None:
    bookie, conf = index_files_subject(tmp_path)
    for path in [each for each in bookie.current().iterdir() if re.fullmatch("[0-9a-f]{1,2}", each.name)]:
        shutil.rmtree(path)
    ((command,),) = lost_indexes(run_cli, "--conf", conf)
    assert command[-3:] == ["--storage", "idx", "--yes"]
    assert run_cli(*command[1:]).exit_code in (0, 1)
    with started(bookie.root, 2) as running:
        for each, body in bookie.truth.bodies.items():
            if each[0] != DELETED:
                assert running.reads.read(*each) == body
