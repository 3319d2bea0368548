"""``bkctl ledger write``: what of a slow input is sent when."""

from __future__ import annotations

from io import BufferedReader, RawIOBase

from bkctl.commands.ledger_data import _line_batches


class Pieces(RawIOBase):
    """A pipe whose writer says a little at a time."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self._pieces = list(pieces)

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
    batches = _line_batches(stream)
    assert next(batches) == [b"one", b"two"]
    assert list(batches) == [[b"three"], [b""], [b"last"]]


def test_an_empty_input_has_no_lines() -> None:
    assert list(_line_batches(BufferedReader(Pieces()))) == []
