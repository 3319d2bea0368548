from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def release_conf() -> Path:
    """``conf/bk_server.conf`` of BookKeeper 4.17.3, without its comments but with its commented-out keys."""
    return Path(__file__).parent / "bk_server-4.17.3.conf"
