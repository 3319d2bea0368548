"""Finding a digest by trying each kind on an entry, with bookies that the test plays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.client.errors import AccessDeniedError
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.codec.digest import DIGEST_BYTES
from bkctl.protocol.messages import ReadRequest
from bkctl.replication.digest_search import DigestSearchMachine, DigestUnknownError
from bkctl.types import DigestType, LedgerState, ResultCode
from tests.support.machine_rig import LEDGER, Rig, metadata

PASSWORD = b"pw"
CLOSED = replace(
    metadata(3, 2, 2, state=LedgerState.CLOSED, last_entry=9),
    metadata_version=1, digest_type=None, password=None,
)  # fmt: skip


def first_entry(digest: DigestType, data: bytes = b"some data") -> bytes:
    return LedgerAccess(LEDGER, digest, PASSWORD).encode(0, -1, len(data), data)


def search() -> Rig:
    return Rig(DigestSearchMachine(LEDGER, CLOSED, PASSWORD)).start()


@pytest.mark.parametrize("digest", DigestType)
@pytest.mark.parametrize("data", [b"some data", b""])
def test_each_kind_is_found(digest: DigestType, data: bytes) -> None:
    rig = search()
    rig.answer("a", body=first_entry(digest, data))
    if digest is DigestType.DUMMY:  # which any other one disproves
        rig.answer("b", body=first_entry(digest, data))
    assert rig.end is not None
    assert rig.end.value is digest


def test_the_read_proves_the_password_as_well() -> None:
    rig = search()
    request = rig.send_to("a").request
    assert isinstance(request, ReadRequest)
    assert (request.fence, request.master_key) == (True, LedgerAccess(LEDGER, DigestType.MAC, PASSWORD).key)
    rig.answer("a", ResultCode.UNAUTHORIZED)
    assert rig.end is not None
    assert isinstance(rig.end.error, AccessDeniedError)


def test_a_bookie_that_does_not_have_it_or_has_it_damaged_is_no_answer() -> None:
    good = first_entry(DigestType.CRC32)
    rig = search()
    rig.answer("a", body=good[:-1] + bytes([good[-1] ^ 1]))
    rig.answer("b", body=good)
    assert rig.end is not None
    assert rig.end.value is DigestType.CRC32
    rig = search()
    rig.silent("a")
    assert rig.asked() == ["b"]
    rig.answer("b", ResultCode.NO_ENTRY)
    assert rig.end is not None
    assert isinstance(rig.end.error, DigestUnknownError)


def test_what_is_too_long_for_its_header_is_not_taken_for_an_entry_without_a_digest() -> None:
    rig = search()
    rig.answer("a", body=first_entry(DigestType.DUMMY) + b"x")
    rig.answer("b", body=first_entry(DigestType.MAC)[:-1])
    assert rig.end is not None
    assert isinstance(rig.end.error, DigestUnknownError)


@pytest.mark.parametrize("digest", [DigestType.CRC32, DigestType.CRC32C, DigestType.MAC])
def test_what_is_cut_by_the_length_of_its_digest_is_not_taken_for_an_entry_without_one(
    digest: DigestType,
) -> None:
    """Nothing would be proved of the ledger's entries then, and damaged copies would be copied."""
    good = first_entry(digest)
    rig = search()
    rig.answer("a", body=good[: len(good) - DIGEST_BYTES[digest]])
    rig.answer("b", body=good)
    assert rig.end is not None
    assert rig.end.value is digest


def test_an_entry_without_a_digest_is_believed_where_nobody_else_has_it() -> None:
    rig = search()
    rig.answer("a", body=first_entry(DigestType.DUMMY))
    rig.silent("b")
    assert rig.end is not None
    assert rig.end.value is DigestType.DUMMY


def test_an_empty_ledger_has_none() -> None:
    rig = Rig(DigestSearchMachine(LEDGER, replace(CLOSED, last_entry=-1), PASSWORD)).start()
    assert rig.end is not None
    assert rig.end.value is DigestType.CRC32
