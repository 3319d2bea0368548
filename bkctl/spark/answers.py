"""The answers of the tasks of a rebuild, as JSON: text that can only become values of these kinds.

An answer comes from executors and, over Connect, from a server; to unpickle it would be to run what they say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any

from bkctl import errors
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError, StorageError

_ERRORS: Mapping[str, type[BkctlError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, BkctlError) and not issubclass(kind, errors.BookieError)
}


def encode_answer(outcome: object, done: int) -> str:
    """Return the text of a result, or of an error of ours, and of how much was done."""
    return json.dumps([_plain(outcome), done])


def decode_answer(text: object) -> tuple[Any, int]:
    """Return the result or error, and how much was done. Raises ConnectionFailedError for anything else."""
    try:
        outcome, done = json.loads(text if isinstance(text, str) else "")
        return _value(outcome), int(done)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ConnectionFailedError(f"Spark gives an answer that no task of ours makes: {error}") from None


def _kinds() -> Mapping[str, type[Any]]:
    from bkctl.admin.index.rebuild.location_build import Table
    from bkctl.admin.index.rebuild.state import LogManifest
    from bkctl.admin.index.rows.location_runs import Run

    return {kind.__name__: kind for kind in (LogManifest, Run, Table)}


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Integral):  # numpy's
        return int(value)
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, list):  # in a manifest that an earlier run left
        return {"list": [_plain(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, BkctlError):
        return {"error": _name_of(value), "message": _message(value), "facts": _facts(value)}
    kind = type(value).__name__
    found = _kinds()[kind]
    return {
        "kind": kind,
        "fields": {field.name: _plain(getattr(value, field.name)) for field in fields(found)},
    }


def _value(plain: Any) -> Any:
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    if "tuple" in plain:
        return tuple(_value(item) for item in plain["tuple"])
    if "list" in plain:
        return [_value(item) for item in plain["list"]]
    if "bytes" in plain:
        return bytes.fromhex(plain["bytes"])
    if "error" in plain:
        return _ERRORS[plain["error"]](
            str(plain["message"]), **{str(k): _value(v) for k, v in plain["facts"].items()}
        )
    return _kinds()[plain["kind"]](**{name: _value(item) for name, item in plain["fields"].items()})


def _name_of(error: BkctlError) -> str:
    return next(kind.__name__ for kind in type(error).__mro__ if _ERRORS.get(kind.__name__) is kind)


def _message(error: BkctlError) -> str:
    return error.what if isinstance(error, CorruptionError) else str(error)


def _facts(error: BkctlError) -> dict[str, object]:
    names: tuple[str, ...] = ()
    if isinstance(error, CorruptionError):
        names = ("offset", "expected", "found", "path")
    elif isinstance(error, StorageError):
        names = ("path", "offset")
    return {name: getattr(error, name) for name in names}
