"""Targets: the compiled kernels beside their twin in Python. They are also run with sanitizers in them."""

from __future__ import annotations

import socket
import struct
import tempfile
from array import array
from typing import Any

from bkctl._kernels import _python
from bkctl.protocol.messages import AddRequest
from bkctl.protocol.v3 import encode_request
from tests.fuzz.target import Target, one_of, seeds_of
from tests.support import window_sums
from tests.support.kernel_twins import COMPILED_TWINS, twin
from tests.support.log_builder import CRC32, entry_body, simple_log
from tests.support.table_blocks import LZ4, TRAILER_BYTES, block, packed

_HEAD = struct.Struct(">HHHI")


def _answer(call: Any, *arguments: object) -> object:
    """Return what a call returns, or the type of what it raises."""
    try:
        return call(*arguments)
    except (ValueError, TypeError) as error:
        return type(error)


def _walks(data: bytes) -> None:
    """Chains of records anywhere in a buffer; the compiled twin refuses limits outside of it."""
    start, end, size_min, size_max = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    buffer = data[_HEAD.size :]
    limits = (start % (len(buffer) + 1), end % (len(buffer) + 1), size_min % 60, size_max)
    outside = (start - 40_000, len(buffer) + 1 + end, size_min - 40_000)
    for where in ((0, len(buffer), 16, 1 << 20), limits):
        walked = _answer(_python.walk_entries, buffer, *where)
        columns = _answer(_python.walk_columns, buffer, *where)
        for name in COMPILED_TWINS:
            with twin(name) as native:
                assert _answer(native.walk_entries, buffer, *where) == walked
                assert _answer(native.walk_columns, buffer, *where) == columns
                if isinstance(walked, tuple) and isinstance(columns, tuple):
                    _digests(native, buffer, walked[0], walked[1])
                    _live(native, buffer, columns[:4], start, data)
                    _summed(native, buffer, [array("q", column).tolist() for column in columns[:4]], data)
                assert _answer(native.walk_columns, buffer, 0, outside[1], 16, size_max) is ValueError
                if outside[0] < 0:
                    assert _answer(native.walk_entries, buffer, outside[0], 0, 16, size_max) is ValueError
                if outside[2] < 0:
                    assert _answer(native.walk_entries, buffer, 0, 0, outside[2], size_max) is ValueError


def _digests(native: Any, buffer: bytes, starts: list[int], sizes: list[int]) -> None:
    columns = (array("q", starts).tobytes(), array("q", sizes).tobytes())
    for name in ("failing_crc32c", "failing_crc32"):
        failing = _answer(getattr(_python, name), buffer, starts, sizes)
        assert _answer(getattr(native, name), buffer, starts, sizes) == failing
        assert _answer(getattr(native, f"columns_{name}"), buffer, *columns) == failing


def _summed(native: Any, buffer: bytes, columns: list[list[int]], data: bytes) -> None:
    """Runs and words of a window's entries, of which some may lie outside, beside a plain reference."""
    count, odd = len(columns[0]), data or b"\0"
    marks = bytes(odd[number % len(odd)] % 3 for number in range(count))
    used = bytes((0, 4, 8, 4, 8, 4, 8, 5)[odd[number % len(odd)] % 8] for number in range(count))
    raw = [array("q", column).tobytes() for column in columns]
    first = int.from_bytes(odd[:7], "big")
    answer = _answer(window_sums.run_columns, buffer, *columns, marks, first)
    assert _answer(native.run_columns, buffer, *raw, marks, first) == answer
    answer = _answer(window_sums.digest_words, buffer, *columns, used)
    assert _answer(native.digest_words, buffer, *raw, used) == answer
    assert _answer(native.run_columns, buffer, *raw, marks + b"\0", first) is ValueError
    assert _answer(native.digest_words, buffer, raw[0][8:] + b"\0", *raw[1:], used) is ValueError


