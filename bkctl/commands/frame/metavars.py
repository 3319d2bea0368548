"""Arguments in help as the commands name them: ``[PATH...]``, without the name of a Python type behind it."""

from __future__ import annotations

from functools import partial
from typing import Any

from typer.core import TyperArgument


def show_metavars_alone(command: Any) -> None:
    """Leave the names of types out of the help of a command and of the commands below it."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument) and parameter.metavar is not None:
            shown: Any = parameter
            shown.display_type_rich = _no_type
            shown._usage_display_name = partial(
                _usage, parameter.metavar, required=parameter.required, many=parameter.nargs != 1
            )
    for below in getattr(command, "commands", {}).values():
        show_metavars_alone(below)


def _no_type(*_: Any, **__: Any) -> None:
    """Return None, for the name of a type that is not shown."""


def _usage(metavar: str, *, required: bool, many: bool) -> str:
    """Return an argument as the usage line shows it, in brackets where it may be left out."""
    shown = f"{metavar}..." if many and "..." not in metavar else metavar
    return shown if required or shown.startswith("[") else f"[{shown}]"
