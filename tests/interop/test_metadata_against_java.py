"""Cookies, BOOKIE_STATUS and ledger metadata through BookKeeper's own parsers and printers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec.bookie_status import (
    BookieMode,
    BookieStatus,
    decode_bookie_status,
    encode_bookie_status,
)
from bkctl.codec.cookie import Cookie, decode_cookie, encode_cookie, join_dirs
from bkctl.codec.ledger_metadata import (
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkctl.codec.ledger_path import split_ledger_path
from bkctl.types import DigestType, LedgerState
from tests.support.java_bookkeeper import JavaDriver, Row, start_driver

pytestmark = pytest.mark.interop

JAVA_DIGESTS = {
    DigestType.CRC32C: "CRC32C",
    DigestType.CRC32: "CRC32",
    DigestType.MAC: "MAC",
    DigestType.DUMMY: "DUMMY",
    None: None,
}
AWKWARD = "tab\t quote\" apostrophe' back\\slash newline\n \x01\x7f grün 漢字 \U0001f4d6"


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


# --- cookies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cookie",
    [
        Cookie(5, "127.0.0.1:3181", "/j", join_dirs(["/l"])),
        Cookie(5, "b:1", "/j1,/j2", join_dirs(["/l1", "/l2"]), "an-id", join_dirs(["/i1", "/i2"])),
        Cookie(5, AWKWARD, AWKWARD, AWKWARD, AWKWARD, AWKWARD),
    ],
    ids=["least", "all", "awkward"],
)
def test_java_prints_a_cookie_as_we_do(java: JavaDriver, cookie: Cookie) -> None:
    written = encode_cookie(cookie)
    assert java.cookie(written) == written
    assert decode_cookie(written) == cookie


@pytest.mark.corpora
@pytest.mark.parametrize("storage", ["db", "sorted", "interleaved", "perledger"])
def test_cookies_of_real_bookies_go_through_both(
    java: JavaDriver, corpora: Callable[[str], Path], storage: str
) -> None:
    files = sorted(corpora(storage).rglob("VERSION"))
    assert files
    for path in files:
        stored = path.read_bytes()
        assert encode_cookie(decode_cookie(stored)) == stored == java.cookie(stored)


# --- BOOKIE_STATUS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(BookieMode))
@pytest.mark.parametrize("manual", [False, True])
def test_java_understands_our_bookie_status(java: JavaDriver, mode: BookieMode, manual: bool) -> None:
    status = BookieStatus(mode, 1_795_262_753_391, manual)
    printed, read_only = java.bookie_status(encode_bookie_status(status))
    assert read_only is (mode is BookieMode.READ_ONLY)
    assert printed is not None
    # Java stamps the time anew when it prints.
    assert replace(decode_bookie_status(printed), updated_ms=status.updated_ms) == status


# --- ledger metadata ----------------------------------------------------------------------------------------


def metadata_of(version: int, state: LedgerState) -> LedgerMetadata:
    closed = state is LedgerState.CLOSED
    richer = version > 1  # format 1 has no more than quorum, sizes and segments
    return LedgerMetadata(
        metadata_version=version,
        write_quorum=2,
        ensemble_size=3,
        ack_quorum=2,
        length=4096 if closed else 0,
        last_entry=41 if closed else -1,
        state=state,
        segments=(
            Segment(0, ("b1:3181", "b2:3181", "b3:3181")),
            Segment(17, ("b4:3181", "b2:3181", "b3:3181")),
        ),
        digest_type=DigestType.CRC32C if richer else None,
        password=b'se"cr\\et\x00\xff' if richer else None,
        ctime_ms=1_795_261_430_556 if richer else None,
        custom_metadata=(("application", b"pulsar"), ("bytes", bytes(range(256)))) if richer else (),
        c_token=None,
    )


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("state", list(LedgerState))
def test_java_reads_the_ledger_metadata_that_we_wrote(
    java: JavaDriver, version: int, state: LedgerState
) -> None:
    metadata = metadata_of(version, state)
    stored = encode_ledger_metadata(metadata)
    theirs = java.ledger_metadata(stored, 7)
    assert theirs["format_version"] == version
    compare(metadata, theirs)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("digest", list(DigestType))
def test_java_knows_our_digest_types(java: JavaDriver, version: int, digest: DigestType) -> None:
    metadata = replace(metadata_of(version, LedgerState.CLOSED), digest_type=digest, password=b"")
    compare(metadata, java.ledger_metadata(encode_ledger_metadata(metadata), 7))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("state", list(LedgerState))
def test_we_write_what_java_wrote(java: JavaDriver, version: int, state: LedgerState) -> None:
    """What comes out of Java's serializer is decoded and encoded again."""
    row = java.ledger_metadata(encode_ledger_metadata(metadata_of(version, state)), 7)
    stored = bytes.fromhex(row["bytes"])
    decoded = decode_ledger_metadata(stored)
    assert encode_ledger_metadata(decoded) == stored
    compare(decoded, row)


@pytest.mark.corpora
@pytest.mark.parametrize("storage", ["db", "sorted", "interleaved", "perledger"])
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_metadata_of_real_ledgers_goes_through_both(
    java: JavaDriver, corpora: Callable[[str], Path], storage: str, state: str
) -> None:
    znodes = json.loads((corpora(storage) / f"zk-{state}.json").read_text())
    ledgers = {place[1]: path for path in znodes if (place := split_ledger_path(path))}
    assert ledgers
    for ledger, path in ledgers.items():
        stored = base64.b64decode(znodes[path]["data"])
        decoded = decode_ledger_metadata(stored)
        assert encode_ledger_metadata(decoded) == stored
        compare(decoded, java.ledger_metadata(stored, ledger))


def compare(ours: LedgerMetadata, theirs: Row) -> None:
    """Java gives the ctime as -1 where none is stored, and has no password where no digest type is."""
    assert ours.state.value == theirs["state"]
    assert (ours.ensemble_size, ours.write_quorum, ours.ack_quorum) == (
        theirs["ensemble_size"],
        theirs["write_quorum"],
        theirs["ack_quorum"],
    )
    assert (ours.length, ours.last_entry) == (theirs["length"], theirs["last_entry"])
    assert JAVA_DIGESTS[ours.digest_type] == theirs["digest"]
    assert (None if ours.password is None else ours.password.hex()) == theirs["password"]
    assert {str(segment.first_entry): list(segment.bookies) for segment in ours.segments} == theirs[
        "ensembles"
    ]
    assert {name: value.hex() for name, value in ours.custom_metadata} == theirs["custom_metadata"]
    assert (-1 if ours.ctime_ms is None else ours.ctime_ms) == theirs["ctime_ms"]
