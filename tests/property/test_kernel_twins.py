"""The compiled kernels beside the reference: one answer, whatever the bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from array import array
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl._kernels import _python
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.protocol import scan_v2, scan_v3, v2, v3
from bkctl.protocol.messages import AddRequest, ReadRequest, Wire
from bkctl.protocol.runs import (
    AddRun,
    PackedAddRun,
    PackedReadRun,
    answer_read_records,
    answer_reads,
    answer_run,
)
from bkctl.types import ResultCode
from tests.support.grades import times
from tests.support.kernel_twins import COMPILED, twin
from tests.support.log_builder import CRC32, CRC32C, entry_body

pytestmark = COMPILED

IDS = st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1))


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """A record as a log has it, its digest right."""
    digester = draw(st.sampled_from([CRC32C, CRC32]))
    ledger, entry = draw(st.integers(0, 3)), draw(st.integers(0, 2**50))
    body = entry_body(ledger, entry, draw(st.binary(max_size=90)), digester)
    return struct.pack(">i", len(body)) + body


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """Something that begins like a record."""
    size = draw(st.one_of(st.integers(0, 120), st.integers(-(2**31), 2**31 - 1)))
    return struct.pack(">iqq", size, draw(IDS), draw(IDS)) + draw(st.binary(max_size=40))


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Records, things like records and noise, then a few bytes changed."""
    pieces = st.one_of(entries(), entries(), entries(), heads(), st.binary(max_size=30))
    data = bytearray(b"".join(draw(st.lists(pieces, max_size=12))))
    for at in draw(st.lists(st.integers(0, 2**16), max_size=4)):
        if data:
            data[at % len(data)] ^= draw(st.integers(1, 255))
    return bytes(data)


def answer(call: Any, *arguments: object) -> object:
    """What a call returns, or the type of what it raises."""
    try:
        return call(*arguments)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("which", ["native", "tables"])
@given(buffer=buffers(), data=st.data())
def test_a_chain_and_its_digests(which: str, buffer: bytes, data: st.DataObject) -> None:
    start, end = data.draw(st.integers(0, len(buffer))), data.draw(st.integers(0, len(buffer)))
    size_min, size_max = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 2**40))
    where = data.draw(st.sampled_from([(0, len(buffer), 16, 1 << 20), (start, end, size_min, size_max)]))
    with twin(which) as native:
        walked = _python.walk_entries(buffer, *where)
        assert native.walk_entries(buffer, *where) == walked
        columns = _python.walk_columns(buffer, *where)
        assert native.walk_columns(buffer, *where) == columns
        for name in ("failing_crc32c", "failing_crc32"):
            failing = getattr(_python, name)(buffer, walked[0], walked[1])
            assert getattr(native, name)(buffer, walked[0], walked[1]) == failing
            assert getattr(native, f"columns_{name}")(buffer, columns[0], columns[1]) == failing


@pytest.mark.parametrize("which", ["native", "tables"])
@given(buffer=st.binary(min_size=60, max_size=600), data=st.data())
def test_records_anywhere(which: str, buffer: bytes, data: st.DataObject) -> None:
    places = data.draw(
        st.lists(
            st.integers(0, len(buffer) - 4).flatmap(
                lambda start: st.tuples(st.just(start), st.integers(0, len(buffer) - 4 - start))
            ),
            max_size=9,
        )
    )
    starts, sizes = [start for start, _ in places], [size for _, size in places]
    columns = (array("q", starts).tobytes(), array("q", sizes).tobytes())
    with twin(which) as native:
        for name in ("failing_crc32c", "failing_crc32"):
            failing = getattr(_python, name)(buffer, starts, sizes)
            assert getattr(native, name)(buffer, starts, sizes) == failing
            assert getattr(native, f"columns_{name}")(buffer, *columns) == failing


