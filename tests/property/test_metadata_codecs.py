import contextlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.bookie_status import BookieMode, BookieStatus, decode_bookie_status, encode_bookie_status
from bkctl.codec.cookie import Cookie, decode_cookie, encode_cookie, join_dirs, split_dirs
from bkctl.codec.last_id import decode_last_id, encode_last_id
from bkctl.codec.last_mark import LastMark, decode_last_mark, encode_last_mark
from bkctl.codec.ledger_metadata import (
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkctl.codec.ledger_path import LedgerLayout, ledger_id, ledger_path
from bkctl.errors import CorruptionError
from bkctl.scan.metadata_dump import decode_metadata_dump
from bkctl.types import DigestType, LedgerState

KEY = b"BookieMetadataFormatVersion\t"
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BOOKIE = st.from_regex(r"[a-zA-Z0-9:_.\-]{1,12}", fullmatch=True).filter(lambda name: name != "CLOSED")

WORDS = [
    "quorumSize",
    "length",
    "state",
    "segment",
    "password",
    "bookieHost",
    "ledgerDirs",
    ":",
    "{",
    "}",
    "[",
    "]",
]
WORDS += [
    "<",
    ">",
    ",",
    ";",
    "#",
    '"',
    "'",
    "\\",
    "\\x",
    "\\777",
    '"a"',
    "'\\u00e9'",
    "1",
    "-1",
    "0x1f",
    "1e9",
]
WORDS += ["\n", " ", "\t", "é", "\0", "/", "CLOSED", "OPEN", "new", "inf", "."]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=40).map("".join).map(str.encode)
BYTES = st.binary(max_size=200)


def offset_is_within(error: CorruptionError, data: bytes) -> None:
    assert 0 <= error.offset <= len(data)


@given(BYTES)
def test_small_files_decode_or_are_damaged(data: bytes) -> None:
    for decode in (
        decode_last_mark,
        decode_last_id,
        decode_bookie_status,
        decode_cookie,
        decode_ledger_metadata,
    ):
        try:
            decode(data)
        except CorruptionError as error:
            offset_is_within(error, data)


@given(st.integers(0, 7), TEXTS | BYTES)
def test_any_cookie_decodes_or_is_damaged(layout: int, body: bytes) -> None:
    data = b"%d\n" % layout + body
    try:
        cookie = decode_cookie(data)
    except CorruptionError as error:
        offset_is_within(error, data)
    else:
        if cookie.has_fields:
            assert decode_cookie(encode_cookie(cookie)) == replace(cookie, layout_version=5)


@given(st.integers(1, 3), TEXTS | BYTES)
def test_any_metadata_decodes_or_is_damaged(version: int, body: bytes) -> None:
    data = KEY + b"%d\n" % version + body
    try:
        metadata = decode_ledger_metadata(data)
    except CorruptionError as error:
        offset_is_within(error, data)
    else:
        assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


REQUIRED_TEXT = (
    b"quorumSize: 2 ensembleSize: 2 length: 0 state: OPEN bookieHost: 'a' journalDir: 'b' ledgerDirs: 'c' "
)


@given(TEXTS)
def test_text_behind_the_required_fields(text: bytes) -> None:
    for decode, head in ((decode_ledger_metadata, KEY + b"2\n"), (decode_cookie, b"5\n")):
        try:
            decode(head + REQUIRED_TEXT + text)
        except CorruptionError as error:
            offset_is_within(error, head + REQUIRED_TEXT + text)


@given(st.binary(max_size=60))
def test_messages_behind_the_required_fields(rest: bytes) -> None:
    body = bytes.fromhex("08021002180020002803") + rest
    data = KEY + b"3\n" + bytes([len(body)]) + body
    try:
        metadata = decode_ledger_metadata(data)
    except CorruptionError:
        return
    assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


@given(st.builds(LastMark, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)))
def test_last_mark(mark: LastMark) -> None:
    assert decode_last_mark(encode_last_mark(mark)) == mark


@given(st.integers(0, 2**31 - 1))
def test_last_id(log_id: int) -> None:
    assert decode_last_id(encode_last_id(log_id)) == log_id


@given(st.builds(BookieStatus, st.sampled_from(BookieMode), I64, st.booleans()))
def test_bookie_status(status: BookieStatus) -> None:
    assert decode_bookie_status(encode_bookie_status(status)) == status


OPTIONAL = st.none() | TEXT.filter(bool)


@given(st.builds(Cookie, st.just(5), TEXT, TEXT, TEXT, OPTIONAL, OPTIONAL))
def test_cookie(cookie: Cookie) -> None:
    data = encode_cookie(cookie)
    assert data.isascii()
    assert decode_cookie(data) == cookie


@given(st.lists(TEXT.filter(lambda path: "\t" not in path)))
def test_dirs(paths: list[str]) -> None:
    assert split_dirs(join_dirs(paths)) == tuple(paths)


METADATA = st.builds(
    LedgerMetadata,
    metadata_version=st.sampled_from([2, 3]),
    write_quorum=I32,
    ensemble_size=I32,
    ack_quorum=I32,
    length=I64,
    last_entry=I64,
    state=st.sampled_from(LedgerState),
    segments=st.lists(st.builds(Segment, I64, st.lists(TEXT, max_size=3).map(tuple)), max_size=3).map(tuple),
    digest_type=st.none() | st.sampled_from(DigestType),
    password=st.none() | st.binary(max_size=20),
    ctime_ms=st.none() | I64,
    custom_metadata=st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=3).map(tuple),
    c_token=st.none() | I64,
)


@given(METADATA)
def test_metadata_of_formats_2_and_3(metadata: LedgerMetadata) -> None:
    data = encode_ledger_metadata(metadata)
    assert decode_ledger_metadata(data) == metadata
    assert encode_ledger_metadata(decode_ledger_metadata(data)) == data


@given(
    I32,
    I64,
    st.sampled_from(LedgerState),
    st.integers(-1, 2**63 - 1),
    st.lists(st.builds(Segment, I64, st.lists(BOOKIE, min_size=1, max_size=3).map(tuple)), max_size=3),
)
def test_metadata_of_format_1(
    quorum: int, length: int, state: LedgerState, last: int, segments: list[Segment]
) -> None:
    metadata = LedgerMetadata(
        metadata_version=1,
        write_quorum=quorum,
        ensemble_size=3,
        ack_quorum=quorum,
        length=length,
        last_entry=last if state is LedgerState.CLOSED else -1,
        state=state,
        segments=tuple(segments),
    )
    assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**10 - 1))
def test_ledger_paths(ledger: int, short: int) -> None:
    assert ledger_id(ledger_path(ledger)) == ledger
    assert ledger_id(ledger_path(ledger, LedgerLayout.LONG)) == ledger
    for layout in (LedgerLayout.FLAT, LedgerLayout.LEGACY):
        assert ledger_id(ledger_path(short, layout)) == short


@given(
    BYTES
    | st.lists(st.sampled_from([*'{}[]":,', '"/l"', '"data"', "1", "null"])).map("".join).map(str.encode)
)
def test_any_dump_decodes_or_is_damaged(data: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        decode_metadata_dump(data)
