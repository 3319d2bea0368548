"""A record whose size word alone is damaged: its digest proves the rest, but no bookie reads it there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.checked_bookie import CheckedBookie
from tests.support.rows import from_ndjson

Run = Callable[..., Any]


def kinds(run_cli: Run, bookie: CheckedBookie) -> set[str]:
    return {row["kind"] for row in from_ndjson(run_cli("index", "check", bookie.root, "-o", "ndjson").stdout)}


def test_a_rebuild_does_not_name_it_and_a_salvage_brings_it_back(run_cli: Run, tmp_path: Path) -> None:
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([1, 2])
    _, place = bookie.locations[0, 1, 5]
    bookie.write()
    log = bookie.current() / "0.log"
    data = bytearray(log.read_bytes())
    data[place - 4] ^= 0x20
    log.write_bytes(data)
    words = ("index", "rebuild", bookie.root, "--yes")
    assert run_cli(*words).exit_code == 4, "the log is damaged"
    done = run_cli(*words, "--accept-loss")
    assert (done.exit_code, "limbo_set" in done.stderr) == (1, True), done.stderr
    assert kinds(run_cli, bookie) == {"damaged_log", "limbo"}
    assert run_cli("index", "get", "1", "5", bookie.current()).exit_code == 6
    assert run_cli("entrylog", "salvage", log, "--yes").exit_code in (0, 1)
    assert run_cli("index", "get", "1", "5", bookie.current()).exit_code == 0
    assert kinds(run_cli, bookie) == {"limbo"}
