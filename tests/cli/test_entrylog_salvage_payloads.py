"""``bkctl entrylog salvage`` of a log in which an entry has a whole log as its payload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_entrylog_salvage_lengths import PLAIN, SECRET, SUMS, MixedBookie, of_kind, salvaged
from tests.support.log_builder import CRC32C, EntryLogBuilder, entry_body
from tests.support.readable import readable

Run = Callable[..., Any]

OUTER = 4
#: Where the payload begins behind the size word, with a CRC-32C.
_PAYLOAD_AT = 4 + 32 + 4


@dataclass
class ArchivingBookie(MixedBookie):
    """Its entries ``OUTER`` have a log of another bookie as their payload, with ledgers of the same ids."""

    archived: bytes = b""
    framed: int = 0

    def body(self, ledger: int, entry: int, payload_bytes: int = 60) -> bytes:
        if entry != OUTER:
            return super().body(ledger, entry, payload_bytes)
        return entry_body(ledger, entry, self.archived, self.digesters[ledger])


@pytest.fixture
def archiving(tmp_path: Path) -> ArchivingBookie:
    log = EntryLogBuilder()
    for entry in (OUTER, *range(100, 110)):
        log.add(entry_body(SUMS, entry, b"of another", CRC32C))
    made = ArchivingBookie(
        tmp_path / "bookie",
        archived=log.build().data,
        framed=4 + len(entry_body(SUMS, OUTER, b"of another", CRC32C)),
    )
    made.fill(made.digesters, 9)
    return made.write()  # type: ignore[return-value]


@pytest.mark.parametrize("ledger", [SUMS, SECRET, PLAIN])
def test_what_stands_in_a_lost_entry_is_no_entry_of_the_bookie(
    run_cli: Run, archiving: ArchivingBookie, ledger: int
) -> None:
    """Nor is it a second copy of the entry around it, though its digest checks under the same ids.

    The entry in front, which has such a payload, too, is as long as the index says.
    """
    whole = readable(archiving.root)
    archiving.overwrite(ledger, OUTER)
    lost = of_kind(salvaged(run_cli, archiving.log, code=1), "lost")
    entries = {row["ledger"]: row["entries"] for row in lost}
    assert str(OUTER) in entries[ledger].split(", ")
    assert "100-109" in entries[SUMS].split(", ")
    assert "perhaps never here: 100-109" in next(row for row in lost if row["ledger"] == SUMS)["detail"]
    del whole[ledger, OUTER]
    assert readable(archiving.root) == whole


@pytest.mark.parametrize("records", [None, 1, 4])
def test_a_digest_proves_an_entry_over_the_records_in_it(
    run_cli: Run, archiving: ArchivingBookie, records: int | None
) -> None:
    """The size word leads out of the file, or to a record in the payload."""
    whole = readable(archiving.root)
    size = len(archiving.body(SUMS, OUTER))
    right = _PAYLOAD_AT - 4 + 1024 + (records or 0) * archiving.framed
    archiving.resize(SUMS, OUTER, (1 << 26) if records is None else right - size)
    (copy,) = of_kind(salvaged(run_cli, archiving.log, code=0), "copy")
    assert copy["records"] == len(whole)
    assert readable(archiving.root) == whole


def test_what_stands_in_a_lost_entry_says_nothing_of_digests(run_cli: Run, tmp_path: Path) -> None:
    """The archived ledger has the id of one whose digest is a MAC, and a CRC-32C."""
    log = EntryLogBuilder()
    for entry in range(20):
        log.add(entry_body(SECRET, entry, b"of another", CRC32C))
    made = ArchivingBookie(tmp_path / "bookie", archived=log.build().data)
    made.fill([PLAIN, SECRET], 9)
    made.write()
    made.resize(PLAIN, OUTER, 1 << 30)
    made.overwrite(PLAIN, OUTER)
    before = readable(made.root)
    lost = of_kind(salvaged(run_cli, made.log, code=1), "lost")
    assert [row["entries"] for row in lost if row["ledger"] == PLAIN] == [str(OUTER)]
    assert readable(made.root) == before


@pytest.mark.parametrize("ledger", [SECRET, PLAIN])
@pytest.mark.parametrize("is_head", [False, True])
def test_what_stands_in_damaged_garbage_is_no_entry(
    run_cli: Run, tmp_path: Path, ledger: int, is_head: bool
) -> None:
    """A copy that the index does not name, whose size word leads out of the file, or whose head is gone."""
    log = EntryLogBuilder()
    for entry in range(100, 110):
        log.add(entry_body(SUMS, entry, b"of another", CRC32C))
    made = ArchivingBookie(tmp_path / "bookie", archived=log.build().data)
    made.fill([SUMS, ledger], 3)
    garbage = made.store(ledger, OUTER)[1] - 4
    for entry in range(3, 9):
        made.add(SUMS, entry)
        made.add(ledger, entry)
    made.write()
    whole = readable(made.root)
    data = bytearray(made.log.read_bytes())
    if is_head:
        data[garbage : garbage + 20] = b"\xee" * 20
    else:
        data[garbage] ^= 0x40
    made.log.write_bytes(data)
    done = salvaged(run_cli, made.log, code=3)
    assert [row["entries"] for row in of_kind(done, "lost")] == ["100-109"]
    assert readable(made.root) == whole


@pytest.mark.parametrize("outer", [PLAIN, SECRET])
@pytest.mark.parametrize("garbage", [False, True])
@pytest.mark.parametrize("damage", ["head", "size"])
def test_what_stands_in_a_damaged_entry_of_another_log_is_no_second_copy(
    run_cli: Run, tmp_path: Path, outer: int, garbage: bool, damage: str
) -> None:
    """The other log is damaged, too; the index may name the entry with the payload, or not."""
    log = EntryLogBuilder()
    for entry in (5, 6):
        log.add(entry_body(SUMS, entry, b"of another", CRC32C))
    made = ArchivingBookie(tmp_path / "bookie", archived=log.build().data)
    made.fill([SUMS], 9)
    made.ledger(outer)
    if garbage:
        start = made.store(outer, OUTER, 1)[1] - 4
    else:
        made.add(outer, OUTER, 1)
        start = made.locations[0, outer, OUTER][1] - 4
    for entry in range(5, 9):
        made.add(outer, entry, 1)
    made.write()
    other = made.current() / "1.log"
    data = bytearray(other.read_bytes())
    if damage == "head":
        data[start : start + 20] = b"\xee" * 20
    else:
        data[start] ^= 0x40
    other.write_bytes(data)
    made.overwrite(SUMS, 5)
    before = readable(made.root)
    (lost,) = of_kind(salvaged(run_cli, made.log, code=1), "lost")
    assert (lost["ledger"], lost["entries"]) == (SUMS, "5")
    assert readable(made.root) == before
