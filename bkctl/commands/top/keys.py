"""The keys that ``bkctl top`` prints: of a sample (JSON), and of a bookie's row (table, CSV).

Those of a sample are the fields of ``admin.top.sample``, with the meanings that stand beside them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from bkctl.admin.top.sample import ClusterSample
from bkctl.commands.frame.output import Key, Schema

ROW_SCHEMA: Schema = (
    Key("bookie", "string", "id of the bookie, host:port of its URL where its answer lacks it"),
    Key("mode", "string or null", "rw, ro, starting, stopping; down: it has a cookie and is not registered"),
    Key("adds_per_s", "number or null", "adds answered"),
    Key("reads_per_s", "number or null", "reads answered"),
    Key("add_p99_ms", "number or null", "99 % of the adds were not slower"),
    Key("read_p99_ms", "number or null", "99 % of the reads were not slower"),
    Key("journal_sync_p99_ms", "number or null", "99 % of the journals' fsyncs were not slower"),
    Key("write_cache_fullness", "number or null", "of both halves of all directories, 0 to 1"),
    Key("read_cache_hit_rate", "number or null", "reads answered from the read cache, of those on disk"),
    Key("disk_fullness", "number or null", "of the fullest ledger disk, 0 to 1"),
    Key("bottleneck", "string", "the stage that holds it back, none, or unknown"),
    Key("why", "string", "why, or why there is no answer"),
)

_WORDS = {bool: "bool", int: "int", float: "number", str: "string"}


def _keys_of(kind: type[Any], path: str = "") -> Iterator[Key]:
    """Yield the keys of a sample or of a part of one, each before the keys below it."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        word, below = _described(hint.__origin__)
        yield Key(f"{path}{name}", word, hint.__metadata__[0])
        if below is not None:
            yield from _keys_of(below, f"{path}{name}[]." if word.startswith("array") else f"{path}{name}.")


def _described(of: Any) -> tuple[str, type[Any] | None]:
    """Return the word for a field's type, and the class of the objects in it."""
    if isinstance(of, UnionType):
        (inner,) = (each for each in get_args(of) if each is not NoneType)
        word, below = _described(inner)
        return f"{word} or null", below
    if get_origin(of) is tuple:
        return "array of objects", get_args(of)[0]
    if isinstance(of, type) and is_dataclass(of):
        return "object", of
    return ("string" if issubclass(of, Enum) else _WORDS[of]), None


SAMPLE_SCHEMA: Schema = tuple(_keys_of(ClusterSample))
