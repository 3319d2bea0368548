"""Whatever reaches stderr of a bookie whose log is JSON is a line of JSON, by every way that Python has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bookie_command import TEST_KEYS, WAIT_S

#: Runs the command, and once the bookie serves, writes to stderr in all ways but the log's own.
NOISY = """
import asyncio, logging, os, signal, sys, threading, traceback, warnings
from bkctl.commands.frame import root
from bkctl.server.life import foreground

serving = foreground._log_serving

class Finaliser:
    def __del__(self):
        raise ValueError("in a finaliser")

async def forgotten():
    raise ValueError("in a task that nobody awaits")

def noise(*arguments):
    serving(*arguments)
    print("printed", file=sys.stderr)
    sys.stderr.write("without an end, caf\\u00e9")
    warnings.warn("a warning")
    logging.getLogger("kazoo.client").error("of a library: %s", "x\\ny")
    logging.getLogger("aiohttp.server").error("%d does not fit", "this")
    logging.getLogger("bkctl").error("odd", extra={"ratio": float("inf"), "who": object()})
    try:
        raise ValueError("caught")
    except ValueError:
        traceback.print_exc()
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    Finaliser()
    loop = asyncio.get_running_loop()
    loop.create_task(forgotten())
    loop.call_soon(lambda: 1 / 0)
    loop.call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)

foreground._log_serving = noise
sys.exit(root.run(sys.argv[1:]))
"""


def lines_of(words: list[str], directory: Path, code: int) -> list[dict[str, str]]:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        words, cwd=directory, capture_output=True, text=True, timeout=WAIT_S, check=False, env=environment
    )
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_every_way_to_stderr_ends_in_a_line_of_json(tmp_path: Path) -> None:
    keys = [word for key, value in TEST_KEYS.items() for word in ("-X", f"{key}={value}")]
    found = lines_of([sys.executable, "-c", NOISY, "bookie", "start", *keys], tmp_path, 0)
    messages = [line["message"] for line in found]
    for text in (
        "printed",
        "without an end, caf\xe9",
        "a warning",
        "of a library: x\ny",
        "%d does not fit ('this',)",
        "odd",
        "ValueError: caught",
        "division by zero",
        "in a finaliser",
    ):
        assert any(text in message for message in messages), text
    traces = "".join(line.get("trace", "") for line in found)
    assert "in a task that nobody awaits" in traces
    assert traces.count("ZeroDivisionError") >= 2, "of the thread and of the loop"
    assert "stopped" in messages


@pytest.mark.parametrize(
    "words", [("--bogus",), ("--log-format", "xml"), ("-X", "bookiePrt=1"), ("-o", "xml")]
)
def test_a_start_that_is_typed_wrongly_says_so_in_json(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = lines_of([sys.executable, "-m", "bkctl", "bookie", "start", *words], tmp_path, 2)
    assert found
    assert {line["level"] for line in found} <= {"error", "warning", "critical"}
    assert words[-1].partition("=")[0] in found[0]["message"]


def test_autorecovery_ends_by_an_error_in_json(tmp_path: Path) -> None:
    words = ["autorecovery", "start", "--metadata", f"embedded://{tmp_path}/none.db", "-X", "bookieId=b"]
    found = lines_of([sys.executable, "-m", "bkctl", *words], tmp_path, 6)
    assert found[-1]["event"] == "ended_by_error"
