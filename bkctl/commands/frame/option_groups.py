"""Groups of options, each declared once and taken by a command as one parameter.

A group is a frozen dataclass whose fields are declared as a command's parameters are, ``name: Annotated[type,
typer.Option(...)] = default``; a field may be a group itself. :func:`takes` shows typer the options in place
of the group, and gives the command the group with their values::

    @app.command("list")
    @takes(LIST_SCHEMA)
    def list_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
        with open_cluster(cluster) as store:
            ...

Options stand in the help at the place of their group, in the order of its fields.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from bkctl.commands.frame.contexts import changing_cluster, protected_context
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.options import schema_option
from bkctl.commands.frame.output import Schema
from bkctl.commands.frame.view_options import ViewOptions, showing

_SCHEMA, _VIEW, _WATCH = "schema", "view", "watching"
#: A terminal's way to be cleared: the cursor to the corner, then everything behind it.
_CLEAR = "\x1b[H\x1b[2J"
_WATCH_MS_MIN = 100


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Whether a command is made again and again."""

    watch: Annotated[
        int | None,
        typer.Option(
            "--watch",
            metavar="TIME",
            parser=parse_duration_ms,
            help="Show the output again every TIME, such as 5s, until Ctrl-C.",
        ),
    ] = None


def takes(
    schema: Schema | None = None, *, one: bool = False, rows: Schema | None = None, watch: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that expands the groups of a command.

    With a schema it also adds ``--schema``, and the choice of rows and columns unless the command is about
    ``one`` thing; ``rows`` are the keys of what such a command lists in a table. ``watch`` adds ``--watch``.
    """
    listed = rows if one else schema

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        groups = {name: hint for name, hint in hints.items() if _is_group(hint)}
        parameters = [
            option
            for parameter in signature(command).parameters.values()
            for option in _options(parameter.name, hints[parameter.name], parameter.default)
        ]
        if watch:
            parameters += _options(_WATCH, WatchOptions, Parameter.empty)
        if schema is not None:
            if listed is not None:
                parameters += _options(_VIEW, ViewOptions, Parameter.empty)
            parameters += _options(_SCHEMA, Annotated[bool, schema_option(schema)], False)

        tags = (command.__doc__ or "").partition("\n")[0]
        changes = "[online]" in tags and "[writes]" in tags

        def run(**values: Any) -> None:
            values.pop(_SCHEMA, None)
            view, watching = ViewOptions(), WatchOptions()
            if listed is not None:
                view = _filled(ViewOptions, values)
                view.check([key.key for key in listed])
            if watch:
                watching = _filled(WatchOptions, values)
            taken = {name: _filled(group, values) for name, group in groups.items()}
            asks = "yes" in values
            with showing(view), changing_cluster(changes):
                if changes and not asks and not values.get("dry_run"):
                    _ask_where_protected(command)
                _repeat(lambda: command(**values, **taken), watching.watch)

        run.__name__, run.__qualname__ = command.__name__, command.__qualname__
        run.__module__, run.__doc__ = command.__module__, command.__doc__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(run)["__signature__"] = Signature(parameters)
        return run

    return decorate


def _ask_where_protected(command: Callable[..., None]) -> None:
    """Ask for the name of a protected context before a command that writes and has no question of its own."""
    from bkctl.commands.frame.confirmation import ask_for_name

    if (name := protected_context()) is not None:
        what = (command.__doc__ or "write").partition("\n")[0].rpartition("] ")[2].rstrip(".")
        ask_for_name(name, f"{what[:1].lower()}{what[1:]}")


def _repeat(command: Callable[[], None], interval_ms: int | None) -> None:
    """Run a command once, or every interval until it is interrupted; a terminal shows the last time only."""
    if interval_ms is None:
        command()
        return
    while True:
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        with suppress(typer.Exit):  # the exit code of one round is not that of the watch
            command()
        sys.stdout.flush()
        time.sleep(max(interval_ms, _WATCH_MS_MIN) / 1000)


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _options(name: str, hint: Any, default: Any) -> Iterator[Parameter]:
    """Yield the parameters that typer sees for one parameter of a command, or for one field of a group."""
    if not _is_group(hint):
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)
        return
    for field in _fields(hint):
        yield from _options(field.name, field.hint, field.default)


def _filled(group: Any, values: dict[str, Any]) -> Any:
    """Return the group with its values, which are taken out of the values of the command line."""
    return group(
        **{
            field.name: _filled(field.hint, values) if _is_group(field.hint) else values.pop(field.name)
            for field in _fields(group)
        }
    )


class _Field(NamedTuple):
    name: str
    hint: Any
    default: Any


@cache  # most commands take one of few groups, and a start of the program should not take long
def _fields(group: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(group, include_extras=True)
    return tuple(
        _Field(each.name, hints[each.name], Parameter.empty if each.default is MISSING else each.default)
        for each in fields(group)
    )