@given(rows=st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=5), data=st.data())
def test_joining_rows(rows: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        rows = [(key.ljust(3, b"k"), value.ljust(2, b"v")) for key, value in rows]
    with twin("native") as native:
        assert answer(native.join_rows, rows, 3, 2) == answer(_python.join_rows, rows, 3, 2)


@given(
    records=st.lists(st.one_of(entries(), heads()), max_size=8),
    bounds=st.tuples(st.integers(0, 200), st.integers(-1, 200)),
    data=st.data(),
)
def test_records_of_a_file(records: list[bytes], bounds: tuple[int, int], data: st.DataObject) -> None:
    content = b"".join(records)
    begins = [sum(map(len, records[:number])) for number in range(len(records))]
    starts = data.draw(
        st.lists(st.one_of(st.sampled_from([0, *begins]), st.integers(-9, 2**63 - 1)), max_size=9)
    )
    keys = b"".join([content[max(start, 0) + 4 :][:16].ljust(16, b"k") for start in starts])
    column = array("q", starts).tobytes()
    with tempfile.TemporaryFile() as file, twin("native") as native:
        file.write(content)
        file.flush()
        for first_bytes, size_max in (bounds, (64, 200), (20, 1 << 16)):
            arguments = (file.fileno(), column, keys, first_bytes, size_max)
            expected = answer(_python.read_records, *arguments)
            assert answer(native.read_records, *arguments) == expected
        assert answer(native.read_records, -1, column, keys, 64, 200) == (
            b"",
            array("q", [-1] * len(starts)).tobytes(),
        )


@given(
    data=st.binary(max_size=9000),
    offset=st.one_of(st.integers(0, 5000), st.just(-1)),
    kind=st.sampled_from(("file", "read only", "none", "pipe")),
)
def test_bytes_written_and_synced(data: bytes, offset: int, kind: str) -> None:
    """To a file, to one that is open for reading, to nothing, and to what cannot be synced."""
    found = []
    with twin("native") as native, tempfile.TemporaryDirectory() as folder:
        for number, kernels in enumerate((_python, native)):
            path = f"{folder}/{number}"
            with open(path, "wb") as made:
                made.write(b"before")
            reader = writer = -1
            if kind == "pipe":
                reader, writer = os.pipe()
            elif kind != "none":
                writer = os.open(path, os.O_RDWR if kind == "file" else os.O_RDONLY)
            try:
                *done, sync_ns = kernels.write_and_sync(writer, data, offset)
            finally:
                for descriptor in (reader, writer):
                    if descriptor >= 0:
                        os.close(descriptor)
            with open(path, "rb") as made:
                found.append((done, sync_ns >= 0, made.read()))
            if kind == "file" and offset >= 0:
                assert done == [len(data), 0, 0]
                assert sync_ns >= 0
    assert found[0] == found[1]


@given(pieces=st.lists(st.binary(max_size=300), max_size=9), whole=st.booleans(), data=st.data())
def test_pieces_sent_to_sockets(pieces: list[bytes], whole: bool, data: st.DataObject) -> None:
    """To open sockets, full ones, those whose other end is gone, and none: the same counts and bytes."""
    kinds = data.draw(st.lists(st.sampled_from(("open", "full", "gone", "none")), min_size=9, max_size=9))
    pieces = pieces if whole else [piece * 2000 for piece in pieces]
    taken = []
    with twin("native") as native, contextlib.ExitStack() as opened:
        for kernels in (_python, native):
            pairs = [socket.socketpair() for _ in pieces]
            for (ours, theirs), kind in zip(pairs, kinds, strict=False):
                opened.enter_context(ours)
                opened.enter_context(theirs)
                ours.setblocking(False)
                theirs.setblocking(False)
                if kind == "full":
                    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                elif kind == "gone":
                    theirs.close()
            descriptors = [
                -1 if kind == "none" else ours.fileno() for (ours, _), kind in zip(pairs, kinds, strict=False)
            ]
            counts = kernels.send_pieces(descriptors, pieces)
            got = [
                _received(theirs) if kind in ("open", "full") else b""
                for (_, theirs), kind in zip(pairs, kinds, strict=False)
            ]
            taken.append((counts, got))
            assert [piece[:count] for piece, count in zip(pieces, counts, strict=True)] == got
        with pytest.raises(ValueError, match="lengths"):
            native.send_pieces([-1], [])
    assert taken[0] == taken[1]


def _received(connected: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(BlockingIOError):
        while piece := connected.recv(1 << 20):
            got += piece
    return got


@st.composite
def v3_reads(draw: st.DrawFn) -> bytes:
    """Reads of protocol v3, most of them plain, some with a byte changed."""
    ids = st.one_of(st.integers(0, 3), st.sampled_from([16, 127, 128, 2**14, 2**62, 2**63 - 1]))
    request = ReadRequest(
        draw(ids),
        draw(st.one_of(ids, st.just(-1))),
        version=3,
        txn_id=draw(st.one_of(ids, st.just(2**64 - 1))),
        priority=draw(st.sampled_from([0] * 9 + [1])),
        previous_lac=draw(st.sampled_from([None] * 9 + [5])),
    )
    frame = bytearray(v3.encode_request(request))
    if draw(st.integers(0, 7)) == 0:
        frame[draw(st.integers(0, len(frame) - 1))] ^= draw(st.integers(1, 255))
    return bytes(frame)


@settings(max_examples=times(100, 300))
@given(frames=st.lists(v3_reads(), max_size=8), cut=st.integers(0, 30), data=st.data())
def test_plain_reads_of_version_3_in_a_receive_buffer(
    frames: list[bytes], cut: int, data: st.DataObject
) -> None:
    buffer = b"".join(frames)
    places = data.draw(st.tuples(st.integers(-1, len(buffer) + 1), st.integers(-1, len(buffer) + 1)))
    for where in ((0, len(buffer)), (0, max(len(buffer) - cut, 0)), places):
        with twin("native") as native:
            assert answer(native.scan_v3_reads, buffer, *where) == answer(
                _python.scan_v3_reads, buffer, *where
            )
    keys, txns, position = _python.scan_v3_reads(buffer, 0, len(buffer))
    packed = PackedReadRun(keys, txns)
    run, _ = scan_v3.list_reads(buffer, 0, position)
    assert run is not None
    assert (packed.keys, packed.tokens, packed.wire) == (run.keys, run.tokens, run.wire)
    for number in range(len(packed)):
        request = v3.decode_request(frames[number][4:])
        assert isinstance(request, ReadRequest)
        assert packed.keys[number] == struct.pack(">qq", request.ledger, request.entry)


def test_the_reads_of_version_3_above_are_runs_indeed() -> None:
    frames = [v3.encode_request(ReadRequest(7, entry, version=3, txn_id=entry)) for entry in range(200)]
    with twin("native") as native:
        keys, _, stop = native.scan_v3_reads(b"".join(frames), 0, sum(map(len, frames)))
    assert (len(keys), stop) == (16 * 200, sum(map(len, frames)))


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2**63 - 1, -1]),
            st.sampled_from([-1, 0, 5, 2**63 - 1]),
            st.integers(-1, 300),
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
        ),
        max_size=6,
    ),
    spoil=st.sampled_from([0, 0, 0, 1, 2, 3]),
)
def test_records_as_answers_of_version_3(rows: list[tuple[int, int, int, int]], spoil: int) -> None:
    ids = [(1 if ledger < 0 else ledger, size) for ledger, _, size, _ in rows]
    bodies = [struct.pack(">qq", *each) + bytes(max(each[1], 0) % 300) for each in ids]
    joined = b"".join([struct.pack(">i", len(body)) + body for body in bodies])
    txns = array("q", [txn if spoil == 1 else abs(txn % 2**63) for _, _, _, txn in rows]).tobytes()
    lacs = [lac for _, lac, _, _ in rows]
    column = array("q", lacs + [0] * (spoil == 2)).tobytes()
    records = joined[: len(joined) - (spoil == 3)]
    expected = answer(_python.v3_read_answers, txns, column, records)
    with twin("native") as native:
        assert answer(native.v3_read_answers, txns, column, records) == expected
    if expected is not ValueError:
        run = PackedReadRun(b"".join([body[:16] for body in bodies]), txns)
        assert expected == answer_reads(Wire.V3, run.tokens, bodies, lacs)


