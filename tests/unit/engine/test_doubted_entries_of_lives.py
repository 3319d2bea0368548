"""Journal records with damaged ids beside torn tails, rotations, short entries and ledgers made again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.codec import digest
from bkctl.engine.add_run import AddRun
from bkctl.errors import LedgerLimboError, NoEntryError, StorageError
from bkctl.scan.proved_ids import EntryIds, with_ids
from bkctl.storage_kinds import SORTED_LEDGER_STORAGE
from bkctl.types import DigestType
from bkctl.vfs.faulty import FaultRule
from tests.support.damaged_journal import (
    HEAD_BYTES,
    SECTOR_BYTES,
    add,
    body_of,
    journals,
    journals_of,
    offset_of,
    overwrite,
    payload_damaged,
    read,
)
from tests.support.engine_model import PowerRig
from tests.support.engine_rig import KEY, OTHER_KEY, Answers, EngineRig, small_settings


@pytest.mark.parametrize("tail_bytes", [1, 2, 3])
def test_a_record_with_a_flipped_id_whose_size_word_ends_a_sector_is_not_torn(tail_bytes: int) -> None:
    """All that stands of it in its first sector are zeros of the size word, as if the sector were lacking."""
    rig = EngineRig(journals_of(1 << 20, format_version=4))
    rig.start()
    add(rig, body_of(5, 0))
    _, at = offset_of(rig, body_of(5, 0))
    end = at + 4 + len(body_of(5, 0))
    add(rig, body_of(5, 1, b"f" * ((-tail_bytes - end - HEAD_BYTES) % SECTOR_BYTES)))
    victim = body_of(5, 2)
    add(rig, victim)
    add(rig, body_of(5, 3))
    with rig.cut_off() as after:
        assert offset_of(after, victim)[1] % SECTOR_BYTES == SECTOR_BYTES - tail_bytes
        overwrite(after, victim, with_ids(victim, EntryIds(5, 2 | 8)))
        report = after.start()
        assert (report.mended_records, report.torn_records, report.limbo_ledgers) == (1, 0, 0)
        assert read(after, 5, 2) == victim


def add_in_one_write(rig: EngineRig, bodies: list[bytes]) -> None:
    answers = Answers()
    keys = [KEY + body[:8] for body in bodies]
    size_bytes = sum(map(len, bodies))
    rig.bookie.writes.add_run(AddRun(keys, [body[:16] for body in bodies], bodies, size_bytes, answers, 0))
    answers.wait(1)
    assert answers.good


@pytest.mark.parametrize("tail_bytes", [1, 2, 3])
@pytest.mark.parametrize("damage", ["payload", "ids", "ids, last of all"])
def test_damage_behind_a_size_word_that_ends_a_sector_is_not_torn(damage: str, tail_bytes: int) -> None:
    """The record behind it begins where it ends: its length is right, and none of it was lost."""
    rig = EngineRig()
    rig.start()
    add(rig, body_of(5, 0))
    add(rig, body_of(6, 0, b"x", DigestType.MAC))
    filler = b"f" * (SECTOR_BYTES - tail_bytes - HEAD_BYTES)
    victim = body_of(5, 2, b"v" * 400)
    at_bytes = SECTOR_BYTES - tail_bytes + 4 + len(victim)
    second_filler = b"g" * ((SECTOR_BYTES - 1 - at_bytes - HEAD_BYTES) % SECTOR_BYTES)
    whole = body_of(6, 1, b"whole", DigestType.MAC)
    add_in_one_write(
        rig, [body_of(5, 1, filler), victim, body_of(5, 3, second_filler), whole, body_of(5, 4, b"last")]
    )
    if damage != "ids, last of all":
        for entry in range(5, 8):
            add(rig, body_of(5, entry))
    with rig.cut_off() as after:
        assert offset_of(after, victim)[1] % SECTOR_BYTES == SECTOR_BYTES - tail_bytes
        assert offset_of(after, whole)[1] % SECTOR_BYTES == SECTOR_BYTES - 1
        changed = payload_damaged(victim)
        if damage != "payload":
            changed = with_ids(changed, EntryIds(5, 2 | 16 | 64))
        overwrite(after, victim, changed)
        report = after.start()
        assert report.torn_records == 0
        assert read(after, 5, 2) == (changed if damage == "payload" else LedgerLimboError)
        assert read(after, 6, 1) == whole


def test_whole_entries_of_a_later_journal_show_that_a_record_is_damaged() -> None:
    rig = EngineRig(journals_of(3000))
    rig.start()
    victim, filler = body_of(5, 0), b"z" * 300
    for entry in range(3):
        add(rig, body_of(4, entry, filler))
    add(rig, victim)
    entry, before = 3, journals(rig)
    while journals(rig) == before:
        add(rig, body_of(4, entry, filler))
        entry += 1
    add(rig, body_of(4, entry, filler))
    for entry in range(1, 10):
        add(rig, body_of(5, entry))
    with rig.cut_off() as after:
        assert offset_of(after, victim)[0] != offset_of(after, body_of(5, 9))[0]
        overwrite(after, victim, with_ids(victim, EntryIds(5, 60))[:-1] + b"?")
        report = after.start()
        assert (report.mended_records, report.doubted_records, report.limbo_ledgers) == (0, 1, 2)
        assert read(after, 5, 0) is LedgerLimboError
        assert read(after, 5, 9) == body_of(5, 9)


@pytest.mark.parametrize("lives", [2, 3])
def test_a_record_that_says_a_ledger_which_was_made_again_is_the_one_that_its_digest_proves(
    lives: int,
) -> None:
    rig = EngineRig()
    rig.start()
    keys = [KEY, OTHER_KEY, digest.master_key(b"third")][:lives]
    victims = []
    for life, key in enumerate(keys):
        if life:
            rig.bookie.delete_ledger(7)
        add(rig, body_of(7, 0, b"life %d" % life), key)
        add(rig, body_of(5, 2 * life))
        victims.append(body_of(5, 2 * life + 1))
        add(rig, victims[-1])
    with rig.cut_off() as after:
        for victim in victims[:-1]:
            overwrite(after, victim, with_ids(victim, EntryIds(7, victim[15])))
        report = after.start()
        assert (report.mended_records, report.doubted_records) == (lives - 1, 0)
        for entry in range(2 * lives):
            assert read(after, 5, entry) == body_of(5, entry)
        assert read(after, 7, 0) == body_of(7, 0, b"life %d" % (lives - 1))
        assert read(after, 7, 1) is NoEntryError


def test_a_held_entry_of_a_life_that_is_over_does_not_come_back() -> None:
    """Its digest proves that it is the ledger's that was deleted."""
    rig = EngineRig()
    rig.start()
    add(rig, body_of(7, 0))
    victim = body_of(7, 1)
    add(rig, victim)
    rig.bookie.delete_ledger(7)
    add(rig, body_of(7, 0, b"again"), OTHER_KEY)
    with rig.cut_off() as after:
        overwrite(after, victim, with_ids(victim, EntryIds(7, 1 | 64)))
        after.start()
        assert read(after, 7, 0) == body_of(7, 0, b"again")
        assert read(after, 7, 1) is NoEntryError
        assert read(after, 7, 1 | 64) is NoEntryError


