from __future__ import annotations

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal.group_commit import FlushReason, GroupCommit

KIB = 1024


def due(
    settings: JournalSettings, *, size: int = 100, entries: int = 1, age_ms: float = 0, forcing: int = 0
) -> FlushReason | None:
    return GroupCommit(settings).due(size_bytes=size, entries=entries, age_s=age_ms / 1000, forcing=forcing)


def test_adaptive_writes_at_once_while_the_disk_is_idle() -> None:
    assert due(JournalSettings()) is FlushReason.IDLE
    assert due(JournalSettings(), size=0, entries=0) is FlushReason.IDLE


@pytest.mark.parametrize(
    ("size", "entries", "reason"),
    [
        (512 * KIB, 9999, None),
        (512 * KIB + 1, 1, FlushReason.BYTES),
        (10, 10_000, None),
    ],
)
def test_adaptive_waits_for_a_busy_disk_up_to_the_threshold(
    size: int, entries: int, reason: FlushReason | None
) -> None:
    assert due(JournalSettings(), size=size, entries=entries, forcing=1, age_ms=1e6) is reason


def test_the_entry_threshold_counts_only_when_set() -> None:
    settings = JournalSettings(buffered_entries_max=10)
    assert due(settings, entries=10, forcing=1) is None
    assert due(settings, entries=11, forcing=1) is FlushReason.ENTRIES


def test_a_group_ends_with_the_batch_that_crosses_the_byte_threshold() -> None:
    policy = GroupCommit(JournalSettings(buffered_bytes_max=100))
    assert policy.group_end([50, 50]) == 2
    assert policy.group_end([50, 50, 1, 1]) == 3
    assert policy.group_end([101, 1]) == 1
    assert policy.group_end([0, 0, 5]) == 3


def test_a_wait_as_in_java_is_kept_even_when_the_disk_is_idle() -> None:
    settings = JournalSettings(group_wait_max_ms=2)
    policy = GroupCommit(settings)
    assert due(settings, age_ms=1.9) is None
    assert due(settings, age_ms=2.1) is FlushReason.WAITED
    assert due(settings, age_ms=0, size=512 * KIB + 1) is FlushReason.BYTES
    assert policy.patience_s(0.0005) == pytest.approx(0.0015)
    assert policy.patience_s(5) == 0


def test_waiting_alone_never_makes_an_adaptive_group_due() -> None:
    assert GroupCommit(JournalSettings()).patience_s(3) is None


@pytest.mark.parametrize(
    "settings",
    [
        JournalSettings(flush_when_queue_empty=True),
        JournalSettings(group_wait_max_ms=2, flush_when_queue_empty=True),
        JournalSettings(group_wait_max_ms=0),
    ],
)
def test_an_empty_queue_flushes_when_asked_and_always_without_a_wait(settings: JournalSettings) -> None:
    assert due(settings, forcing=3) is FlushReason.QUEUE_EMPTY
