"""What a start makes of journals: replay, tails, damage, keys, marks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.codec.last_mark import decode_last_mark
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.errors import (
    LedgerFencedError,
    LedgerLimboError,
    NoEntryError,
    NoLedgerError,
    RefusedError,
    UnauthorizedError,
)
from tests.support.engine_rig import (
    KEY,
    OTHER_KEY,
    Answers,
    EngineRig,
    entry_body,
    lac_packet,
    small_settings,
)
from tests.support.journal_records import entry_record
from tests.support.waiting import until


def journal_paths(rig: EngineRig) -> list[str]:
    return sorted(path for path in rig.memory.files if path.endswith(".txn"))


def change_byte(rig: EngineRig, path: str, offset: int, value: int) -> None:
    file = rig.memory.open_to_write(path)
    file.write_at(offset, bytes([value]))
    file.sync()
    file.close()


def test_everything_answered_is_there_after_a_power_cut() -> None:
    rig = EngineRig()
    rig.start()
    for number in range(20):
        rig.add(5, number, payload=bytes([number]) * 700)
    assert rig.write_lac(5, 17) is None
    with rig.cut_off() as after:
        report = after.start()
        assert (report.journals, report.entries) == (1, 20)
        reads = after.bookie.reads
        assert [reads.read(5, number) for number in range(20)] == [
            entry_body(5, number, bytes([number]) * 700) for number in range(20)
        ]
        assert reads.explicit_lac(5) == lac_packet(5, 17)
        assert reads.last_add_confirmed(5) == 18


def test_a_second_start_after_a_clean_stop_replays_nothing() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.stop()
    with rig.reopen() as again:
        assert again.start().entries == 0
        assert again.bookie.reads.read(5, 0) == entry_body(5, 0)


def test_the_mark_is_in_every_ledger_directory_and_behind_what_was_flushed() -> None:
    rig = EngineRig(small_settings(directories=2))
    rig.start()
    rig.add(4, 0)
    rig.add(5, 0)
    rig.bookie.checkpoint()
    marks = {rig.memory.files[f"/ledgers{number}/current/lastMark"] for number in range(2)}
    assert len(marks) == 1
    assert decode_last_mark(marks.pop()) == rig.bookie.journals[0].mark
    with rig.cut_off() as after:
        assert after.start().entries == 0
        assert after.bookie.reads.read(4, 0) == entry_body(4, 0)
        assert after.bookie.reads.read(5, 0) == entry_body(5, 0)


def test_several_journals_have_marks_of_their_own() -> None:
    rig = EngineRig(small_settings(journals=3))
    rig.start()
    for ledger in range(6):
        rig.add(ledger, 0)
    rig.bookie.checkpoint()
    names = sorted(path.rpartition("/")[2] for path in rig.memory.files if "lastMark" in path)
    assert names == ["lastMark.0", "lastMark.1", "lastMark.2"]
    rig.add(1, 1)
    with rig.cut_off() as after:
        assert after.start().entries == 1
        assert after.bookie.reads.read(1, 1) == entry_body(1, 1)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_idle_fenced_ledger_is_fenced_for_ever(checkpoint: bool) -> None:
    """Java forgets the fence of a ledger whose directory is idle at the checkpoint (formats.md 5.5)."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    assert rig.fence(5) is None
    if checkpoint:
        rig.bookie.checkpoint()
    with rig.cut_off() as after:
        after.start()
        with pytest.raises(LedgerFencedError):
            after.add(5, 1)
        after.stop()
        with after.reopen() as third:
            third.start()
            with pytest.raises(LedgerFencedError):
                third.add(5, 1)


def test_a_fence_of_a_ledger_without_entries_survives_a_crash() -> None:
    """Java journals it without the key and skips it at the replay (protocol.md 5.4)."""
    rig = EngineRig()
    rig.start()
    assert rig.fence(77) is None
    with rig.cut_off() as after:
        assert after.start().fences == 1
        with pytest.raises(LedgerFencedError):
            after.add(77, 0)
        with pytest.raises(UnauthorizedError):
            after.add(77, 0, key=OTHER_KEY)
        with pytest.raises(NoEntryError):
            after.bookie.reads.read(77, 0)


