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

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, get_type_hints

from bkctl.commands.frame.options import schema_option
from bkctl.commands.frame.output import Schema

_SCHEMA = "schema"


def takes(schema: Schema | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that expands the groups of a command; with a schema it also adds ``--schema``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        groups = {name: hint for name, hint in hints.items() if _is_group(hint)}
        parameters = [
            option
            for parameter in signature(command).parameters.values()
            for option in _options(parameter.name, hints[parameter.name], parameter.default)
        ]
        if schema is not None:
            parameters += _options(_SCHEMA, Annotated[bool, schema_option(schema)], False)

        def run(**values: Any) -> None:
            values.pop(_SCHEMA, None)
            taken = {name: _filled(group, values) for name, group in groups.items()}
            command(**values, **taken)

        run.__name__, run.__qualname__ = command.__name__, command.__qualname__
        run.__module__, run.__doc__ = command.__module__, command.__doc__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(run)["__signature__"] = Signature(parameters)
        return run

    return decorate


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
