"""``BOOKIE_STATUS``: whether a bookie takes writes, kept over restarts.

One line of text, fields separated by commas::

    1,READ_ONLY,1795262752266,true\\n

===== ======================================================================
field content
===== ======================================================================
0     layout version, always 1
1     ``READ_WRITE`` or ``READ_ONLY``
2     when the mode changed, milliseconds since 1970
3     ``true`` when an operator made the bookie read-only; any other word is false; older writers omit it,
      then it counts as true
===== ======================================================================

Java trims fields 0, 2 and 3 but not the mode, drops empty fields at the end, and skips a file that does not
parse. Of the copies in the ledger directories the one with the newest time counts.

Source: ``org.apache.bookkeeper.bookie.BookieStatus``.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from bkctl.errors import CorruptionError, UsageError

LAYOUT_VERSION = 1

#: Bound on what is looked at; a line has some 40 bytes.
STATUS_BYTES_MAX = 1024

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_I64_LIMIT = 2**63

#: Characters that Java's ``String.trim`` takes off.
_TRIMMED = "".join(map(chr, range(33)))


class BookieMode(enum.Enum):
    """Whether a bookie takes writes; the value is the word in the file."""

    READ_WRITE = "READ_WRITE"
    READ_ONLY = "READ_ONLY"


@dataclass(frozen=True, slots=True)
class BookieStatus:
    """``updated_ms`` counts from 1970; ``manual`` says that an operator set the mode."""

    mode: BookieMode
    updated_ms: int
    manual: bool = True


def decode_bookie_status(data: bytes) -> BookieStatus:
    """Return the status in the first line. Raises CorruptionError where Java would skip the file."""
    try:
        text = data[:STATUS_BYTES_MAX].decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptionError("bookie status", offset=error.start, expected="ASCII text") from None
    line = re.split(r"[\r\n]", text, maxsplit=1)[0]
    fields = line.split(",")
    while fields and not fields[-1]:
        fields.pop()
    if len(fields) not in (3, 4):
        raise CorruptionError("bookie status", expected="3 or 4 fields", found=f"{len(fields)}")
    version = _number(fields[0], 0)
    if version != LAYOUT_VERSION:
        raise CorruptionError("bookie status", expected=f"layout {LAYOUT_VERSION}", found=str(version))
    mode_at = len(fields[0]) + 1
    try:
        mode = BookieMode(fields[1])
    except ValueError:
        raise CorruptionError(
            "bookie status", offset=mode_at, expected="READ_WRITE or READ_ONLY", found=repr(fields[1][:32])
        ) from None
    updated_ms = _number(fields[2], mode_at + len(fields[1]) + 1)
    manual = len(fields) == 3 or fields[3].strip(_TRIMMED).lower() == "true"
    return BookieStatus(mode, updated_ms, manual)


def encode_bookie_status(status: BookieStatus) -> bytes:
    """Return the file's bytes, with four fields. Raises UsageError when the time does not fit an i64."""
    if not -_I64_LIMIT <= status.updated_ms < _I64_LIMIT:
        raise UsageError(f"time {status.updated_ms} is out of range")
    manual = "true" if status.manual else "false"
    return f"{LAYOUT_VERSION},{status.mode.value},{status.updated_ms},{manual}\n".encode()


def _number(field: str, offset: int) -> int:
    text = field.strip(_TRIMMED)
    if _NUMBER.match(text):
        number = int(text)
        if -_I64_LIMIT <= number < _I64_LIMIT:
            return number
    raise CorruptionError("bookie status", offset=offset, expected="a number", found=repr(text[:32]))