@settings(max_examples=times(80, 200))
@given(
    buffer=buffers(),
    sizes=st.tuples(st.integers(15, 60), st.integers(15, 200)),
    others_max=st.integers(-1, 8),
    bytes_max=st.integers(-1, 400),
)
def test_the_records_that_a_buffer_begins_with(
    buffer: bytes, sizes: tuple[int, int], others_max: int, bytes_max: int
) -> None:
    arguments = (buffer, *sizes, others_max, bytes_max)
    expected = answer(_python.leading_records, *arguments)
    with twin("native") as native:
        assert answer(native.leading_records, *arguments) == expected
    if isinstance(expected, tuple):
        keys, column = expected
        starts = [0, *array("q", column)]
        assert [buffer[start + 4 : start + 20] for start in starts[:-1]] == [
            keys[at : at + 16] for at in range(0, len(keys), 16)
        ]


@st.composite
def add_frames(draw: st.DrawFn) -> bytes:
    """Adds of protocol v2, most of them plain, with grants that repeat."""
    body = struct.pack(">qqq", draw(IDS), draw(IDS), draw(IDS)) + draw(st.binary(max_size=40))
    head = draw(st.sampled_from([b"\x02\x01\x00\x00"] * 9 + [b"\x02\x01\x00\x02"]))
    length = 24 + len(body) + draw(st.sampled_from([0] * 19 + [-30, 1, 2**31 - 200]))
    return struct.pack(">i", length) + head + draw(st.sampled_from([b"k" * 20, b"q" * 20])) + body


