"""Every machine begins with a table of its transitions, with the instructions and states that it has."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "bkctl"
#: What a method of ``Exchange`` asks for, in the words of ``bkctl.client.machine``.
INSTRUCTIONS = {
    "send": "Send",
    "set_timer": "SetTimer",
    "read_metadata": "ReadMetadata",
    "write_metadata": "WriteMetadata",
    "create_metadata": "CreateMetadata",
    "delete_metadata": "DeleteMetadata",
    "new_ledger_id": "NewLedgerId",
    "choose_bookies": "ChooseBookies",
    "finish": "FINISHED",
}
#: Parts of a machine that ask by themselves, each with a table of its own.
PARTS = {"EntryRead", "EntryCopy", "MetadataUpdate"}
WORDS = {*INSTRUCTIONS.values(), *PARTS}
ENDS = {"FINISHED", "DONE", "COMPLETE", "DROPPED"}
#: States that a handle has for its caller, and steps: the instructions are in the tables of the parts.
OF_THE_CALLER = {"client/ops/write.py", "client/ops/recovery.py"}
RULE = re.compile(r"=+ =+ =+\Z")
#: The next state stands at the begin of a phrase.
FOLLOWS = re.compile(r"(?:^|[;:] |\belse )([A-Z]{3,})\b")


@dataclass(frozen=True)
class Row:
    states: list[str]
    effect: str


def asked_by(tree: ast.Module) -> set[str]:
    """Return the instructions and parts that a module asks for."""
    found: set[str] = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        of = call.func
        if isinstance(of, ast.Attribute) and ast.unparse(of.value).endswith("exchange"):
            found |= {INSTRUCTIONS[of.attr]} if of.attr in INSTRUCTIONS else set()
        elif isinstance(of, ast.Name) and of.id in PARTS:
            found.add(of.id)
    return found


def tables_of(tree: ast.Module) -> list[list[Row]]:
    """Return the rows of every table of states in the docstring of a module."""
    lines = (ast.get_docstring(tree) or "").splitlines()
    rules = [number for number, line in enumerate(lines) if RULE.match(line)]
    tables = []
    for first, second, last in zip(rules[::3], rules[1::3], rules[2::3], strict=True):
        if lines[first + 1].startswith("state "):
            left, middle, _ = (len(word) for word in lines[first].split())
            tables.append(rows_of(lines[second + 1 : last], left, left + middle + 2))
    return tables


def rows_of(lines: list[str], left: int, right: int) -> list[Row]:
    """Join continued lines. A row begins with a state, unless the state above ends with a comma."""
    rows: list[Row] = []
    goes_on = False
    for line in lines:
        state, effect = line[:left].strip(), line[right:].strip()
        if rows and (not state or goes_on):
            rows[-1] = Row([*rows[-1].states, *filter(None, [state])], f"{rows[-1].effect} {effect}")
        else:
            rows.append(Row([state.rstrip(",")], effect))
        goes_on = state.endswith(",")
    return rows


def is_machine(tree: ast.Module) -> bool:
    """Whether a module has a machine, or a part of one."""
    return any(
        isinstance(node, ast.ClassDef)
        and (node.name in PARTS or "OperationMachine" in {ast.unparse(base) for base in node.bases})
        for node in ast.walk(tree)
    )


def faults(tree: ast.Module, *, instructions: bool = True) -> list[str]:
    """Return what the tables of a module have too much and too little."""
    found, named, has_end = [], set(), False
    for rows in tables_of(tree):
        states = {state for row in rows for state in row.states}
        text = " ".join(row.effect for row in rows)
        words = set(re.findall(r"\b\w+\b", text))
        named |= words & WORDS
        has_end = has_end or "DONE" in words
        found += [f"nothing leads to {state}" for state in sorted(states - words - {"NEW", "each", *ENDS})]
        followed = {state for row in rows for state in FOLLOWS.findall(row.effect)}
        found += [f"{state} has no row" for state in sorted(followed - states - ENDS)]
    if instructions:
        # A part that is all of a machine is done where the machine has finished.
        asked = asked_by(tree) - ({"FINISHED"} if has_end and "FINISHED" not in named else set())
        own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        found += [f"{word} is not named" for word in sorted(asked - named - own)]
        found += [f"{word} is not asked for" for word in sorted(named - asked)]
    return found


MACHINES = {
    str(path.relative_to(PACKAGE)): tree
    for room in ("client/ops", "replication")
    for path in sorted((PACKAGE / room).glob("*.py"))
    if is_machine(tree := ast.parse(path.read_text())) and path.name != "exchange.py"
}
#: Below this the machines were not found, and nothing would be tested.
MACHINES_MIN = 15


def test_the_machines_are_found() -> None:
    assert len(MACHINES) >= MACHINES_MIN


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_begins_with_its_table(name: str) -> None:
    assert "====" in (ast.get_docstring(MACHINES[name]) or ""), f"{name} has no table"
    assert faults(MACHINES[name], instructions=name not in OF_THE_CALLER) == []


def test_the_states_of_a_connection_are_those_of_its_table() -> None:
    tree = ast.parse((PACKAGE / "protocol" / "connection.py").read_text())
    server, _ = tables_of(tree)
    (declared,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "_State"]
    names = {ast.unparse(node.targets[0]) for node in declared.body if isinstance(node, ast.Assign)}
    assert {state for row in server for state in row.states} == names


TABLE = '''"""A machine.

===== ===== ==================
state input next state, effect
===== ===== ==================
NEW   start GOING, Send
GOING again GOING
GOING other FINISHED
===== ===== ==================
"""

class Machine(OperationMachine):
    def _begin(self) -> None:
        self.exchange.send("bookie", 1, self._answered)

    def _answered(self, event: object) -> None:
        self.exchange.finish()
'''


def test_a_table_that_is_not_true_is_found() -> None:
    assert faults(ast.parse(TABLE)) == []
    assert faults(ast.parse(TABLE.replace("GOING, Send", "GOING"))) == ["Send is not named"]
    assert faults(ast.parse(TABLE.replace("GOING, Send", "GOING, Send, SetTimer"))) == [
        "SetTimer is not asked for"
    ]
    assert faults(ast.parse(TABLE.replace("other FINISHED", "other RESTING"))) == [
        "RESTING has no row",
        "FINISHED is not named",
    ]
    assert faults(ast.parse(TABLE.replace("again GOING", "again NEW").replace("GOING, Send", "Send"))) == [
        "nothing leads to GOING"
    ]
