"""Every twin of the kernels against the plainest definition of what they compute, on damaged buffers too."""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import struct
import subprocess
import sys
import zlib
from array import array

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from bkctl import _kernels
from bkctl._kernels import _api, _python
from bkctl._kernels._api import Kernels
from bkctl.codec.digest import mac_key
from tests.support.kernel_twins import COMPILED, TWINS, twin
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


def column(numbers: list[int]) -> bytes:
    return array("q", numbers).tobytes()


def walked(kernels: Kernels, buffer: bytes, start: int, end: int, size_min: int, size_max: int) -> Columns:
    """What the kernel finds, having looked that both of its forms find the same."""
    found = kernels.walk_entries(buffer, start, end, size_min, size_max)
    *lists, stop = found
    assert kernels.walk_columns(buffer, start, end, size_min, size_max) == (*map(column, lists), stop)
    return found


def kernel_failing(
    kernels: Kernels, name: str, buffer: bytes, starts: list[int], sizes: list[int]
) -> list[int]:
    if name == "crc32c":
        found = kernels.failing_crc32c(buffer, starts, sizes)
        assert found == kernels.columns_failing_crc32c(buffer, column(starts), column(sizes))
        return found
    if name == "crc32":
        found = kernels.failing_crc32(buffer, starts, sizes)
        assert found == kernels.columns_failing_crc32(buffer, column(starts), column(sizes))
        return found
    return kernels.failing_mac(buffer, starts, sizes, KEY)


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
@pytest.mark.parametrize("which", TWINS)
def test_against_the_definitions(which: str, name: str, flips: int, seed: int) -> None:
    good = records(name, seed, 40)
    bad = damaged(good, seed, flips)
    with twin(which) as kernels:
        starts, sizes, _, _, stop = walked(kernels, good, 0, len(good), 16, 1 << 20)
        assert stop == len(good)
        found = walked(kernels, bad, 0, len(bad), 16, 1 << 20)
        failing = kernel_failing(kernels, name, bad, starts, sizes)
    assert found == plain_walk(bad, 0, len(bad), 16, 1 << 20)
    expected = [
        index
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
        if not plain_digest(name, bad[start + 4 : start + 4 + size])
    ]
    assert failing == expected


@pytest.mark.parametrize("which", TWINS)
@given(
    buffer=st.binary(max_size=300),
    start=st.integers(0, 310),
    end=st.integers(0, 300),
    size_min=st.integers(0, 40),
    size_max=st.integers(0, 300),
)
def test_walking_any_bytes(
    which: str, buffer: bytes, start: int, end: int, size_min: int, size_max: int
) -> None:
    end = min(end, len(buffer))
    with twin(which) as kernels:
        result = walked(kernels, buffer, start, end, size_min, size_max)
    assert result == plain_walk(buffer, start, end, size_min, size_max)
    assert max(start, end) >= result[4] >= start


@pytest.mark.parametrize("which", TWINS)
@given(
    heads=st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from([0, 1, -1, 5]), st.sampled_from([0, 1, -1, -4096])),
        max_size=8,
    )
)
def test_walking_chains(which: str, heads: list[tuple[int, int, int]]) -> None:
    buffer = b"".join(
        struct.pack(">i", size) + struct.pack(">qq", ledger, entry).ljust(size, b"z")[:size]
        for size, ledger, entry in heads
    )
    with twin(which) as kernels:
        found = walked(kernels, buffer, 0, len(buffer), 16, 90)
    assert found == plain_walk(buffer, 0, len(buffer), 16, 90)


@pytest.mark.parametrize("name", ["crc32c", "crc32", "mac"])
@pytest.mark.parametrize("which", TWINS)
@given(buffer=st.binary(min_size=104, max_size=400), data=st.data())
def test_digests_of_any_bytes(which: str, name: str, buffer: bytes, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 100), max_size=5))
    starts = [data.draw(st.integers(0, len(buffer) - 4 - size)) for size in sizes]
    expected = [
        index
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
        if not plain_digest(name, buffer[start + 4 : start + 4 + size])
    ]
    with twin(which) as kernels:
        assert kernel_failing(kernels, name, buffer, starts, sizes) == expected


@pytest.mark.parametrize("which", TWINS)
def test_a_size_of_2_gib_is_not_followed(which: str) -> None:
    buffer = struct.pack(">iqq", 2**31 - 1, 1, 1) + bytes(100)
    with twin(which) as kernels:
        assert walked(kernels, buffer, 0, len(buffer), 16, 2**31 - 1) == ([], [], [], [], 0)


