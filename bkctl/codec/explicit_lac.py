"""The explicit LAC: the last add confirmed that a client reports to the bookie besides its entries.

====== ==== ======================================================================
offset size field
====== ==== ======================================================================
0      i64  ledger id
8      i64  last add confirmed
16     d    digest over bytes 0-15: 4 (CRC32C), 8 (CRC32), 20 (MAC) or 0 (DUMMY)
====== ==== ======================================================================

All integers are big-endian and signed. The bookie stores the client's bytes as they came: in the journal,
in ``LedgerData.explicitLac`` and in the header of ``.idx`` files. The type of the digest is known only from
ledger metadata, so it stays opaque here.

Source: ``org.apache.bookkeeper.proto.checksum.DigestManager.computeDigestAndPackageForSendingLac``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bkctl.errors import CorruptionError
from bkctl.reporting import counted

BYTES_MIN = 16

_IDS = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class ExplicitLac:
    """``lac`` is an entry id, -1 when nothing is confirmed; ``digest`` is whatever followed."""

    ledger: int
    lac: int
    digest: bytes = b""


def decode_explicit_lac(blob: bytes) -> ExplicitLac:
    """Return the parts of a blob. Raises CorruptionError when there are fewer than 16 bytes."""
    if len(blob) < BYTES_MIN:
        raise CorruptionError(
            "explicit LAC", offset=len(blob), expected=f"{BYTES_MIN} bytes", found=counted(len(blob), "byte")
        )
    ledger, lac = _IDS.unpack_from(blob)
    return ExplicitLac(ledger, lac, bytes(blob[BYTES_MIN:]))


def encode_explicit_lac(value: ExplicitLac) -> bytes:
    """Return the blob."""
    return _IDS.pack(value.ledger, value.lac) + value.digest
