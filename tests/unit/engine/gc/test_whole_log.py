"""A compaction asks the index for rows only where the records of a log do not prove that all was moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkctl.codec.digest import Digester
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.gc import whole_log
from bkctl.engine.gc.whole_log import WholeLog
from bkctl.errors import BookieIOError
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.record_windows import record_windows
from bkctl.types import DigestType
from tests.support.storage_rig import DIRECTORY
from tests.unit.engine.gc.gc_rig import MAJOR, TRANSACTIONAL, GcRig, digested_by, opened

LOG = f"{DIRECTORY}/0.log"
CRC32C, CRC32 = Digester(DigestType.CRC32C), Digester(DigestType.CRC32)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Gets an item for each time that the whole index is read."""
    begun: list[None] = []
    batches = EntryLocationIndex.batches

    def counting(index: EntryLocationIndex) -> Iterator[object]:
        begun.append(None)
        return batches(index)

    monkeypatch.setattr(EntryLocationIndex, "batches", counting)
    return begun


def is_proved(rig: GcRig, path: str = LOG) -> bool:
    with EntryLogScan(rig.disk, path) as scan:
        whole = WholeLog(scan)
        for item in record_windows(scan):
            whole.meet(item)
        return whole.is_proved


def filled(digester: Digester, monkeypatch: pytest.MonkeyPatch, *, transactional: bool = False) -> GcRig:
    digested_by(digester, monkeypatch)
    rig = opened(transactional=transactional)
    rig.fill([1, 2, 3], entries=12)
    return rig


@TRANSACTIONAL
@pytest.mark.parametrize("digester", [CRC32C, CRC32], ids=lambda each: each.type.name)
def test_logs_of_proved_records_are_compacted_without_a_read_of_the_index(
    transactional: bool, digester: Digester, monkeypatch: pytest.MonkeyPatch, reads: list[None]
) -> None:
    rig = filled(digester, monkeypatch, transactional=transactional)
    rig.cluster.live -= {1, 2}
    assert rig.collect(MAJOR).compacted_logs > 2
    assert reads == []
    rig.check(3, 12)


@TRANSACTIONAL
def test_the_index_is_read_once_for_all_logs_without_digests(transactional: bool, reads: list[None]) -> None:
    rig = opened(transactional=transactional)
    rig.fill([1, 2, 3], entries=12)
    rig.cluster.live -= {1, 2}
    assert rig.collect(MAJOR).compacted_logs > 2
    assert len(reads) == 1
    rig.check(3, 12)


def test_ledgers_with_either_digest_may_share_a_log(
    monkeypatch: pytest.MonkeyPatch, reads: list[None]
) -> None:
    rig = opened()
    for entry in range(20):
        for ledger, digester in ((1, CRC32), (2, CRC32C), (3, CRC32)):
            with monkeypatch.context() as its:
                digested_by(digester, its)
                rig.write(ledger, [entry])
        rig.storage.flush()
    assert is_proved(rig)
    rig.cluster.live -= {2}
    assert rig.collect(MAJOR).compacted_logs > 2
    assert reads == []
    digested_by(CRC32, monkeypatch)
    rig.check(3, 20)


def test_an_older_copy_of_an_entry_has_the_index_asked(
    monkeypatch: pytest.MonkeyPatch, reads: list[None]
) -> None:
    """The record of the row that was replaced proves itself, and is not where the index has the entry."""
    rig = filled(CRC32C, monkeypatch)
    rig.write(3, [0])
    rig.storage.flush()
    rig.cluster.live -= {1, 2}
    rig.collect(MAJOR)
    assert len(reads) == 1
    assert "0.log" not in rig.log_names()
    rig.check(3, 12)


def test_the_file_of_another_log_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its records proves itself, and the index has it in the log that it is from."""
    rig = filled(CRC32C, monkeypatch)
    other = f"{DIRECTORY}/1.log"
    both = [bytes(rig.disk.files[LOG]), bytes(rig.disk.files[other])]
    for path, content in zip((LOG, other), reversed(both), strict=True):
        rig.disk.remove(path)
        file = rig.disk.create(path)
        file.write_at(0, content)
        file.sync()
        file.close()
    rig.cluster.live -= {1, 2}
    rig.collect(MAJOR)
    assert {"0.log", "1.log"} <= set(rig.log_names())


class TestWhatIsNotProved:
    def test_a_log_as_it_was_written_is_proved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert is_proved(filled(CRC32C, monkeypatch))

    @pytest.mark.parametrize("bit", [3, 9, 15, 21, 40, 120, 290])
    def test_one_bit_of_a_record(self, bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = filled(CRC32C, monkeypatch)
        content = rig.disk.files[LOG]
        at = 1024 + 304 + bit
        file = rig.disk.open_to_write(LOG)
        file.write_at(at, bytes([content[at] ^ 1]))
        file.close()
        assert not is_proved(rig)

    @pytest.mark.parametrize("left", ["records", "map", "torn"])
    def test_a_log_that_lost_its_end(self, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = filled(CRC32C, monkeypatch)
        content = rig.disk.files[LOG]
        map_offset = int.from_bytes(content[8:16], "big")
        end = {"records": map_offset - 304, "map": map_offset, "torn": len(content) - 8}[left]
        rig.disk.remove(LOG)
        file = rig.disk.create(LOG)
        file.write_at(0, bytes(content[:end]))
        file.close()
        assert not is_proved(rig)

    def test_a_log_with_more_behind_its_map(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = filled(CRC32C, monkeypatch)
        file = rig.disk.open_to_write(LOG)
        file.write_at(len(rig.disk.files[LOG]), bytes(4096))
        file.close()
        assert not is_proved(rig)

    def test_a_log_that_no_map_was_written_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = filled(CRC32C, monkeypatch)
        (newest,) = {f"{DIRECTORY}/{name}" for name in rig.log_names()[-1:]}
        assert not is_proved(rig, newest)

    def test_a_scan_that_was_left_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = filled(CRC32C, monkeypatch)
        with EntryLogScan(rig.disk, LOG) as scan:
            whole = WholeLog(scan)
            whole.meet(next(record_windows(scan)))
            assert not whole.is_proved


@TRANSACTIONAL
def test_the_mutant_that_asks_no_digest_loses_an_entry(
    transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(CRC32C, monkeypatch, transactional=transactional)
    monkeypatch.setattr(whole_log, "prove_themselves", lambda window: True)
    content = rig.disk.files[LOG]
    third = 1024 + 2 * 304
    assert int.from_bytes(content[third + 4 : third + 12], "big") == 3
    file = rig.disk.open_to_write(LOG)
    # The ledger of a live record becomes one of the dead.
    file.write_at(third + 4, (2).to_bytes(8, "big"))
    file.sync()
    file.close()
    rig.cluster.live -= {1, 2}
    rig.collect(MAJOR)
    assert "0.log" not in rig.log_names()
    with pytest.raises(BookieIOError):
        rig.check(3, 12)