@given(frames=st.lists(add_frames(), max_size=12), cut=st.integers(0, 90), data=st.data())
def test_plain_adds_in_a_receive_buffer(frames: list[bytes], cut: int, data: st.DataObject) -> None:
    buffer = b"".join(frames)
    places = data.draw(st.tuples(st.integers(-1, len(buffer) + 1), st.integers(-1, len(buffer) + 1)))
    for where in ((0, len(buffer)), (0, max(len(buffer) - cut, 0)), places):
        with twin("native") as native:
            assert answer(native.scan_adds, buffer, *where) == answer(_python.scan_adds, buffer, *where)


@given(frames=st.lists(add_frames(), max_size=12))
def test_runs_of_adds_are_the_same_over_both(frames: list[bytes]) -> None:
    """The columns of the compiled kernel, taken apart, are what the loop in Python makes."""
    buffer = b"".join(frames)
    columns, position = _python.scan_adds(buffer, 0, len(buffer))
    run, stop = scan_v2.list_adds(buffer, 0, len(buffer))
    assert (position, columns is None) == (stop, run is None)
    if columns is not None and run is not None:
        packed = PackedAddRun(Wire.V2, columns)
        _assert_same(packed, run)
        assert len(packed) == len(run)
        side_by_side = groupby(zip(run.grants, run.bodies, strict=True), itemgetter(0))
        lacs = [
            (grant, max(struct.unpack_from(">q", body, 16)[0] for _, body in adds))
            for grant, adds in side_by_side
        ]
        assert list(zip(_grants(packed), array("q", packed.lacs), strict=True)) == lacs
        for code in (ResultCode.OK, ResultCode.FENCED):
            assert answer_run(packed, code) == answer_run(run, code)


@st.composite
def read_frames(draw: st.DrawFn) -> bytes:
    """Reads of protocol v2, most of them plain."""
    length = draw(st.sampled_from([20] * 19 + [19, 21, -1]))
    head = draw(st.sampled_from([b"\x02\x02\x00\x00"] * 19 + [b"\x02\x02\x00\x01"]))
    return struct.pack(">i4sqq", length, head, draw(IDS), draw(IDS))


@given(frames=st.lists(read_frames(), max_size=12), cut=st.integers(0, 30), data=st.data())
def test_plain_reads_in_a_receive_buffer(frames: list[bytes], cut: int, data: st.DataObject) -> None:
    buffer = b"".join(frames)
    places = data.draw(st.tuples(st.integers(-1, len(buffer) + 1), st.integers(-1, len(buffer) + 1)))
    for where in ((0, len(buffer)), (0, max(len(buffer) - cut, 0)), places):
        with twin("native") as native:
            assert answer(native.scan_reads, buffer, *where) == answer(_python.scan_reads, buffer, *where)
    keys, position = _python.scan_reads(buffer, 0, len(buffer))
    run, stop = scan_v2.list_reads(buffer, 0, len(buffer))
    assert (position, keys is None) == (stop, run is None)
    if keys is not None and run is not None:
        packed = PackedReadRun(keys)
        assert (packed.wire, packed.keys, packed.tokens) == (run.wire, run.keys, run.tokens)
        assert len(packed) == len(run)


