"""The files that CONTRIBUTING.md shows are where it says."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PATH = re.compile(r"`((?:bkctl|docs|tests)/[\w./-]+)`|`([A-Za-z]+\.(?:md|toml))`")


def test_every_path_is_there() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    named = {found[1] or found[2] for found in PATH.finditer(text)}
    assert len(named) > 30
    missing = [name for name in named if "NAME" not in name and not (REPOSITORY / name).exists()]
    assert missing == []
