"""Paths of this machine, for what is written in place: an index is rebuilt where it is."""

from __future__ import annotations

import re

from bkctl.errors import UsageError

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


def refuse_urls(option: str, *values: str | None) -> None:
    """Refuse a URL where a path is expected. Raises UsageError."""
    for value in values:
        if value is not None and (scheme := _URL.match(value)) is not None:
            raise UsageError(
                f"{option} {value}: this works on mounted directories only, no {scheme[1]}:// URLs"
            )
