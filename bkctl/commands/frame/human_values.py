"""Values as people read them in a table: sizes, shares, times, lists, and verdicts in their colours.

JSON, NDJSON and CSV have the exact values; a table is for eyes. The meaning of a value follows from its key:
``bytes`` and ``..._bytes`` count bytes, ``share``, ``..._ratio`` and the like are parts of a whole,
``..._ms`` is a time when it is as large as a time since 1970 is.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import os
import time
from collections.abc import Mapping
from typing import Any

#: Stands where there is nothing to show: a blank would look like a line that was cut off.
NOTHING = "-"
#: Keys that count bytes although their name does not say so.
_BYTE_KEYS = {"bytes", "length"}
#: Keys with names and values, of which the values are bytes in base64.
_BASE64_KEYS = {"custom_metadata"}
#: Keys whose few bytes are looked at one by one.
_EXACT_KEYS = {"key_bytes", "payload_bytes"}
#: How keys end whose numbers are parts of a whole, 0 to 1. A threshold is none of them: it is shown as it is
#: written on a command line.
_SHARE_ENDINGS = ("share", "share_not_judged", "_ratio", "_fullness", "_hit_rate")
#: The least share that is not rounded to nothing.
_SHARE_MIN = 0.0005
#: A number of milliseconds this large is a time since 1970 (after 1973), no duration.
_TIME_MS_MIN = 100_000_000_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

#: Words of verdicts, by the colour that says how good they are.
_COLOURS = {
    "green": ("clean", "healthy", "ok", "rw", "whole", "done", "repaired", "present"),
    "yellow": ("unchecked", "partly_checked", "warning", "ro", "torn_tail", "unsynced_tail",
               "under_replicated", "recoverable", "warn", "in_recovery"),
    "red": ("damaged", "damage", "error", "down", "lost", "corrupt", "missing", "failed", "unrecoverable"),
}  # fmt: skip
_COLOUR_OF = {word: colour for colour, words in _COLOURS.items() for word in words}
_VERDICT_KEYS = {"verdict", "severity", "mode", "state", "status", "tail", "outcome"}
_ANSI = {"green": "32", "yellow": "33", "red": "31"}


def is_bytes(key: str) -> bool:
    """Return whether a key's value counts bytes."""
    return key in _BYTE_KEYS or (key.endswith("_bytes") and key not in _EXACT_KEYS)


def is_share(key: str) -> bool:
    """Return whether a key's value is a part of a whole, 0 to 1."""
    return key.endswith(_SHARE_ENDINGS)


def heading(key: str, value: Any) -> str:
    """Return the heading of a column: the key, without the unit that its values show by themselves."""
    if is_bytes(key) and key.endswith("_bytes") and type(value) is int:
        return key.removesuffix("_bytes")
    return key.removesuffix("_ms") if _is_time(key, value) else key


def human(key: str, value: Any, *, whole: bool = False, now_ms: float | None = None) -> str:
    """Return a value as people read it, never an empty text: null and what is empty are :data:`NOTHING`.

    ``whole`` is for one thing, where a time has its date as well.
    """
    return _human(key, value, whole=whole, now_ms=now_ms) or NOTHING


def _human(key: str, value: Any, *, whole: bool, now_ms: float | None) -> str:
    if type(value) is int and is_bytes(key):
        return human_bytes(value)
    if type(value) in (int, float) and is_share(key):
        return human_share(value)
    if _is_time(key, value):
        age = human_age(value, now_ms)
        return f"{_date(value)} ({age})" if whole else age
    if key in _BASE64_KEYS and isinstance(value, Mapping):
        return ", ".join(f"{name}={_decoded(each)}" for name, each in value.items())
    return _text(value)


def human_bytes(count: int) -> str:
    """Return a number of bytes with three digits and a unit: ``65.4 GiB``."""
    value = float(count)
    for unit in _UNITS:
        if abs(value) < 1023.95 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def human_share(share: float) -> str:
    """Return a part of a whole in percent: ``70.8%``; only all of it is ``100%``, only nothing is ``0%``."""
    if share in (0, 1):
        return f"{share:.0%}"
    if 0 < share < _SHARE_MIN:
        return "<0.1%"
    if 1 - _SHARE_MIN <= share < 1:
        return "99.9%"
    return f"{share:.1%}"


def human_age(time_ms: float, now_ms: float | None = None) -> str:
    """Return how long ago a time is, in its largest unit: ``2 h ago``; one to come is ``in 5 min``."""
    age_s = ((time.time() * 1000 if now_ms is None else now_ms) - time_ms) / 1000
    for seconds, unit in _AGES:
        if abs(age_s) >= seconds:
            count = int(abs(age_s) / seconds)
            return f"{count} {unit} ago" if age_s > 0 else f"in {count} {unit}"
    return "now"


def colour_of(key: str, text: str) -> str | None:
    """Return the colour of a verdict, None for everything else."""
    return _COLOUR_OF.get(text.lower()) if key in _VERDICT_KEYS else None


def coloured(key: str, text: str) -> str:
    """Return a verdict with the escape sequences of its colour; anything else as it is."""
    colour = colour_of(key, text)
    return text if colour is None else f"\x1b[{_ANSI[colour]}m{text}\x1b[0m"


def wants_colour(is_terminal: bool) -> bool:
    """Return whether colours are to be written: to a terminal that has them, unless NO_COLOR is set."""
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_time(key: str, value: Any) -> bool:
    return key.endswith("_ms") and type(value) is int and value >= _TIME_MS_MIN


def _date(time_ms: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_ms / 1000))
    except (OverflowError, OSError, ValueError):  # a time that no calendar has
        return f"{time_ms} ms"


def plain_text(value: Any) -> str | None:
    """Return a value that is one word or number as its text; None for a list, an object and the like."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return str(value) if isinstance(value, str | int | float) else None


def _text(value: Any) -> str:
    """Return a value as a phrase: lists with commas, objects as ``key value`` pairs."""
    plain = plain_text(value)
    if plain is not None:
        return plain
    if isinstance(value, list | tuple):
        value = [_fields(each) for each in value]
    value = _fields(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_inner(name, each)}" for name, each in value.items() if each is not None)
    if isinstance(value, list):
        apart = "; " if any(isinstance(each, Mapping) for each in value) else ", "
        return apart.join(_inner("", each) for each in value)
    return json.dumps(value, default=str)


def _fields(value: Any) -> Any:
    """Return the fields of a dataclass by their names, any other value as it is."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _decoded(value: Any) -> str:
    """Return bytes in base64 as the text that they are, or as they stand where they are none."""
    try:
        text = base64.b64decode(value, validate=True).decode("utf-8")
    except (TypeError, ValueError):
        return f"base64:{value}"
    return text if text.isprintable() else f"base64:{value}"


def _inner(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{_text(value) if value else ''}]"
    return human(key, value)
