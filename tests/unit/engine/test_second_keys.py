"""A ledger id that was used again under another master key, and a crash before the mark has passed it."""

from __future__ import annotations

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.codec.digest import master_key
from bkctl.codec.entry import frame
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.errors import LedgerLimboError, NoEntryError, RefusedError, UnauthorizedError
from tests.support.engine_rig import KEY, OTHER_KEY, EngineRig, Waiter, entry_body, lac_packet, small_settings

THIRD_KEY = master_key(b"third")
OLD = b"of the first life"
NEW = b"of the second life"


def check_second_life(rig: EngineRig, key: bytes = OTHER_KEY) -> None:
    """Ledger 5 has entry 0 of its second life and nothing else; only its key opens it."""
    assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, NEW)
    with pytest.raises(NoEntryError):
        rig.bookie.reads.read(5, 1)
    assert list(rig.bookie.reads.entries(5)) == [0]
    with pytest.raises(UnauthorizedError):
        rig.add(5, 2, key=KEY)
    rig.add(5, 2, key=key)


@pytest.mark.parametrize("flushed_before", [False, True])
@pytest.mark.parametrize("flushed_behind", [False, True])
def test_a_ledger_made_anew_under_another_key_does_not_block_the_start(
    flushed_before: bool, flushed_behind: bool
) -> None:
    """Both keys in one replay; the first one durable, the second journaled; and the reverse."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0, payload=OLD)
    rig.add(5, 1, payload=OLD)
    if flushed_before:
        rig.bookie.checkpoint()
    rig.bookie.delete_ledger(5)
    rig.add(5, 0, payload=NEW, key=OTHER_KEY)
    if flushed_behind:
        for storage in rig.bookie.storages:
            storage.flush()
    with rig.cut_off() as after:
        assert after.start().limbo_ledgers == 0
        check_second_life(after)
        with after.cut_off() as third:
            third.start()
            assert third.bookie.reads.read(5, 0) == entry_body(5, 0, NEW)
            assert list(third.bookie.reads.entries(5)) == [0, 2]


def test_of_three_lives_the_last_one_counts() -> None:
    rig = EngineRig()
    rig.start()
    for key in (KEY, OTHER_KEY, KEY, THIRD_KEY):
        rig.add(5, 0, payload=NEW if key == THIRD_KEY else OLD, key=key)
        if key != THIRD_KEY:
            rig.add(5, 1, payload=OLD, key=key)
            rig.bookie.delete_ledger(5)
    with rig.cut_off() as after:
        after.start()
        check_second_life(after, THIRD_KEY)


def test_a_fence_of_the_first_life_does_not_fence_the_second() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0, payload=OLD)
    rig.bookie.checkpoint()
    rig.add(5, 1, payload=OLD)
    assert rig.fence(5) is None
    rig.bookie.delete_ledger(5)
    # A deleted ledger that was fenced is remembered for a while.
    rig.clock.advance(30 * 24 * 3600)
    rig.add(5, 0, payload=NEW, key=OTHER_KEY)
    with rig.cut_off() as after:
        after.start()
        check_second_life(after)


def test_a_fence_and_a_lac_of_a_life_in_between_are_of_no_other() -> None:
    rig = EngineRig()
    rig.start()
    rig.add(5, 0, payload=OLD)
    rig.bookie.delete_ledger(5)
    rig.add(5, 0, payload=OLD, key=OTHER_KEY)
    rig.add(5, 1, payload=OLD, key=OTHER_KEY)
    lac = Waiter()
    rig.bookie.explicit_lacs.write(lac_packet(5, 7), OTHER_KEY, lac)
    assert lac.wait() is None
    assert rig.fence(5, OTHER_KEY) is None
    rig.bookie.delete_ledger(5)
    rig.clock.advance(30 * 24 * 3600)
    rig.add(5, 0, payload=NEW, key=THIRD_KEY)
    with rig.cut_off() as after:
        # Two entries, the LAC and the fence.
        assert after.start().skipped_records == 4
        row = after.bookie.storages[0].ledgers.get(5)
        assert row is not None
        assert (row.fenced, row.explicit_lac) == (False, None)
        check_second_life(after, THIRD_KEY)


def test_a_first_life_under_the_key_of_the_last_one_is_forgotten() -> None:
    rig = EngineRig()
    rig.start()
    for key in (OTHER_KEY, KEY):
        rig.add(5, 1, payload=OLD, key=key)
        rig.bookie.delete_ledger(5)
    rig.add(5, 0, payload=NEW, key=OTHER_KEY)
    with rig.cut_off() as after:
        after.start()
        check_second_life(after)


def test_a_key_behind_a_fence_without_one_is_the_ledgers() -> None:
    """Java journals the fence of a ledger without entries alone."""
    records = (journal_codec.fence_record(6), journal_codec.master_key_record(6, OTHER_KEY))
    rig = with_records(b"".join(map(journal_codec.encode_record, records)))
    with rig:
        rig.start()
        row = rig.bookie.storages[0].ledgers.get(6)
        assert row is not None
        assert (row.fenced, row.master_key) == (True, OTHER_KEY)


def test_behind_a_journal_that_is_gone_nothing_is_forgotten_for_another_key() -> None:
    """The lost journal may have had a newer key."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0, payload=OLD)
    rig.add(5, 1, payload=OLD)
    rig.bookie.checkpoint()
    gone = rig.bookie.journals[0].mark.journal_id
    record = journal_codec.encode_record(journal_codec.master_key_record(5, OTHER_KEY))
    after = with_newer_journal(rig, record + frame(entry_body(5, 0, NEW)))
    with after:
        after.memory.remove(f"/journal0/current/{gone:x}.txn")
        after.start(accept_loss=True)
        assert after.bookie.reads.read(5, 0) == entry_body(5, 0, NEW)
        assert after.bookie.reads.read(5, 1) == entry_body(5, 1, OLD)
        with pytest.raises(UnauthorizedError):
            after.add(5, 2)
        assert after.fence(5, OTHER_KEY) is None


