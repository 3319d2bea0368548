"""Traps of the formats and of durability that have no better place (docs/traps.md), on the memory twins."""

from __future__ import annotations

import struct
import threading

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.checkpoint import LastMarks
from bkctl.errors import BookieError, LedgerFencedError, NoLedgerError, UnauthorizedError
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal import JournalScan
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.engine_rig import (
    KEY,
    OTHER_KEY,
    Answers,
    EngineRig,
    Waiter,
    entry_body,
    small_settings,
    with_journal,
)

MARK = "/ledgers0/current/lastMark"


def journals(rig: EngineRig) -> list[str]:
    return sorted(path for path in rig.memory.files if path.endswith(".txn"))


def put(rig: EngineRig, path: str, content: bytes) -> None:
    file = rig.memory.create(path)
    if content:
        file.write_at(0, content)
    file.sync()
    file.close()
    rig.memory.sync_directory(path.rpartition("/")[0])


def test_no_add_is_journaled_behind_a_fence() -> None:
    """Adds race with a fence; what was answered as done stands in front of it, what stands behind was not."""
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        answers, enough = Answers(), threading.Event()

        def write() -> None:
            for number in range(1, 100_000):
                if number == 50:
                    enough.set()
                try:
                    rig.bookie.writes.add(SingleAdd(entry_body(5, number), KEY, answers, number))
                except LedgerFencedError:
                    return

        writer = threading.Thread(target=write)
        writer.start()
        assert enough.wait(20)
        assert rig.fence(5) is None
        writer.join(20)
        assert not writer.is_alive()
        rig.stop()
        written: list[int] = []
        fenced_after: int | None = None
        with JournalScan(rig.memory, journals(rig)[0]) as scan:
            for item in scan:
                if isinstance(item, MarkedRecord):
                    if item.kind is journal_codec.RecordKind.FENCE:
                        fenced_after = len(written)
                elif hasattr(item, "entries"):
                    written += item.entries
        assert fenced_after == len(written)
        assert sorted(int(str(number)) for number in answers.good) == sorted(written)[1:]


def test_the_owners_key_is_kept_over_a_clean_restart() -> None:
    """Java's file-based storages forget it, and whoever comes first then locks the owner out."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.stop()
    with rig.reopen() as again:
        again.start()
        with pytest.raises(UnauthorizedError):
            again.add(5, 1, key=OTHER_KEY)
        with pytest.raises(UnauthorizedError):
            again.bookie.fencing.fence(5, OTHER_KEY, Waiter())
        again.add(5, 1)


def test_the_bookie_looks_at_no_digest() -> None:
    """It has no password for two of the types; readers and `entrylog verify` look."""
    body = bytearray(entry_body(5, 0))
    body[-1] ^= 1
    with EngineRig() as rig:
        rig.start()
        answers = Answers()
        rig.bookie.writes.add(SingleAdd(bytes(body), KEY, answers, 0))
        answers.wait(1)
        assert answers.good == [0]
        assert rig.bookie.reads.read(5, 0) == bytes(body)


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 2**32 + 5, 2**63 - 2])
def test_large_ids_stay_what_they_are(number: int) -> None:
    ledger = 2**62 + 3
    rig = EngineRig()
    rig.start()
    rig.add(ledger, number)
    with rig.cut_off() as after:
        after.start()
        for _ in range(2):
            assert after.bookie.reads.read(ledger, number) == entry_body(ledger, number)
            assert after.bookie.reads.read(ledger, -1) == entry_body(ledger, number)
            assert list(after.bookie.reads.entries(ledger)) == [number]
            after.bookie.checkpoint()


def test_a_location_points_at_the_body_behind_the_size_word() -> None:
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        rig.bookie.checkpoint()
        row = rig.stores["/ledgers0/current/locations"].get(struct.pack(">qq", 5, 0))
        assert row is not None
        (packed,) = struct.unpack(">q", row)
        log, offset = packed >> 32, packed & 0xFFFFFFFF
        content = rig.memory.files[f"/ledgers0/current/{log:x}.log"]
        body = entry_body(5, 0)
        assert content[offset : offset + len(body)] == body
        assert content[offset - 4 : offset] == struct.pack(">i", len(body))


@pytest.mark.parametrize("beyond", [4, 1000])
def test_a_mark_that_points_beyond_the_records_is_taken_as_it_is(beyond: int) -> None:
    """Java's mark points four bytes past the data, or to where zeros were written ahead."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    mark = decode_last_mark(rig.memory.files[MARK])
    rig.stop()
    put_mark = encode_last_mark(LastMark(mark.journal_id, mark.offset + beyond))
    with rig.reopen() as again:
        again.memory.replace(MARK, put_mark)
        assert again.start().entries == 0
        assert again.bookie.reads.read(5, 0) == entry_body(5, 0)
        again.add(5, 1)