@given(
    records=st.lists(st.one_of(entries(), entries(), entries(), heads()), max_size=6),
    head=st.binary(max_size=9),
)
def test_records_as_answers(records: list[bytes], head: bytes) -> None:
    joined = b"".join(records)
    with twin("native") as native:
        expected = answer(_python.read_answers, head, joined)
        assert answer(native.read_answers, head, joined) == expected
    if expected is not ValueError:
        # Two of the records that were joined may be one: a head with a size, and what lies behind it.
        bodies = bodies_of(joined)
        run = PackedReadRun(b"".join([body[:16] for body in bodies]))
        requests = [ReadRequest(*struct.unpack(">qq", key), wire=Wire.V2, version=2) for key in run.keys]
        answers = [each.answer(ResultCode.OK, body) for each, body in zip(requests, bodies, strict=True)]
        frames = b"".join(map(v2.encode_response, answers))
        assert answer_read_records(run, 0, joined, []) == frames
        assert answer_reads(Wire.V2, run.keys, bodies) == frames


V3_IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))


@st.composite
def v3_adds(draw: st.DrawFn) -> list[bytes]:
    """Frames with plain adds of v3; now and then an entry has another ledger's id, or another length.

    The ids of a stretch have one width, as those of a client have: a frame of another shape ends a run.
    """
    frames = []
    for _ in range(draw(st.integers(1, 3))):
        ledgers = [draw(V3_IDS)]
        if ledgers[0] < 100:
            ledgers.append(ledgers[0] + 1)
        txn, entry = (min(draw(V3_IDS), 2**63 - 100) for _ in range(2))
        size = draw(st.integers(0, 300))
        for number in range(draw(st.integers(0, 24))):
            ledger = draw(st.sampled_from(ledgers))
            stray = draw(st.sampled_from([0] * 60 + [1, 2]))
            body = struct.pack(">qqq", ledger ^ (stray == 1), entry + number, draw(IDS))
            request = AddRequest(
                wire=Wire.V3,
                txn_id=txn + number,
                ledger=ledger,
                entry=entry + number,
                master_key=draw(st.sampled_from([b"k" * 20, b"q" * 20])),
                body=body + bytes([number]) * (size + (stray == 2)),
            )
            frames.append(v3.encode_request(request))
    return frames


@given(frames=v3_adds(), data=st.data())
def test_adds_of_version_3_in_a_receive_buffer(frames: list[bytes], data: st.DataObject) -> None:
    buffer = bytearray(b"".join(frames))
    for at in data.draw(st.lists(st.integers(0, 2**16), max_size=3)):
        if buffer:
            buffer[at % len(buffer)] ^= data.draw(st.integers(1, 255))
    places = data.draw(st.tuples(st.integers(-1, len(buffer) + 1), st.integers(-1, len(buffer) + 1)))
    for where in ((0, len(buffer)), (0, max(len(buffer) - data.draw(st.integers(0, 90)), 0)), places):
        with twin("native") as native:
            expected = answer(_python.scan_v3_adds, bytes(buffer), *where)
            assert answer(native.scan_v3_adds, bytes(buffer), *where) == expected


@given(frames=v3_adds())
def test_adds_of_version_3_are_the_same_as_columns_and_as_lists(frames: list[bytes]) -> None:
    buffer = b"".join(frames)
    run, stop = scan_v3.list_adds(buffer, 0, len(buffer))
    columns, position = _python.scan_v3_adds(buffer, 0, len(buffer))
    # A frame with something else behind what a plain add is: the loop in Python sees it at the end only.
    assert position <= stop
    if run is not None:
        assert columns is not None
        assert position == stop
        packed = PackedAddRun(Wire.V3, columns)
        _assert_same(packed, run)
        assert len(packed) == len(run)
        for code in (ResultCode.OK, ResultCode.FENCED):
            assert answer_run(packed, code) == answer_run(run, code)


def test_the_adds_of_version_3_above_are_runs_indeed() -> None:
    """Frames that no run is made of would let the tests above pass whatever the kernels do."""
    lengths = []

    @settings(max_examples=50, database=None, derandomize=True)
    @given(frames=v3_adds())
    def collect(frames: list[bytes]) -> None:
        run, _ = scan_v3.list_adds(b"".join(frames), 0, sum(map(len, frames)))
        lengths.append(0 if run is None else len(run))

    collect()
    assert sum(length >= 8 for length in lengths) >= 10


