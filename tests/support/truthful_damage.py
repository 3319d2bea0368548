"""Damages that a stopped bookie may suffer; each is a name and two numbers, which hypothesis can shrink."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bkctl.codec import file_info, ledger_data, location
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import Location
from bkctl.errors import BkctlError
from bkctl.kvstore.base import Delete, Operation, Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from tests.support.truthful_bookie import LIVE, TruthfulBookie

Damage = Callable[[TruthfulBookie, int, int], object]


def _write(bookie: TruthfulBookie, ledger: int, name: str, operations: list[Operation]) -> None:
    """Change rows of the database that serves a ledger; one that is gone or damaged stays as it is."""
    path = bookie.current(ledger % bookie.directories) / name
    profile = LOCATIONS_PROFILE if name == "locations" else LEDGERS_PROFILE
    try:
        with open_store(str(path), profile, create=False) as store:
            store.write(operations, sync=True)
    except BkctlError:
        return


def _ledger(number: int) -> int:
    return LIVE[number % len(LIVE)]


def _entries(bookie: TruthfulBookie, number: int) -> tuple[int, list[int]]:
    """A ledger and some of its entries."""
    ledger = _ledger(number)
    entries = sorted(entry for owner, entry in bookie.truth.bodies if owner == ledger)
    first = number // len(LIVE) % len(entries)
    return ledger, entries[first : first + 1 + number % 7]


def lose_row(bookie: TruthfulBookie, one: int, _: int) -> None:
    ledger = _ledger(one)
    if bookie.storage == "idx":
        (bookie.current() / file_info.index_path(ledger)).unlink(missing_ok=True)
        return
    _write(bookie, ledger, "ledgers", [Delete(ledger_data.encode_ledger_key(ledger))])


def break_row(bookie: TruthfulBookie, one: int, _: int) -> None:
    ledger = _ledger(one)
    if bookie.storage == "idx":
        path = bookie.current() / file_info.index_path(ledger)
        if path.exists():
            path.write_bytes(b"JUNK" + path.read_bytes()[4:])
        return
    _write(bookie, ledger, "ledgers", [Put(ledger_data.encode_ledger_key(ledger), b"\xff")])


def wide_row(bookie: TruthfulBookie, one: int, _: int) -> None:
    """As Java's rebuild of the ledger index writes it."""
    if bookie.storage == "db":
        ledger = _ledger(one)
        row = ledger_data.encode_ledger_data(LedgerData(True, b""))
        _write(bookie, ledger, "ledgers", [Put(ledger_data.encode_ledger_key(ledger) + bytes(8), row)])


def lose_locations(bookie: TruthfulBookie, one: int, _: int) -> None:
    ledger, entries = _entries(bookie, one)
    if bookie.storage == "idx":
        _slots(bookie, ledger, entries, bytes(8))
        return
    _write(bookie, ledger, "locations", [Delete(location.encode_key(ledger, entry)) for entry in entries])


def lose_all_locations(bookie: TruthfulBookie, one: int, _: int) -> None:
    ledger = _ledger(one)
    entries = [entry for owner, entry in bookie.truth.bodies if owner == ledger]
    if bookie.storage == "idx":
        _slots(bookie, ledger, entries, bytes(8))
        return
    _write(bookie, ledger, "locations", [Delete(location.encode_key(ledger, entry)) for entry in entries])


def break_locations(bookie: TruthfulBookie, one: int, two: int) -> None:
    """Values that do not decode, or that name another place."""
    ledger, entries = _entries(bookie, one)
    value = location.encode_value(Location(two % 4, 1024 + two % 5000)) if two % 3 else b"bad"
    if bookie.storage == "idx":
        _slots(bookie, ledger, entries, value.rjust(8, b"\x80"))
        return
    rows: list[Operation] = [Put(location.encode_key(ledger, entry), value) for entry in entries]
    _write(bookie, ledger, "locations", rows)


