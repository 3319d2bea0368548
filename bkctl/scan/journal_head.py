"""The header of a journal: its version, and where its first record begins, also where it is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.codec import journal as codec
from bkctl.codec.entry import BODY_BYTES_MAX, RECORD_HEAD
from bkctl.errors import CorruptionError
from bkctl.scan.damage import Damage
from bkctl.scan.steady_file import SteadyFile


@dataclass(slots=True)
class JournalHead:
    """The header in the first bytes; ``version`` is 6 when they say nothing, ``short`` a cut header."""

    path: str
    size_bytes: int
    version: int
    damage: list[Damage] = field(default_factory=list)
    short: bool = False


def read_head(file: SteadyFile) -> JournalHead:
    """Return the header of a journal; never fails on what it reads."""
    data = file.read_at(0, codec.HEADER_BYTES)
    head = JournalHead(file.path, file.size_bytes, codec.VERSION_MAX)
    if file.refused(0, codec.SHORT_HEADER_BYTES):
        head.damage.append(Damage(file.path, 0, 8, "unreadable", "the header", "a read error of the disk"))
        return head
    try:
        head.version = codec.decode_header(data).version
    except CorruptionError as error:
        if error.what == "journal version":
            head.damage.append(Damage(file.path, 4, 4, error.what, error.expected, error.found))
        else:
            head.short = True
        return head
    if not data.startswith(codec.MAGIC) and not _starts_with_record(data, file):
        head.version = codec.VERSION_MAX
        head.damage.append(Damage(file.path, 0, 8, "journal header", codec.MAGIC.hex(), data[:4].hex()))
    elif head.version < codec.PADDED_FROM and _has_padded_header(file):
        found, head.version = str(head.version), codec.VERSION_MAX
        expected = f"{codec.PADDED_FROM} or more, as the header is padded"
        head.damage.append(Damage(file.path, 4, 4, "journal version", expected, found))
    return head


def _has_padded_header(file: SteadyFile) -> bool:
    """Return whether the header is followed by what pads it in later versions, and that by a record.

    In earlier ones there is a record, or zeros up to the end of the file.
    """
    data = file.read_at(0, codec.HEADER_BYTES + RECORD_HEAD.size)
    rest, first = data[codec.SHORT_HEADER_BYTES : codec.HEADER_BYTES], data[codec.HEADER_BYTES :]
    return codec.fills_header(rest) and (
        any(rest) or (len(first) == RECORD_HEAD.size and _may_start_record(first))
    )


def _starts_with_record(data: bytes, file: SteadyFile) -> bool:
    """Return whether a file without the magic may be a version 1 journal: it has a record first, or zeros.

    The bytes behind the magic in the header of a later version are no part of a record.
    """
    rest = data[codec.SHORT_HEADER_BYTES :]
    if any(data[: codec.SHORT_HEADER_BYTES]) and codec.fills_header(rest):
        return False
    if len(data) >= RECORD_HEAD.size:
        size, ledger, entry = RECORD_HEAD.unpack_from(data)
        if ledger >= 0 and entry >= 0 and 16 <= size <= BODY_BYTES_MAX:
            return True
    return file.first_nonzero(0) is None


def first_record(head: JournalHead, file: SteadyFile) -> int:
    """Return the first record's offset; behind a damaged header, a guess from the zeros that pad it."""
    if not head.damage:
        return codec.JournalHeader(head.version).first_record
    rest = file.read_at(codec.SHORT_HEADER_BYTES, codec.HEADER_BYTES - codec.SHORT_HEADER_BYTES)
    if codec.fills_header(rest):
        first = file.read_at(codec.HEADER_BYTES, RECORD_HEAD.size)
        if len(first) < RECORD_HEAD.size or _may_start_record(first):
            return codec.HEADER_BYTES
    return min(codec.SHORT_HEADER_BYTES, file.size_bytes)


def _may_start_record(data: bytes) -> bool:
    size, ledger, _ = RECORD_HEAD.unpack_from(data)
    return bool(ledger >= 0 and codec.RECORD_BYTES_MIN <= size <= BODY_BYTES_MAX)
