"""Numbers of bytes as people write them: ``512M``, ``2GiB``, ``1048576``."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]+) ?([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_byte_size(text: str) -> int:
    """Parse a size in bytes.

    Units are powers of 1024, with or without ``B`` or ``iB``, in any case. Raises ValueError.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size such as 256M or 2GiB.")
    return int(found[1]) << _SHIFTS[found[2].lower()]
