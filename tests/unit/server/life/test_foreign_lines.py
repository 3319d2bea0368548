"""Text past the log: each line of it is one of JSON as well."""

from __future__ import annotations

import io
import json
import sys
from typing import cast

import pytest

from bkctl.commands.frame.log_output import only_json_lines
from bkctl.server.life.foreign_lines import LINE_CHARACTERS_MAX, ForeignLines, foreign_lines, stream_of_log
from bkctl.server.life.log_lines import JsonLines


def test_each_line_is_one_of_json_once_it_has_ended() -> None:
    below = io.StringIO()
    lines = ForeignLines(below, JsonLines().format)
    lines.write("bkctl: error: one\n\nTrace")
    assert len(below.getvalue().splitlines()) == 1
    lines.writelines(["back (most recent", " call last)\n", "half"])
    lines.end()
    lines.end()
    found = [json.loads(line) for line in below.getvalue().splitlines()]
    assert [(line["level"], line["message"]) for line in found] == [
        ("error", "error: one"),
        ("warning", "Traceback (most recent call last)"),
        ("warning", "half"),
    ]
    assert not lines.isatty()


def test_a_line_without_an_end_is_cut() -> None:
    below = io.StringIO()
    lines = ForeignLines(below, JsonLines().format)
    lines.write("x" * (LINE_CHARACTERS_MAX + 1))
    lines.end()
    found = [json.loads(line)["message"] for line in below.getvalue().splitlines()]
    assert found == ["x" * LINE_CHARACTERS_MAX, "x"]


def test_the_log_writes_below() -> None:
    own = sys.stderr
    with foreign_lines(JsonLines().format):
        assert sys.stderr is not own
        assert stream_of_log() is own
    assert sys.stderr is own


@pytest.mark.parametrize(
    ("line", "is_json"),
    [
        ("bookie start", True),
        ("bookie start --log-format json -X bookiePort=0", True),
        ("-c prod --quiet bookie start --log-format=json", True),
        ("autorecovery start --log-format wrong", True),
        ("bookie start --log-format text", False),
        ("bookie start --log-format=text", False),
        ("bookie status", False),
        ("-c", False),
        ("doctor", False),
    ],
)
def test_the_lines_of_which_commands(monkeypatch: pytest.MonkeyPatch, line: str, is_json: bool) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with only_json_lines(line.split()):
        sys.stderr.write("bkctl: error: told\n")
    written = cast("io.StringIO", sys.stderr).getvalue()
    assert written.startswith("{") == is_json