def test_an_explicit_lac_of_a_ledger_without_entries_survives_a_crash() -> None:
    rig = EngineRig()
    rig.start()
    assert rig.write_lac(78, 3) is None
    with rig.cut_off() as after:
        after.start()
        assert after.bookie.reads.explicit_lac(78) == lac_packet(78, 3)
        assert after.bookie.reads.last_add_confirmed(78) == 3


def test_the_fence_that_java_journaled_without_a_key_is_kept() -> None:
    rig = EngineRig()
    path = "/journal0/current/1a1fdeb6fc0.txn"
    file = rig.memory.create(path)
    header = journal_codec.encode_header(6)
    fence = journal_codec.encode_record(journal_codec.fence_record(90))
    file.write_at(0, header + fence)
    file.sync()
    rig.memory.sync_directory("/journal0/current")
    with rig:
        assert rig.start().fences == 1
        with pytest.raises(LedgerFencedError):
            rig.add(90, 0)


def test_records_of_a_ledger_without_a_key_belong_to_a_deleted_one() -> None:
    rig = EngineRig()
    file = rig.memory.create("/journal0/current/1.txn")
    record = journal_codec.encode_record(entry_record(entry_body(91, 0)))
    file.write_at(0, journal_codec.encode_header(6) + record)
    file.sync()
    with rig:
        report = rig.start()
        assert (report.entries, report.skipped_records) == (0, 1)
        with pytest.raises(NoLedgerError):
            rig.bookie.reads.read(91, 0)


def test_a_hole_behind_the_mark_in_the_newest_journal_is_an_unsynced_tail() -> None:
    rig = EngineRig()
    rig.start()
    for number in range(6):
        rig.add(5, number, payload=b"x" * 600)
    with rig.cut_off() as after:
        path = journal_paths(after)[-1]
        third = after.memory.files[path].find(entry_body(5, 2, b"x" * 600)) - 4
        for offset in range(third, third + 4 + len(entry_body(5, 2, b"x" * 600))):
            change_byte(after, path, offset, 0)
        report = after.start()
        assert report.unsynced_holes == 1
        assert report.entries == 5
        with pytest.raises(NoEntryError):
            after.bookie.reads.read(5, 2)
        assert after.bookie.reads.read(5, 5) == entry_body(5, 5, b"x" * 600)


def damaged_in_an_older_journal() -> EngineRig:
    """Several journals to be replayed, a record of the first one overwritten beyond repair."""
    settings = small_settings(journal=JournalSettings(preallocation_bytes=0, size_bytes_max=2000))
    rig = EngineRig(settings)
    rig.start()
    for number in range(12):
        rig.add(5, number, payload=b"y" * 600)
    rig.add(6, 0)
    after = rig.cut_off()
    path = journal_paths(after)[0]
    at = after.memory.files[path].find(entry_body(5, 1, b"y" * 600)) - 4
    for offset in range(at, at + 60):
        change_byte(after, path, offset, 0x7F)
    return after


def test_damage_refuses_the_start_naming_file_and_offset_and_loses_nothing() -> None:
    rig = damaged_in_an_older_journal()
    before = dict(rig.memory.files)
    with rig:
        with pytest.raises(RefusedError, match=r"\.txn: damage at offset \d+.*--accept-loss"):
            rig.start()
        journals = {path: content for path, content in rig.memory.files.items() if path.endswith(".txn")}
    assert journals == {path: before[path] for path in journals}
    assert not any("lastMark" in path for path in rig.memory.files)


