"""An embedded store in a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.metadata.embedded.tree import SqliteTree
from tests.unit.metadata.embedded.quick_leases import SETTINGS


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.db")


@pytest.fixture
def tree(path: str) -> Iterator[SqliteTree]:
    made = SqliteTree(path, SETTINGS, SystemClock())
    yield made
    made.close()
