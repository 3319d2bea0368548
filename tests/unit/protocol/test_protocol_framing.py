"""Frame lengths, and what a receive buffer holds."""

from __future__ import annotations

import struct

import pytest

from bkctl.protocol.framing import (
    FRAME_BYTES_MAX,
    CloseReason,
    ProtocolError,
    ReceiveBuffer,
    check_length,
    encode_frame,
)


def test_the_limit_counts_the_length_word() -> None:
    assert FRAME_BYTES_MAX == 5_242_880
    check_length(5_242_876, FRAME_BYTES_MAX)
    with pytest.raises(ProtocolError) as caught:
        check_length(5_242_877, FRAME_BYTES_MAX)
    assert caught.value.reason is CloseReason.FRAME_TOO_LARGE


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (0, CloseReason.EMPTY_FRAME),
        (-1, CloseReason.NEGATIVE_LENGTH),
        (-(2**31), CloseReason.NEGATIVE_LENGTH),
        (2**31 - 1, CloseReason.FRAME_TOO_LARGE),
    ],
)
def test_lengths_that_cannot_be(length: int, reason: CloseReason) -> None:
    received = ReceiveBuffer()
    with pytest.raises(ProtocolError) as caught:
        list(received.frames(struct.pack(">i", length)))
    assert caught.value.reason is reason
    assert reason.value in str(caught.value)


def test_frames_come_whole_however_they_were_cut() -> None:
    stream = encode_frame(b"one") + encode_frame(b"two" * 100)
    for size in (1, 2, 3, 5, 7, 100, len(stream)):
        received = ReceiveBuffer()
        frames = [
            frame
            for start in range(0, len(stream), size)
            for frame in received.frames(memoryview(stream)[start : start + size])
        ]
        assert frames == [b"one", b"two" * 100]
        assert received.held_bytes == 0


def test_a_large_frame_in_small_pieces_is_joined_once() -> None:
    """Joining at each piece would copy half a gigabyte here."""
    frame = encode_frame(bytes(4 << 20))
    received = ReceiveBuffer()
    piece = 16 << 10
    for start in range(0, len(frame) - piece, piece):
        whole = received.add(frame[start : start + piece])
        if whole is not None:
            received.keep(whole)
        assert received.held_bytes == start + piece
    assert len(received._pieces) > 100
    rest = frame[received.held_bytes :]
    assert received.add(rest) == frame


def test_a_length_over_the_limit_is_refused_before_its_bytes_come() -> None:
    received = ReceiveBuffer(1024)
    assert list(received.frames(b"\0\0")) == []
    with pytest.raises(ProtocolError):
        list(received.frames(b"\x04\x00"))
