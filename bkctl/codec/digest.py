"""Entry digests and the keys made from a ledger's password.

====== ===== =====================================================================
type   bytes value
====== ===== =====================================================================
CRC32C 4     i32 CRC-32C (Castagnoli)
CRC32  8     i64, the CRC-32 of zlib in the low 32 bits, the high half zero
MAC    20    HMAC-SHA1, key = SHA1("mac" + password)
DUMMY  0     nothing
====== ===== =====================================================================

An entry's digest covers the 32 header bytes and the client's data, not itself; the digest of an explicit
LAC covers its 16 header bytes. It stands right behind the header. Bookies never check it; its type is
known only from ledger metadata.

Source: ``org.apache.bookkeeper.proto.checksum.DigestManager`` and its four sub-classes,
``MacDigestManager.genDigest`` for the keys.
"""

from __future__ import annotations

import hmac
import zlib
from array import array
from dataclasses import dataclass, field
from hashlib import sha1

from bkctl import _kernels
from bkctl.types import DigestType

DIGEST_BYTES = {
    DigestType.CRC32C: 4,
    DigestType.CRC32: 8,
    DigestType.MAC: 20,
    DigestType.DUMMY: 0,
}


#: Length of a master key: SHA-1 of "ledger" and the password (``MacDigestManager.genDigest``).
MASTER_KEY_BYTES = 20


def master_key(password: bytes) -> bytes:
    """Return the 20-byte key that bookies keep for a ledger: SHA1("ledger" + password)."""
    return sha1(b"ledger" + password, usedforsecurity=False).digest()


def mac_key(password: bytes) -> bytes:
    """Return the 20-byte key of the MAC digest: SHA1("mac" + password)."""
    return sha1(b"mac" + password, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class Digester:
    """One digest type, with the MAC key when it is MAC."""

    type: DigestType
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, digest_type: DigestType, password: bytes = b"") -> Digester:
        """Return the digester of a ledger with this type and password."""
        return cls(digest_type, mac_key(password) if digest_type is DigestType.MAC else b"")

    @property
    def size_bytes(self) -> int:
        """Length of the digest."""
        return DIGEST_BYTES[self.type]

    def compute(self, header: bytes, data: bytes) -> bytes:
        """Return the digest bytes of ``header`` followed by ``data``."""
        if self.type is DigestType.CRC32C:
            from crc32c import crc32c  # as in the kernels: only those who digest pay for its import

            return crc32c(data, crc32c(header)).to_bytes(4, "big")
        if self.type is DigestType.CRC32:
            return zlib.crc32(data, zlib.crc32(header)).to_bytes(8, "big")
        if self.type is DigestType.MAC:
            return hmac.digest(self.key, header + data, "sha1")
        return b""

    def checks(self, body: bytes, header_bytes: int = 32) -> bool:
        """Return whether the digest inside ``body`` (header, digest, data) is right."""
        data = header_bytes + self.size_bytes
        if len(body) < data:
            return False
        return body[header_bytes:data] == self.compute(body[:header_bytes], body[data:])

    def failing(self, buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
        """Return the indices of the records at ``starts`` (positions of size words) that do not check.

        A DUMMY digest checks nothing, so nothing fails except what is too short to hold a header.
        """
        if self.type is DigestType.CRC32C:
            return _kernels.failing_crc32c(buffer, starts, sizes)
        if self.type is DigestType.CRC32:
            return _kernels.failing_crc32(buffer, starts, sizes)
        if self.type is DigestType.MAC:
            return _kernels.failing_mac(buffer, starts, sizes, self.key)
        return [index for index, size in enumerate(sizes) if size < 32]

    def failing_columns(self, buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
        """Return what :meth:`failing` does, for columns of native i64."""
        if self.type is DigestType.CRC32C:
            return _kernels.columns_failing_crc32c(buffer, starts, sizes)
        if self.type is DigestType.CRC32:
            return _kernels.columns_failing_crc32(buffer, starts, sizes)
        return self.failing(buffer, array("q", starts).tolist(), array("q", sizes).tolist())
