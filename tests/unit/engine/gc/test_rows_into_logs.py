"""No log is removed while the index points into it, whatever the log says of itself."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entrylog import HEADER_BYTES, encode_map
from bkctl.engine.gc import rows_into_logs, settled_logs
from bkctl.engine.gc.log_copier import LogCopier
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.rows_into_logs import RowCounts, refuse_rows, rows_into, rows_pointing
from bkctl.engine.ledger_storage import EntryLocations
from bkctl.errors import BookieIOError, CorruptionError
from bkctl.scan.lost_sectors import SECTOR_BYTES
from bkctl.types import DigestType
from tests.support.storage_rig import DIRECTORY
from tests.unit.engine.gc.gc_rig import MAJOR, TRANSACTIONAL, GcRig, digested_by, opened

LOG = f"{DIRECTORY}/0.log"


@pytest.fixture(params=[DigestType.DUMMY, DigestType.CRC32C, DigestType.CRC32], autouse=True)
def digest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of entries with digests is proved by these, any other one by the rows of the index."""
    digested_by(Digester(request.param), monkeypatch)


def record_of(rig: GcRig, ledger: int, number: int) -> tuple[int, int, int]:
    """Return the offset, the size and the entry id of the ``number``-th record of a ledger in log 0."""
    content = rig.disk.files[LOG]
    offset = HEADER_BYTES
    while True:
        size, of_ledger, entry = struct.unpack_from(">iqq", content, offset)
        if of_ledger == ledger:
            if number == 0:
                return offset, size, entry
            number -= 1
        offset += 4 + size


def write(rig: GcRig, offset: int, data: bytes) -> None:
    file = rig.disk.open_to_write(LOG)
    file.write_at(offset, data)
    file.sync()
    file.close()


def renamed(rig: GcRig) -> list[int]:
    """One bit of a live record's ledger id is flipped; return the entries that cannot be read any more."""
    offset, _, entry = record_of(rig, 3, 1)
    write(rig, offset + 4, (3 ^ 0x100).to_bytes(8, "big"))
    return [entry]


def swallowing(rig: GcRig) -> list[int]:
    """A live record's size is that of itself and of the next three, of which one is live."""
    offset, size, entry = record_of(rig, 3, 0)
    write(rig, offset, (size + 3 * (size + 4)).to_bytes(4, "big"))
    return [entry]


@TRANSACTIONAL
@pytest.mark.parametrize("damage", [renamed, swallowing])
def test_a_log_with_a_damaged_record_stays(transactional: bool, damage: Callable[[GcRig], list[int]]) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2, 3], entries=12)
    hurt = damage(rig)
    rig.cluster.live -= {1, 2}
    report = rig.collect(MAJOR)
    assert (report.set_aside_logs, "0.log" in rig.log_names()) == (1, True)
    assert report.compacted_logs
    rig.forget_read_cache()
    for entry in range(12):
        if entry not in hurt:
            rig.check_entry(3, entry)
    (why,) = rig.collector.status().set_aside.values()
    assert f"{LOG}: entry log at" in why
    assert "bkctl entrylog salvage" in why
    # Nothing changes with the next pass, nor behind a power cut.
    rig.collect(MAJOR)
    assert "0.log" in rig.log_names()
    crashed = rig.after_crash()
    crashed.collect(MAJOR)
    assert "0.log" in crashed.log_names()


def test_a_copy_that_was_cut_off_does_not_cost_its_source() -> None:
    """The damage comes between the copy of a transactional compaction and the removal of the source."""
    rig = opened(transactional=True)
    rig.fill([1, 2, 3], entries=12)
    rig.cluster.live -= {1, 2}
    compactor = rig.collector._compactions._transactional
    rig.collect()
    renamed(rig)
    copied, target = compactor._copy_live(
        0, {1, 2}, (), DIRECTORY, Deceived(rig.storage.locations, [0], {1, 2}, lambda: None)
    )
    assert (copied.entries, target is not None) == (copied_rows(rig) - 1, True)
    found = compactor.recover()
    assert found.finished == []
    assert set(found.unresolved) == {0, target}
    assert "0.log" in rig.log_names()


