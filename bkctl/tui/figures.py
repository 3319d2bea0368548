"""Numbers as short texts: at most six characters, ``-`` for what is not known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from bkctl.reporting import noun_of

UNKNOWN = "-"

_DECIMAL = ("", "k", "M", "G", "T", "P")
_BINARY = ("B", "K", "M", "G", "T", "P")


def count(value: float | None) -> str:
    """Return a text such as ``7``, ``0.5``, ``12.3k``, ``4.56M``: numbers and rates."""
    if value is None:
        return UNKNOWN
    if 0 < value < 9.95 and value != int(value):
        return f"{value:.1f}"
    return _scaled(value, 1000.0, _DECIMAL)


def counted(value: float | None, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 log``, ``12.3k logs``, ``- logs``."""
    return f"{count(value)} {noun_of(value, noun, plural)}"


def size(value: float | None) -> str:
    """Return a text such as ``512B``, ``64M``, ``1.5G``: bytes, in powers of 1,024."""
    return UNKNOWN if value is None else _scaled(value, 1024.0, _BINARY)


def megabytes(value: float | None) -> str:
    """Return a text such as ``0.42``, ``12.3``, ``456``: millions of bytes a second."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def milliseconds(value: float | None) -> str:
    """Format a time as ``0.42``, ``12.3``, ``456`` or ``1.2s``: without a unit it is in milliseconds."""
    if value is None:
        return UNKNOWN
    if value >= 59_950:
        return f"{value / 60_000:.1f}m"
    if value >= 999.5:
        return f"{value / 1000:.1f}s"
    return megabytes(value)


def cores(value: float | None) -> str:
    """Return a text such as ``0.42``: processors."""
    return UNKNOWN if value is None else f"{value:.2f}"


def percent(share: float | None) -> str:
    """Format a share from 0 to 1 as ``97%``; only a whole one is ``100%``, only nothing is ``0%``."""
    if share is None:
        return UNKNOWN
    rounded = round(share * 100)
    if rounded >= 100 and share < 1:
        rounded = 99
    if rounded <= 0 and share > 0:
        return "<1%"
    return f"{rounded}%"


def top(values: Sequence[float], figure: Callable[[float], str]) -> str:
    """Format the greatest of the values that are known as `` max 12k``; NaN is none; empty without any."""
    known = [value for value in values if not math.isnan(value)]
    return f" max {figure(max(known))}" if known else ""


def age(milliseconds_ago: int) -> str:
    """Return a text such as ``3s``, ``5m``, ``2h``, ``4d``."""
    seconds = max(milliseconds_ago, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length or (seconds >= length and unit != "m"):
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def interval(seconds: float) -> str:
    """Return a text such as ``0.5 s``, ``2 s``."""
    return f"{seconds:g} s"


def time_of_day(time_ms: int) -> str:
    """Return the hours, minutes and seconds in the local time zone."""
    return time.strftime("%H:%M:%S", time.localtime(time_ms / 1000))


def date_and_time(time_ms: int) -> str:
    """Format a time with its day."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))


def _scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    """Return three digits that matter, and the unit."""
    unit = 0
    while unit + 1 < len(units) and round(value) >= step:
        value /= step
        unit += 1
    if unit == 0:
        return f"{value:.0f}{units[0]}"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{units[unit]}"
