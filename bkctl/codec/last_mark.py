"""``lastMark``: how far a journal has reached ledger storage.

====== ==== ==========================================================
offset size field
====== ==== ==========================================================
0      i64  journal id, the number in the journal file's name
8      i64  byte offset in that journal file
====== ==== ==========================================================

Both integers are big-endian. Everything journaled before the mark is durable in ledger storage; replay
starts there. The offset need not be a record boundary: after a replay it is where the scan stopped reading.
Java reads sixteen bytes and never looks behind them, so a longer file is no damage. A first start writes
sixteen zero bytes. The file is ``lastMark`` with one journal directory, ``lastMark.<i>`` with several; of
the copies in the ledger directories the greatest counts.

Source: ``org.apache.bookkeeper.bookie.LogMark`` and ``Journal.LastLogMark``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted

_MARK = struct.Struct(">qq")

#: Size of the file.
MARK_BYTES = _MARK.size

_I64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class LastMark:
    """A point in a journal; marks compare by journal, then by byte offset."""

    journal_id: int
    offset: int


#: The mark that counts when no directory has a readable one: replay everything.
ZERO_MARK = LastMark(0, 0)


def last_mark_name(journal: int, journals: int) -> str:
    """Return the file name of the mark of journal number ``journal`` of ``journals``."""
    return "lastMark" if journals == 1 else f"lastMark.{journal}"


def decode_last_mark(data: bytes) -> LastMark:
    """Return the mark in the first 16 bytes; what follows them is not looked at.

    Raises CorruptionError when there are fewer bytes, or when a number is negative.
    """
    if len(data) < MARK_BYTES:
        raise CorruptionError(
            "last mark", offset=len(data), expected=f"{MARK_BYTES} bytes", found=counted(len(data), "byte")
        )
    journal_id, offset = _MARK.unpack_from(data)
    for position, number, name in ((0, journal_id, "journal id"), (8, offset, "byte offset")):
        if number < 0:
            raise CorruptionError("last mark", offset=position, expected=f"{name} >= 0", found=str(number))
    return LastMark(journal_id, offset)


def encode_last_mark(mark: LastMark) -> bytes:
    """Return the sixteen bytes. Raises UsageError when a number does not fit an i64 >= 0."""
    if not (0 <= mark.journal_id <= _I64_MAX and 0 <= mark.offset <= _I64_MAX):
        raise UsageError(f"last mark {mark.journal_id}:{mark.offset} is out of range")
    return _MARK.pack(mark.journal_id, mark.offset)
