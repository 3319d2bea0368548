"""``lastId``: the entry-log id that was given out last.

====== ==== ==========================================================
offset size field
====== ==== ==========================================================
0      n    entry-log id, lower-case hexadecimal without leading zeros
n      1    newline
====== ==== ==========================================================

Java reads the first line and parses it as a signed hexadecimal number, in any letter case and with leading
zeros; the newline may be missing. A line that does not parse, and a value of zero or less, make the bookie
look for the largest log name instead; zero is a value that a bookie writes, so it decodes. The DirectIO entry
logger neither reads nor writes this file. It is rewritten in place, so it can be empty after a crash.

Source: ``org.apache.bookkeeper.bookie.EntryLoggerAllocator.setLastLogId`` and ``readLastLogId``.
"""

from __future__ import annotations

import re

from bkctl.errors import CorruptionError, UsageError

#: An entry-log id is an i32.
LOG_ID_MAX = 2**31 - 1

#: Bound on what is looked at; the file holds nine bytes at most.
LAST_ID_BYTES_MAX = 64

LAST_ID_NAME = "lastId"

_FIRST_LINE = re.compile(rb"\+?([0-9a-fA-F]+)(?:[\r\n]|\Z)")


def decode_last_id(data: bytes) -> int:
    """Return the entry-log id, an i32 >= 0.

    Raises CorruptionError when the first line is not a hexadecimal number of that range.
    """
    found = _FIRST_LINE.match(data[:LAST_ID_BYTES_MAX])
    if found is None:
        raise CorruptionError("last log id", expected="a hexadecimal number", found=repr(data[:16]))
    log_id = int(found[1], 16)
    if log_id > LOG_ID_MAX:
        raise CorruptionError("last log id", expected=f"at most {LOG_ID_MAX:x}", found=f"{log_id:x}")
    return log_id


def encode_last_id(log_id: int) -> bytes:
    """Return the file's bytes. Raises UsageError when the id is no i32 >= 0."""
    if not 0 <= log_id <= LOG_ID_MAX:
        raise UsageError(f"entry-log id {log_id} is out of range")
    return b"%x\n" % log_id
