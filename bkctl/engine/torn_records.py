"""Records that a power cut may have left half written.

The tail of the newest journal was perhaps never synced: of a record that lies in several sectors some may be
on disk and others not, and those read as zeros, because journals are never recycled. Length, ledger and
entry id then prove nothing: the id of a fence record cut behind six of its bytes is that of entry 0.

Nothing that was acknowledged is ever torn. So a record that looks torn must not take the place of anything
that is known already; and where nothing is, it is kept, because zeros are also what clients write.
"""

from __future__ import annotations

SECTOR_BYTES = 512
_LENGTH_BYTES = 4


def looks_torn(offset: int, body: bytes) -> bool:
    """Whether a record lacks a sector, or its length word is cut by the end of one.

    ``offset`` is where the length word stands in the file. A record within one sector never looks torn.
    """
    # Cut within the length word: its first bytes may be those that are missing.
    return offset % SECTOR_BYTES > SECTOR_BYTES - _LENGTH_BYTES or lacks_sector(offset, body)


def lacks_sector(offset: int, body: bytes) -> bool:
    """Whether the share of some sector in a record, whose length must be right, is nothing but zeros."""
    size = len(body)
    start = SECTOR_BYTES - offset % SECTOR_BYTES - _LENGTH_BYTES
    for at in range(max(start, 0), size, SECTOR_BYTES):
        # Cheap for what is not zeros: the first byte nearly always tells.
        if not body[at] and not body[at : at + SECTOR_BYTES].strip(b"\0"):
            return True
    return False
