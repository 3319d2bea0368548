"""What shows that a ledger has checksums, and what does not."""

from __future__ import annotations

import pytest

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
from tests.support.engine_rig import EngineRig


def test_many_ledgers_without_checksums_are_asked_for_their_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that is known to have CRCs by the index alone is asked behind a thousand others."""
    rig = EngineRig(journals_of(JOURNAL_BYTES_MAX))
    rig.start()
    add_all(rig, [body_of(5, entry) for entry in range(5)])
    rig.bookie.checkpoint()
    add_all(rig, [body_of(ledger, 0, b"mac", DigestType.MAC) for ledger in range(1000, 2010)])
    victim = body_of(5, 5)
    add(rig, victim)
    with rig.cut_off() as after:
        overwrite(after, victim, payload_damaged(with_ids(victim, EntryIds(5, 9))))
        assert after.start().doubted_records == 1
        assert read(after, 5, 5) is LedgerLimboError


def test_entries_that_are_too_short_for_a_checksum_prove_nothing_of_their_ledger() -> None:
    rig = EngineRig()
    rig.start()
    for entry in range(3):
        add(rig, body_of(4, entry))
    add(rig, body_of(5, 0, b"abc", DigestType.DUMMY))
    for entry in range(1, 4):
        add(rig, body_of(5, entry, b"longer payload", DigestType.DUMMY))
    with rig.cut_off() as after:
        report = after.start()
        assert (report.doubted_records, report.limbo_ledgers) == (0, 0)
        assert read(after, 5, 3) == body_of(5, 3, b"longer payload", DigestType.DUMMY)
