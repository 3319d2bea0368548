"""Targets: the small formats of files, rows and znodes, each by its codec."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace

from bkctl.codec import (
    entry_log_metadata,
    explicit_lac,
    file_info,
    last_id,
    last_mark,
    layout,
    ledger_data,
    ledger_path,
    location,
    maintenance,
    pulsar_metadata,
    underreplication,
    varint,
)
from bkctl.codec.bookie_service_info import (
    BookieServiceInfo,
    Endpoint,
    bookie_address,
    decode_bookie_service_info,
    encode_bookie_service_info,
)
from bkctl.codec.bookie_status import BookieMode, BookieStatus, decode_bookie_status, encode_bookie_status
from bkctl.codec.cookie import Cookie, decode_cookie, encode_cookie, join_dirs
from bkctl.codec.entrylog import parse_compacted_name, parse_compacting_name, parse_log_name
from bkctl.codec.journal import parse_journal_name
from bkctl.codec.ledger_metadata import (
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from bkctl.errors import CorruptionError, RefusedError, UsageError
from bkctl.types import DigestType, LedgerState
from tests.fuzz.target import Target, check_error, decodes, one_of, seeds_of

_COOKIE = Cookie(5, "10.0.0.1:3181", "/j", join_dirs(["/a", "/b"]), "5b3d", join_dirs(["/i"]))
_METADATA = LedgerMetadata(
    metadata_version=3,
    write_quorum=2,
    ensemble_size=3,
    ack_quorum=2,
    length=100,
    last_entry=9,
    state=LedgerState.CLOSED,
    segments=(Segment(0, ("a:3181", "b:3181", "c:3181")), Segment(5, ("a:3181", "d:3181", "c:3181"))),
    digest_type=DigestType.CRC32C,
    password=b"secret",
    ctime_ms=1_600_000_000_000,
    custom_metadata=(("application", b"pulsar"),),
)
_OLD_METADATA = LedgerMetadata(
    metadata_version=1,
    write_quorum=2,
    ensemble_size=2,
    ack_quorum=2,
    length=7,
    last_entry=3,
    state=LedgerState.CLOSED,
    segments=(Segment(0, ("a:3181", "b:3181")),),
)
_INFO = BookieServiceInfo(
    (Endpoint("bookie", 3181, "10.0.0.1", "bookie-rpc", ("x",), ("y",)), Endpoint("h", 8080, "::1", "http")),
    (("autorecovery", "false"),),
)


def cookie(data: bytes) -> None:
    """A cookie comes back from its own encoding, and its lists of directories are whole or corrupt."""
    found = decodes(data, decode_cookie)
    if found is None:
        return
    with suppress(CorruptionError):
        assert all(isinstance(path, str) for path in found.paths)
    try:
        assert decode_cookie(encode_cookie(found)) == replace(found, layout_version=5)
    except UsageError:
        assert not found.has_fields


def ledger_metadata(data: bytes) -> None:
    """Metadata of every format comes back from its own encoding."""
    found = decodes(data, decode_ledger_metadata, encode_ledger_metadata)
    if found is not None:
        assert all(isinstance(bookie, str) for segment in found.segments for bookie in segment.bookies)


def service_info(data: bytes) -> None:
    """What a bookie registered is text and numbers, and comes back from its own encoding."""
    found = decodes(data, decode_bookie_service_info, encode_bookie_service_info)
    if found is None:
        return
    for endpoint in found.endpoints:
        assert all(isinstance(text, str) for text in (endpoint.id, endpoint.host, endpoint.protocol))
        assert all(isinstance(text, str) for text in (*endpoint.auth, *endpoint.extensions))
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in found.properties)
    bookie_address("a:3181", found)


def _mark(data: bytes) -> None:
    found = decodes(data, last_mark.decode_last_mark)
    assert found is None or last_mark.encode_last_mark(found) == data[: last_mark.MARK_BYTES]


def _layout(data: bytes) -> None:
    found = decodes(data, layout.decode_layout)
    if found is not None:
        with suppress(RefusedError):
            assert isinstance(found.layout, ledger_path.LedgerLayout)


def _lac(data: bytes) -> None:
    found = decodes(data, explicit_lac.decode_explicit_lac)
    assert found is None or explicit_lac.encode_explicit_lac(found) == data


def _delay(data: bytes) -> None:
    found = decodes(data, underreplication.decode_delay_s)
    if found is not None and 0 <= found < 2**31:
        assert underreplication.decode_delay_s(underreplication.encode_delay_s(found)) == found
    completed = decodes(data, underreplication.decode_check_completed)
    if completed is not None:
        again = underreplication.encode_check_completed(completed)
        assert underreplication.decode_check_completed(again) == completed


def _varints(data: bytes) -> None:
    """Whatever is canonical is its number's only form; its number fits 63 bits."""
    pieces, at = [], 0
    while at < len(data):
        stop = at + 2 + data[at] % 10
        pieces.append(data[at + 1 : stop])
        at = stop
    if varint.are_canonical(pieces):
        for piece in pieces:
            number = varint.decode(piece)
            assert 0 <= number < 1 << 63
            assert varint.encode(number) == piece