def _live(native: Any, buffer: bytes, columns: Any, first: int, data: bytes) -> None:
    """Records of a window that live: some ledgers are dead, and the index has some records elsewhere."""
    dead = set(data[:3])
    answer = _answer(_python.records_but, *columns, dead)
    assert _answer(native.records_but, *columns, dead) == answer
    assert _answer(native.records_but, columns[0][8:], *columns[1:], dead) == _answer(
        _python.records_but, columns[0][8:], *columns[1:], dead
    )
    _gathered(native, buffer, columns[0], columns[1], first, data)


def _gathered(native: Any, buffer: bytes, starts: bytes, sizes: bytes, first: int, data: bytes) -> None:
    there = array("q", starts[: len(starts) // 8 * 8])
    odd = data or b"\0"
    found = array(
        "q",
        [
            (at + first) & 0x7FFF_FFFF_FFFF_FFFF if odd[number % len(odd)] % 3 else number
            for number, at in enumerate(there)
        ],
    ).tobytes()
    for where in (first, 0, -1, (1 << 63) - 1 - len(buffer), (1 << 63) - 1):
        arguments = (buffer, starts, sizes, found, where)
        assert _answer(native.gather_at, *arguments) == _answer(_python.gather_at, *arguments)


def _columns(data: bytes) -> None:
    """Numbers of a column, and what they make of the records of ledgers: any bytes, of any length."""
    head, rest = data[:9].ljust(9, b"\0"), data[9:]
    more, count = int.from_bytes(head[:8], "big", signed=True), head[8] % 9
    keys, bounds = rest[: 16 * count], rest[16 * count : 16 * count + 8 * (count + 1)]
    calls = (
        ("shifted", (rest, more)),
        ("shifted", (rest[: len(rest) // 8 * 8], more)),
        ("size_bounds", (rest,)),
        ("size_bounds", (rest[: len(rest) // 8 * 8],)),
        ("pieces_of", (rest, count)),
        ("pieces_of", (keys, 16)),
        ("ledger_sums", (keys, bounds)),
        ("ledger_sums", (keys, rest)),
    )
    for function, arguments in calls:
        expected = _answer(getattr(_python, function), *arguments)
        for name in COMPILED_TWINS:
            with twin(name) as native:
                assert _answer(getattr(native, function), *arguments) == expected


def _places(data: bytes) -> None:
    """Records anywhere, overlapping, and such as lie partly outside: those are refused or read as nothing."""
    count, data = (data[0] % 9 if data else 0), data[1:]
    if len(data) < 4 * count:
        return
    numbers = struct.unpack_from(f">{2 * count}H", data)
    buffer = data[4 * count :]
    inside = [
        (start, size)
        for start, size in zip(numbers[::2], numbers[1::2], strict=True)
        if start + 4 + size <= len(buffer)
    ]
    starts, sizes = [start for start, _ in inside], [size for _, size in inside]
    outside = [start + 0x7FFFFFFF00000000 * (start & 1) - (start & 2) for start in numbers[::2]]
    for name in COMPILED_TWINS:
        with twin(name) as native:
            _digests(native, buffer, starts, sizes)
            for places, lengths in ((starts, sizes), (outside, numbers[1::2])):
                raw = array("q", places).tobytes(), array("q", lengths).tobytes()
                ids = [[number % 7 for number in places], [number % 11 for number in lengths]]
                _summed(native, buffer, [list(places), list(lengths), *ids], data)
                _gathered(native, buffer, *raw, len(data), data)
            _gathered(native, buffer, data, data, 0, data)
            for checksum in ("failing_crc32c", "failing_crc32"):
                _answer(getattr(native, checksum), buffer, outside, list(numbers[1::2]))
                raw = array("q", outside).tobytes(), array("q", numbers[1::2]).tobytes()
                _answer(getattr(native, f"columns_{checksum}"), buffer, *raw)
                _answer(getattr(native, f"columns_{checksum}"), buffer, data[: len(data) // 8 * 8], raw[1])
                _answer(getattr(native, f"columns_{checksum}"), buffer, data, data)


def _rows(data: bytes) -> None:
    """Rows of right and wrong widths."""
    widths, data = (data[:2].ljust(2, b"\0")), data[2:]
    key_bytes, value_bytes = widths[0] % 20, widths[1] % 20
    step = key_bytes + value_bytes or 1
    rows: list[Any] = [
        (data[at : at + key_bytes], data[at + key_bytes : at + step]) for at in range(0, len(data), step)
    ]
    expected = _answer(_python.join_rows, rows, key_bytes, value_bytes)
    for name in COMPILED_TWINS:
        with twin(name) as native:
            assert _answer(native.join_rows, rows, key_bytes, value_bytes) == expected


def _blocks(data: bytes) -> None:
    """A block of a table file, its checksum right, unpacked or as LZ4."""
    widths, inner = data[:2].ljust(2, b"\1"), data[2:]
    sizes = widths[0] % 20 + 1, widths[1] % 20 + 1
    for made in (block(inner), block(inner, LZ4), packed(inner, widths[0] * 9), data):
        if len(made) < TRAILER_BYTES:
            continue
        size = len(made) - TRAILER_BYTES
        columns = bytes(8), array("q", [size]).tobytes()
        content = _answer(_python.table_block, made, 0, size)
        rows = _answer(_python.table_rows, made, *columns, *sizes)
        for name in COMPILED_TWINS:
            with twin(name) as native:
                assert _answer(native.table_block, made, 0, size) == content
                assert _answer(native.table_rows, made, *columns, *sizes) == rows


def _adds(data: bytes) -> None:
    """Adds in a receive buffer, from anywhere to anywhere."""
    start, end, _, _ = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    buffer = data[_HEAD.size :]
    for where in ((0, len(buffer)), (start % (len(buffer) + 2), end % (len(buffer) + 2))):
        expected = _answer(_python.scan_adds, buffer, *where)
        expected_v3 = _answer(_python.scan_v3_adds, buffer, *where)
        for name in COMPILED_TWINS:
            with twin(name) as native:
                assert _answer(native.scan_adds, buffer, *where) == expected
                assert _answer(native.scan_v3_adds, buffer, *where) == expected_v3
                assert _answer(native.scan_reads, buffer, *where) == _answer(
                    _python.scan_reads, buffer, *where
                )
                assert _answer(native.scan_v3_reads, buffer, *where) == _answer(
                    _python.scan_v3_reads, buffer, *where
                )
                assert _answer(native.leading_records, buffer, 16, 1 << 20, 100, 1 << 20) == _answer(
                    _python.leading_records, buffer, 16, 1 << 20, 100, 1 << 20
                )
                for count in (0, 1, 2, 5):
                    columns = (bytes(8 * count), b"\xff" * 8 * count)
                    assert _answer(native.v3_read_answers, *columns, buffer) == _answer(
                        _python.v3_read_answers, *columns, buffer
                    )
                assert _answer(native.read_answers, buffer[:8], buffer[8:]) == _answer(
                    _python.read_answers, buffer[:8], buffer[8:]
                )


def _records(data: bytes) -> list[bytes] | None:
    """Return the bodies of a chain of records; None when it is none."""
    bodies = []
    while data:
        size = int.from_bytes(data[:4], "big")
        body = data[4 : 4 + size]
        if size < 16 or len(body) < size or (body[0] | body[8]) & 0x80:
            return None
        bodies.append(body)
        data = data[4 + size :]
    return bodies


def _tables(data: bytes) -> None:
    """Tables of entries against a dict, with blocks of records, right and wrong ones, and entries alone."""
    for name in COMPILED_TWINS:
        with twin(name) as native:
            assert native.EntryTable is not None
            assert native.SortedEntries is not None
            tables, model = [native.EntryTable()], {}
            rest = data
            while rest:
                step, size_bytes = rest[0], 8 * rest[:2][-1]
                block, rest = rest[2 : 2 + size_bytes], rest[2 + size_bytes :]
                if step % 8 == 0:
                    tables.append(native.EntryTable())
                bodies = _records(block)
                if step % 2:
                    halves = [block[:16], block[16:32]]
                    whole = all(len(key) == 16 and not (key[0] | key[8]) & 0x80 for key in halves)
                    put = _answer(tables[-1].put_many, halves, [block, rest])
                    assert put is (None if whole else ValueError)
                    model.update(dict(zip(halves, [block, rest], strict=True)) if whole else {})
                else:
                    put = _answer(tables[-1].put_records, block)
                    assert put == (ValueError if bodies is None else len(bodies))
                    model.update({body[:16]: body for body in bodies or []})
            _check_tables(native, tables, model, data)


def _check_tables(native: Any, tables: list[Any], model: dict[bytes, bytes], data: bytes) -> None:
    for key in [*model, data[:16], data[:9]]:
        found = [body for table in reversed(tables) if (body := table.get(key)) is not None]
        assert found[:1] == [model[key]] if key in model else not found
    ledgers = {int.from_bytes(key[:8], "big") for key in model}
    some = set(sorted(ledgers)[::2])
    for ledger in ledgers:
        ids = {int.from_bytes(key[8:], "big") for key in model if int.from_bytes(key[:8], "big") == ledger}
        highest = [table.highest(ledger) for table in tables]
        assert max(each for each in highest if each is not None) == max(ids)
        assert {each for table in tables for each in table.entries(ledger)} == ids
        assert all(table.without(some).highest(ledger) is None for table in tables) or ledger not in some
    for left_out in (set(), some):
        entries = native.SortedEntries()
        for table in tables:
            entries.add(table)
        entries.sort()
        keys, bodies = [], []
        while (batch := entries.next(3, 60, left_out)) is not None:
            start = 0
            for end in array("q", batch[2]):
                bodies.append(batch[1][start + 4 : end])
                start = end
            keys += [batch[0][at : at + 16] for at in range(0, len(batch[0]), 16)]
        wanted = [key for key in sorted(model) if int.from_bytes(key[:8], "big") not in left_out]
        assert keys == wanted
        assert bodies == [model[key] for key in wanted]
    _check_gathering(native, tables, model, data)
    while tables[0].clear(1):
        assert tables[0].get(data[:16]) is None


def _check_gathering(native: Any, tables: list[Any], model: dict[bytes, bytes], data: bytes) -> None:
    """Look all up at once, then remove some and look again."""
    newest = tuple(reversed(tables))
    for _ in range(2):
        keys = [*model, data[:16].ljust(16, b"\0"), *list(model)[:3]]
        wanted = [model.get(key) for key in keys]
        for cut in range(len(newest) + 1):
            (records, sizes), _ = native.gather_entries(
                newest[:cut], newest[cut:], b"".join(keys), True, 1 << 30
            )
            assert array("q", sizes).tolist() == [-1 if body is None else len(body) for body in wanted]
            there = [body for body in wanted if body is not None]
            assert records == b"".join([struct.pack(">i", len(body)) + body for body in there])
        (records, sizes), hits = native.gather_entries(newest, (), b"".join(keys), False, 50)
        found = array("q", sizes)
        assert len(found) == hits
        assert sum(found[:-1]) < 50
        assert found.tolist() == [len(body or b"") for body in wanted[:hits]]
        assert _answer(native.gather_entries, newest, (), b"x" * 17, True, 9) is ValueError
        gone = sorted(model)[:2]
        for table in tables:
            table.remove_many(gone)
            if model:
                table.remove_ledgers({int.from_bytes(max(model)[:8], "big")}, 0, 1 << 30)
        gone += [key for key in model if key[:8] == max(model)[:8]]
        for key in set(gone):
            del model[key]
        assert sum(map(len, tables)) >= len(model)


def _file(data: bytes) -> None:
    """Records of a file at any places, with keys that stand there and with others."""
    count, first, size_max, data = (data[:1] or b"\0")[0] % 9, data[1:2], data[2:3], data[3:]
    starts = [
        start - (start & 1) * 3 for start in struct.unpack_from(f">{count}H", data.ljust(2 * count, b"\0"))
    ]
    content = data[2 * count :]
    keys = b"".join(
        [
            (content[max(start, 0) + 4 :][:16] if start & 2 else content[:16]).ljust(16, b"\0")
            for start in starts
        ]
    )
    column = array("q", starts).tobytes()
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        for bounds in ((sum(first), sum(size_max)), (20, 60), (1, 0), (1 << 20, 1 << 21)):
            arguments = (file.fileno(), column, keys, *bounds)
            expected = _answer(_python.read_records, *arguments)
            for name in COMPILED_TWINS:
                with twin(name) as native:
                    assert _answer(native.read_records, *arguments) == expected
                    assert _answer(native.read_records, *arguments[:2], keys[:-1], *bounds) == _answer(
                        _python.read_records, *arguments[:2], keys[:-1], *bounds
                    )


def _sends(data: bytes) -> None:
    """Pieces of any size to sockets of both twins, and to none."""
    sizes, data = data[:9], data[9:]
    pieces = [data[: 8 * size] for size in sizes]
    answers = []
    for name in ("reference", *COMPILED_TWINS):
        pairs = [socket.socketpair() for _ in pieces]
        try:
            for ours, _ in pairs:
                ours.setblocking(False)
            descriptors = [
                -1 if size & 1 else ours.fileno() for size, (ours, _) in zip(sizes, pairs, strict=True)
            ]
            if name == "reference":
                answers.append(_python.send_pieces(descriptors, pieces))
            else:
                with twin(name) as native:
                    answers.append(native.send_pieces(descriptors, pieces))
                    assert _answer(native.send_pieces, descriptors, [*pieces, b""]) is ValueError
            for (_, theirs), count in zip(pairs, answers[-1], strict=True):
                assert len(theirs.recv(1 << 16, socket.MSG_DONTWAIT) if count else b"") == count
        finally:
            for pair in pairs:
                for each in pair:
                    each.close()
    assert all(answer == answers[0] for answer in answers)


def _descriptors(data: bytes) -> None:
    """Whatever has to do with files and sockets."""
    _file(data)
    _sends(data)


def _grants(data: bytes) -> None:
    """Ledgers by grant beside the reference: puts, removals, lookups of many, and notes at any place."""
    for name in COMPILED_TWINS:
        with twin(name) as native:
            tables = [(kernels, kernels.GrantTable()) for kernels in (_python, native)]
            uses = [
                [kernels.LedgerUse(kernels.LedgerCounter(0.0, 0)) for _ in range(16)] for kernels, _ in tables
            ]
            for at in range(0, len(data) - 1, 2):
                step, number = data[at], data[at + 1]
                answers = [
                    _grant_step(table, its, step, number, data)
                    for (_, table), its in zip(tables, uses, strict=True)
                ]
                assert answers[0] == answers[1]
            states = [[(use.lac, use.used, use.counter.entries) for use in its] for its in uses]
            assert states[0] == states[1]


def _grant_step(table: Any, uses: list[Any], step: int, number: int, data: bytes) -> object:
    """Do a step; return what can be compared of its answer, and whether the grant is there."""
    grant = bytes([number]) * (28 if step < 200 else number % 40)
    if step % 4 == 0:
        answer = _answer(table.__setitem__, grant, uses[number % len(uses)])
    elif step % 4 == 1:
        found = _answer(table.pop, grant)
        answer = uses.index(found) if found in uses else found
    elif step % 4 == 2:
        answer = _answer(table.find, grant * 2)
    else:
        places = array("q", [number - 1, number - 1]).tobytes()
        lacs, counts = data.ljust(32)[:16], data.ljust(32)[16 : 32 + step // 200]
        noted = _answer(table.note, places, lacs, counts, 1.5, number % 2)
        answer = noted if noted is ValueError else len(noted[1])  # type: ignore[index]
    return answer, len(table), grant in table


def _parts(data: bytes) -> None:
    """Records of adds that are taken apart: grants and counts, and records that may be theirs."""
    head, data = data[:2].ljust(2, b"\0"), data[2:]
    runs, parts = head[0] % 5, head[1] % 9
    grants, data = data[: 28 * runs], data[28 * runs :]
    counts, records = data[: 8 * runs], data[8 * runs :]
    for arguments in ((grants, counts, records, parts), (grants, counts, records, -1)):
        expected = _answer(_python.split_records, *arguments)
        for name in COMPILED_TWINS:
            with twin(name) as native:
                assert _answer(native.split_records, *arguments) == expected


_CHOICES = [_walks, _places, _rows, _adds, _tables, _descriptors, _blocks, _columns, _grants, _parts]


def kernels(data: bytes) -> None:
    """The compiled functions return what the reference returns, whatever the buffer and the places in it."""
    one_of(data, _CHOICES)


_BODY = struct.pack(">qqq", 7, 1, 0)
_ADD = struct.pack(">iI20s", 24 + len(_BODY), 0x02010000, b"k" * 20) + _BODY
_V3_ADD = encode_request(AddRequest(7, 1, b"k" * 20, _BODY + bytes(200), txn_id=300))
_BLOCK = struct.pack(">i", len(_BODY) + 4) + _BODY + b"more"
#: Two runs, of ledgers 7 and 8, with two records and one, for two parts.
_RUN_PARTS = (
    b"\2\2"
    + b"".join([b"k" * 20 + struct.pack(">q", ledger) for ledger in (7, 8)])
    + array("q", (2, 1)).tobytes()
    + (struct.pack(">i", len(_BODY)) + _BODY) * 2
    + struct.pack(">iqqq", 24, 8, 1, 0)
)


def _seeds() -> list[bytes]:
    log = simple_log(2, 3).data[1024:]
    body = entry_body(7, 1, digester=CRC32)
    records = struct.pack(">i", len(body)) + body
    return seeds_of(
        [
            [_HEAD.pack(4, 500, 16, 1 << 20) + log, _HEAD.pack(0, 9, 0, 90) + records * 4],
            [b"\3" + struct.pack(">6H", 0, len(body), 0, 40, 4, 36) + records * 3],
            [b"\x10\x08" + bytes(range(72)), b"\3\2abcdefg"],
            [
                bytes(10) + _ADD * 3,
                bytes(10) + _ADD[:-3] + _ADD,
                bytes(10) + _V3_ADD * 3,
                bytes(10) + _V3_ADD[:-3] + _V3_ADD,
                bytes(10) + struct.pack(">i4sqq", 20, b"\2\2\0\0", 7, 1) * 3,
            ],
            [
                b"\2\4" + _BLOCK + b"\x08\x08" + _BLOCK * 2 + b"\1\4" + _BODY + bytes(8),
                b"\1\5" + _BLOCK * 3,
            ],
            [
                b"\3\x14\x40" + struct.pack(">3H", 0, 2, len(records)) + records * 3,
                b"\2\x50\xff" + struct.pack(">2H", 2, 2) + bytes(2) + records,
            ],
            # A row of 16 and 8 bytes, which RocksDB has put once, and where the only restart is.
            [b"\x0f\7\0\x18\x08" + _BODY[:16] + b"\1" + bytes(15) + struct.pack("<II", 0, 1)],
            [(b"\x08" + bytes(7) + b"\3" + _BODY[:16] * 3 + array("q", (9, 40, 70, 99)).tobytes())],
            [bytes(range(200, 256)) * 2, b"\4\1\4\2\x08\3\2\1\5\2\3\1\7\2\5\1\4\2" * 3],
            [_RUN_PARTS, _RUN_PARTS[:-1], _RUN_PARTS[:1] + b"\1" + _RUN_PARTS[2:]],
        ]
    )


TARGETS = [
    Target(
        "kernels",
        kernels,
        _seeds,
        (struct.pack(">i", -1), struct.pack(">i", 2**31 - 1), bytes(8), b"\xff" * 8),
        weight=3,
        sanitized=True,
    )
]