def test_a_mark_never_moves_back_and_the_highest_copy_counts() -> None:
    system = MemoryFileSystem()
    places = ["/a", "/b"]
    for place in places:
        system.make_directories(place)
    marks = LastMarks(system, places, 1)
    marks.write(0, LastMark(7, 512))
    marks.write(0, LastMark(7, 100))
    marks.write(0, LastMark(6, 9000))
    assert {system.files[f"{place}/lastMark"] for place in places} == {encode_last_mark(LastMark(7, 512))}
    system.replace("/b/lastMark", encode_last_mark(LastMark(9, 0)))
    assert LastMarks(system, places, 1).read(0) == LastMark(9, 0)


def test_every_start_and_flush_uses_files_of_its_own() -> None:
    rig = EngineRig()
    kept: dict[str, bytes] = {}
    for turn in range(3):
        rig.start()
        rig.add(5, turn)
        rig.stop()
        files = {
            path: bytes(data) for path, data in rig.memory.files.items() if path.endswith((".txn", ".log"))
        }
        assert {path: files.get(path, data) for path, data in kept.items()} == kept
        assert any(path.endswith(".log") and path not in kept for path in files)
        kept = files
        rig = rig.reopen()


def test_files_without_records_are_normal_and_stay() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.stop()
    header = bytes(rig.memory.files["/ledgers0/current/0.log"][:1024])
    with rig.reopen() as again:
        put(again, "/ledgers0/current/70.log", b"")
        put(again, "/ledgers0/current/71.log", header)
        journal = int(journals(again)[-1].rpartition("/")[2].removesuffix(".txn"), 16)
        empty = f"/journal0/current/{journal + 1:x}.txn"
        put(again, empty, bytes(again.memory.files[journals(again)[0]][:512]))
        again.start()
        again.add(5, 1)
        again.bookie.checkpoint()
        assert {"/ledgers0/current/70.log", "/ledgers0/current/71.log"} <= set(again.memory.files)
        assert [again.bookie.reads.read(5, number) for number in (0, 1)] == [
            entry_body(5, 0),
            entry_body(5, 1),
        ]
        # The next log has an id above all that are there.
        assert (
            max(int(p.rpartition("/")[2][:-4], 16) for p in again.memory.files if p.endswith(".log")) > 0x71
        )


def test_the_key_is_there_for_every_journal_that_a_replay_could_start_from() -> None:
    """Journals were rolled, the older ones are gone, and with them the record of the ledger's key."""
    settings = with_journal(small_settings(), size_bytes_max=8192, backups_max=0)
    rig = EngineRig(settings)
    rig.start()
    for number in range(30):
        rig.add(5, number, payload=bytes(700))
        if number == 15:
            rig.bookie.checkpoint()
    first = journals(rig)[0]
    with rig.cut_off() as after:
        key = journal_codec.encode_record(journal_codec.master_key_record(5, KEY))
        assert sum(bytes(after.memory.files[path]).count(key) for path in journals(after)) <= 1
        assert journals(after)[0] >= first
        assert after.start().skipped_records == 0
        assert after.bookie.reads.read(5, 29) == entry_body(5, 29, bytes(700))
        with pytest.raises(UnauthorizedError):
            after.add(5, 30, key=OTHER_KEY)


@pytest.mark.parametrize("digest_bytes", [0, 4, 8, 20])
def test_an_explicit_lac_is_kept_as_it_came(digest_bytes: int) -> None:
    packet = struct.pack(">qq", 5, 3) + bytes(range(digest_bytes))
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    written = Waiter()
    rig.bookie.explicit_lacs.write(packet, KEY, written)
    assert written.wait() is None
    with rig.cut_off() as after:
        after.start()
        assert after.bookie.reads.explicit_lac(5) == packet
        after.bookie.checkpoint()
        with after.cut_off() as later:
            later.start()
            assert later.bookie.reads.explicit_lac(5) == packet


@pytest.mark.parametrize("number", [-1, -2, -0x1000, -0x2000, -0x4000, -0x8000, -(2**63)])
def test_an_entry_with_a_reserved_id_is_refused_and_the_bookie_starts_again(number: int) -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    with pytest.raises(BookieError) as refused:
        rig.bookie.writes.add(SingleAdd(struct.pack(">qqqq", 5, number, -1, 0), KEY, Answers(), None))
    assert refused.value.code.name == "BAD_REQUEST"
    with rig.cut_off() as after:
        assert after.start().entries == 1
        with pytest.raises(NoLedgerError):
            after.bookie.reads.read(6, 0)