def _slots(bookie: TruthfulBookie, ledger: int, entries: list[int], value: bytes) -> None:
    path = bookie.current() / file_info.index_path(ledger)
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    for entry in entries:
        at = file_info.HEADER_BYTES + entry * file_info.SLOT_BYTES
        if at + 8 <= len(data):
            data[at : at + 8] = value
    path.write_bytes(data)


def lose_database(bookie: TruthfulBookie, one: int, two: int) -> None:
    if bookie.storage == "idx":
        for path in bookie.current().glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
        return
    names = (("locations",), ("ledgers",), ("locations", "ledgers"))[two % 3]
    for name in names:
        shutil.rmtree(bookie.current(one % bookie.directories) / name, ignore_errors=True)


def break_database(bookie: TruthfulBookie, one: int, two: int) -> None:
    """A file of a database, or of the .idx tree, with other bytes in it."""
    current = bookie.current(one % bookie.directories)
    names = ("*/*/*.idx",) if bookie.storage == "idx" else ("locations/*", "ledgers/*")
    files = sorted(path for name in names for path in current.glob(name) if path.is_file())
    files = [path for path in files if path.stat().st_size and path.name not in ("LOCK", "LOG")]
    if files:
        _overwrite(files[two % len(files)], one * 7919 + two, 40)


def lose_log(bookie: TruthfulBookie, one: int, _: int) -> None:
    logs = bookie.logs()
    if logs:
        logs[one % len(logs)].unlink()


def break_log(bookie: TruthfulBookie, one: int, two: int) -> None:
    logs = bookie.logs()
    if logs:
        _overwrite(logs[one % len(logs)], two * 131, 1 + two % 300)


def cut_log(bookie: TruthfulBookie, one: int, two: int) -> None:
    logs = bookie.logs()
    if logs:
        _cut(logs[one % len(logs)], two)


def lose_journal(bookie: TruthfulBookie, one: int, _: int) -> None:
    journals = bookie.journals()
    if journals:
        journals[one % len(journals)].unlink()


def break_journal(bookie: TruthfulBookie, one: int, two: int) -> None:
    journals = bookie.journals()
    if journals:
        _overwrite(journals[one % len(journals)], two * 131, 1 + two % 300)


def cut_journal(bookie: TruthfulBookie, one: int, two: int) -> None:
    """Not the newest: that its end was never written cannot be told from a power cut."""
    journals = bookie.journals()[:-1]
    if journals:
        _cut(journals[one % len(journals)], two)


def lose_mark(bookie: TruthfulBookie, one: int, _: int) -> None:
    (bookie.current(one % bookie.directories) / "lastMark").unlink(missing_ok=True)


def break_mark(bookie: TruthfulBookie, one: int, two: int) -> None:
    """Too short, of any sixteen bytes, or back at the beginning. One that is ahead among the journal's own
    records cannot be told from a right one."""
    path = bookie.current(one % bookie.directories) / "lastMark"
    chosen = (b"short", (two * 2654435761 + 7).to_bytes(8, "big") * 2, encode_last_mark(LastMark(0, 0)))
    path.write_bytes(chosen[two % 3])


def lose_cookie(bookie: TruthfulBookie, one: int, _: int) -> None:
    paths = sorted(bookie.root.glob("*/current/VERSION"))
    if paths:
        paths[one % len(paths)].unlink()


def break_last_id(bookie: TruthfulBookie, one: int, two: int) -> None:
    path = bookie.current(one % bookie.directories) / "lastId"
    path.write_bytes((b"", b"0\n", b"none")[two % 3])


def _overwrite(path: Path, offset: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    if not data:
        return  # another damage has cut everything off
    start = offset % len(data)
    data[start : start + length] = b"\xa5" * min(length, len(data) - start)
    path.write_bytes(data)


def _cut(path: Path, number: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: number * 37 % (len(data) + 1)])


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        lose_row,
        break_row,
        wide_row,
        lose_locations,
        lose_all_locations,
        break_locations,
        lose_database,
        break_database,
        lose_log,
        break_log,
        cut_log,
        lose_journal,
        break_journal,
        cut_journal,
        lose_mark,
        break_mark,
        lose_cookie,
        break_last_id,
    )
}