def test_an_accepted_loss_puts_every_ledger_of_the_journal_in_limbo() -> None:
    with damaged_in_an_older_journal() as rig:
        report = rig.start(accept_loss=True)
        assert report.damage_count == 1
        assert report.damages[0].path.endswith(".txn")
        assert report.limbo_ledgers == 2  # ledger 6 too, which is not known yet where the damage stands
        with pytest.raises(LedgerLimboError):
            rig.bookie.reads.read(5, 1)
        with pytest.raises(LedgerLimboError):
            rig.bookie.reads.entries(5)
        with pytest.raises(LedgerLimboError):
            rig.bookie.reads.read(5, -1)
        with pytest.raises(LedgerLimboError):
            rig.bookie.reads.last_add_confirmed(5)
        assert rig.bookie.reads.read(5, 11) == entry_body(5, 11, b"y" * 600)
        # The damage may have taken a fence: only recovery may add, and a fence may be set.
        with pytest.raises(LedgerLimboError):
            rig.add(5, 12)
        answers = Answers()
        rig.bookie.writes.add(SingleAdd(entry_body(5, 12), KEY, answers, 12, recovery=True))
        answers.wait(1)
        assert answers.good == [12]
        assert not rig.bookie.writes.add_run(rig.run_of([(5, 13)], Answers()))
        assert rig.fence(5) is None
        with pytest.raises(LedgerFencedError):
            rig.add(5, 13)
        rig.stop()


def test_a_journal_that_the_mark_names_and_that_is_gone_refuses_the_start() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    rig.add(5, 1)
    with rig.cut_off() as after:
        for path in journal_paths(after):
            after.memory.remove(path)
        with pytest.raises(RefusedError, match="the last mark names this journal and it is gone"):
            after.start()


def test_a_contradicting_master_key_refuses_the_start() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.bookie.checkpoint()
    with rig.cut_off() as after:
        newest = max(int(path.rpartition("/")[2][:-4], 16) for path in journal_paths(after))
        path = f"/journal0/current/{newest + 1:x}.txn"
        file = after.memory.create(path)
        damaged = bytes([KEY[0] ^ 0x40]) + KEY[1:]
        record = journal_codec.encode_record(journal_codec.master_key_record(5, damaged))
        file.write_at(0, journal_codec.encode_header(6) + record)
        file.sync()
        with pytest.raises(RefusedError, match=f"{path}: the master key of ledger 5"):
            after.start()


def test_replay_flushes_as_often_as_the_cache_is_full() -> None:
    rig = EngineRig(small_settings(write_cache_bytes=64 << 10))
    rig.start()
    for number in range(60):
        rig.add(5, number, payload=bytes(2000))
    with rig.cut_off() as after:
        assert after.start().entries == 60
        assert after.bookie.storages[0].meters.flushes > 1
        assert [after.bookie.reads.read(5, number)[8:16] for number in range(60)] == [
            number.to_bytes(8, "big") for number in range(60)
        ]


def test_old_journals_go_when_the_mark_has_passed_them() -> None:
    journal = JournalSettings(preallocation_bytes=0, size_bytes_max=1000, backups_max=1)
    rig = EngineRig(small_settings(journal=journal))
    rig.start()
    for number in range(10):
        rig.add(5, number, payload=bytes(900))
    # The last one is answered before the next file is begun.
    until(lambda: rig.bookie.journals[0].meters.rolls == 10)
    assert len(journal_paths(rig)) > 5
    rig.bookie.checkpoint()
    assert len(journal_paths(rig)) == 2
    with rig.cut_off() as after:
        after.start()
        assert after.bookie.reads.read(5, 9) == entry_body(5, 9, bytes(900))


def test_explicit_lacs_of_an_older_journal_format_live_in_the_rows() -> None:
    settings = small_settings()
    settings = replace(settings, journal=replace(settings.journal, format_version=5))
    rig = EngineRig(settings)
    rig.start()
    rig.add(5, 0)
    assert rig.write_lac(5, 8) is None
    rig.bookie.checkpoint()
    # As with Java it is acknowledged all the same, and gone with a crash before the next flush.
    assert rig.write_lac(5, 9) is None
    with rig.cut_off() as after:
        after.start()
        assert after.bookie.reads.explicit_lac(5) == lac_packet(5, 8)
        assert after.bookie.table.get(5) is not None
        assert after.bookie.storages[0].ledgers.get(5).master_key == KEY  # type: ignore[union-attr]
