"""When does a record prove itself?

After damage nothing says where the next record starts. A scan looks at every offset and believes one only
on evidence:

* its digest checks (CRC-32C, CRC-32, or the ledger's own type when it is known);
* it ends exactly at the end of the file (a 32-bit coincidence otherwise);
* it carries one of BookKeeper's reserved ids (64 bits and more of coincidence);
* the location index says that this entry stands there;
* it is the first of several records whose headers are all plausible, fewer of them when their ledgers are
  known from the ledgers map or from what was read before.

Work is bounded: bytes digested for candidates stay within ``DIGEST_FACTOR`` times the bytes searched plus
``DIGEST_FREE_BYTES``; beyond that only the other evidence counts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bkctl.codec.digest import Digester
from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN
from bkctl.scan.steady_file import WINDOW_BYTES, SteadyFile
from bkctl.types import DigestType

CHAIN_RECORDS = 4
CHAIN_RECORDS_KNOWN = 2
DIGEST_FACTOR = 8
DIGEST_FREE_BYTES = 64 << 20
DIGEST_BODY_BYTES_MAX = 16 << 20

#: Headers of real entries stay below these; only used to decide whether a candidate is worth digesting.
SANE_ENTRY_MAX = 1 << 48
SANE_LENGTH_MAX = 1 << 56

_HEAD = struct.Struct(">iqq")
_LAC_LENGTH = struct.Struct(">qq")
_HEAD_BYTES = _HEAD.size

# A size word of 16..BODY_BYTES_MAX and a ledger id whose sign bit is clear, found without leaving C.
_CANDIDATE = re.compile(rb"(?=(?!\x00\x00\x00[\x00-\x0f])[\x00-\x08].{3}[\x00-\x7f])", re.DOTALL)

_CHECKSUMS = (Digester(DigestType.CRC32C), Digester(DigestType.CRC32))

#: (size, ledger, entry, record offset) -> the record's end when its reserved ids prove it, else None.
ReservedRecord = Callable[[SteadyFile, int, int, int, int], "int | None"]


@dataclass(slots=True)
class Evidence:
    """What is known from elsewhere about a file.

    ``digesters``: ledgers whose digest is known. ``ledgers``: ledgers known to be in the file (the map's;
    the scan adds those it has read). ``located``: tells whether the index places an entry at an offset (of
    the size word), None when there is no index.
    """

    digesters: Mapping[int, Digester] = field(default_factory=dict)
    ledgers: set[int] = field(default_factory=set)
    located: Callable[[int, int, int], bool] | None = None


class Prover:
    """Judges candidate offsets of one file."""

    def __init__(
        self,
        file: SteadyFile,
        evidence: Evidence,
        reserved: ReservedRecord,
        size_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._file = file
        self._evidence = evidence
        self._reserved = reserved
        self._size_max = size_max
        self._searched = 0
        self._digested = 0

    def find(self, start: int, stop: int | None = None) -> int | None:
        """The first offset in ``[start, stop)`` at which a record proves itself, or None."""
        file = self._file
        stop = file.size_bytes if stop is None else min(stop, file.size_bytes)
        position = start
        while position < stop:
            block = file.read_at(position, WINDOW_BYTES + _HEAD_BYTES)
            usable = min(len(block), WINDOW_BYTES, stop - position)
            for match in _CANDIDATE.finditer(block):
                if match.start() >= usable:
                    break
                offset = position + match.start()
                self._searched = max(self._searched, offset - start)
                if self.proves(offset):
                    return offset
            position += usable
            if not usable:
                break
        return None

    def proves(self, offset: int) -> bool:
        """Whether the record at ``offset`` proves itself."""
        at = offset
        known = 0
        for step in range(CHAIN_RECORDS):
            end, strong = self._judge(at, first=step == 0)
            if end is None:
                return False
            if strong:
                return True
            known += self._is_known(at)
            if known == step + 1 and known >= CHAIN_RECORDS_KNOWN:
                return True
            at = end
        return True

    def _judge(self, offset: int, *, first: bool) -> tuple[int | None, bool]:
        """End of a plausible record at ``offset`` (None: not plausible), and whether that settles it."""
        head = self._file.peek(offset, _HEAD_BYTES + _LAC_LENGTH.size)
        if len(head) < _HEAD_BYTES:
            return None, False
        size, ledger, entry = _HEAD.unpack_from(head)
        end = self._reserved(self._file, size, ledger, entry, offset)
        if end is not None:
            return end, True
        end = offset + 4 + size
        if not BODY_BYTES_MIN <= size <= self._size_max or ledger < 0 or entry < 0:
            return None, False
        if end > self._file.size_bytes or self._file.refused(offset, end):
            return None, False
        if size >= 32 and not self._sane_body(head, size, entry):
            return None, False
        if end == self._file.size_bytes:
            return end, True
        if self._evidence.located is not None and self._evidence.located(offset, ledger, entry):
            return end, True
        return end, first and self._checks(offset, size, ledger, entry, head)

    @staticmethod
    def _sane_body(head: bytes, size: int, entry: int) -> bool:
        """A writer's LAC lies below the entry; the ledger is not longer than a ledger can be."""
        lac, length = _LAC_LENGTH.unpack_from(head, _HEAD_BYTES)
        return bool(-1 <= lac <= entry and 0 <= length <= SANE_LENGTH_MAX)

    def _is_known(self, offset: int) -> bool:
        ledger: int = _HEAD.unpack_from(self._file.peek(offset, _HEAD_BYTES))[1]
        return ledger in self._evidence.ledgers

    def _checks(self, offset: int, size: int, ledger: int, entry: int, head: bytes) -> bool:
        """Whether the digest checks, within the budget."""
        if size < 32 or size > DIGEST_BODY_BYTES_MAX or entry > SANE_ENTRY_MAX:
            return False
        if self._digested > DIGEST_FREE_BYTES + DIGEST_FACTOR * self._searched:
            return False
        self._digested += size
        return self.digest_checks(offset, size, ledger)

    def digest_checks(self, offset: int, size: int, ledger: int) -> bool:
        """Whether ``size`` body bytes behind the size word at ``offset`` check under a digest."""
        if self._file.refused(offset, offset + 4 + size):
            return False
        body = self._file.read_at(offset + 4, size)
        digester = self._evidence.digesters.get(ledger)
        if digester is not None and digester.type is not DigestType.DUMMY:
            return digester.checks(body)
        return any(checksum.checks(body) for checksum in _CHECKSUMS)
