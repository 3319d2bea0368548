"""Digests and keys: byte for byte what DigestManager of BookKeeper makes, and accepted by it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from bkctl.codec import entry as codec
from bkctl.codec.digest import DIGEST_BYTES, Digester, master_key
from bkctl.types import DigestType
from tests.support.java_bookkeeper import EntryHeader, JavaDriver, start_driver

pytestmark = pytest.mark.interop

HEADERS = [
    EntryHeader(0, 0, -1, 0),
    EntryHeader(7, 3, 2, 4096),
    EntryHeader(2**63 - 1, 2**63 - 1, 2**63 - 2, 2**63 - 1),
]
PASSWORDS = [b"", b"secret", bytes(range(256))]
PAYLOADS = [b"", b"x", random.Random(4).randbytes(1024), random.Random(5).randbytes(70_001)]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.parametrize("password", PASSWORDS, ids=["empty", "ascii", "bytes"])
def test_we_seal_an_entry_as_a_client_does(java: JavaDriver, digest: DigestType, password: bytes) -> None:
    digester = Digester.of(digest, password)
    for header in HEADERS:
        ours = codec.EntryHeader(header.ledger, header.entry, header.lac, header.length)
        for payload in PAYLOADS:
            theirs = java.sealed_entry(digest.value, password, header, payload)
            assert codec.encode(ours, payload, digester) == theirs
            assert codec.decode_header(theirs) == ours
            assert codec.payload(theirs, digest) == payload
            assert digester.checks(theirs)


@pytest.mark.parametrize("digest", list(DigestType))
def test_java_and_we_refuse_the_same_bytes(java: JavaDriver, digest: DigestType) -> None:
    digester = Digester.of(digest, b"secret")
    body = java.sealed_entry(digest.value, b"secret", HEADERS[1], b"some payload")
    for position in range(16, len(body), 5):  # the ids are checked apart from the digest
        flipped = bytearray(body)
        flipped[position] ^= 0x10
        accepted = java.opened_entry(digest.value, b"secret", 7, 3, bytes(flipped)) is not None
        assert (position, digester.checks(bytes(flipped))) == (position, accepted)
        assert accepted is (digest is DigestType.DUMMY)


def test_a_wrong_password_matters_for_mac_alone(java: JavaDriver) -> None:
    for digest in DigestType:
        body = java.sealed_entry(digest.value, b"right", HEADERS[1], b"payload")
        accepted = java.opened_entry(digest.value, b"wrong", 7, 3, body) is not None
        assert Digester.of(digest, b"wrong").checks(body) is accepted is (digest is not DigestType.MAC)


@pytest.mark.parametrize("digest", list(DigestType))
def test_an_explicit_lac_is_sealed_over_its_two_ids(java: JavaDriver, digest: DigestType) -> None:
    blob = java.sealed_explicit_lac(digest.value, b"secret", 5, 41)
    assert len(blob) == 16 + DIGEST_BYTES[digest]
    assert int.from_bytes(blob[:8], "big") == 5
    assert int.from_bytes(blob[8:16], "big") == 41
    assert Digester.of(digest, b"secret").checks(blob, header_bytes=16)


@pytest.mark.parametrize("password", PASSWORDS, ids=["empty", "ascii", "bytes"])
def test_master_keys_are_equal(java: JavaDriver, password: bytes) -> None:
    assert master_key(password) == java.master_key(password)
