"""The keys in which findings name their next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.output import Key, Schema

if TYPE_CHECKING:
    from bkctl.admin.next_step import NextStep

NEXT_KEYS: Schema = (
    Key("next", "string or null", "the command line to go on with; it asks before it writes"),
    Key(
        "commands", "array", "of argument lists that a script runs in order to end this; empty when none can"
    ),
    Key("instead", "string or null", "why no command ends this and what to do, or what to know before"),
)


def next_keys(step: NextStep | None) -> dict[str, Any]:
    """Return the three keys of a row."""
    if step is None:
        return {"next": None, "commands": [], "instead": None}
    return {"next": step.line, "commands": step.argv, "instead": step.instead}
