"""The journal under random input: zeros never fall on records, groups come out as they went in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import JournalBatch, zeros_ahead
from bkctl.engine.journal.portions import portions
from bkctl.engine.journal.zeros_ahead import ZeroRange
from tests.support.grades import times
from tests.support.journal_rig import RecordingSink, batch_of, body, java_records, journals, memory, running

_DATA = 1
_ZERO = 2


@given(
    step=st.integers(1, 40_000),
    end_max=st.integers(512, 200_000),
    moves=st.lists(st.one_of(st.integers(1, 30_000), st.sampled_from(["take", "done"])), max_size=80),
    header=st.sampled_from([8, 512]),
)
def test_zeros_and_records_never_share_a_byte(
    step: int, end_max: int, moves: list[int | str], header: int
) -> None:
    """Claims, zero writes and their ends in any order; a record is written when its claim is clear.

    ``image`` holds who wrote each byte last; ``making`` is the zero write that the disk is at, which may
    happen at any moment until it is done, so it is laid down at its end, the worst case.
    """
    image = bytearray(b"\1" * header)
    zeros = ZeroRange(header, step, end_max, group_bytes_max=1 << 30)
    making: tuple[int, int] | None = None
    position = header

    def finish() -> None:
        nonlocal making
        if making is not None:
            start, end = making
            image.extend(bytes(max(0, end - len(image))))
            image[start:end] = bytes([_ZERO]) * (end - start)
            zeros.done()
            making = None

    for move in moves:
        if move == "take":
            taken = zeros.take()
            assert taken is None or making is None
            making = taken or making
            assert zeros.zeroed <= max(end_max, header)
        elif move == "done":
            finish()
        elif isinstance(move, int):
            end = position + move
            zeros.claim(end)
            if not zeros.is_clear(end):
                finish()
            assert zeros.is_clear(end)
            image.extend(bytes(max(0, end - len(image))))
            image[position:end] = bytes([_DATA]) * move
            position = end
        assert image[:position] == bytes([_DATA]) * position
    finish()
    assert image[:position] == bytes([_DATA]) * position


@settings(max_examples=times(10, 25))
@given(
    sizes=st.lists(st.lists(st.integers(24, 60_000), min_size=1, max_size=4), min_size=1, max_size=12),
    step=st.sampled_from([0, 512, 4096, 10_000, 65_536, 1 << 20]),
    size_max=st.sampled_from([4096, 50_000, 1 << 20]),
    version=st.sampled_from([4, 5, 6]),
    alignment=st.sampled_from([512, 4096]),
    alone=st.booleans(),
)
def test_a_journal_gives_back_what_it_was_given(
    sizes: list[list[int]], step: int, size_max: int, version: int, alignment: int, alone: bool
) -> None:
    """With zeros written by a real thread beside it, whatever the sizes; ``alone``: one group per batch."""
    if step:
        step = max(step, alignment)
    disk = memory()
    sink = RecordingSink()
    chosen = JournalSettings(
        format_version=version,
        preallocation_bytes=step,
        size_bytes_max=size_max,
        alignment_bytes=alignment,
    )
    bodies = []
    before = zeros_ahead.GROUP_BYTES_MAX
    zeros_ahead.GROUP_BYTES_MAX = 1 << 40
    try:
        with running(disk, chosen) as journal:
            for number, of_batch in enumerate(sizes):
                records = [body(number, entry, size) for entry, size in enumerate(of_batch)]
                bodies += records
                journal.append(batch_of(records, sink, number))
                if alone:
                    sink.wait_for(number + 1)
            journal.stop()
    finally:
        zeros_ahead.GROUP_BYTES_MAX = before
    assert sink.journaled_contexts == list(range(len(sizes)))
    for left in (disk, disk.crash()):
        assert [record for data in journals(left).values() for _, record in java_records(data)] == bodies


@given(
    lengths=st.lists(st.lists(st.integers(0, 300), max_size=8), min_size=1, max_size=12),
    bytes_max=st.integers(1, 1000),
)
def test_portions_keep_order_and_lose_nothing(lengths: list[list[int]], bytes_max: int) -> None:
    sink = RecordingSink()
    batches = [
        JournalBatch([b"x" * size for size in of_batch], sum(of_batch), len(of_batch), sink)
        for of_batch in lengths
    ]
    for number, batch in enumerate(batches):
        batch.pieces = [bytes([number % 256]) * len(piece) for piece in batch.pieces]
    expected = b"".join(piece for batch in batches for piece in batch.pieces) + b"end"
    assert b"".join(b"".join(part) for part in portions(batches, bytes_max, b"end")) == expected
