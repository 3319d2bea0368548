"""Digests of formats.md section 11.6, and keys of sections 4.2 and 11."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.digest import DIGEST_BYTES, Digester, mac_key, master_key
from bkctl.types import DigestType

CRC32C_ENTRY = (struct.pack(">qqqq", 5, 0, -1, 10), b"abcdefghij", "aa1c363f")
CRC32_ENTRY = (struct.pack(">qqqq", 0x1234567, 0, -1, 5), b"abcde", "000000000c56e425")
MAC_ENTRY = (struct.pack(">qqqq", 7, 0, -1, 5), b"abcde", "4e53e7507606632ebb417587066453137a2b6906")
LAC = (struct.pack(">qq", 5, 1), b"", "9aea0d92")

GOLDEN = [
    (DigestType.CRC32C, *CRC32C_ENTRY),
    (DigestType.CRC32, *CRC32_ENTRY),
    (DigestType.MAC, *MAC_ENTRY),
    (DigestType.CRC32C, *LAC),
    (DigestType.DUMMY, struct.pack(">qqqq", 1, 2, 1, 3), b"abc", ""),
]


@pytest.mark.parametrize(("digest_type", "header", "data", "expected"), GOLDEN)
def test_golden_digests(digest_type: DigestType, header: bytes, data: bytes, expected: str) -> None:
    digester = Digester.of(digest_type, b"secret")
    assert digester.compute(header, data).hex() == expected
    assert digester.size_bytes == DIGEST_BYTES[digest_type] == len(expected) // 2
    body = header + bytes.fromhex(expected) + data
    assert digester.checks(body, len(header))


@pytest.mark.parametrize(("digest_type", "header", "data", "expected"), GOLDEN[:4])
def test_every_flipped_bit_fails(digest_type: DigestType, header: bytes, data: bytes, expected: str) -> None:
    digester = Digester.of(digest_type, b"secret")
    body = bytearray(header + bytes.fromhex(expected) + data)
    for bit in range(8 * len(body)):
        body[bit // 8] ^= 1 << bit % 8
        assert not digester.checks(bytes(body), len(header))
        body[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_a_body_without_room_for_the_digest_fails(digest_type: DigestType) -> None:
    digester = Digester.of(digest_type)
    assert not digester.checks(bytes(31 + digester.size_bytes))


def test_the_high_half_of_a_crc32_counts() -> None:
    header, data, digest = CRC32_ENTRY
    body = bytearray(header + bytes.fromhex(digest) + data)
    body[32] = 1
    assert not Digester(DigestType.CRC32).checks(bytes(body))


@pytest.mark.parametrize(
    ("password", "key"),
    [
        (b"secret", "e793cbc379107648537183605cd361d3bb789a39"),
        (b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"),
    ],
)
def test_master_keys(password: bytes, key: str) -> None:
    assert master_key(password).hex() == key


def test_another_password_is_another_mac() -> None:
    header, data, digest = MAC_ENTRY
    body = header + bytes.fromhex(digest) + data
    assert not Digester.of(DigestType.MAC, b"Secret").checks(body)
    assert mac_key(b"secret") != master_key(b"secret")


def test_the_key_stays_out_of_the_repr() -> None:
    assert mac_key(b"secret").hex() not in repr(Digester.of(DigestType.MAC, b"secret"))
    assert repr(mac_key(b"secret")) not in repr(Digester.of(DigestType.MAC, b"secret"))


def test_dummy_fails_what_has_no_header() -> None:
    assert Digester(DigestType.DUMMY).failing(b"", [0, 40, 80], [32, 31, 100]) == [1]