def _grants(packed: PackedAddRun) -> list[bytes]:
    joined = packed.packed_grants
    return [joined[at : at + 28] for at in range(0, len(joined), 28)]


def _assert_same(packed: PackedAddRun, run: AddRun) -> None:
    counts = [(grant, len(list(its))) for grant, its in groupby(run.grants)]
    assert list(zip(_grants(packed), array("q", packed.counts), strict=True)) == counts
    for name in ("wire", "grants", "keys", "bodies", "tokens", "size_bytes"):
        assert getattr(packed, name) == getattr(run, name)


@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8),
    more=st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1)),
    odd=st.integers(0, 7),
)
def test_numbers_of_a_column(numbers: list[int], more: int, odd: int) -> None:
    column = array("q", numbers).tobytes()
    ascending = array("q", sorted(abs(number) // 2 for number in numbers)).tobytes()
    with twin("native") as native:
        for given_column in (column, ascending, column + bytes(odd)):
            for name, arguments in (("shifted", (given_column, more)), ("size_bounds", (given_column,))):
                mine, other = getattr(native, name), getattr(_python, name)
                assert answer(mine, *arguments) == answer(other, *arguments)
    low, high = _python.size_bounds(ascending)
    sizes = [end - start for start, end in pairwise([0, *array("q", ascending)])]
    assert (low, high) == ((min(sizes), max(sizes)) if sizes else (0, 0))


@given(data=st.binary(max_size=80), size_bytes=st.integers(-1, 24))
def test_pieces_of_one_size(data: bytes, size_bytes: int) -> None:
    with twin("native") as native:
        for joined in (data, data[: len(data) // 8 * 8], data[: len(data) // 16 * 16]):
            mine = answer(native.pieces_of, joined, size_bytes)
            assert mine == answer(_python.pieces_of, joined, size_bytes)
    whole = data[: len(data) // 8 * 8]
    assert b"".join(_python.pieces_of(whole, 8)) == whole
    assert {len(piece) for piece in _python.pieces_of(whole, 8)} <= {8}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200])
def test_a_number_that_no_column_has_is_refused(number: int) -> None:
    with twin("native") as native:
        for kernels in (native, _python):
            for column in (b"", bytes(8)):
                with pytest.raises(OverflowError):
                    kernels.shifted(column, number)


@given(
    keys=st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2**63 - 1)), max_size=12),
    sizes=st.lists(st.integers(0, 2**10), min_size=13, max_size=13),
    extreme=st.one_of(st.none(), st.tuples(st.integers(0, 12), st.integers(-(2**63), 2**63 - 1))),
    wrong=st.integers(-1, 1),
)
def test_sums_of_ledgers(
    keys: list[tuple[int, int]], sizes: list[int], extreme: tuple[int, int] | None, wrong: int
) -> None:
    bounds = array("q", accumulate(sizes[: len(keys)], initial=100))
    joined = b"".join([struct.pack(">qq", *key) for key in keys])
    ledgers, sums = _python.ledger_sums(joined, bounds.tobytes())
    runs = [(ledger, len(list(run))) for ledger, run in groupby(keys, key=lambda key: key[0])]
    assert array("q", ledgers).tolist() == [ledger for ledger, _ in runs]
    assert sum(array("q", sums)) == bounds[-1] - 100
    if extreme is not None and extreme[0] < len(bounds):
        bounds[extreme[0]] = extreme[1]
    if wrong:
        joined = joined[16:] if wrong < 0 and joined else joined + b"\0"
    with twin("native") as native:
        arguments = (joined, bounds.tobytes())
        assert answer(native.ledger_sums, *arguments) == answer(_python.ledger_sums, *arguments)


