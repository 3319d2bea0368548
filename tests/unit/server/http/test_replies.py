"""Texts of answers, as Java's bookie writes them."""

from __future__ import annotations

import pytest

from bkctl.server.http.replies import text_of


# Of ``new String(bytes, StandardCharsets.UTF_8)`` of OpenJDK 17, UTF-16 in hexadecimal. Of 20,000 pieces of
# up to seven bytes, most of them of those that mean something in UTF-8, all were the same.
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("41c3a4e282acf09f9880", "004100e420acd83dde00"),
        ("eda080", "fffd"),
        ("eda4ea9032c272", "fffdfffd0032fffd0072"),
        ("6a19eda0efe9f0", "006a0019fffdfffdfffdfffd"),
        ("8ff5ededa00c", "fffdfffdfffdfffd000c"),
        ("edbfe0", "fffdfffd"),
        ("e08080", "fffdfffdfffd"),
        ("e18041", "fffd0041"),
        ("f1808041", "fffd0041"),
        ("f4908080", "fffdfffdfffdfffd"),
    ],
)
def test_bytes_that_are_no_text_are_shown_as_java_shows_them(data: str, text: str) -> None:
    assert text_of(bytes.fromhex(data)) == bytes.fromhex(text).decode("utf-16-be")