def test_a_stop_ends_a_recovery_and_leaves_it_to_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = opened(transactional=True)
    rig.fill([1, 2, 3], entries=12)
    rig.cluster.live -= {1, 2}
    compactor = rig.collector._compactions._transactional
    rig.collect()
    compactor._copy_live(0, {1, 2}, (), DIRECTORY, None)
    monkeypatch.setattr(compactor, "_going_on", stopped)
    with pytest.raises(StoppedError):
        compactor.recover()
    monkeypatch.undo()
    assert len(compactor.recover().finished) == 1


def stopped() -> None:
    raise StoppedError("the bookie stops")


class Deceived(RowCounts):
    """Counts a row too few, as one did that was counted before the damage."""

    def count(self, log_id: int) -> int:
        return super().count(log_id) - 1


def copied_rows(rig: GcRig) -> int:
    return rows_into(rig.storage.locations, [0], {1, 2}, lambda: None)[0]


def with_one_bit_of_the_map_flipped(rig: GcRig, ledger: int) -> None:
    """The id of a ledger in the map of log 0 becomes that of one that nobody knows."""
    content = rig.disk.files[LOG]
    map_offset = int.from_bytes(content[8:16], "big")
    at = content.index(ledger.to_bytes(8, "big"), map_offset + 24)
    write(rig, at, (ledger ^ 0x100).to_bytes(8, "big"))


@pytest.mark.parametrize("ledgers", [[1], [1, 2]])
def test_one_bit_in_the_map_of_a_log_costs_nothing(ledgers: list[int]) -> None:
    rig = opened()
    rig.fill(ledgers, entries=20)
    with_one_bit_of_the_map_flipped(rig, 1)
    rig.cluster.live -= {2}
    assert rig.collect().deleted_logs == 0
    assert "0.log" in rig.log_names()
    rig.check(1, 20)
    # The log is known by its records from here on: it is compacted, and goes when its ledger is gone.
    rig.collect(MAJOR)
    rig.check(1, 20)
    rig.cluster.live -= {1}
    rig.collect()
    assert "0.log" not in rig.log_names()


def test_a_log_whose_records_are_not_those_of_the_rows_is_set_aside() -> None:
    rig = opened()
    rig.fill([1], entries=20)
    with_one_bit_of_the_map_flipped(rig, 1)
    for number in range(40):
        try:
            offset, _, _ = record_of(rig, 1, 0)
        except struct.error:
            break
        write(rig, offset + 4, (2 + number).to_bytes(8, "big"))
    # At first they are ledgers of which nobody has said yet that they are gone.
    assert rig.collect().set_aside_logs == 0
    assert rig.collect().set_aside_logs == 1
    assert "0.log" in rig.log_names()
    with pytest.raises(BookieIOError):
        rig.check(1, 20)