@given(
    runs=st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.integers(0, 40), min_size=1, max_size=4)), max_size=8
    ),
    parts=st.integers(1, 7),
    wrong=st.one_of(st.none(), st.integers(0, 10**6)),
)
def test_records_are_taken_apart_by_their_ledgers(
    runs: list[tuple[int, list[int]]], parts: int, wrong: int | None
) -> None:
    grants = b"".join([b"k" * 20 + struct.pack(">q", ledger) for ledger, _ in runs])
    counts = array("q", [len(sizes) for _, sizes in runs]).tobytes()
    by_part: dict[int, list[bytes]] = {}
    chain = b""
    for number, (ledger, sizes) in enumerate(runs):
        for size in sizes:
            record = struct.pack(">iqq", 16 + size, ledger, number) + bytes([number]) * size
            by_part.setdefault(ledger % parts, []).append(record)
            chain += record
    found = _python.split_records(grants, counts, chain, parts)
    assert [number for number, *_ in found] == sorted(by_part)
    for number, its_grants, records, count in found:
        assert records == b"".join(by_part[number])
        assert count == len(by_part[number])
        ledgers = [its_grants[at + 20 : at + 28] for at in range(0, len(its_grants), 28)]
        assert ledgers == [struct.pack(">q", ledger) for ledger, _ in runs if ledger % parts == number]
    with twin("native") as native:
        assert native.split_records(grants, counts, chain, parts) == found
        if len(found) == 1:
            # Nothing is copied where everything goes to one place.
            assert native.split_records(grants, counts, chain, parts)[0][2] is chain
        if wrong is not None:
            joined = bytearray(grants + counts + chain + b"\0")
            joined[wrong % len(joined)] ^= 1 << wrong % 8
            broken = bytes(joined)
            ends = (len(grants), len(grants) + len(counts), len(joined) - wrong % 2)
            arguments = (broken[: ends[0]], broken[ends[0] : ends[1]], broken[ends[1] : ends[2]], parts)
            assert answer(native.split_records, *arguments) == answer(_python.split_records, *arguments)
        for none in (0, -1, 1025):
            assert answer(native.split_records, grants, counts, chain, none) is ValueError


@pytest.mark.parametrize("which", ["native", "tables"])
@given(buffer=buffers(), dead=st.sets(st.integers(0, 3)), data=st.data())
def test_records_that_live(which: str, buffer: bytes, dead: set[int], data: st.DataObject) -> None:
    *columns, _ = _python.walk_columns(buffer, 0, len(buffer), 16, 1 << 20)
    starts, sizes, keys = _python.records_but(*columns, dead)
    first = data.draw(st.integers(0, 2**62))
    moved = data.draw(st.sets(st.integers(0, 12)))
    there = array("q", [at + first + (number in moved) for number, at in enumerate(array("q", starts))])
    with twin(which) as native:
        assert native.records_but(*columns, dead) == (starts, sizes, keys)
        live = _python.gather_at(buffer, starts, sizes, there.tobytes(), first)
        assert native.gather_at(buffer, starts, sizes, there.tobytes(), first) == live
        for broken in ((columns[0][:-1], *columns[1:]), (*columns[:3], columns[3] + bytes(8))):
            assert answer(native.records_but, *broken, dead) == answer(_python.records_but, *broken, dead)
    alive = [ledger not in dead for ledger in array("q", columns[2])]
    assert len(keys) == 16 * sum(alive)
    kept = [number for number in range(sum(alive)) if number not in moved]
    assert live[0] == b"".join(keys[16 * number : 16 * number + 16] for number in kept)
    records = [
        buffer[at : at + 4 + size] for at, size in zip(array("q", starts), array("q", sizes), strict=True)
    ]
    assert live[1] == b"".join(records[number] for number in kept)
    assert array("q", live[3]).tolist() == [there[number] for number in kept]


@pytest.mark.parametrize("which", ["native", "tables"])
@given(
    buffer=st.binary(max_size=200),
    places=st.lists(st.tuples(st.integers(-3, 220), st.integers(-3, 220), st.booleans()), max_size=6),
    first=st.one_of(st.integers(-2, 100), st.integers(2**63 - 300, 2**63 - 1)),
)
def test_records_that_live_anywhere(
    which: str, buffer: bytes, places: list[tuple[int, int, bool]], first: int
) -> None:
    starts = array("q", [start for start, _, _ in places]).tobytes()
    sizes = array("q", [size for _, size, _ in places]).tobytes()
    found = array("q", [min(start + max(first, 0), 2**63 - 1) if right else 5 for start, _, right in places])
    arguments = (buffer, starts, sizes, found.tobytes(), first)
    with twin(which) as native:
        assert answer(native.gather_at, *arguments) == answer(_python.gather_at, *arguments)
        assert answer(native.gather_at, buffer, starts[1:], *arguments[2:]) is ValueError or not starts
