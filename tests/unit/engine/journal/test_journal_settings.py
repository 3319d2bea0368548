from __future__ import annotations

from typing import Any

import pytest

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.errors import UsageError


def test_defaults_are_those_of_java_but_for_the_adaptive_wait() -> None:
    settings = JournalSettings()
    assert (settings.format_version, settings.size_bytes_max, settings.backups_max) == (6, 2 << 30, 5)
    assert (settings.preallocation_bytes, settings.alignment_bytes) == (16 << 20, 512)
    assert (settings.buffered_bytes_max, settings.buffered_entries_max) == (512 << 10, 0)
    assert (settings.sync_data, settings.group_wait_max_ms) == (True, None)
    assert settings.page_cache_flush_interval_ms == 1000
    assert settings.queue_entries_max == 10_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"format_version": 3},
        {"format_version": 7},
        {"alignment_bytes": 511},
        {"alignment_bytes": 0},
        {"alignment_bytes": 513},
        {"alignment_bytes": 4096, "preallocation_bytes": 2048},
        {"preallocation_bytes": -1},
        {"size_bytes_max": 0},
        {"backups_max": -1},
        {"group_wait_max_ms": -1},
        {"buffered_bytes_max": -1},
        {"buffered_entries_max": -1},
        {"queue_entries_max": 0},
        {"queue_bytes_max": 0},
        {"page_cache_flush_interval_ms": -1},
        {"force_write_groups_max": 0},
        {"callback_groups_max": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        JournalSettings(**wrong).check()


def test_zeros_may_be_switched_off_whatever_the_alignment() -> None:
    assert JournalSettings(preallocation_bytes=0, alignment_bytes=4096).padded
    assert not JournalSettings(format_version=4).padded