@pytest.mark.parametrize("which", TWINS)
@pytest.mark.parametrize("name", ["crc32c", "crc32"])
@pytest.mark.parametrize("size", [0, 1, 35, 36, 39, 40, 41, 47, 48, 1000, 4095, 70_000])
def test_one_bit_anywhere_is_noticed(which: str, name: str, size: int) -> None:
    length = {"crc32c": 4, "crc32": 8}[name]
    body = entry_body(3, 4, random.Random(size).randbytes(max(0, size - 32 - length)), DIGESTERS[name])
    good = struct.pack(">i", len(body)) + body
    with twin(which) as kernels:
        assert kernel_failing(kernels, name, good, [0], [len(body)]) == []
        for bit in range(0, 8 * len(body), max(1, len(body) // 40)):
            bad = bytearray(good)
            bad[4 + bit // 8] ^= 1 << bit % 8
            assert kernel_failing(kernels, name, bytes(bad), [0], [len(body)]) == [0]


@pytest.mark.parametrize("which", TWINS)
def test_rows_are_joined_and_measured(which: str) -> None:
    rows = [(bytes([number]) * 16, bytes([number + 1]) * 8) for number in range(5)]
    with twin(which) as kernels:
        assert kernels.join_rows(rows, 16, 8) == b"".join(key + value for key, value in rows)
        assert kernels.join_rows([], 16, 8) == b""
        for wrong in ((b"k" * 15, b"v" * 9), (b"k" * 17, b"v" * 7), (b"", b"v" * 8), (b"k" * 16, b"v")):
            with pytest.raises(ValueError, match="row 5"):
                kernels.join_rows([*rows, wrong], 16, 8)


@COMPILED
@pytest.mark.parametrize("name", ["native", "tables"])
def test_the_compiled_twin_never_looks_outside(name: str) -> None:
    buffer = bytes(100)
    with twin(name) as kernels:
        for starts, sizes in (([0], [97]), ([-1], [40]), ([97], [0]), ([0], [-1]), ([2**62], [2**62])):
            with pytest.raises(ValueError, match="outside"):
                kernels.failing_crc32c(buffer, starts, sizes)
            with pytest.raises(ValueError, match="outside"):
                kernels.columns_failing_crc32(buffer, column(starts), column(sizes))
        for start, end in ((0, 101), (-1, 100)):
            with pytest.raises(ValueError, match="outside"):
                kernels.walk_entries(buffer, start, end, 16, 90)
        with pytest.raises(ValueError, match="lengths"):
            kernels.failing_crc32(buffer, [0], [])
        with pytest.raises(ValueError, match="lengths"):
            kernels.columns_failing_crc32c(buffer, b"1234567", b"1234567")
        with pytest.raises(OverflowError):
            kernels.failing_crc32c(buffer, [2**64], [1])
        with pytest.raises(TypeError):
            kernels.walk_entries(bytearray(buffer), 0, 100, 16, 90)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            kernels.join_rows([[b"", b""]], 0, 0)  # type: ignore[list-item]


def _chosen(wanted: str) -> str:
    """What a fresh interpreter chooses, or the last line of what it complains."""
    program = "from bkctl import _kernels; print(_kernels.IMPL)"
    environment = {**os.environ, "BKCTL_KERNELS": wanted}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_the_reference_can_be_chosen() -> None:
    assert _chosen("python") == "python"
    assert "neither auto nor native nor python" in _chosen("fast")


@COMPILED
def test_the_compiled_twin_is_chosen_where_it_is() -> None:
    assert _chosen("auto") == _chosen("native") == "native"


@COMPILED
def test_the_reference_is_not_loaded_beside_the_compiled_twin() -> None:
    program = "import sys, bkctl._kernels; print('bkctl._kernels._python' in sys.modules)"
    environment = {**os.environ, "BKCTL_KERNELS": "auto"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_compiled_twin_of_another_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_api, "API", _api.API + 1)
    assert _kernels._chosen("auto") is _python
    with pytest.raises(ImportError):
        _kernels._chosen("native")


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="elsewhere a compiler is not required")
def test_ci_has_the_compiled_twin() -> None:
    assert _chosen("auto") == "native"
