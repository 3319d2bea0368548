"""Sizes as people write them."""

from __future__ import annotations

import pytest

from bkctl.config.byte_size import parse_byte_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("1048576", 1 << 20), ("64M", 64 << 20), ("1g", 1 << 30), ("2048KiB", 2 << 20),
        (" 256 MB ", 256 << 20), ("1T", 1 << 40), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_byte_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1.5G", "1P", "1MM", "0x10", "1 0M"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_byte_size(text)
