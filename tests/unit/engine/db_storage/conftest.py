"""A storage over twins that is open."""

from __future__ import annotations

import pytest

from tests.support.storage_rig import StorageRig


@pytest.fixture
def rig() -> StorageRig:
    return StorageRig().open()
