"""Sectors of a journal that a power cut kept from the disk.

A disk writes a sector of 512 bytes as a whole or not at all, whatever happens to its neighbours. Journals are
never recycled, so a sector that was not written reads as zeros: preallocated ones, or a gap in front of one
that was. Only a write that ends within a sector, as each may in the formats without padding, leaves zeros
behind its last record alone. A byte that is wrong between others, and zeros that begin within a record and
end with its sector, are never what a power cut leaves: they are damage.
"""

from __future__ import annotations

from bkctl.codec.journal import RECORD_BYTES_MIN
from bkctl.scan.steady_file import ZEROS, SteadyFile

#: A disk writes so many bytes as a whole or not at all.
SECTOR_BYTES = 512
_LENGTH_BYTES = 4
_ID_BYTES = 8
_SECTOR = bytes(SECTOR_BYTES)
_READ_SECTORS = len(ZEROS) // SECTOR_BYTES


def range_lacks_a_sector(file: SteadyFile, start: int, end: int, *, padded: bool = False) -> bool:
    """Return whether a sector of ``[start, end)`` was perhaps never written, by the file.

    A hole, or a record whose length nothing proves, begins at ``start``.

    Of the sector in which the range begins its share must be zeros, but for the length word, behind which a
    write may have ended; zeros of a part of the ledger id are no sign, it begins with zeros. So do most
    lengths: where the share is a part of one, it is a sign only if what is left is too short for a record.
    Every other sector must be zeros as a whole, also behind the range: what stands further on in it was
    written later. In formats with padding (``padded``) each write begins with a sector, and so the first one
    must be zeros in front of the range as well: zeros behind a record may be the padding's.
    """
    at = start - start % SECTOR_BYTES
    if at < start:
        at += SECTOR_BYTES
        first = start if at - start < _LENGTH_BYTES + _ID_BYTES else start + _LENGTH_BYTES
        if padded:
            first = at - SECTOR_BYTES
        if file.is_zero(first, min(at, file.size_bytes)) and _is_cut_length(file, start, at - start):
            return not file.refused(start, end)
    while at < end:
        sectors = min(-(-(end - at) // SECTOR_BYTES), _READ_SECTORS)
        data = file.read_at(at, sectors * SECTOR_BYTES)
        for first in range(0, len(data), SECTOR_BYTES):
            # This is cheap for a sector that is not zeros: its first byte is nearly always enough.
            if not data[first] and _SECTOR.startswith(data[first : first + SECTOR_BYTES]):
                return not file.refused(start, end)
        at += sectors * SECTOR_BYTES
    return False


def _is_cut_length(file: SteadyFile, start: int, share: int) -> bool:
    """Return whether the zeros of a length word's share of a sector may be in the place of other bytes.

    Of a longer share they always may. The first byte is zero always: no entry has 16 MiB.
    """
    if share >= _LENGTH_BYTES:
        return True
    length = int.from_bytes(file.peek(start, _LENGTH_BYTES), "big")
    return share > 1 and length < RECORD_BYTES_MIN


def rest_of_sector(file: SteadyFile, offset: int) -> bytes:
    """Return what stands in a file from an offset on, up to the end of the sector."""
    return file.peek(offset, -offset % SECTOR_BYTES)


def looks_torn(offset: int, body: bytes, behind: bytes = b"") -> bool:
    """Return whether a record lacks a sector, or its length word is cut by the end of one.

    ``offset`` is where the length word stands in the file, ``behind`` as in :func:`record_lacks_a_sector`.
    A record within one sector never looks torn.
    """
    share = SECTOR_BYTES - offset % SECTOR_BYTES
    # Cut within the length word: its first bytes may be those that are missing. The very first one is zero
    # always, for no entry has 16 MiB; and a byte that is not zero was written.
    may_be_cut = 1 < share < _LENGTH_BYTES and not any(len(body).to_bytes(_LENGTH_BYTES, "big")[:share])
    return may_be_cut or record_lacks_a_sector(offset, body, behind)


def record_lacks_a_sector(offset: int, body: bytes, behind: bytes = b"") -> bool:
    """Return whether a record, whose length must be right, has only zeros in its share of some sector.

    The sector with its length was written, and so was its last one if ``behind``, which stands behind it in
    that, is more than zeros.
    Where the length word is cut by the end of a sector, the sector behind holds the rest of it as well.
    """
    share = SECTOR_BYTES - offset % SECTOR_BYTES
    if share < _LENGTH_BYTES:
        rest = _LENGTH_BYTES - share
        if not any(len(body).to_bytes(_LENGTH_BYTES, "big")[share:]) and not any(body[: SECTOR_BYTES - rest]):
            return True
    for at in range(-(offset + _LENGTH_BYTES) % SECTOR_BYTES, len(body), SECTOR_BYTES):
        # This is cheap for a sector that is not zeros, as above.
        if not body[at] and not body[at : at + SECTOR_BYTES].strip(b"\0"):
            return at + SECTOR_BYTES <= len(body) or not any(behind)
    return False