def _id(data: bytes) -> None:
    decodes(data, last_id.decode_last_id, last_id.encode_last_id)


def _status(data: bytes) -> None:
    decodes(data, decode_bookie_status, encode_bookie_status)


def _holder(data: bytes) -> None:
    found = decodes(data, underreplication.decode_holder)
    assert found is None or underreplication.decode_holder(underreplication.encode_holder(found)) == found


def _replicas(data: bytes) -> None:
    found = decodes(data, underreplication.decode_mark)
    if found is not None:
        assert underreplication.decode_mark(underreplication.encode_mark(found)) == found


def _maintenance(data: bytes) -> None:
    found = decodes(data, maintenance.decode_maintenance)
    if found is not None:
        assert maintenance.decode_maintenance(maintenance.encode_maintenance(found)) == found


def _pulsar(data: bytes) -> None:
    """What ends well has ids only; a broker's compressed bytes never do."""
    for decode in (
        pulsar_metadata.decode_managed_ledger,
        pulsar_metadata.decode_managed_cursor,
        pulsar_metadata.decode_schema_locator,
    ):
        found = decodes(data, decode)
        assert found is None or all(-(1 << 63) <= ledger < 1 << 63 for ledger in found)
        assert found is None or not data.startswith(pulsar_metadata.COMPRESSED)


_SMALL = [_mark, _id, _status, _layout, _lac, _delay, _varints, _replicas, _holder, _maintenance, _pulsar]
_SMALL_SEEDS = [
    [last_mark.encode_last_mark(last_mark.LastMark(1 << 40, 512))],
    [last_id.encode_last_id(0x1C)],
    [encode_bookie_status(BookieStatus(BookieMode.READ_ONLY, 1_600_000_000_000)), b"1,READ_WRITE,5\n"],
    [layout.encode_layout(layout.layout_text(each)) for each in ledger_path.LedgerLayout] + [b"1\nflat:1"],
    [explicit_lac.encode_explicit_lac(explicit_lac.ExplicitLac(7, 3, b"\1\2\3\4"))],
    [b"120", b" -5\n", bytes.fromhex("08f2bca2ef9f34")],
    [b"\0\x05\1\x80\x01\0\0\x08" + b"\xff" * 8 + b"\x7f"],
    [b'replica: "a:3181"\nreplica: "b:3181"\nctime: 1600000000000\n'],
    [b'bookieId: "10.0.0.1:3181"\n'],
    [maintenance.encode_maintenance(maintenance.Maintenance("a@b", "why", 1_600_000_000_000, True, 0, 60))],
    [
        bytes.fromhex("0a0808071064188020200a"),
        bytes.fromhex("08ffffffffffffffffff0110032a180a14436f6d706163746564546f7069634c65646765721009"),
        bytes.fromhex("0a0a080012040805100022001208080012040805100022 00".replace(" ", "")),
    ],
]


def small_formats(data: bytes) -> None:
    """Marks, ids, states, layouts, LACs, delays, marks of under-replication and their holders."""
    one_of(data, _SMALL)


def _location_rows(data: bytes) -> None:
    """Rows decode together exactly when each of them decodes, and to the same."""
    step = location.KEY_BYTES + location.VALUE_BYTES
    rows = [
        (data[at : at + location.KEY_BYTES], data[at + location.KEY_BYTES : at + step])
        for at in range(0, len(data), step)
    ]
    single = []
    for key, value in rows:
        decodes(key, location.decode_key)
        decodes(value, location.decode_value, location.encode_value)
        try:
            single.append((location.decode_key(key), location.decode_value(value)))
        except CorruptionError:
            single.clear()
            break
    try:
        columns = location.decode_rows(rows)
    except CorruptionError:
        assert not single
        return
    assert len(single) == len(rows)
    present = [(*ids, where.log_id, where.offset) if where else (*ids, 0, 0) for ids, where in single]
    found = zip(columns.ledgers, columns.entries, columns.log_ids, columns.offsets, strict=True)
    assert list(found) == present


