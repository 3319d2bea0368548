"""Starts over journals that were cut, zeroed or emptied behind the last mark, and over what crashes leave."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from bkctl.codec.entry import ACCEPTED_BYTES_MIN, frame
from bkctl.codec.journal import HEADER_BYTES, decode_previous_end, encode_header, encode_record, fence_record
from bkctl.codec.last_mark import LastMark, decode_last_mark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.errors import LedgerLimboError, NoSpaceError, ReadOnlyBookieError, RefusedError
from bkctl.vfs.faulty import FaultRule
from tests.support.damaged_journal import add
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.waiting import until
from tests.unit.engine.test_lossy_starts import JOURNALS, journal_ids, journal_path, read_or_error

MARK = "/ledgers0/current/lastMark"
PAYLOAD = b"z" * 700
ENTRIES = range(12)


def rolled(version: int = 6) -> EngineRig:
    """Ledger 5 stands in several journals and in no log; the bookie was cut off."""
    journal = JournalSettings(preallocation_bytes=0, size_bytes_max=2000, format_version=version)
    rig = EngineRig(replace(small_settings(), journal=journal))
    rig.start()
    for number in ENTRIES:
        rig.add(5, number, payload=PAYLOAD)
    return rig.cut_off()


def body_of(number: int) -> bytes:
    return entry_body(5, number, PAYLOAD)


def older(rig: EngineRig) -> str:
    """The path of a journal behind the mark with others in front of it and behind it."""
    ids = journal_ids(rig)
    assert len(ids) >= 3
    return journal_path(ids[1])


def rewrite(rig: EngineRig, path: str, content: bytes) -> None:
    rig.memory.replace(path, content)


def put_torn_record(rig: EngineRig) -> None:
    """Leave half a record at the end of the newest journal."""
    path = journal_path(journal_ids(rig)[-1])
    body = entry_body(5, 99, PAYLOAD)
    rewrite(rig, path, rig.memory.files[path] + (len(body).to_bytes(4, "big") + body)[:300])


def damaged(content: bytes, how: str) -> bytes:
    middle = content.index(entry_body(5, 3, PAYLOAD)) if entry_body(5, 3, PAYLOAD) in content else 900
    if how == "within":
        return content[: middle + 100]
    if how == "between":
        return content[: middle - 4]
    if how == "zeros":
        return content[: middle - 4].ljust(len(content), b"\0")
    return content[: {"header": HEADER_BYTES, "half a header": 100, "empty": 0}[how]]


@pytest.mark.parametrize("how", ["within", "between", "zeros", "header", "half a header", "empty"])
def test_an_older_journal_that_lost_its_end_refuses_the_start(how: str) -> None:
    with rolled() as rig:
        path = older(rig)
        rewrite(rig, path, damaged(rig.memory.files[path], how))
        with pytest.raises(RefusedError, match=r"\.txn: damage at offset \d+.*cut journal.*--accept-loss"):
            rig.start()
        again = rig.cut_off()
    with again:
        report = again.start(accept_loss=True)
        assert (report.damage_count, report.limbo_ledgers) == (1, 1)
        answers = read_or_error(again, 5, ENTRIES)
        assert LedgerLimboError in answers
        assert all(answer is LedgerLimboError or isinstance(answer, bytes) for answer in answers)


@pytest.mark.parametrize("how", ["within", "half a header", "empty"])
def test_without_a_statement_a_cut_within_a_record_is_damage_all_the_same(how: str) -> None:
    """Java's journals say nothing of each other, nor do ours of format 4."""
    with rolled(version=4) as rig:
        path = older(rig)
        content = damaged(rig.memory.files[path], how)
        rewrite(rig, path, content[:5] if how == "half a header" else content)
        with pytest.raises(RefusedError, match="cut journal"):
            rig.start()


def test_an_entry_that_is_too_short_to_be_one_refuses_the_start() -> None:
    """It has the ids of an entry, so that it is a record; but no bookie takes an entry without a header."""
    with rolled(version=4) as rig:
        path = older(rig)
        content = rig.memory.files[path]
        at = content.index(frame(next(body for body in map(body_of, ENTRIES) if body in content)))
        for size in (16, 23):
            short = frame(body_of(3)[:size])
            rewrite(rig, path, content[:at] + short + content[at:])
            with pytest.raises(
                RefusedError, match=f"damage at offset {at}, {4 + size} bytes: an entry without"
            ):
                rig.start()
            rig = rig.cut_off()
        report = rig.start(accept_loss=True)
        assert (report.damage_count, report.limbo_ledgers) == (1, 1)
        assert read_or_error(rig, 5, [*ENTRIES, 99]) == [*map(body_of, ENTRIES), LedgerLimboError]
        rig.bookie.abort()


