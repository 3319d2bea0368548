"""Log lines: JSON with the fields of an event, and a limit for lines that repeat."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from bkctl.errors import RefusedError
from bkctl.server.life.log_lines import (
    KINDS_MAX,
    REPEAT_PERIOD_S,
    REPEATS_MAX,
    JsonLines,
    RepeatLimit,
    log_end_by_error,
)


class Written:
    """What a handler with the product's formatter and limit writes, under a clock that tests set."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(JsonLines())
        self.limit = RepeatLimit(self.handler.handle)
        self.handler.addFilter(self.limit)
        self.now_s = 1_000.0

    def log(self, message: str, *values: object, level: int = logging.ERROR, **fields: object) -> None:
        record = logging.LogRecord("bkctl.disk", level, "", 1, message, values, None)
        record.created = self.now_s
        vars(record).update(fields)
        self.handler.handle(record)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def written() -> Written:
    return Written()


def test_an_event_has_its_fields_beside_the_message(written: Written) -> None:
    written.log("serves port %d", 3181, level=logging.INFO, event="serving", port=3181, bookie="b1:3181")
    assert written.lines == [
        {
            "time": "1970-01-01T00:16:40.000+00:00",
            "level": "info",
            "logger": "bkctl.disk",
            "message": "serves port 3181",
            "event": "serving",
            "port": 3181,
            "bookie": "b1:3181",
        }
    ]


def test_an_exception_is_one_line_with_its_trace(written: Written) -> None:
    error = OSError("no such device")
    record = logging.LogRecord("bkctl", logging.ERROR, "", 1, "it failed", (), (OSError, error, None))
    written.handler.handle(record)
    (line,) = written.lines
    assert line["trace"] == "OSError: no such device"


def test_the_same_line_again_and_again_is_counted_instead_of_written(written: Written) -> None:
    for number in range(REPEATS_MAX + 500):
        written.log("entry %d: read failed", number)
    assert [line["message"] for line in written.lines] == [
        f"entry {number}: read failed" for number in range(REPEATS_MAX)
    ]
    written.now_s += REPEAT_PERIOD_S
    written.log("entry %d: read failed", 9999)
    told, passed = written.lines[REPEATS_MAX:]
    assert (told["event"], told["count"], told["level"]) == ("repeated", 500, "error")
    assert passed["message"] == "entry 9999: read failed"


def test_another_kind_of_line_is_not_held_back_by_the_flood(written: Written) -> None:
    for number in range(REPEATS_MAX * 2):
        written.log("entry %d: read failed", number)
    written.log("the disk is full")
    assert written.lines[-1]["message"] == "the disk is full"


def test_life_cycle_events_and_critical_lines_always_pass(written: Written) -> None:
    for _ in range(REPEATS_MAX * 2):
        written.log("mode", event="mode_changed")
        written.log("the bookie stops", level=logging.CRITICAL)
    assert len(written.lines) == REPEATS_MAX * 4


def test_kinds_are_bounded_and_the_clock_may_go_back(written: Written) -> None:
    for number in range(KINDS_MAX * 2):
        written.log(f"kind {number}")
    assert len(written.limit._kinds) == KINDS_MAX
    for _ in range(REPEATS_MAX * 2):
        written.log("again")
    before = len(written.lines)
    written.now_s -= 3_600
    written.log("again")
    assert len(written.lines) == before + 2  # what was held back, and the line


def test_the_end_of_a_bookie_names_its_exit_code(caplog: pytest.LogCaptureFixture) -> None:
    log_end_by_error(RefusedError("port 3181 is taken"))
    (record,) = caplog.records
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["exit_code"], line["message"]) == ("ended_by_error", 4, "port 3181 is taken")
    assert str(line).count("port 3181 is taken") == 1


def test_the_end_by_a_bug_has_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 // int("0")
    assert log_end_by_error(raised.value) == 7
    (record,) = caplog.records
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["exit_code"], line["message"]) == ("ended_by_error", 7, str(raised.value))
    assert f"ZeroDivisionError: {raised.value}" in line["trace"]


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_values_that_do_not_fit_their_message_make_a_line_too(written: Written) -> None:
    written.log("%d entries", "many")
    written.log("%s", Unspeakable())
    written.log("fine", ratio=float("nan"), keys={("a", 1): 2}, what=Unspeakable())
    written.log("caf\xe9 \u2028 \udc80 \x85")
    first, second, third, fourth = written.lines
    assert "%d entries ('many',)" in first["message"]
    assert "RuntimeError" in second["message"]
    assert (third["message"], third["ratio"], third["what"]) == ("fine", "nan", "<Unspeakable>")
    assert fourth["message"] == "caf\xe9 \u2028 \udc80 \x85"
    assert written.stream.getvalue().isascii()