def test_what_was_flushed_of_the_present_life_is_not_forgotten_for_an_older_key() -> None:
    """The index is ahead of the mark: the journal's first key is of the life before."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0, payload=OLD)
    rig.bookie.delete_ledger(5)
    rig.add(5, 0, payload=NEW, key=OTHER_KEY)
    assert rig.fence(5, OTHER_KEY) is None
    for storage in rig.bookie.storages:
        storage.flush()
    with rig.cut_off() as after:
        after.start()
        row = after.bookie.storages[0].ledgers.get(5)
        assert row is not None
        assert (row.master_key, row.fenced) == (OTHER_KEY, True)
        assert after.bookie.reads.read(5, 0) == entry_body(5, 0, NEW)


def with_newer_journal(rig: EngineRig, records: bytes) -> EngineRig:
    """The bookie after a power cut, with a newer journal of these records."""
    newest = rig.bookie.journals[0].mark.journal_id + 1
    after = rig.cut_off()
    file = after.memory.create(f"/journal0/current/{newest:x}.txn")
    file.write_at(0, journal_codec.encode_header(6) + records)
    file.sync()
    file.close()
    after.memory.sync_directory("/journal0/current")
    return after


def with_records(records: bytes) -> EngineRig:
    """Ledger 5 under ``KEY`` with entries 0 and 1 durable, and a newer journal with some records."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.add(5, 1)
    rig.bookie.checkpoint()
    return with_newer_journal(rig, records)


def with_key_record(key: bytes) -> EngineRig:
    """The same with one key record of ledger 5."""
    return with_records(journal_codec.encode_record(journal_codec.master_key_record(5, key)))


def test_a_damaged_key_of_a_living_ledger_is_refused() -> None:
    """Keys are SHA-1 values: two that share bytes are one key of which some were changed."""
    damaged = bytes([KEY[0] ^ 1]) + KEY[1:-1] + bytes([KEY[-1] ^ 0x80])
    with with_key_record(damaged) as rig, pytest.raises(RefusedError, match="the master key of ledger 5"):
        rig.start()
    with with_key_record(damaged) as rig:
        rig.start(accept_loss=True)
        # Nothing is forgotten, and the key that was there before stays.
        assert rig.bookie.reads.read(5, 1) == entry_body(5, 1)
        with pytest.raises(LedgerLimboError):
            rig.bookie.reads.read(5, 2)
        with pytest.raises(UnauthorizedError):
            rig.add(5, 2, key=damaged)


def test_an_accepted_damage_of_a_key_puts_its_ledger_alone_into_limbo() -> None:
    damaged = bytes([KEY[0] ^ 1]) + KEY[1:]
    rig = EngineRig()
    rig.start()
    rig.add(5, 0)
    rig.add(6, 0)
    with rig.cut_off() as after:
        path = next(path for path in after.memory.files if path.endswith(".txn"))
        content = after.memory.files[path]
        key = journal_codec.encode_record(journal_codec.master_key_record(5, KEY))
        file = after.memory.open_to_write(path)
        # Behind the last entry: the ledger's key once more, as a bookie that was started again writes it.
        end = content.index(entry_body(6, 0)) + len(entry_body(6, 0))
        file.write_at(end, key[:-20] + damaged)
        file.sync()
        file.close()
        report = after.start(accept_loss=True)
        assert (report.entries, report.limbo_ledgers) == (2, 1)
        with pytest.raises(LedgerLimboError):
            after.bookie.reads.read(5, 1)
        with pytest.raises(NoEntryError):
            after.bookie.reads.read(6, 1)


def test_behind_a_damage_nothing_is_forgotten_for_another_key() -> None:
    """The hole may have held the key of a newer life: which of the two is the present one is not known."""
    payload = b"y" * 700
    rig = EngineRig(small_settings(journal=JournalSettings(preallocation_bytes=0, size_bytes_max=2000)))
    rig.start()
    rig.add(5, 0, payload=OLD)
    rig.bookie.delete_ledger(5)
    rig.add(5, 0, payload=NEW, key=OTHER_KEY)
    for storage in rig.bookie.storages:
        storage.flush()
    for number in range(6):
        rig.add(6, number, payload=payload)
    with rig.cut_off() as after:
        paths = sorted(path for path in after.memory.files if path.endswith(".txn"))
        content = after.memory.files[paths[0]]
        at = content.index(journal_codec.encode_record(journal_codec.master_key_record(5, OTHER_KEY)))
        file = after.memory.open_to_write(paths[0])
        file.write_at(at, b"\x7f" * (len(content) - at))
        file.sync()
        file.close()
        after.start(accept_loss=True)
        assert after.bookie.reads.read(5, 0) in (entry_body(5, 0, NEW), entry_body(5, 0, OLD))
        with pytest.raises(LedgerLimboError):
            after.bookie.reads.read(5, 1)
