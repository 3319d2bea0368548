"""A plan has each command once, what needs the bookie stopped first; its runs go on where they stopped."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bkctl
from bkctl.admin.repairs.plan_run import PlanLog, run_plan, still_done, strongest
from bkctl.admin.repairs.repair_plan import STEP_VERBS, Bound, Needs, Plan, encode_plan, plan_in, plan_of
from bkctl.errors import CorruptionError, UsageError
from bkctl.vfs import PosixFileSystem
from tests.support.manual_clock import ManualClock

CLUSTER = ("--metadata-uri", "zk://z/ledgers")
REBUILD = ["bkctl", "index", "rebuild", "/b", "--yes"]
MARK = ["bkctl", "lastmark", "set", "/b", "--yes"]


def row(
    kind: str, *commands: list[str], bookie: str = "b:3181", instead: str | None = None
) -> dict[str, Any]:
    return {
        "bookie": bookie,
        "kind": kind,
        "severity": "error",
        "dir": "/b",
        "path": None,
        "found": f"found {kind}",
        "commands": list(commands),
        "next": None,
        "instead": instead,
    }


def described(command: Sequence[str]) -> tuple[Needs, str]:
    return (Needs.RUNNING if command[1] == "ledger" else Needs.STOPPED), f"Does {command[2]}."


def plan(*rows: dict[str, Any], cluster: Sequence[str] = CLUSTER) -> Plan:
    return plan_of(rows, ["bkctl", "doctor", "/b"], cluster, described)


def test_commands_stand_once_in_their_order_and_copies_come_last() -> None:
    made = plan(
        row("limbo"),
        row("lost_index", REBUILD, instead="know this"),
        row("no_location", REBUILD),
        row("no_mark", MARK),
        row("full_disk", instead="make room"),
    )
    assert [list(step.command[:4]) for step in made.steps] == [
        MARK[:4],
        REBUILD[:4],
        ["bkctl", "ledger", "repair", "--bookie"],
    ]
    assert [step.number for step in made.steps] == [1, 2, 3]
    assert [step.needs for step in made.steps] == [Needs.STOPPED, Needs.STOPPED, Needs.RUNNING]
    assert made.steps[1].know == ["know this"]
    assert [text.split(":")[0] for text in made.steps[1].findings] == [
        "error lost_index",
        "error no_location",
    ]
    assert made.steps[2].command[4:] == ("b:3181", *CLUSTER, "--yes")
    (by_hand,) = made.by_hand
    assert by_hand.instead == "make room"
    assert plan_in(encode_plan(made)) == made


def test_rows_of_ledgers_are_rebuilt_before_a_lost_disk_adds_to_them() -> None:
    rows = ["bkctl", "index", "rebuild", "/b", "--ledgers", "--yes"]
    disk = ["bkctl", "bookie", "rebuild", "--conf", "c", "--yes"]
    cookie = ["bkctl", "cookie", "create", "/b", "--yes"]
    made = plan(
        row("lost_index", REBUILD), row("no_directory", disk), row("broken", rows), row("no_cookie", cookie)
    )
    assert [
        list(step.command[:2]) + ["--ledgers"] * ("--ledgers" in step.command) for step in made.steps[:4]
    ] == [
        ["bkctl", "cookie"],
        ["bkctl", "index", "--ledgers"],
        ["bkctl", "bookie"],
        ["bkctl", "index"],
    ]


def test_without_a_metadata_store_or_a_name_nobody_copies() -> None:
    for made in (plan(row("limbo"), cluster=()), plan(row("limbo", bookie="/data/b"))):
        assert (made.steps, len(made.by_hand)) == ((), 1)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "x"},
        {"version": 3},
        {"version": 0},
        {"directories": None},
        {"directories": [{"path": "relative", "bookie": None, "instance": None}]},
        {"directories": [{"path": "/b", "bookie": 1, "instance": None}]},
        {"working_directory": "relative"},
        {"steps": [{"number": 1}]},
        {
            "steps": [
                {
                    "number": 1,
                    "command": ["rm", "-rf"],
                    "needs": "stopped",
                    "changes": "",
                    "findings": [],
                    "know": [],
                }
            ]
        },
        {
            "steps": [
                {
                    "number": 2,
                    "command": ["bkctl"],
                    "needs": "stopped",
                    "changes": "",
                    "findings": [],
                    "know": [],
                }
            ]
        },
        {"steps": {}},
        {"by_hand": {}},
        {"version": True},
        {"examined": ["bkctl", "a\0b"]},
    ],
)
def test_what_is_no_plan_is_refused(change: dict[str, Any]) -> None:
    document = json.loads(encode_plan(plan(row("no_mark", MARK))))
    with pytest.raises(UsageError, match="not a plan"):
        plan_in(json.dumps(document | change).encode())
    with pytest.raises(UsageError):
        plan_in(b"[[")


@pytest.mark.parametrize(
    "change",
    [
        {"number": math.inf},
        {"number": 1.0},
        {"number": 1.9},
        {"number": True},
        {"command": ["bkctl", "lastmark", "set", "a\0b"]},
        {"command": ["bkctl", "lastmark", "set", "\ud800x"]},
        {"command": ["bkctl", "lastmark", "set", "x" * (128 << 10)]},
        {"command": ["bkctl", "repair", "run", "plan.json", "--yes"]},
        {"command": ["bkctl", "--quiet", "repair", "run", "plan.json", "--yes"]},
        {"command": ["bkctl", "ledger", "delete", "7", "--yes"]},
        {"command": ["bkctl"]},
        {"findings": "text"},
        {"know": [1]},
        {"changes": None},
    ],
)
def test_a_step_that_no_plan_has_is_refused(change: dict[str, Any]) -> None:
    document = json.loads(encode_plan(plan(row("no_mark", MARK))))
    document["steps"][0] |= change
    with pytest.raises(UsageError, match="not a plan"):
        plan_in(json.dumps(document).encode())


def test_a_plan_of_the_first_version_is_bound_to_nothing() -> None:
    made = dataclasses.replace(
        plan(row("no_mark", MARK)),
        directories=(Bound("/b/current", "b:3181", "one"),),
        working_directory="/w",
    )
    assert plan_in(encode_plan(made)) == made
    document = json.loads(encode_plan(made)) | {"version": 1}
    del document["directories"], document["working_directory"]
    old = plan_in(json.dumps(document).encode())
    assert (old.steps, old.directories, old.working_directory) == (made.steps, (), None)


def test_a_name_that_is_no_utf8_stands_in_a_plan() -> None:
    made = plan(row("no_mark", ["bkctl", "lastmark", "set", os.fsdecode(b"/b\xff"), "--yes"]))
    assert plan_in(encode_plan(made)) == made


def test_every_command_that_a_finding_names_may_stand_in_a_plan() -> None:
    named = set()
    for path in sorted(Path(bkctl.__file__).parent.rglob("*.py")):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "ended_by" in text else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "ended_by":
                for words in call.args:
                    first = getattr(words, "elts", [])[:2]
                    if all(isinstance(word, ast.Constant) for word in first) and first:
                        named.add(tuple(word.value for word in first))
    assert len(named) > 8
    assert named <= STEP_VERBS


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=9)
    | st.sampled_from(["bkctl", "repair", "run", "undo", "number", "command", "\0", "\ud800", "stopped"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Return each place in a document, as what holds it and its key there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [spot for key in keys for spot in [(value, key), *spots(value[key])]]


@given(st.data())
def test_a_mangled_plan_is_refused_or_is_one_that_can_be_run(data: st.DataObject) -> None:
    rows = (row("lost_index", REBUILD, MARK), row("limbo"), row("full_disk", instead="make room"))
    bound = (Bound("/b/current", "b:3181", "one"), Bound("/c/current", None, None))
    made = dataclasses.replace(plan(*rows), directories=bound, working_directory="/w")
    document: Any = json.loads(encode_plan(made))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(spots(document) or [([document], 0)]))
        if data.draw(st.booleans()):
            holder[key] = data.draw(JSON_VALUES)
        elif isinstance(holder, dict):
            del holder[key]
        else:
            holder.insert(key, data.draw(JSON_VALUES))
    content = json.dumps(document).encode()
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content)))
        content = content[:place] + data.draw(st.binary(max_size=4)) + content[place + 1 :]
    try:
        made = plan_in(content)
    except UsageError:
        return
    assert plan_in(encode_plan(made)) == made
    assert [step.number for step in made.steps] == list(range(1, len(made.steps) + 1))
    for step in made.steps:
        assert step.verb in STEP_VERBS
        assert all(b"\0" not in os.fsencode(word) for word in step.command)


class Killed(BaseException):
    """The process is gone."""


def test_a_run_goes_on_behind_the_last_step_that_was_done(tmp_path: Path) -> None:
    made = plan(row("limbo"), row("lost_index", REBUILD), row("no_mark", MARK))
    path = str(tmp_path / "plan.log")
    codes = {"lastmark": [0], "index": [4, 4, 1], "ledger": [3, 0]}
    ran: list[str] = []

    def run(command: Sequence[str]) -> int:
        ran.append(command[1])
        if len(ran) == 3:
            raise Killed
        return codes[command[1]].pop(0)

    def once() -> list[Any]:
        return list(run_plan(made, PlanLog(PosixFileSystem(), path, ManualClock()), run))

    ends = once()
    assert [(end.exit_code, end.is_done) for end in ends] == [(0, True), (4, False)]
    assert "stop the bookie" in ends[-1].advice
    with pytest.raises(Killed):
        once()
    with open(path, "ab") as stream:
        stream.write(b'{"event": "half')  # a power cut in the middle of a line
    assert [end.was_done for end in once()] == [True, False]
    ends = once()
    assert [(end.exit_code, end.was_done) for end in ends] == [(0, True), (1, False), (3, False)]
    assert "start the bookie" in ends[-1].advice
    assert [end.exit_code for end in once()] == [0, 1, 0]
    assert [end.was_done for end in once()] == [True] * 3
    assert ran == ["lastmark", "index", "index", "index", "index", "ledger", "ledger"]


def test_a_step_that_was_undone_is_run_again(tmp_path: Path) -> None:
    """So is the copy from replicas behind it: what it had copied is gone with a snapshot that is put back."""
    made = plan(row("lost_index", REBUILD), row("no_mark", MARK))
    path, records, ran = str(tmp_path / "plan.log"), {"older"}, []

    def run(command: Sequence[str]) -> int:
        ran.append(command[1])
        records.add(f"{command[1]}-{len(ran)}")
        return 0

    def once() -> list[bool]:
        log = PlanLog(PosixFileSystem(), path, ManualClock())
        return [end.was_done for end in run_plan(made, log, run, records=lambda: set(records))]

    assert once() == [False] * 3
    assert once() == [True] * 3
    first, second, third = ran
    records.remove(f"{second}-2")
    done = still_done(made, PlanLog(PosixFileSystem(), path, ManualClock()), records)
    assert [step.command[1] for step in made.steps if step.number not in done] == [second, third]
    assert once() == [True, False, False]
    records.remove("older")
    assert once() == [True] * 3
    records.remove(f"{first}-1")
    assert once() == [False, True, False]
    assert ran == [first, second, third, second, third, first, third]


@pytest.mark.parametrize("undone", [False, True])
def test_what_a_step_had_lost_when_it_was_cut_off_is_told(tmp_path: Path, undone: bool) -> None:
    """It was killed behind its repair, and finds nothing to do when it is run again."""
    made = plan(row("damaged_journal", ["bkctl", "journal", "salvage", "/b", "--yes"]), cluster=())
    path, records = str(tmp_path / "plan.log"), {"older"}

    def killed(_: Sequence[str]) -> int:
        records.add("salvage")
        raise KeyboardInterrupt

    def once(run: Callable[[Sequence[str]], int]) -> list[tuple[int, bool]]:
        log = PlanLog(PosixFileSystem(), path, ManualClock())
        ends = run_plan(made, log, run, records=lambda: set(records))
        return [(end.exit_code, end.was_done) for end in ends]

    with pytest.raises(KeyboardInterrupt):
        once(killed)
    if undone:
        records.remove("salvage")
    assert once(lambda _: 0) == [(0 if undone else 1, False)]
    records.discard("salvage")
    assert once(lambda _: 0) == [(0, undone)], "taken back, it is run again"
    assert once(lambda _: 0) == [(0, True)]


def test_a_salvage_that_could_not_check_every_entry_is_done(tmp_path: Path) -> None:
    """Its exit code of 3 says so; of a copy from replicas it says that it did not come to its end."""
    salvage = ["bkctl", "journal", "salvage", "/b", "--in-place", "--yes"]
    made = plan(row("damaged_journal", salvage), row("lost_index", REBUILD))
    path = str(tmp_path / "plan.log")

    def once() -> list[tuple[str, bool, bool]]:
        log = PlanLog(PosixFileSystem(), path, ManualClock())
        ends = run_plan(made, log, lambda command: 0 if command[1] == "index" else 3)
        return [(end.step.command[1], end.is_done, end.was_done) for end in ends]

    assert once() == [("index", True, False), ("journal", True, False), ("ledger", False, False)]
    assert once() == [("index", True, True), ("journal", True, True), ("ledger", False, False)]


@pytest.mark.parametrize("code", [1, 3])
def test_what_is_done_in_part_is_no_end_of_a_run(tmp_path: Path, code: int) -> None:
    salvage = ["bkctl", "entrylog", "salvage", "/b/1.log", "--yes"]
    made = plan(row("limbo"), row("damaged_log", salvage), row("lost_index", REBUILD), row("no_mark", MARK))
    path = str(tmp_path / "plan.log")

    def once(failing: str = "", failed: int = code) -> list[tuple[str, int, bool]]:
        log = PlanLog(PosixFileSystem(), path, ManualClock())
        ends = run_plan(made, log, lambda command: failed if command[1] == failing else code)
        return [(end.step.command[1], end.exit_code, end.was_done) for end in ends]

    for stopping in (2, 4, 5, 6, 7, 130):
        assert [end[1] for end in once("lastmark", stopping)] == [stopping]
    assert [end[:2] for end in once()] == [
        (name, code) for name in ("lastmark", "index", "entrylog", "ledger")
    ]
    assert [end[2] for end in once()] == [True, True, True, code == 1]


def test_the_strongest_code_of_steps_counts() -> None:
    assert strongest([]) == 0
    assert strongest([0, 1, 0]) == 1
    assert strongest([1, 3, 0]) == 3
    assert strongest([3, 4, 1]) == 4


def test_a_log_of_another_plan_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.log")
    list(
        run_plan(
            plan(row("no_mark", MARK)), PlanLog(PosixFileSystem(), path, ManualClock()), lambda command: 0
        )
    )
    with pytest.raises(CorruptionError):
        list(
            run_plan(
                plan(row("lost_index", REBUILD)),
                PlanLog(PosixFileSystem(), path, ManualClock()),
                lambda command: 0,
            )
        )