def test_the_shortest_entry_that_is_acknowledged_is_replayed() -> None:
    body = body_of(0)[:ACCEPTED_BYTES_MIN]
    with EngineRig() as rig:
        rig.start()
        add(rig, body)
        with rig.cut_off() as after:
            assert after.start().entries == 1
            assert after.bookie.reads.read(5, 0) == body


def test_a_damaged_header_of_an_older_journal_refuses_the_start() -> None:
    """Of what version it was, and whether its records begin where they seem to, is not known."""
    with rolled() as rig:
        path = older(rig)
        rewrite(rig, path, b"\xff" + rig.memory.files[path][1:])
        with pytest.raises(RefusedError, match=r"damage at offset 0, 8 bytes: journal header"):
            rig.start()
        again = rig.cut_off()
    with again:
        assert again.start(accept_loss=True).limbo_ledgers == 1
        assert read_or_error(again, 5, [*ENTRIES, 99]) == [*map(body_of, ENTRIES), LedgerLimboError]


@pytest.mark.parametrize("count", [1, 3])
def test_a_start_says_where_the_last_entry_ends_that_it_has_read(count: int) -> None:
    """The power went before what pads the journal, or a prefix of it was cut off: the entries are its end."""
    with rolled() as rig:
        newest = journal_ids(rig)[-1]
        content = rig.memory.files[journal_path(newest)]
        content += b"".join(frame(entry_body(5, number, b"short")) for number in range(20, 20 + count))
        rewrite(rig, journal_path(newest), content)
        rig.start()
        end = LastMark(newest, len(content))
        assert decode_previous_end(rig.memory.files[journal_path(newest + 1)]) == end
        assert decode_last_mark(rig.memory.files[MARK]) == end


def test_a_start_over_a_hole_at_the_end_does_not_say_where_records_end() -> None:
    with rolled() as rig:
        newest = journal_ids(rig)[-1]
        content = rig.memory.files[journal_path(newest)]
        assert len(content) % 512 == 0
        # The head of an entry of two sectors was never written.
        content += bytes(512) + b"\x7f" * 200
        rewrite(rig, journal_path(newest), content)
        assert rig.start().unsynced_holes == 1
        assert decode_previous_end(rig.memory.files[journal_path(newest + 1)]) is None
        assert decode_last_mark(rig.memory.files[MARK]) == LastMark(newest, len(content))


def test_a_journal_says_where_the_one_before_it_ends() -> None:
    with rolled() as rig:
        ids = journal_ids(rig)
        for before, behind in pairwise(ids):
            stated = decode_previous_end(rig.memory.files[journal_path(behind)])
            assert stated == LastMark(before, len(rig.memory.files[journal_path(before)]))
        assert decode_previous_end(rig.memory.files[journal_path(ids[0])]) is None


@pytest.mark.parametrize("version", [4, 6])
def test_starts_that_are_cut_off_one_after_the_other_are_never_refused(version: int) -> None:
    """Each leaves a torn record; those of the earlier ones were replayed, and the mark is behind them."""
    rig = rolled(version)
    with rig:
        for number in range(100, 106):
            put_torn_record(rig)
            rig.start()
            if number % 2:
                rig.add(5, number, payload=PAYLOAD)
            rig = rig.cut_off()
        put_torn_record(rig)
        rig.start()
        found = read_or_error(rig, 5, ENTRIES)
        assert found == [entry_body(5, number, PAYLOAD) for number in ENTRIES]
        for number in (101, 103, 105):
            assert rig.bookie.reads.read(5, number) == entry_body(5, number, PAYLOAD)
        rig.bookie.abort()


