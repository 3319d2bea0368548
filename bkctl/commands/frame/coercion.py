"""Plain option values are converted here instead of by pydantic.

typer 0.29 builds a pydantic adapter for every parameter, ``--help`` included; importing pydantic costs
about 90 ms of a cold start that should take 200. Strings, integers, flags, enums, lists of these and values
with a ``parser`` need none of it. Every other kind of parameter still goes through typer's own way.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import typer
import typer.core

_SEAM = "build_runtime_param"
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"", "0", "false", "f", "no", "n", "off"})


@dataclass(frozen=True, slots=True)
class PlainValue:
    """Has the one method that typer calls on a parameter's converter."""

    convert: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self.convert(item) for item in value] if several else self.convert(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def convert_plain_values_directly() -> None:
    """Put :class:`PlainValue` in front of typer's converters; a typer without this seam is left alone."""
    original = getattr(typer.core, _SEAM, None)
    if original is None or getattr(original, "plain_first", False):
        return

    def build(descriptor: Any) -> Any:
        convert = converter(descriptor.annotation, descriptor.parameter_info)
        return original(descriptor) if convert is None else PlainValue(convert)

    build.plain_first = True  # type: ignore[attr-defined]
    setattr(typer.core, _SEAM, build)


def converter(annotation: Any, declared: Any) -> Callable[[Any], Any] | None:
    """Return how to convert one value of a plain annotation; None where typer should do it."""
    if get_origin(annotation) is list:
        annotation = get_args(annotation)[0]
    if declared.parser is not None:
        parser: Callable[[Any], Any] = declared.parser
        return parser
    if not isinstance(annotation, type) or declared.min is not None or declared.max is not None:
        return None
    if issubclass(annotation, enum.Enum):
        return _choice(annotation)
    return _BY_TYPE.get(annotation)


def _choice(choices: type[enum.Enum]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            return choices(value)
        except ValueError:
            for choice in choices:
                if str(choice.value).casefold() == str(value).casefold():
                    return choice
            known = ", ".join(str(choice.value) for choice in choices)
            raise ValueError(f"{value!r} is not one of {known}.") from None

    return convert


def _integer(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number.") from None


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(f"{value!r} is neither true nor false.")


_BY_TYPE: dict[type, Callable[[Any], Any]] = {str: str, int: _integer, bool: _flag}