def test_the_index_is_not_asked_about_logs_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be read as a whole at each pass in which a log has died."""
    asked: list[list[int]] = []

    def noted(locations: object, log_ids: list[int], dead: object, going_on: object) -> dict[int, int]:
        asked.append(log_ids)
        return {}

    monkeypatch.setattr(settled_logs, "rows_into", noted)
    rig = opened()
    rig.fill([1], entries=20)
    older = [int(name[:-4], 16) for name in rig.log_names()]
    rig.collect()
    rig.fill([2], entries=20)
    rig.cluster.live.clear()
    deleted = rig.collect().deleted_logs
    assert deleted > len(older)
    assert asked[-1] == older


def test_rows_are_counted_by_log_but_for_those_of_dead_ledgers() -> None:
    rig = opened()
    rig.fill([1, 2], entries=20)
    calls: list[None] = []
    everything = rows_into(rig.storage.locations, range(100), (), lambda: calls.append(None))
    assert (sum(everything.values()), len(everything) > 2, len(calls) > 0) == (40, True, True)
    ones = rows_into(rig.storage.locations, [0, 1], {2}, lambda: None)
    twos = rows_into(rig.storage.locations, [0, 1], {1}, lambda: None)
    assert {log: rows + twos[log] for log, rows in ones.items()} == {log: everything[log] for log in (0, 1)}
    assert rows_into(rig.storage.locations, [0, 99], (), lambda: None) == {0: everything[0]}
    assert rows_into(rig.storage.locations, [99], (), lambda: None) == {}
    assert rows_into(rig.storage.locations, [], (), pytest.fail) == {}


def test_the_first_row_that_still_points_there_is_named() -> None:
    rig = opened()
    rig.fill([1, 2], entries=20)
    keys = [key for key, _ in rows_pointing(rig.storage.locations, [0], lambda: None) if key[7] == 2]
    refuse_rows(rig.storage.locations, 0, LOG, {1}, lambda: None, copied=partial(list, [keys[:2], keys[2:]]))
    for left in (0, 3):
        offset, _, entry = record_of(rig, 2, left)
        where = f"none at {len(keys) - left} .* entry {entry} first"
        with pytest.raises(CorruptionError, match=where) as caught:
            refuse_rows(rig.storage.locations, 0, LOG, {1}, lambda: None, copied=partial(list, [keys[:left]]))
        assert (caught.value.path, caught.value.offset) == (LOG, offset)


def test_no_more_rows_are_held_against_a_copy_than_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some at a time, and the copy is read again for each; none is passed over."""
    rig = opened()
    rig.fill([1, 2], entries=20)
    keys = [key for key, _ in rows_pointing(rig.storage.locations, [0], lambda: None)]
    monkeypatch.setattr(rows_into_logs, "ROWS_MAX", 2)
    readings: list[None] = []

    def all_but(left: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        readings.append(None)
        yield from ([key] for key in keys if key not in left)

    refuse_rows(rig.storage.locations, 0, LOG, (), lambda: None, copied=partial(all_but, ()))
    assert len(readings) == -(-len(keys) // 2) > 2
    for left in keys:
        with pytest.raises(CorruptionError, match="none at 1 of them"):
            refuse_rows(rig.storage.locations, 0, LOG, (), lambda: None, copied=partial(all_but, [left]))
    with pytest.raises(CorruptionError, match="none at 2 of them"):
        refuse_rows(rig.storage.locations, 0, LOG, (), lambda: None)


@pytest.mark.parametrize("counted", [False, True])
def test_a_row_that_a_flush_changes_meanwhile_makes_up_for_no_row_without_a_record(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many entries were copied as the index has rows into the log, and one row was not among these."""
    rig = opened(transactional=True)
    rig.fill([1, 2, 3], entries=12)
    renamed(rig)
    _, _, entry = record_of(rig, 3, 0)
    rig.cluster.live -= {1, 2}
    copy = LogCopier._check_all_copied

    def written_again(self: LogCopier, log_id: int, dead: Container[int], *rest: Any) -> None:
        if log_id == 0:
            if counted:
                rest[-1].count(0)
            rig.write(3, [entry])
            rig.storage.flush()
        copy(self, log_id, dead, *rest)

    monkeypatch.setattr(LogCopier, "_check_all_copied", written_again)
    report = rig.collect(MAJOR)
    assert (report.set_aside_logs, "0.log" in rig.log_names()) == (1, True)
    (why,) = rig.collector.status().set_aside.values()
    assert "none at 1 of them, of ledger 3" in why


def test_a_log_of_this_run_whose_map_is_none_goes_only_when_no_row_points_there() -> None:
    """A full disk had no room for the map; then one bit of each live record's ledger id was flipped."""
    rig = opened()
    rig.collect()
    rig.fill([1, 2], entries=20)
    number = 0
    write(rig, 8, bytes(12))
    while rig.disk.files[LOG].count((2).to_bytes(8, "big") + number.to_bytes(8, "big")):
        offset, _, _ = record_of(rig, 2, 0)
        write(rig, offset + 4, (2 ^ 0x100).to_bytes(8, "big"))
        number += 1
    rig.cluster.live -= {1}
    assert rig.collect().set_aside_logs == 1
    assert "0.log" in rig.log_names()


def last_record(content: bytes) -> tuple[int, int]:
    """Return the offset and the size of the last record of a log without a map."""
    offset = HEADER_BYTES
    while True:
        (size,) = struct.unpack_from(">i", content, offset)
        if offset + 4 + size == len(content):
            return offset, size
        offset += 4 + size


def killed(transactional: bool, sector_rest: int | None = None) -> GcRig:
    """A bookie that was killed: log 0 has no map, and ends with an entry of the live ledger.

    With ``sector_rest`` a further entry ends that many bytes in front of the end of a sector.
    """
    rig = opened(transactional=transactional)
    for ledger in (1, 2):
        rig.write(ledger, range(5 if sector_rest is None else 4), size_bytes=250)
    rig.storage.flush()
    if sector_rest is not None:
        end = len(rig.disk.files[LOG]) + 4 + 60
        rig.write(2, [5], size_bytes=60 + -(end + sector_rest) % SECTOR_BYTES)
        rig.storage.flush()
        assert -len(rig.disk.files[LOG]) % SECTOR_BYTES == sector_rest
    return rig.after_crash()


@TRANSACTIONAL
def test_a_last_entry_that_was_cut_by_its_size_keeps_its_log(transactional: bool) -> None:
    """What is left of it behind the record is no entry's, and no row points there."""
    rig = killed(transactional)
    content = rig.disk.files[LOG]
    offset, size = last_record(content)
    write(rig, offset, (size ^ 128).to_bytes(4, "big"))
    rig.cluster.live -= {1}
    assert rig.collect(MAJOR).set_aside_logs == 1
    assert rig.disk.files[LOG][offset + 4 :] == content[offset + 4 :]


@TRANSACTIONAL
@pytest.mark.parametrize("begun", ["record", "map", "cut map", "ledger id", "sector", "zeros"])
def test_a_record_that_was_begun_at_the_end_is_no_doubt(transactional: bool, begun: str) -> None:
    """A kill leaves the first part of a write, a power cut whole sectors of it."""
    rig = killed(transactional)
    end = len(rig.disk.files[LOG])
    head = struct.pack(">iqq", 300, 2, 5)
    left = {
        "record": head + bytes(4),
        "map": encode_map({1: 100, 2: 200})[:20] + bytes(4),
        "cut map": encode_map({1: 100, 2: 200})[:14],
        "ledger id": head[:12],
        "sector": bytes(-end % 512) + b"what the next sector has",
        "zeros": bytes(13),
    }
    write(rig, end, left[begun])
    rig.cluster.live -= {1}
    report = rig.collect(MAJOR)
    assert (report.set_aside_logs, report.compacted_logs) == (0, 1)
    rig.check(2, 5, 250)


@pytest.mark.parametrize("sector_rest", [0, 3, 4, 100])
def test_a_lost_sector_behind_the_last_entry_is_no_doubt(sector_rest: int) -> None:
    """It is the one in which the next record would have had its size word."""
    rig = killed(False, sector_rest)
    end = len(rig.disk.files[LOG])
    lost_bytes = sector_rest if sector_rest >= 4 else sector_rest + SECTOR_BYTES
    write(rig, end, bytes(lost_bytes) + b"what the next sector has")
    rig.cluster.live -= {1}
    report = rig.collect(MAJOR)
    assert (report.set_aside_logs, report.compacted_logs) == (0, 1)


@pytest.mark.parametrize(("rows", "steps"), [(1, 10), (256, 40), (4096, 160)])
def test_a_step_of_reading_the_index_is_some_of_its_batches(rows: int, steps: int) -> None:
    """The pause behind each page of an index file, of one ledger with one entry, would be all of the time."""
    called: list[None] = []
    list(rows_pointing(Batches(160, rows), [1], lambda: called.append(None)))
    assert len(called) == steps


class Batches(EntryLocations):
    """An index with so many batches of so many rows into log 1."""

    def __init__(self, count: int, rows: int) -> None:
        self._batch = ([bytes(16)] * rows, [1 << 32] * rows)
        self._count = count

    def batches(self) -> Iterator[tuple[list[bytes], Sequence[int]]]:
        yield from [self._batch] * self._count
