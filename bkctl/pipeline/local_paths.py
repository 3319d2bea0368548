"""Paths of this machine: there is no reader and no writer for object stores."""

from __future__ import annotations

import re

from bkctl.errors import UsageError

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


def refuse_urls(option: str, *values: str | None) -> None:
    """Refuse a URL where a path is expected. Raises UsageError."""
    for value in values:
        if value is not None and (scheme := _URL.match(value)) is not None:
            raise UsageError(
                f"{option} {value}: bkctl reads and writes mounted directories only, no {scheme[1]}:// URLs"
            )
