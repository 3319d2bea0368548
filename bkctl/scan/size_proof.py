"""Which size must a record have, and where is the next one?

A size word that is wrong shows only in what follows. The record's digest proves the right size: it checks
over the bytes up to the next record, up to the filler in front of that, or up to the end of the data. Where
the next record is damaged as well, its start is not known: then the sizes are tried that differ from the size
word by one bit or by two.

Work on hostile files is bounded: bytes searched stay within ``SEARCH_FACTOR`` times what is in front plus
``SEARCH_FREE_BYTES``; beyond that fewer places are tried.
"""

from __future__ import annotations

from itertools import combinations

from bkctl.codec.entry import BODY_BYTES_MIN, RECORD_HEAD
from bkctl.scan.dialect import Dialect
from bkctl.scan.proof import DIGEST_BODY_BYTES_MAX, Prover
from bkctl.scan.steady_file import SteadyFile

#: Of the last record of a file: how many zeros at its end may be its own bytes, and the multiples of the
#: offset at which filler behind it may end.
_ZEROS_AT_THE_END = 8
_ALIGNMENTS = (512, 4096)
_FILLER_OF_ITS_OWN = 4

#: Masks that turn a damaged size word back: every single bit, then every two of them.
_FLIPS = tuple(1 << bit for bit in range(32))
_FLIPS += tuple(one | other for one, other in combinations(_FLIPS, 2))

#: How many places a payload may hold that look like records before the next record is given up.
_NEXT_TRIES = 64

SEARCH_FREE_BYTES = 1 << 19
SEARCH_FACTOR = 3


class SizeProof:
    """Sizes and next records in one file; ``prover`` judges them."""

    def __init__(self, file: SteadyFile, dialect: Dialect, prover: Prover, size_max: int) -> None:
        self._file = file
        self._dialect = dialect
        self._prover = prover
        self._size_max = size_max
        self._searched = 0

    def next_record(self, start: int, after: int, stop: int | None = None) -> tuple[int | None, int | None]:
        """Return the next record from ``after`` on, and the size of the record at ``start``.

        The size is None unless the record's digest proves one in front of the next record.

        A next record that is only plausible may stand in the payload of the one at ``start``: then a few
        more are tried, and one that is certain is taken where it contradicts the first.
        """
        first = found = self._find(after, stop)
        head = self._file.peek(start, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return first, None
        _, ledger, entry = RECORD_HEAD.unpack(head)
        if ledger < 0 or entry < 0:
            return first, None
        for _ in range(_NEXT_TRIES):
            if found is None:
                return first, self.to_the_end(start, ledger) if stop is None else None
            if found - start > DIGEST_BODY_BYTES_MAX:
                break
            certain = self._prover.certain
            size = self.first_size(start, found, ledger)
            if size is None and certain:
                size = self.flipped_size(start, found, ledger)
            if size is not None:
                return found, size
            if certain and first is not None and first < found < self._end_of(first):
                return found, None
            if certain or self.is_tired(start):
                break
            found = self._find(found + 1, stop)
        return first, None

    def _end_of(self, offset: int) -> int:
        return offset + 4 + int.from_bytes(self._file.read_at(offset, 4), "big")

    def _find(self, after: int, stop: int | None) -> int | None:
        found = self._prover.find(after, stop)
        end = found if found is not None else self._file.size_bytes if stop is None else stop
        self._searched += end - after
        return found

    def is_tired(self, at: int) -> bool:
        """Return whether a hostile file has made searches go over the same bytes again and again."""
        return self._searched > SEARCH_FREE_BYTES + SEARCH_FACTOR * at

    def to_the_end(self, offset: int, ledger: int) -> int | None:
        """Return the size that the last record must have for its digest to check, None when none is proved.

        The record may end where the file ends, where the data ends, a few zeros of its own behind that, or
        where filler begins.
        """
        data_end = self._file.end_of_data(offset)
        if data_end - offset > DIGEST_BODY_BYTES_MAX or data_end <= offset:
            return None
        stops = [data_end + zeros for zeros in range(_ZEROS_AT_THE_END)]
        stops += [data_end + -data_end % alignment for alignment in _ALIGNMENTS]
        for stop in (*stops, self._file.size_bytes):
            if offset < stop <= self._file.size_bytes and stop - offset <= DIGEST_BODY_BYTES_MAX:
                size = self.first_size(offset, stop, ledger)
                if size is not None:
                    return size
        return self.flipped_size(offset, data_end, ledger)

    def flipped_size(self, offset: int, stop: int, ledger: int) -> int | None:
        """Return the size in front of ``stop`` that checks and differs from the size word by a bit or two."""
        word = int.from_bytes(self._file.read_at(offset, 4), "big")
        for flip in _FLIPS:
            size = word ^ flip
            fits = BODY_BYTES_MIN <= size <= min(stop - offset - 4, self._size_max)
            if fits and self._prover.digest_affordable(offset, size, ledger, guess=True):
                return size
        return None

    def first_size(self, offset: int, following: int, ledger: int) -> int | None:
        """Return the size with which the record at ``offset`` checks by its digest in front of ``following``.

        Filler may stand between the two, and the record may end in a few bytes that look like it. None when
        no size is proved.
        """
        end = self._dialect.filler_before(self._file, offset + 4, following)
        stops: list[int] = [*range(end, min(end + _FILLER_OF_ITS_OWN, following)), following]
        for stop in stops:
            size = stop - offset - 4
            if BODY_BYTES_MIN <= size <= self._size_max and self._prover.digest_affordable(
                offset, size, ledger, guess=True
            ):
                return size
        return None