@pytest.mark.parametrize("version", [4, 6])
def test_a_fence_whose_entry_id_is_cut_by_the_end_of_a_sector_refuses_no_start(version: int) -> None:
    """The sector behind it was never written: the fence was not acknowledged, and nothing is damaged."""
    rig = rolled(version)
    with rig:
        path = journal_path(journal_ids(rig)[-1])
        content = rig.memory.files[path]
        filler = entry_body(5, 99, bytes(1024 - 12 - 6 - 4 - 36 - len(content) % 512))
        content += len(filler).to_bytes(4, "big") + filler
        fence = encode_record(fence_record(5))
        content += fence[: -len(content) % 512]
        assert (len(content) % 512, len(fence)) == (0, 20)
        rewrite(rig, path, content + bytes(4096))
        report = rig.start()
        assert (report.damage_count, report.limbo_ledgers) == (0, 0)
        assert read_or_error(rig, 5, [*ENTRIES, 99]) == [
            *(entry_body(5, number, PAYLOAD) for number in ENTRIES),
            filler,
        ]
        rig.bookie.abort()


@pytest.mark.parametrize("left", [b"", encode_header(6), encode_header(6) + bytes(4096), bytes(512)])
def test_a_journal_that_was_cut_off_when_it_was_made_is_none(left: bytes) -> None:
    """Also where the next start is cut off right behind its own, and with a torn record in front of it."""
    rig = rolled()
    with rig:
        put_torn_record(rig)
        for _ in range(3):
            rewrite(rig, journal_path(journal_ids(rig)[-1] + 1), left)
            rig.start()
            rig = rig.cut_off()
        rig.start()
        found = read_or_error(rig, 5, ENTRIES)
        assert found == [entry_body(5, number, PAYLOAD) for number in ENTRIES]
        rig.bookie.abort()


@pytest.mark.parametrize("removal", [None, errno.EIO])
@pytest.mark.parametrize("version", [4, 6])
def test_a_journal_that_found_no_room_is_made_whole_later(version: int, removal: int | None) -> None:
    """Where it cannot be removed it is no empty journal in front of the next one, which would be a loss."""
    with rolled(version) as rig:
        rig.start()
        rig.add(5, 20, payload=PAYLOAD)
        full = journal_ids(rig)[-1]
        refused = FaultRule("write", f"{full + 1:x}.txn", count=3, error_number=errno.ENOSPC)
        rig.system.inject(refused, FaultRule("remove", ".txn", error_number=removal))
        numbers = iter(range(21, 30))
        acknowledged = []
        while not rig.bookie.journals[0].suspended:
            # The next file is begun behind an answer, so that there may be room for none of the next one.
            with suppress(NoSpaceError, ReadOnlyBookieError):
                rig.add(5, number := next(numbers), payload=PAYLOAD)
                acknowledged.append(number)
        assert journal_ids(rig)[-1] == (full if removal is None else full + 1)
        until(lambda: (rig.bookie.disks.check(), not rig.bookie.journals[0].suspended)[1])
        rig.add(5, 30, payload=PAYLOAD)
        assert journal_ids(rig)[-1] == full + 1
        again = rig.cut_off()
    with again:
        stated = decode_previous_end(again.memory.files[journal_path(full + 1)])
        end = LastMark(full, len(again.memory.files[journal_path(full)]))
        assert stated == (end if version > 4 else None)
        again.start()
        numbers_there = [*ENTRIES, 20, *acknowledged, 30]
        assert read_or_error(again, 5, numbers_there) == [*map(body_of, numbers_there)]


def test_a_mark_beyond_the_end_of_its_journal_refuses_the_start() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    with rig.cut_off() as after:
        mark = decode_last_mark(after.memory.files[MARK])
        path = journal_path(mark.journal_id)
        rewrite(after, path, after.memory.files[path][: mark.offset - 100])
        with pytest.raises(RefusedError, match="cut journal"):
            after.start()


def test_a_start_that_reads_no_record_does_not_say_where_they_end() -> None:
    """Java's mark is four bytes behind the records, and ours is behind a torn one."""
    rig = EngineRig(small_settings(journal=JournalSettings(preallocation_bytes=0)))
    rig.start()
    rig.add(5, 0)
    rig = rig.cut_off()
    with rig:
        put_torn_record(rig)
        newest = journal_ids(rig)[-1]
        rig.start()
        first = rig.memory.files[journal_path(newest + 1)]
        stated = decode_previous_end(first)
        assert stated is not None
        assert stated.offset == len(rig.memory.files[journal_path(newest)]) - 300
        rig.memory.remove(journal_path(newest + 1))
        rig.memory.sync_directory(JOURNALS)
        again = rig.cut_off()
    with again:
        again.start()
        assert decode_previous_end(again.memory.files[journal_path(newest + 1)]) is None
        assert decode_last_mark(again.memory.files[MARK]).offset == len(
            again.memory.files[journal_path(newest)]
        )
