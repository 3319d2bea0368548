"""Kernels against the plainest definition of what they compute, on good and on damaged buffers."""

from __future__ import annotations

import hashlib
import hmac
import random
import struct
import zlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from bkctl import _kernels
from bkctl.codec.digest import mac_key
from tests.support.log_builder import CRC32, CRC32C, MAC, PASSWORD, Digester, entry_body

Columns = tuple[list[int], list[int], list[int], list[int], int]
KEY = mac_key(PASSWORD)


def plain_walk(buffer: bytes, start: int, end: int, size_min: int, size_max: int) -> Columns:
    starts, sizes, ledgers, entries = [], [], [], []
    while True:
        head = buffer[start:end][:20]
        if len(head) < 20:
            break
        size, ledger, entry = struct.unpack(">iqq", head)
        whole = start + 4 + size <= end
        if not (size_min <= size <= size_max and whole and ledger >= 0 and entry >= 0):
            break
        starts.append(start)
        sizes.append(size)
        ledgers.append(ledger)
        entries.append(entry)
        start += 4 + size
    return starts, sizes, ledgers, entries, start


def plain_digest(name: str, body: bytes) -> bool:
    length = {"crc32c": 4, "crc32": 8, "mac": 20}[name]
    if len(body) < 32 + length:
        return False
    covered = body[:32] + body[32 + length :]
    if name == "crc32c":
        expected = struct.pack(">I", crc32c(covered))
    elif name == "crc32":
        expected = struct.pack(">q", zlib.crc32(covered))
    else:
        expected = hmac.new(hashlib.sha1(b"mac" + PASSWORD).digest(), covered, "sha1").digest()
    return body[32 : 32 + length] == expected


def kernel_failing(name: str, buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
    if name == "crc32c":
        return _kernels.failing_crc32c(buffer, starts, sizes)
    if name == "crc32":
        return _kernels.failing_crc32(buffer, starts, sizes)
    return _kernels.failing_mac(buffer, starts, sizes, KEY)


DIGESTERS: dict[str, Digester] = {"crc32c": CRC32C, "crc32": CRC32, "mac": MAC}


def records(name: str, seed: int, count: int) -> bytes:
    generator = random.Random(seed)
    bodies = []
    for entry in range(count):
        payload = generator.randbytes(generator.choice([0, 1, 3, 63, 64, 65, 200]))
        bodies.append(entry_body(generator.randrange(5), entry, payload, DIGESTERS[name]))
        if generator.random() < 0.1:
            bodies.append(struct.pack(">qq", 1, entry).ljust(generator.randrange(16, 60), b"\1"))
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def damaged(buffer: bytes, seed: int, flips: int) -> bytes:
    generator = random.Random(seed)
    result = bytearray(buffer)
    for _ in range(flips):
        result[generator.randrange(len(result))] ^= 1 << generator.randrange(8)
    return bytes(result)


@pytest.mark.parametrize("name", ["crc32c", "crc32", "mac"])
@pytest.mark.parametrize("flips", [0, 1, 10, 300])
@pytest.mark.parametrize("seed", range(8))
def test_against_the_definitions(name: str, flips: int, seed: int) -> None:
    good = records(name, seed, 40)
    starts, sizes, _, _, stop = _kernels.walk_entries(good, 0, len(good), 16, 1 << 20)
    assert stop == len(good)
    bad = damaged(good, seed, flips)
    assert _kernels.walk_entries(bad, 0, len(bad), 16, 1 << 20) == plain_walk(bad, 0, len(bad), 16, 1 << 20)
    expected = [
        index
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
        if not plain_digest(name, bad[start + 4 : start + 4 + size])
    ]
    assert kernel_failing(name, bad, starts, sizes) == expected


@given(
    st.binary(max_size=300), st.integers(0, 310), st.integers(0, 300), st.integers(0, 40), st.integers(0, 300)
)
def test_walking_any_bytes(buffer: bytes, start: int, end: int, size_min: int, size_max: int) -> None:
    end = min(end, len(buffer))
    result = _kernels.walk_entries(buffer, start, end, size_min, size_max)
    assert result == plain_walk(buffer, start, end, size_min, size_max)
    assert max(start, end) >= result[4] >= start


@given(
    st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from([0, 1, -1, 5]), st.sampled_from([0, 1, -1, -4096])),
        max_size=8,
    )
)
def test_walking_chains(heads: list[tuple[int, int, int]]) -> None:
    buffer = b"".join(
        struct.pack(">i", size) + struct.pack(">qq", ledger, entry).ljust(size, b"z")[:size]
        for size, ledger, entry in heads
    )
    assert _kernels.walk_entries(buffer, 0, len(buffer), 16, 90) == plain_walk(buffer, 0, len(buffer), 16, 90)


@pytest.mark.parametrize("name", ["crc32c", "crc32", "mac"])
@given(buffer=st.binary(min_size=104, max_size=400), data=st.data())
def test_digests_of_any_bytes(name: str, buffer: bytes, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 100), max_size=5))
    starts = [data.draw(st.integers(0, len(buffer) - 4 - size)) for size in sizes]
    expected = [
        index
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
        if not plain_digest(name, buffer[start + 4 : start + 4 + size])
    ]
    assert kernel_failing(name, buffer, starts, sizes) == expected


def test_a_size_of_2_gib_is_not_followed() -> None:
    buffer = struct.pack(">iqq", 2**31 - 1, 1, 1) + bytes(100)
    assert _kernels.walk_entries(buffer, 0, len(buffer), 16, 2**31 - 1) == ([], [], [], [], 0)


def test_the_implementation_has_a_name() -> None:
    assert _kernels.IMPL == "python"
