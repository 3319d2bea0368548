"""A plan as rows, and a step of it for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.output import Key, Schema
from bkctl.commands.frame.terminal_text import escaped

if TYPE_CHECKING:
    from bkctl.admin.repairs.repair_plan import Plan

PLAN_SCHEMA: Schema = (
    Key("number", "int or null", "the step's place in the plan; null for what no command ends"),
    Key("needs", "string or null", "stopped, running or either: what the bookie has to be for it"),
    Key("command", "array or null", "its words"),
    Key("line", "string or null", "the same for a shell"),
    Key("changes", "string", "what it does; for what no command ends, what to do"),
    Key("findings", "array of strings", "what it is for"),
    Key("know", "array of strings", "what to know before"),
)


def block(row: dict[str, Any]) -> str:
    """Return a step for people: in a table's cell the command could not be copied."""
    if row["number"] is None:
        lines = [f"BY HAND {row['changes']}", f"  look:     {row['line']}"]
    else:
        lines = [
            f"STEP {row['number']} (bookie {row['needs']}): {row['line']}",
            f"  changes:  {row['changes']}",
        ]
    lines += [f"  for:      {text}" for text in row["findings"]]
    lines += [f"  know:     {text}" for text in row["know"]]
    return "\n".join(map(escaped, lines)) + "\n\n"


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return the rows of a plan."""
    import shlex

    rows: list[dict[str, Any]] = [
        {
            "number": step.number,
            "needs": step.needs.value,
            "command": list(step.command),
            "line": shlex.join(step.command),
            "changes": step.changes,
            "findings": step.findings,
            "know": step.know,
        }
        for step in plan.steps
    ]
    rows += [
        {
            "number": None,
            "needs": None,
            "command": None,
            "line": one.look,
            "changes": one.instead,
            "findings": [one.finding],
            "know": [],
        }
        for one in plan.by_hand
    ]
    return rows
