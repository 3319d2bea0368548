"""``bkctl doctor`` for people: long advice is a list, with commands on lines of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.doctor.advice import advice_lines
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> DoctoredBookie:
    return DoctoredBookie.of(DEMO, tmp_path / "bookie1")


def test_long_advice_is_a_list_with_commands_to_copy(run_cli: Run, bookie: DoctoredBookie) -> None:
    log = bookie.ledgers / "1.log"
    data = bytearray(log.read_bytes())
    data[5_000:5_600] = b"\xff" * 600
    log.write_bytes(data)
    words = ("doctor", bookie.root, "--skip", "index,journals")
    lines = run_cli(*words, "-o", "table").stdout.splitlines()
    first = lines.index("  do:") + 1
    assert lines[first].startswith("    - Leave the log where it is")
    commands = [line.strip() for line in lines[first:] if line.startswith(" " * 10)]
    assert commands[0] == f"bkctl index check {bookie.ledgers}"
    assert f"bkctl entrylog salvage {bookie.ledgers}/1.log --losses losses.json" in commands
    assert max(len(line) for line in lines[first:] if "bkctl" not in line) <= 110
    # Programs have both: the sentence as it always was, and the list.
    (row,) = from_ndjson(run_cli(*words, "-o", "ndjson").stdout)
    assert "'bkctl entrylog salvage LOG'" in row["instead"]
    assert [step["command"] for step in row["steps"] if step["command"]] == commands


def test_advice_without_steps_is_split_into_sentences() -> None:
    text = (
        "name the disk (mount it; it is there) that has it. Only where it is lost, go on ('bkctl a. b; c') "
        "with care; then look: 'bkctl d'"
    )
    lines = list(advice_lines("know:", {"instead": text, "steps": []}))
    assert lines == [
        "  know:",
        "    - Name the disk (mount it; it is there) that has it",
        "    - Only where it is lost, go on with care:",
        "          bkctl a. b; c",
        "    - Then look:",
        "          bkctl d",
    ]
    assert list(advice_lines("do:", {"instead": "mount it", "steps": []})) == ["  do:       mount it"]


def test_a_command_within_a_sentence_stands_behind_it() -> None:
    text = (
        "put the log in its place again, from where it was moved, or from a copy. "
        "Only if it is lost for good, 'bkctl bookie start --accept-loss' starts without it; "
        "'bkctl a' or 'bkctl b' (not 'bkctl c')"
    )
    assert list(advice_lines("do:", {"instead": text, "steps": []})) == [
        "  do:",
        "    - Put the log in its place again, from where it was moved, or from a copy",
        "    - Only if it is lost for good, this starts without it:",
        "          bkctl bookie start --accept-loss",
        "    - 'bkctl a' or 'bkctl b' (not 'bkctl c')",
    ]


def test_each_way_to_go_on_is_a_step_with_its_command(run_cli: Run, bookie: DoctoredBookie) -> None:
    quarantine = ("entrylog", "quarantine", "1.log", bookie.ledgers)
    assert run_cli(*quarantine, "--yes").exit_code == 0
    lines = run_cli("doctor", bookie.root, "--only", "leftovers", "-o", "table").stdout.splitlines()
    commands = [line.strip() for line in lines if line.startswith(" " * 10)]
    assert commands == [
        f"bkctl entrylog quarantine 1.log {bookie.ledgers} --release",
        f"bkctl entrylog salvage 1.log {bookie.ledgers}",
    ]
    assert run_cli(*quarantine, "--release", "--yes").exit_code == 0
