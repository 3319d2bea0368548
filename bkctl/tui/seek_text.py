"""Parse a place in a recording, as one types it."""

from __future__ import annotations

import re
import time

from bkctl.admin.top.source import Replay

EXAMPLES = "number, +N, -N, 50%, or HH:MM:SS"

_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def position_of(text: str, replay: Replay) -> int | None:
    """Return the sample's number from 0; None for a text that is no such place.

    ``120`` is the 120th sample, ``+30`` and ``-30`` count from the current one, ``50%`` is the middle,
    ``14:05:30`` the first sample from that local time on, on the day of the recording's first sample.
    """
    text = text.strip()
    if re.fullmatch(r"[+-]\d{1,9}", text):
        return replay.position + int(text)
    if re.fullmatch(r"\d{1,9}", text):
        return int(text) - 1
    if re.fullmatch(r"\d{1,3}%", text):
        return round((replay.count - 1) * int(text[:-1]) / 100)
    matched = _TIME.fullmatch(text)
    if matched is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in matched.groups())
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return _position_at(replay, hours, minutes, seconds)


def _position_at(replay: Replay, hours: int, minutes: int, seconds: int) -> int:
    first = time.localtime(replay.seek(0).taken_at_ms / 1000)
    wanted = time.struct_time((*first[:3], hours, minutes, seconds, *first[6:8], -1))
    wanted_ms = int(time.mktime(wanted)) * 1000
    low, high = 0, replay.count - 1
    while low < high:
        middle = (low + high) // 2
        if replay.seek(middle).taken_at_ms < wanted_ms:
            low = middle + 1
        else:
            high = middle
    return low