def _packed(data: bytes) -> None:
    whole = data[: len(data) // 8 * 8]
    log_ids, offsets = location.split_locations(whole)
    for at, packed in enumerate(struct.unpack(f">{len(whole) // 8}q", whole)):
        assert (log_ids[at], offsets[at]) == (packed >> 32, packed & 0xFFFFFFFF)


def _ledger_row(data: bytes) -> None:
    decodes(data, ledger_data.decode_ledger_data, ledger_data.encode_ledger_data)


def _ledger_key(data: bytes) -> None:
    found = decodes(data, ledger_data.decode_ledger_key)
    assert found is None or found[0] >= -(2**63)
    decodes(data, ledger_data.decode_flags, ledger_data.encode_flags)


def _log_row(data: bytes) -> None:
    decodes(data[:8], entry_log_metadata.decode_log_key, entry_log_metadata.encode_log_key)
    decodes(
        data[8:], entry_log_metadata.decode_entry_log_metadata, entry_log_metadata.encode_entry_log_metadata
    )


_ROWS = [_location_rows, _packed, _ledger_row, _ledger_key, _log_row]
_ROW_SEEDS = [
    [
        b"".join(
            location.encode_key(7, entry) + location.encode_value(location.Location(3, 1028 + 60 * entry))
            for entry in range(4)
        ),
        location.encode_key(7, 0) + location.encode_value(None),
    ],
    [struct.pack(">3q", 3 << 32 | 1028, 0, -1)],
    [
        ledger_data.encode_ledger_data(
            ledger_data.LedgerData(exists=True, fenced=True, master_key=bytes(range(20)))
        )
    ],
    [ledger_data.encode_ledger_key(7), ledger_data.encode_flags(1), bytes(16)],
    [
        entry_log_metadata.encode_log_key(5)
        + entry_log_metadata.encode_entry_log_metadata(
            entry_log_metadata.EntryLogMetadata(5, 100, 60, ((7, 40), (8, 20)))
        )
    ],
]


def index_rows(data: bytes) -> None:
    """Keys and values of the databases ``locations``, ``ledgers`` and ``metadata-cache``."""
    one_of(data, _ROWS)


def idx_file(data: bytes) -> None:
    """Header and slots of an ``.idx`` file, which a round trip keeps."""
    header = decodes(data, file_info.decode_header)
    if header is not None and header.version:
        with suppress(ValueError):  # more than the header has room for
            assert file_info.decode_header(file_info.encode_header(header)) == header
    columns = decodes(data[file_info.HEADER_BYTES :], file_info.decode_slots)
    if columns is None:
        return
    for entry, where in zip(columns.entries, columns.locations, strict=True):
        at = file_info.slot_offset(entry)
        assert file_info.decode_slot(data[at : at + 8]) == where


def _idx_seeds() -> list[bytes]:
    headers = [
        file_info.FileInfoHeader(version, bytes(range(20)), version, lac)
        for version, lac in ((0, None), (1, None), (1, bytes(36)))
    ]
    slots = struct.pack(">6q", 0, 3 << 32 | 1028, 0, 0, 3 << 32 | 2000, -1)
    return [file_info.encode_header(header) + slots for header in headers]


def names(data: bytes) -> None:
    """Names of files and paths of znodes: what is recognised is made again from what was found."""
    text = data.decode("utf-8", "surrogateescape")
    number = parse_log_name(text)
    assert number is None or number >= 0
    parse_compacting_name(text)
    parse_compacted_name(text)
    parse_journal_name(text)
    try:
        file_info.parse_index_path(text)
    except CorruptionError as error:
        check_error(error, len(text))
    split = ledger_path.split_ledger_path(text)
    if split is not None:
        assert 0 <= split[1] <= ledger_path.LEDGER_ID_MAX
        assert text.startswith(split[0])
    try:
        assert ledger_path.ledger_id(text) == (split or ("", -1))[1]
    except CorruptionError:
        assert split is None or split[0]
    marked = underreplication.ledger_of_mark(text)
    assert marked is None or underreplication.mark_name(marked) == text
    underreplication.vote_number(text)


_NAME_SEEDS = [
    *(
        f"/ledgers{ledger_path.ledger_path(ledger, each)}".encode()
        for each in ledger_path.LedgerLayout
        for ledger in (2, 2**31 + 5)
    ),
    b"1c.log",
    b"1c.log.compacting",
    b"1d.log.1c.compacted",
    b"1a1fe14808f.txn",
    b"0/1f/7a.idx",
    b"0/1f/7a.idx.rloc",
    b"urL0000000007",
    b"V_0000000003",
]

TARGETS = [
    Target(
        "cookie",
        cookie,
        lambda: [encode_cookie(_COOKIE), b"4\n" + encode_cookie(_COOKIE)[2:], b"3\nh:1\n/j\n1\t/a\n", b"2\n"],
        (
            b"bookieHost: ",
            b"journalDir: ",
            b"ledgerDirs: ",
            b"instanceId: ",
            b"indexDirs: ",
            b"\\t",
            b"\\303",
        ),
    ),
    Target(
        "ledger-metadata",
        ledger_metadata,
        lambda: [
            *(encode_ledger_metadata(replace(_METADATA, metadata_version=version)) for version in (2, 3)),
            encode_ledger_metadata(_OLD_METADATA),
        ],
        (b"BookieMetadataFormatVersion\t", b"segment {", b"ensembleMember: ", b"customMetadata {", b"CLOSED"),
        weight=2,
    ),
    Target("service-info", service_info, lambda: [encode_bookie_service_info(_INFO), b""]),
    Target("small-formats", small_formats, lambda: seeds_of(_SMALL_SEEDS)),
    Target("index-rows", index_rows, lambda: seeds_of(_ROW_SEEDS)),
    Target("idx-file", idx_file, _idx_seeds, (b"BKLE",)),
    Target("names", names, lambda: _NAME_SEEDS, bytes_max=200),
]
