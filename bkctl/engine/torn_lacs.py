"""Explicit LACs of a journal's unsynced tail of which a share reads as zeros.

Such a record is perhaps half written, and then it was never acknowledged: it must not take the place of one
that was. The packet is ``i64 ledger, i64 last add confirmed, digest`` (Java's ``DigestManager``), and its
length says the type of the digest.
"""

from __future__ import annotations

from bkctl.codec.digest import DIGEST_BYTES, Digester
from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.errors import CorruptionError
from bkctl.types import DigestType

#: Ledger and last add confirmed, in front of the digest.
_CHECKED_BYTES = 16
#: So many zeros are the end of no MAC but one in 2^32.
_ZEROS_MIN = 4


def is_torn_lac(blob: bytes, known: bytes | None) -> bool:
    """Return whether an explicit LAC that lacks a sector is half written, or is below the known one.

    A CRC is computed, and a digest that ends with zeros is no MAC. Where that decides nothing, a lower last
    add confirmed is none that replaced the known one.
    """
    size = len(blob) - _CHECKED_BYTES
    for kind in (DigestType.CRC32C, DigestType.CRC32):
        if size == DIGEST_BYTES[kind]:
            return blob[_CHECKED_BYTES:] != Digester(kind).compute(blob[:_CHECKED_BYTES], b"")
    if size == DIGEST_BYTES[DigestType.MAC] and not any(blob[-_ZEROS_MIN:]):
        return True
    return is_lower_lac(blob, known)


def is_lower_lac(blob: bytes, known: bytes | None) -> bool:
    """Return whether an explicit LAC is below the known one, or is none."""
    try:
        return known is not None and decode_explicit_lac(blob).lac < decode_explicit_lac(known).lac
    except CorruptionError:
        return True
