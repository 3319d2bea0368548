"""Every entry that is read counts once: as a hit of a cache or as a read from the disk."""

from __future__ import annotations

import pytest

from tests.support.storage_rig import StorageRig, key_of


@pytest.mark.parametrize("at_once", [1, 7, 50])
def test_entries_read_ahead_for_their_own_batch_are_hits(at_once: int) -> None:
    """A reader that asks for many at once is served by what was read ahead for the first ones."""
    rig = StorageRig().open()
    for entry in range(50):
        rig.put(1, entry)
    rig.storage.flush()
    keys = [key_of(1, entry) for entry in range(50)]
    for start in range(0, 50, at_once):
        found = rig.storage.read_many(keys[start : start + at_once])
        assert all(isinstance(body, bytes) for body in found)
    meters = rig.storage.meters
    assert meters.read_cache_hits + meters.disk_reads == 50
    assert meters.disk_reads == 2, "the first one, and the second one, which reads ahead"
    assert meters.read_ahead_entries == 48
