"""docs/security.md: every row of the threat model names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "security.md"


def test_every_row_of_the_threat_model_names_its_tests() -> None:
    section = PAGE.read_text().split("## Threat model")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 8
    for who, _, tests in rows:
        named = re.findall(r"`(tests/[a-z0-9_/]+\.py)`", tests)
        assert named, who
        for path in named:
            assert (REPOSITORY / path).is_file(), path


def test_the_way_to_report_points_to_the_page() -> None:
    assert "docs/security.md" in (REPOSITORY / "SECURITY.md").read_text()


def test_keys_that_the_page_names_are_keys() -> None:
    from bkctl.config.server_keys import SERVER_KEYS

    named = set(re.findall(r"`((?:bkctl|tls|http|netty|zk|bookie)[A-Za-z]*)(?:=[a-z]+)?`", PAGE.read_text()))
    assert len(named) > 10
    assert named <= set(SERVER_KEYS)
