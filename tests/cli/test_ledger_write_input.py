"""``bkctl ledger write``: what of a slow input is sent when."""

from __future__ import annotations

from io import BufferedReader, RawIOBase

import pytest

from bkctl.commands.ledger.write import _line_batches
from bkctl.errors import UsageError


class Pieces(RawIOBase):
    """A pipe whose writer says a little at a time."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self._pieces = list(pieces)

    @property
    def left(self) -> int:
        return len(self._pieces)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces.pop(0)
        memoryview(buffer)[: len(piece)] = piece  # type: ignore[arg-type]
        return len(piece)


def test_lines_that_are_there_do_not_wait_for_more() -> None:
    stream = BufferedReader(Pieces(b"one\ntwo\nthr", b"ee\n", b"\n", b"last"))
    batches = _line_batches(stream, 100)
    assert next(batches) == [b"one", b"two"]
    assert list(batches) == [[b"three"], [b""], [b"last"]]


def test_an_empty_input_has_no_lines() -> None:
    assert list(_line_batches(BufferedReader(Pieces()), 100)) == []


def test_what_has_no_lines_is_not_read_to_its_end() -> None:
    pieces = Pieces(b"one\n" + bytes(6), bytes(6), bytes(6))
    batches = _line_batches(BufferedReader(pieces), 10)
    assert next(batches) == [b"one"]
    with pytest.raises(UsageError, match="a line of more than 10 bytes"):
        next(batches)
    assert pieces.left == 1
