"""Durations on the command line: ``90s``, ``15m``, ``1.5h``, ``7d``."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SECONDS = re.compile(r"[0-9]*\.?[0-9]+|[0-9]+\.")


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of ``90s``, ``15m``, ``1.5h``, ``7d``. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        problem = "has no unit" if _SECONDS.fullmatch(text.strip()) else "is not a duration"
        raise ValueError(f"{text!r} {problem} (examples: 90s, 15m, 1h, 7d).")
    return int(float(match[1]) * _UNIT_MS[match[2]])


def parse_duration_or_seconds_ms(text: str) -> int:
    """Return the milliseconds of a duration; a number alone counts seconds, as it did before units."""
    number = str(text).strip()
    return int(float(number) * 1000) if _SECONDS.fullmatch(number) else parse_duration_ms(number)
