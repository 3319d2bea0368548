"""When does a record prove itself?

After damage nothing says where the next record starts. A scan looks at every offset and believes one only
on evidence:

* its digest checks (CRC-32C, CRC-32, or the ledger's own type when it is known);
* it ends exactly at the end of the file (a 32-bit coincidence otherwise);
* it carries one of BookKeeper's reserved ids (64 bits and more of coincidence), or stands in front of a
  record that does, or of a journal's padding;
* the location index says that this entry stands there;
* it is the first of several records whose headers are all plausible, fewer of them when their ledgers are
  known from the ledgers map or from what was read before.

Candidates are found by a pattern that leaves Python only for headers that can be real: a size within bounds,
a ledger id >= 0 and an entry id below 2^48 or one of the reserved ones.

Work is bounded: bytes digested in vain stay within ``DIGEST_FACTOR`` times the bytes searched plus
``DIGEST_FREE_BYTES``; beyond that only the other evidence counts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bkctl.codec.digest import Digester
from bkctl.codec.entry import BODY_BYTES_MAX, BODY_BYTES_MIN, HEADER_BYTES, RECORD_HEAD
from bkctl.ledger_set import LedgerSet
from bkctl.scan.steady_file import WINDOW_BYTES, ZEROS, SteadyFile
from bkctl.types import DigestType

CHAIN_RECORDS = 4
CHAIN_RECORDS_KNOWN = 2
DIGEST_FACTOR = 8
DIGEST_FREE_BYTES = 64 << 20
DIGEST_BODY_BYTES_MAX = 16 << 20

#: Headers of real entries stay below these: nobody has written 2^48 entries or 2^56 bytes to a ledger.
SANE_ENTRY_MAX = 1 << 48
SANE_LENGTH_MAX = 1 << 56

_LAC_LENGTH = struct.Struct(">qq")
_HEAD_BYTES = RECORD_HEAD.size
_JUDGED_BYTES = _HEAD_BYTES + _LAC_LENGTH.size

# A size of 16..BODY_BYTES_MAX, a ledger id whose sign bit is clear, an entry id below 2^48 with a LAC and
# a length (from size 32 on) of the same kind; or a reserved entry id; or the ids of a ledgers map. Found
# without leaving C.
_RESERVED_ENTRY = rb"\xff{6}[\x80-\xf0]\x00"
_CANDIDATE = re.compile(
    rb"(?=\x00\x00\x00[\x10-\x1f][\x00-\x7f].{7}(?:\x00\x00|" + _RESERVED_ENTRY + rb")"
    rb"|(?!\x00\x00\x00[\x00-\x1f])[\x00-\x08].{3}"
    rb"(?:[\x00-\x7f].{7}(?:\x00\x00.{6}(?:\x00\x00.{6}|\xff{8})\x00|" + _RESERVED_ENTRY + rb")"
    rb"|\xff{15}\xfe))",
    re.DOTALL,
)
_FULL_HEAD = struct.Struct(">iqqqq")

# A search reads a little first: behind most damage the next record is near.
_BLOCK_BYTES_FIRST = 1 << 13
# Zeros are compared, not searched, in pieces of this size.
_PIECE_BYTES = 1 << 13

_CHECKSUMS = (Digester(DigestType.CRC32C), Digester(DigestType.CRC32))

#: (size, ledger, entry, record offset) -> the record's end when its reserved numbers prove it, else None.
ReservedRecord = Callable[[SteadyFile, int, int, int, int], "int | None"]


@dataclass(slots=True)
class Evidence:
    """The facts that are known from elsewhere about a file.

    ``digesters``: ledgers whose digest is known. ``ledgers``: ledgers known to be in the file (the map's;
    the scan adds those it has read). ``located``: says whether the index places an entry at an offset (of
    the size word), None when there is no index. ``named``: says whether it places any entry there, None where
    that is not known.
    """

    digesters: Mapping[int, Digester] = field(default_factory=dict)
    ledgers: LedgerSet = field(default_factory=LedgerSet)
    located: Callable[[int, int, int], bool] | None = None
    named: Callable[[int], bool] | None = None


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
        self._digested = [0, 0]
        self._block = b""
        self._block_offset = 0
        #: Whether what was found last carries its own proof (digest, reserved ids), not only a good company.
        self.certain = False

    def find(self, start: int, stop: int | None = None) -> int | None:
        """Return the first offset in ``[start, stop)`` at which a record proves itself, or None."""
        file = self._file
        stop = file.size_bytes if stop is None else min(stop, file.size_bytes)
        position = start
        length = _BLOCK_BYTES_FIRST
        while position < stop:
            self._block = file.read_at(position, length + _JUDGED_BYTES)
            self._block_offset = position
            usable = min(len(self._block), length, stop - position)
            if not usable:
                break
            for piece in range(0, usable, _PIECE_BYTES):
                found = self._find_in_block(piece, min(piece + _PIECE_BYTES, usable))
                if found is not None:
                    self._searched += found - position
                    return found
            self._searched += usable
            position += usable
            length = min(4 * length, WINDOW_BYTES)
        return None

    def _find_in_block(self, first: int, stop: int) -> int | None:
        """Return the first record that proves itself and starts in ``block[first:stop]``."""
        block = self._block
        lookahead = stop + _JUDGED_BYTES
        end_of_file = self._file.size_bytes
        offset = self._block_offset
        piece = block[first:lookahead]
        if piece == ZEROS[: len(piece)]:
            return None
        unpack = _FULL_HEAD.unpack_from
        for match in _CANDIDATE.finditer(block, first, lookahead):
            at = match.start()
            if at >= stop:
                break
            if at + _JUDGED_BYTES <= len(block):  # what most candidates fail, without a call
                size, ledger, entry, lac, length = unpack(block, at)
                if (
                    ledger >= 0
                    and entry >= 0
                    and (
                        offset + at + 4 + size > end_of_file
                        or (
                            size >= HEADER_BYTES
                            and not (-1 <= lac < entry and 0 <= length <= SANE_LENGTH_MAX)
                        )
                    )
                ):
                    continue
            if self.proves(offset + at):
                return offset + at
        return None

    def _head(self, offset: int) -> bytes:
        """Return the bytes a record is judged by, from the block that is searched when it has them."""
        at = offset - self._block_offset
        if at >= 0 and at + _JUDGED_BYTES <= len(self._block):
            return self._block[at : at + _JUDGED_BYTES]
        return self._file.read_at(offset, _JUDGED_BYTES)

    def proves(self, offset: int) -> bool:
        """Return whether the record at ``offset`` proves itself."""
        at = offset
        known = 0
        self.certain = False
        for step in range(CHAIN_RECORDS):
            head = self._head(at)
            end, strong = self._judge(at, head, first=step == 0)
            if end is None:
                return False
            if strong:
                self.certain = step == 0 and end < self._file.size_bytes
                return True
            known += RECORD_HEAD.unpack_from(head)[1] in self._evidence.ledgers
            if known == step + 1 and known >= CHAIN_RECORDS_KNOWN:
                return True
            at = end
        return True

    def _judge(self, offset: int, head: bytes, *, first: bool) -> tuple[int | None, bool]:
        """Return the end of a plausible record at ``offset``, else None, and whether that settles it."""
        if len(head) < _HEAD_BYTES:
            return None, False
        size, ledger, entry = RECORD_HEAD.unpack_from(head)
        if size < 0 or ledger < 0 or entry < 0:
            end = self._reserved(self._file, size, ledger, entry, offset)
            return end, end is not None
        end = offset + 4 + size
        if not BODY_BYTES_MIN <= size <= self._size_max or entry >= SANE_ENTRY_MAX:
            return None, False
        if end > self._file.size_bytes or self._file.refused(offset, end):
            return None, False
        if not self._sane_body(head, size, ledger, entry):
            return None, False
        if end == self._file.size_bytes:
            return end, True
        if self._evidence.located is not None and self._evidence.located(offset, ledger, entry):
            return end, True
        return end, first and self._checks(offset, size, ledger)

    def _sane_body(self, head: bytes, size: int, ledger: int, entry: int) -> bool:
        """Check that a writer's LAC lies below the entry, and that the length of the ledger is possible.

        A body too short for both is only believed of a ledger that is known, or at the end of the file.
        """
        if size < HEADER_BYTES or len(head) < _JUDGED_BYTES:
            return ledger in self._evidence.ledgers or len(head) < _JUDGED_BYTES
        lac, length = _LAC_LENGTH.unpack_from(head, _HEAD_BYTES)
        return bool(-1 <= lac < entry and 0 <= length <= SANE_LENGTH_MAX)

    def _checks(self, offset: int, size: int, ledger: int) -> bool:
        """Return whether the digest checks, within the budget."""
        return HEADER_BYTES <= size <= DIGEST_BODY_BYTES_MAX and self.digest_affordable(offset, size, ledger)

    def is_checkable(self, ledger: int) -> bool:
        """Return whether the ledger's digest is known: an entry whose digest does not check is wrong then."""
        digester = self._evidence.digesters.get(ledger)
        if digester is None or digester.type is DigestType.DUMMY:
            return False
        return digester.type is not DigestType.MAC or bool(digester.key)

    def digest_affordable(self, offset: int, size: int, ledger: int, *, guess: bool = False) -> bool:
        """Call :meth:`digest_checks` as long as the budget lasts, then return False.

        A digest that checks costs nothing of the budget.

        A ``guess`` at a size has a budget of its own, so that guesses never cost a real record its proof.
        """
        if self._digested[guess] > DIGEST_FREE_BYTES + DIGEST_FACTOR * self._searched:
            return False
        checks = self.digest_checks(offset, size, ledger)
        if not checks:
            self._digested[guess] += size
        return checks

    def digest_checks(self, offset: int, size: int, ledger: int) -> bool:
        """Return whether ``size`` body bytes behind the size word at ``offset`` check under a digest."""
        if self._file.refused(offset, offset + 4 + size):
            return False
        body = self._file.read_at(offset + 4, size)
        digester = self._evidence.digesters.get(ledger)
        if digester is not None and digester.type is not DigestType.DUMMY:
            return digester.checks(body)
        return any(checksum.checks(body) for checksum in _CHECKSUMS)