@pytest.mark.parametrize("later", [DigestType.MAC, DigestType.CRC32C])
@pytest.mark.parametrize("earlier", [DigestType.MAC, DigestType.CRC32C, DigestType.DUMMY])
def test_another_digest_in_another_life_raises_no_doubt(earlier: DigestType, later: DigestType) -> None:
    rig = EngineRig()
    rig.start()
    for number, (key, digest_type) in enumerate(
        [(KEY, earlier), (OTHER_KEY, earlier), (digest.master_key(b"third"), later)]
    ):
        if number:
            rig.bookie.delete_ledger(7)
        for entry in range(3):
            add(rig, body_of(7, entry, b"life %d" % number, digest_type), key)
            add(rig, body_of(5, 3 * number + entry))
    with rig.cut_off() as after:
        report = after.start()
        assert (report.mended_records, report.doubted_records, report.limbo_ledgers) == (0, 0, 0)
        assert [read(after, 7, entry) for entry in range(3)] == [
            body_of(7, entry, b"life 2", later) for entry in range(3)
        ]


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("damage", ["payload", "payload and ids"])
def test_a_ledger_made_again_ends_no_search_for_others(damage: str, is_made_again: bool) -> None:
    """The whole entries that show what a damaged record is stand behind the ledger's second key."""
    rig = EngineRig()
    rig.start()
    for entry in range(3):
        add(rig, body_of(4, entry))
    add(rig, body_of(7, 0))
    victim = body_of(5, 1 if damage == "payload" else 0)
    if damage == "payload":
        add(rig, body_of(5, 0))
    add(rig, victim)
    if is_made_again:
        rig.bookie.delete_ledger(7)
        add(rig, body_of(7, 0, b"again"), OTHER_KEY)
    for entry in range(victim[15] + 1, 40):
        add(rig, body_of(5, entry))
    changed = payload_damaged(victim)
    if damage != "payload":
        changed = with_ids(changed, EntryIds(5, 60))
    with rig.cut_off() as after:
        overwrite(after, victim, changed)
        report = after.start()
        assert report.doubted_records == (damage != "payload")
        assert read(after, 5, victim[15]) == (changed if damage == "payload" else LedgerLimboError)


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.MAC, DigestType.DUMMY])
def test_entries_of_a_deleted_ledger_take_no_place_in_its_next_life(digest_type: DigestType) -> None:
    """Its row is gone, and its key is in front of the last mark, which was not moved. Nothing is damaged."""
    rig = PowerRig(small_settings())
    rig.start()
    add(rig, body_of(4, 0))
    add(rig, body_of(7, 0, b"first", digest_type))
    rig.bookie.checkpoint()
    for entry in range(1, 5):
        add(rig, body_of(7, entry, b"first", digest_type))
    rig.bookie.delete_ledger(7)
    for call in ("write", "create", "rename"):
        rig.system.inject(FaultRule(call, lambda path: "lastMark" in path))
    with pytest.raises(StorageError):
        rig.bookie.checkpoint()
    second = [body_of(7, entry, b"second", digest_type) for entry in range(3)]
    for body in second:
        add(rig, body, OTHER_KEY)
    with rig.after_power_cut(None) as after:
        report = after.start()
        assert (report.doubted_records, report.limbo_ledgers) == (0, 0)
        assert [read(after, 7, entry) for entry in range(3)] == second
        assert read(after, 7, 3) is NoEntryError


