"""``index check`` on real bookies: silent where Java left them, exact where we broke a copy."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec import file_info, ledger_data, location
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import Location
from bkctl.kvstore.base import Delete, Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from tests.support.checked_bookie import check, damage, kinds
from tests.support.grades import every_pair, one_kept
from tests.support.manifest import CORPORA, index_rows

pytestmark = pytest.mark.corpora

Row = tuple[int, int, int, int]


@every_pair(
    "each pair of these is there",
    with_metadata=(False, True),
    state=("clean", "crash"),
    corpus=CORPORA,
)
def test_what_java_left_is_sound(
    corpora: Callable[[str], Path], corpus: str, state: str, with_metadata: bool
) -> None:
    root = corpora(corpus)
    dump = root / f"zk-{state}.json" if with_metadata else None
    found = check([root / state], metadata_file=dump)
    assert damage(found) == []
    if state == "clean":
        assert found == []


class Copy:
    """A clean bookie that may be broken."""

    def __init__(self, source: Path, target: Path) -> None:
        shutil.copytree(source, target)
        self.path = target
        self.current = target / "ledgers" / "current"
        self.rows: list[Row] = list(index_rows(self.current))

    def put(self, ledger: int, entry: int, at: tuple[int, int] | None) -> None:
        """Change or remove a location."""
        key = location.encode_key(ledger, entry)
        if (self.current / "locations").is_dir():
            operation = Delete(key) if at is None else Put(key, location.encode_value(Location(*at)))
            with open_store(str(self.current / "locations"), LOCATIONS_PROFILE, create=False) as store:
                store.write([operation], sync=True)
            return
        packed = 0 if at is None else location.pack_location(*at)
        with self.idx(ledger).open("r+b") as file:
            file.seek(file_info.slot_offset(entry))
            file.write(packed.to_bytes(8, "big"))

    def idx(self, ledger: int) -> Path:
        return self.current / file_info.index_path(ledger)

    def ledgers(self, *operations: Put | Delete) -> None:
        with open_store(str(self.current / "ledgers"), LEDGERS_PROFILE, create=False) as store:
            store.write(operations, sync=True)


@pytest.fixture(
    params=["db", *one_kept("index files as of the others", "perledger", "sorted", "interleaved")]
)
def copied(request: pytest.FixtureRequest, corpora: Callable[[str], Path], tmp_path: Path) -> Copy:
    return Copy(corpora(request.param) / "clean" / "bookie1", tmp_path / "bookie1")


@pytest.fixture
def db(corpora: Callable[[str], Path], tmp_path: Path) -> Copy:
    return Copy(corpora("db") / "clean" / "bookie1", tmp_path / "bookie1")


def chosen(copied: Copy, count: int) -> list[Row]:
    """Some rows; where an entry stands is known to be right."""
    return random.Random(7).sample(copied.rows, count)


def test_removed_rows(copied: Copy) -> None:
    rows = chosen(copied, 5)
    for ledger, entry, _, _ in rows:
        copied.put(ledger, entry, None)
    found = check([copied.path])
    assert kinds(found) == ["missing_location"]
    assert {(finding.ledger, finding.entry) for finding in found} == {row[:2] for row in rows}
    where = {(f.ledger, f.entry): (f.log_id, f.offset) for f in found}
    for ledger, entry, log_id, offset in rows:
        assert where[ledger, entry] >= (log_id, offset)


def test_wrong_offsets(copied: Copy) -> None:
    rows = chosen(copied, 5)
    for ledger, entry, log_id, offset in rows:
        copied.put(ledger, entry, (log_id, offset + 3))
    found = check([copied.path])
    assert kinds(found) == ["dangling_location"]
    assert {(f.ledger, f.entry, f.log_id, f.offset) for f in found} == {
        (ledger, entry, log_id, offset + 3) for ledger, entry, log_id, offset in rows
    }


def test_wrong_logs(copied: Copy) -> None:
    rows = chosen(copied, 5)
    for ledger, entry, _, offset in rows:
        copied.put(ledger, entry, (4711, offset))
    found = check([copied.path])
    assert kinds(found) == ["dangling_location"]
    assert {(finding.ledger, finding.entry) for finding in found} == {row[:2] for row in rows}


def test_foreign_entries(copied: Copy) -> None:
    rows = chosen(copied, 10)
    for (ledger, entry, _, _), (_, _, log_id, offset) in zip(rows[:5], rows[5:], strict=True):
        copied.put(ledger, entry, (log_id, offset))
    found = check([copied.path])
    assert kinds(found) == ["foreign_entry"]
    assert {(finding.ledger, finding.entry) for finding in found} == {row[:2] for row in rows[:5]}
    for finding, other in ((f, o) for f in found for o in rows[5:] if (f.log_id, f.offset) == o[2:]):
        assert f"ledger {other[0]} entry {other[1]} stands there" in finding.detail


def test_a_wide_key(db: Copy) -> None:
    ledger = db.rows[0][0]
    row = ledger_data.encode_ledger_data(LedgerData(True, b""))
    db.ledgers(Put(ledger_data.encode_ledger_key(ledger) + bytes(8), row))
    found = check([db.path])
    assert [(finding.kind.value, finding.ledger) for finding in found] == [("wide_key", ledger)]


def test_a_missing_ledger_row(db: Copy) -> None:
    ledger = db.rows[0][0]
    db.ledgers(Delete(ledger_data.encode_ledger_key(ledger)))
    found = check([db.path])
    assert [(f.kind.value, f.ledger) for f in found] == [("locations_without_ledger", ledger)]


def test_a_ledger_of_the_metadata_that_the_index_forgot(copied: Copy, corpora: Callable[[str], Path]) -> None:
    ledger = copied.rows[0][0]
    if (copied.current / "locations").is_dir():
        for row in copied.rows:
            if row[0] == ledger:
                copied.put(*row[:2], None)
        copied.ledgers(Delete(ledger_data.encode_ledger_key(ledger)))
        corpus = "db"
    else:
        copied.idx(ledger).unlink()
        corpus = next(name for name in CORPORA if same_logs(copied, corpora(name)))
    assert damage(check([copied.path])) == [], "taken for garbage of a deleted ledger"
    found = check([copied.path], metadata_file=corpora(corpus) / "zk-clean.json")
    assert [(f.kind.value, f.ledger) for f in found] == [("missing_ledger", ledger)]


def same_logs(copied: Copy, corpus: Path) -> bool:
    theirs = corpus / "clean" / "bookie1" / "ledgers" / "current" / "VERSION"
    return theirs.read_bytes() == (copied.current / "VERSION").read_bytes()


def test_a_log_that_was_cut(copied: Copy) -> None:
    """The last row's log loses its last indexed record; a rolled log is damaged itself by that."""
    _, _, log_id, offset = max(copied.rows, key=lambda row: row[2:])
    path = copied.current / f"{log_id:x}.log"
    with path.open("r+b") as file:
        file.truncate(offset + 10)
    found = check([copied.path])
    assert "dangling_location" in kinds(found)
    assert set(kinds(found)) <= {"dangling_location", "damaged_log"}
    dangling = {f.offset for f in found if f.kind.value == "dangling_location"}
    assert dangling == {row[3] for row in copied.rows if row[2] == log_id and row[3] >= offset}


def test_a_damaged_idx_header(corpora: Callable[[str], Path], tmp_path: Path) -> None:
    copied = Copy(corpora("sorted") / "clean" / "bookie1", tmp_path / "bookie1")
    ledger = copied.rows[0][0]
    with copied.idx(ledger).open("r+b") as file:
        file.write(b"JUNK")
    found = check([copied.path])
    assert [(f.kind.value, f.ledger) for f in found] == [("damaged_idx_header", ledger)]


def test_the_command_on_the_corpora(corpora: Callable[[str], Path], run_cli: Any) -> None:
    result = run_cli("index", "check", corpora("db") / "clean", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == []
