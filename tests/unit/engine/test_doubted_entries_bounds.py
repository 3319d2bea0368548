"""The bounds of the search for the ids of damaged journal records hide no loss."""

from __future__ import annotations

import pytest

from bkctl.engine import doubted_entries, held_records
from bkctl.errors import LedgerLimboError
from bkctl.scan.proved_ids import EntryIds, with_ids
from bkctl.types import DigestType
from tests.support.damaged_journal import (
    JOURNAL_BYTES_MAX,
    add,
    add_all,
    body_of,
    journals_of,
    overwrite,
    payload_damaged,
    read,
)
from tests.support.engine_rig import OTHER_KEY, EngineRig


@pytest.mark.parametrize("ledgers", [1, 100, 900])
def test_ledgers_without_checksums_do_not_fill_what_is_held(
    ledgers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_records, "_RECORDS_MAX", 400)
    rig = EngineRig(journals_of(JOURNAL_BYTES_MAX))
    rig.start()
    victim = body_of(5, 0)
    add(rig, victim)
    macs = [
        body_of(1000 + number % ledgers, number // ledgers, b"mac", DigestType.MAC) for number in range(900)
    ]
    add_all(rig, macs)
    for entry in range(1, 40):
        add(rig, body_of(5, entry))
    with rig.cut_off() as after:
        overwrite(after, victim, payload_damaged(with_ids(victim, EntryIds(5, 60))))
        report = after.start()
        assert report.doubted_records == 1
        assert read(after, 5, 0) is LedgerLimboError
        for body in macs[:: 900 // 50]:
            ledger, entry = (int.from_bytes(body[at : at + 8], "big") for at in (0, 8))
            assert read(after, ledger, entry) == body


@pytest.mark.parametrize("mac_entries", [3, 1])
def test_ledgers_without_checksums_do_not_use_up_the_search(
    mac_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One flipped bit is proved in any company."""
    monkeypatch.setattr(doubted_entries, "_TRIED_BYTES_MAX", 16 << 20)
    monkeypatch.setattr(held_records, "_RECORDS_MAX", 100)
    rig = EngineRig(journals_of(JOURNAL_BYTES_MAX))
    rig.start()
    add_all(rig, [body_of(ledger, 0) for ledger in range(5000, 5050)])
    macs = range(1000, 1060)
    add_all(rig, [body_of(m, e, b"mac" * 500, DigestType.MAC) for e in range(mac_entries) for m in macs])
    bodies = [body_of(5, entry, b"v" * 3000) for entry in range(6)]
    add_all(rig, bodies)
    with rig.cut_off() as after:
        overwrite(after, bodies[5], with_ids(bodies[5], EntryIds(5 | 1 << 20, 5)))
        assert after.start().mended_records == 1
        assert read(after, 5, 5) == bodies[5]


def test_lives_that_are_over_do_not_use_up_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ledgers have CRCs in the next life."""
    monkeypatch.setattr(doubted_entries, "_TRIED_BYTES_MAX", 256 << 20)
    rig = EngineRig(journals_of(JOURNAL_BYTES_MAX))
    rig.start()
    add(rig, body_of(6, 0, b"mac", DigestType.MAC))
    over = range(100, 104)
    add_all(rig, [body_of(x, e, b"m" * 100_000, DigestType.MAC) for x in over for e in range(3)])
    for ledger in over:
        rig.bookie.delete_ledger(ledger)
        add(rig, body_of(ledger, 0), OTHER_KEY)
    bodies = [body_of(5, entry, b"v" * (150_000 if entry == 3 else 3)) for entry in range(6)]
    add_all(rig, bodies)
    with rig.cut_off() as after:
        overwrite(after, bodies[3], with_ids(bodies[3], EntryIds(5 | 1 << 20, 3)))
        assert after.start().mended_records == 1
        assert read(after, 5, 3) == bodies[3]


def test_a_large_entry_is_tried_beside_many_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its bytes are too many for other ledgers' ids, it is tried with one bit changed."""
    monkeypatch.setattr(doubted_entries, "_TRIED_BYTES_MAX", 64 << 20)
    rig = EngineRig(journals_of(JOURNAL_BYTES_MAX))
    rig.start()
    add(rig, body_of(4, 0, b"mac", DigestType.MAC))
    add_all(rig, [body_of(ledger, 0) for ledger in range(5000, 5400)])
    bodies = [body_of(5, entry, b"v" * (150_000 if entry == 3 else 3)) for entry in range(5)]
    add_all(rig, bodies)
    with rig.cut_off() as after:
        overwrite(after, bodies[3], with_ids(bodies[3], EntryIds(5 | 1 << 20, 3)))
        assert after.start().mended_records == 1
        assert read(after, 5, 3) == bodies[3]