def test_a_record_that_proves_late_to_be_of_a_life_that_is_over_does_not_come_back() -> None:
    """No entry of that life is whole: only the next one shows under which ids it is to be tried."""
    rig = EngineRig()
    rig.start()
    add(rig, body_of(5, 0))
    victim = body_of(7 << 20 | 7, 1)
    add(rig, victim)
    rig.bookie.delete_ledger(7 << 20 | 7)
    add(rig, body_of(7 << 20 | 7, 0, b"again"), OTHER_KEY)
    with rig.cut_off() as after:
        overwrite(after, victim, with_ids(victim, EntryIds(5, 1)))
        report = after.start()
        assert (report.mended_records, report.doubted_records) == (0, 0)
        assert read(after, 7 << 20 | 7, 0) == body_of(7 << 20 | 7, 0, b"again")
        assert read(after, 7 << 20 | 7, 1) is NoEntryError


def test_what_is_proved_goes_before_what_is_believed() -> None:
    """Two damaged records say one entry, and the digest of the second proves that it is another one."""
    rig = EngineRig()
    rig.start()
    bodies = [body_of(5, entry) for entry in range(6)]
    for body in bodies:
        add(rig, body)
    with rig.cut_off() as after:
        overwrite(after, bodies[2], payload_damaged(with_ids(bodies[2], EntryIds(5, 3))))
        overwrite(after, bodies[3], with_ids(bodies[3], EntryIds(5, 3 | 1 << 18)))
        report = after.start()
        assert (report.mended_records, report.doubted_records) == (1, 1)
        assert read(after, 5, 3) == bodies[3]
        assert read(after, 5, 2) is LedgerLimboError


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_short_entry_that_no_index_file_has_a_slot_for_does_not_end_the_start(accept_loss: bool) -> None:
    settings = small_settings()
    settings = replace(settings, storage=replace(settings.storage, storage_class=SORTED_LEDGER_STORAGE))
    rig = EngineRig(settings)
    rig.start()
    for entry in range(3):
        add(rig, body_of(4, entry))
        add(rig, body_of(5, entry, b"abc", DigestType.DUMMY))
    victim = body_of(5, 1, b"abc", DigestType.DUMMY)
    with rig.cut_off() as after:
        overwrite(after, victim, with_ids(victim, EntryIds(5, 1 | 1 << 50)))
        assert after.start(accept_loss=accept_loss).doubted_records == 1
        assert read(after, 5, 1) is LedgerLimboError
        assert read(after, 5, 2) == body_of(5, 2, b"abc", DigestType.DUMMY)
