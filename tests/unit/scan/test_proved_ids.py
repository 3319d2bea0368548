"""The ids that a digest proves where those of its record are damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode
from bkctl.scan.proved_ids import EntryIds, proved_ids, proves_itself, trials_max, with_ids
from bkctl.types import DigestType

CHECKSUMS = [DigestType.CRC32C, DigestType.CRC32]


def entry_of(ledger: int, entry: int, digest_type: DigestType, payload: bytes = b"payload") -> bytes:
    header = EntryHeader(ledger, entry, entry - 1, len(payload))
    return encode(header, payload, Digester.of(digest_type, b"secret"))


@pytest.mark.parametrize("digest_type", CHECKSUMS)
@given(
    ledger=st.integers(0, 2**63 - 1), entry=st.integers(0, 2**63 - 1), bit=st.integers(0, 62),
    in_entry=st.booleans(), payload=st.binary(max_size=40),
)  # fmt: skip
def test_a_changed_bit_of_an_id_is_found(
    digest_type: DigestType, ledger: int, entry: int, bit: int, in_entry: bool, payload: bytes
) -> None:
    body = entry_of(ledger, entry, digest_type, payload)
    said = EntryIds(ledger, entry ^ 1 << bit) if in_entry else EntryIds(ledger ^ 1 << bit, entry)
    damaged = with_ids(body, said)
    assert not proves_itself(damaged)
    assert proved_ids(damaged) == (ledger, entry)
    assert with_ids(damaged, EntryIds(ledger, entry)) == body


@pytest.mark.parametrize("digest_type", CHECKSUMS)
def test_a_ledger_id_that_is_wrong_as_a_whole_is_found_among_known_ones(digest_type: DigestType) -> None:
    damaged = with_ids(entry_of(5, 9, digest_type), EntryIds(0x7F7F7F7F, 9))
    assert proved_ids(damaged) is None
    assert proved_ids(damaged, [4, 5, 6]) == (5, 9)


@pytest.mark.parametrize("digest_type", DigestType)
def test_nothing_is_proved_by_a_payload_that_is_damaged(digest_type: DigestType) -> None:
    body = bytearray(entry_of(5, 9, digest_type))
    body[-1] ^= 1
    assert proved_ids(bytes(body), [4, 6]) is None


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_nothing_is_proved_where_the_digest_is_no_checksum(digest_type: DigestType) -> None:
    damaged = with_ids(entry_of(5, 9, digest_type), EntryIds(4, 9))
    assert proved_ids(damaged, [5]) is None


@pytest.mark.parametrize("size", [0, 15, 16, 31, 35])
def test_what_is_too_short_proves_nothing(size: int) -> None:
    assert proved_ids(entry_of(5, 9, DigestType.CRC32C)[:size], [5]) is None


def test_negative_ids_are_never_tried() -> None:
    sealed = with_ids(entry_of(5, 9, DigestType.CRC32C), EntryIds(-5, 9))
    assert proved_ids(sealed, [5]) == (5, 9)
    assert proved_ids(with_ids(sealed, EntryIds(5, -9))) is None


def test_the_number_of_trials_is_known() -> None:
    assert trials_max(0) == 2 * 63 * 2
    assert trials_max(10) - trials_max(0) == 20
