"""A sample as JSON and back: what ``--once -o json`` prints and a recording holds a line of.

The keys are the names of the fields in ``sample``, enums are their values. Reading, a key that is missing has
its default and one that is not known is passed over, so that recordings outlive versions.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing

from bkctl.admin.top.sample import ClusterSample


def encode_sample(sample: ClusterSample) -> str:
    """Encode a sample as one line of JSON, without its newline."""
    return json.dumps(as_values(sample), separators=(",", ":"), allow_nan=False)


def decode_sample(text: str | bytes) -> ClusterSample:
    """Decode the sample of a line. Raises ValueError saying what is wrong with it."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    found = _read(values, ClusterSample, "sample")
    assert isinstance(found, ClusterSample)
    return found


def as_values(value: object) -> object:
    """Return plain values for JSON of a sample or a part of one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: as_values(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [as_values(each) for each in value]
    return value


@functools.cache
def _fields(kind: type) -> dict[str, object]:
    """Find the types of a dataclass's fields."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _required(kind: type) -> frozenset[str]:
    return frozenset(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


def _read(value: object, kind: object, where: str) -> object:
    """Read ``value`` as a ``kind``.

    A kind is a dataclass, an enum, a tuple of these, a number, text, or None with these.
    """
    if isinstance(kind, types.UnionType):
        if value is None and type(None) in kind.__args__:
            return None
        (kind,) = (each for each in kind.__args__ if each is not type(None))
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list")
        item = typing.get_args(kind)[0]
        return tuple(_read(each, item, f"{where}[{number}]") for number, each in enumerate(value))
    assert isinstance(kind, type)
    if dataclasses.is_dataclass(kind):
        return _read_fields(value, kind, where)
    if issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"{where}: {value!r} is no {kind.__name__.lower()}") from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}")
    return value


def _read_fields(value: object, kind: type, where: str) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object")  # noqa: TRY004 - of a file's text, not of a call
    missing = _required(kind) - value.keys()
    if missing:
        raise ValueError(f"{where}: no {', '.join(sorted(missing))}")
    found = {
        name: _read(value[name], hint, f"{where}.{name}")
        for name, hint in _fields(kind).items()
        if name in value
    }
    made: object = kind(**found)
    return made
