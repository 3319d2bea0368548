"""What was decoded, encoded again, gives the bytes that Java wrote: every record, and every whole file.

A file is rebuilt from values alone: entries from header, payload and a digest computed anew, padding from the
position, maps from their pairs. Only what has no value of its own is copied: the torn record at the end of
a log that a crash cut, and entries of ledgers whose digest is not known.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.admin.logs.digests import digest_book
from bkctl.codec import bookie_status, cookie, entry, entrylog, explicit_lac, file_info, last_id, last_mark
from bkctl.codec import entry_log_metadata as cache
from bkctl.codec import journal as journal_codec
from bkctl.codec import ledger_data as ledgers
from bkctl.codec import location as locations
from bkctl.codec.digest import Digester
from bkctl.codec.journal import JournalRecord, RecordKind
from bkctl.codec.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files.digest_survey import survey_logs
from bkctl.scan.files.journals import survey_journals
from bkctl.scan.files.paths import entry_logs, journals
from bkctl.scan.index_databases import open_store
from bkctl.scan.journal import JournalScan
from bkctl.scan.records import RecordScan
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support.journal_records import entry_record

DATA = Path(__file__).parents[1] / "data"
FILES = PosixFileSystem()
CORPORA = ("db", "sorted", "perledger", "interleaved")

#: Damaged on purpose: their records are compared one by one.
DAMAGED = (DATA / "samples/el", DATA / "samples/jr")
SMALL = sorted(
    path
    for folder in ("samples", "demo", "index")
    for path in (DATA / folder).rglob("*")
    if path.is_file() and not any(path.is_relative_to(folder) for folder in DAMAGED)
)
STORES = sorted(path.parent for path in SMALL if path.name == "CURRENT")

#: Samples whose alignment is not 512, and the password of all samples.
ALIGNMENTS = {"pd4": 4096}
SAMPLE_PASSWORD = b"secret"
#: Ledger 19088743 of sample ``i`` has entries of more than one type.
SAMPLE_DIGESTERS = (
    Digester(DigestType.CRC32C),
    Digester(DigestType.CRC32),
    Digester.of(DigestType.MAC, SAMPLE_PASSWORD),
)

#: Files of the whole archive of samples that are rebuilt, by kind.
COUNTS = {
    ".txn": 23,
    ".log": 37,
    ".idx": 6,
    "stores": 25,
    "lastId": 14,
    "lastMark": 19,
    "BOOKIE_STATUS": 1,
}

_HEAD = struct.Struct(">iqq")


def shown(path: Path) -> str:
    return str(path.relative_to(DATA))


def named(suffix: str) -> list[object]:
    return [pytest.param(path, id=shown(path)) for path in SMALL if path.name.endswith(suffix)]


# ------------------------------------------------------------------------------------- rebuilding, by kind


def rebuilt_entry(body: bytes, book: DigestBook) -> bytes:
    """An entry's body from its parts; the digest is computed, not copied, where it is known."""
    if len(body) < entry.HEADER_BYTES:
        return body
    header = entry.decode_header(body)
    known = book.digester(header.ledger)
    for digester in SAMPLE_DIGESTERS if known is None or not known.checks(body) else (known,):
        if digester.checks(body):
            return entry.encode(header, entry.payload(body, digester.type), digester)
    return entry.HEADER.pack(header.ledger, header.entry, header.lac, header.length) + body[32:]


def rebuilt_record(record: JournalRecord, position: int, book: DigestBook, alignment: int) -> bytes:
    """A journal's record made by the constructor of its kind."""
    codec = journal_codec
    if record.kind is RecordKind.ENTRY:
        made = entry_record(rebuilt_entry(record.body, book))
    elif record.kind is RecordKind.MASTER_KEY:
        made = codec.master_key_record(record.ledger, record.blob)
    elif record.kind is RecordKind.FENCE:
        made = codec.fence_record(record.ledger)
    elif record.kind is RecordKind.EXPLICIT_LAC:
        lac = explicit_lac.decode_explicit_lac(record.blob)
        made = codec.explicit_lac_record(record.ledger, explicit_lac.encode_explicit_lac(lac))
    else:
        padding = codec.padding_record(position, alignment)
        assert record.kind is RecordKind.PADDING
        assert padding is not None
        made = padding
    assert made == record
    return codec.encode_record(made)


def rebuilt_journal(data: bytes, book: DigestBook, alignment: int) -> bytes:
    """A journal that ends with its records or with preallocated zeros."""
    if not data:
        return b""
    version = journal_codec.decode_header(data).version
    parts = [journal_codec.encode_header(version)]
    position = len(parts[0])
    while any(data[position : position + 4]):
        record = journal_codec.decode_record(data, version, position, size_max=entry.BODY_BYTES_MAX)
        parts.append(rebuilt_record(record, position, book, alignment))
        position += record.framed_bytes
    return b"".join(parts).ljust(len(data), b"\0")


def rebuilt_log(data: bytes, book: DigestBook) -> tuple[bytes, int]:
    """An entry log, and how many bytes of a torn record were copied from its end."""
    if not data:
        return b"", 0
    header = entrylog.decode_header(data)
    parts = [entrylog.encode_header(header)]
    position = len(parts[0])
    copied = 0
    while position < len(data):
        if header.direct and data[position] == entrylog.DIRECT_FILLER:
            part = entrylog.direct_filler(position)
        elif not any(data[position : position + 4]):
            part = bytes(len(data) - position)  # preallocated by the DirectIO logger
        else:
            size, ledger, _ = _HEAD.unpack_from(data, position)
            record = data[position : position + 4 + size]
            if len(record) < 4 + size:
                part, copied = record, len(record)
            elif ledger == entrylog.NOT_AN_ENTRY:
                part = entrylog.encode_map(dict(entrylog.decode_map_batch(record)))
            else:
                part = entry.frame(rebuilt_entry(record[4:], book))
        parts.append(part)
        position += len(part)
    return b"".join(parts), copied


def rebuilt_idx(data: bytes) -> bytes:
    """An .idx file: header and pages, zeros where no page was written."""
    rebuilt = bytearray(len(data))
    header = file_info.encode_header(file_info.decode_header(data[: file_info.HEADER_BYTES]))
    rebuilt[: len(header)] = header
    slots = file_info.decode_slots(data[file_info.HEADER_BYTES :])
    pairs = [
        (number, locations.pack_location(place.log_id, place.offset))
        for number, packed in zip(slots.entries, slots.locations, strict=True)
        if (place := locations.unpack_location(packed)) is not None
    ]
    assert len(pairs) == len(slots)
    for offset, page in file_info.encode_slots(pairs):
        rebuilt[offset : offset + len(page)] = page
    return bytes(rebuilt)


SMALL_FILES: dict[str, Callable[[bytes], bytes]] = {
    "VERSION": lambda data: cookie.encode_cookie(cookie.decode_cookie(data)),
    "BOOKIE_STATUS": lambda data: bookie_status.encode_bookie_status(
        bookie_status.decode_bookie_status(data)
    ),
    "lastId": lambda data: last_id.encode_last_id(last_id.decode_last_id(data)),
    "lastMark": lambda data: last_mark.encode_last_mark(last_mark.decode_last_mark(data)),
}


def rebuilt_row(store: str, key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A row of one of the three databases."""
    if store == "locations":
        place = locations.decode_value(value)
        return locations.encode_key(*locations.decode_key(key)), locations.encode_value(place)
    if store == "ledgers":
        ledger, key_bytes = ledgers.decode_ledger_key(key)
        encoded = ledgers.encode_ledger_key(ledger).ljust(key_bytes, b"\0")
        if ledger == ledgers.FLAGS_ID:
            return encoded, ledgers.encode_flags(ledgers.decode_flags(value))
        return encoded, ledgers.encode_ledger_data(ledgers.decode_ledger_data(value))
    log_id = cache.decode_log_key(key)
    metadata = cache.decode_entry_log_metadata(value)
    return cache.encode_log_key(log_id), cache.encode_entry_log_metadata(metadata)


def rows_of(directory: Path) -> list[tuple[bytes, bytes]]:
    store = open_store(str(directory))
    try:
        return list(store.iterate())
    finally:
        store.close()


def znodes_of(path: Path) -> Iterator[tuple[str, bytes]]:
    for name, node in json.loads(path.read_text()).items():
        yield name, base64.b64decode(node["data"] or "")


def rebuilt_znode(name: str, data: bytes) -> bytes | None:
    """Ledger metadata or a cookie; None for other znodes."""
    if data.startswith(b"BookieMetadataFormatVersion"):
        return encode_ledger_metadata(decode_ledger_metadata(data))
    if "/cookies/" in name:
        return cookie.encode_cookie(cookie.decode_cookie(data))
    return None


# -------------------------------------------------------------------------------------------- small files


def book_for(path: Path) -> DigestBook:
    """Digests from the metadata of ``demo``; in the samples learned from the entries of the file."""
    if path.is_relative_to(DATA / "demo"):
        return digest_book(FILES, metadata_file=str(DATA / "demo/zk.json"))
    book = DigestBook(password=SAMPLE_PASSWORD)
    if path.suffix == ".log":
        survey_logs(FILES, entry_logs(FILES, [str(path)]), book)
    else:
        survey_journals(FILES, journals(FILES, [str(path)]), book)
    return book


@pytest.mark.parametrize("path", named(".txn"))
def test_a_journal_is_rebuilt(path: Path) -> None:
    data = path.read_bytes()
    alignment = (
        ALIGNMENTS.get(path.relative_to(DATA / "samples").parts[0], 512) if "samples" in path.parts else 512
    )
    assert rebuilt_journal(data, book_for(path), alignment) == data


# Write-ahead logs of RocksDB have the same suffix as entry logs.
@pytest.mark.parametrize("path", [case for case in named(".log") if case.values[0].parent.name == "current"])  # type: ignore[attr-defined]
def test_an_entry_log_is_rebuilt(path: Path) -> None:
    data = path.read_bytes()
    assert rebuilt_log(data, book_for(path)) == (data, 0)


@pytest.mark.parametrize("path", named(".idx"))
def test_an_index_file_is_rebuilt(path: Path) -> None:
    data = path.read_bytes()
    assert rebuilt_idx(data) == data


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=shown(path)) for path in SMALL if path.name.partition(".")[0] in SMALL_FILES],
)
def test_a_small_file_is_rebuilt(path: Path) -> None:
    data = path.read_bytes()
    assert SMALL_FILES[path.name.partition(".")[0]](data) == data


@pytest.mark.parametrize("directory", [pytest.param(path, id=shown(path)) for path in STORES])
def test_rows_of_a_database_are_rebuilt(directory: Path) -> None:
    rows = rows_of(directory)
    assert [rebuilt_row(directory.name, *row) for row in rows] == rows


@pytest.mark.parametrize("dump", ["demo/zk.json", "metadata/zk-sample.json"])
def test_metadata_of_a_dump_is_rebuilt(dump: str) -> None:
    rebuilt = [(data, rebuilt_znode(name, data)) for name, data in znodes_of(DATA / dump)]
    kept = [(data, made) for data, made in rebuilt if made is not None]
    assert len(kept) >= 10
    for data, made in kept:
        assert made == data


def test_the_samples_hold_every_kind_of_record_and_row() -> None:
    """Otherwise the tests above would prove less than they say."""
    kinds = set()
    versions = set()
    for path in (DATA / "samples").rglob("*.txn"):
        with JournalScan(FILES, str(path)) as scan:
            versions.add(scan.head.version)
            kinds |= {item.kind for item in scan.records if isinstance(item, MarkedRecord)}
    assert kinds == {RecordKind.MASTER_KEY, RecordKind.FENCE, RecordKind.EXPLICIT_LAC, RecordKind.PADDING}
    assert versions == {1, 2, 3, 4, 5, 6}
    keys = {len(key) for path in STORES if path.name == "ledgers" for key, _ in rows_of(path)}
    assert keys == {ledgers.KEY_BYTES, ledgers.REBUILT_KEY_BYTES}
    types = set()
    for path in (DATA / "samples/a").rglob("*.txn"):
        types |= {digester.type for digester in book_for(path).digesters.values()}
    assert types == {DigestType.CRC32C, DigestType.CRC32, DigestType.MAC}
    headers = [
        entrylog.decode_header(path.read_bytes()[:2048])
        for path in SMALL
        if path.parent.name == "current" and path.suffix == ".log" and path.stat().st_size
    ]
    assert {(header.direct, header.has_map) for header in headers} == {
        (True, True),
        (False, True),
        (False, False),
    }


def records_of(scan: RecordScan, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(as it stands, rebuilt) of every record that a scan delivers."""
    for item in scan:
        if isinstance(item, entry.EntryBatch):
            for index in range(len(item)):
                start = item.offset(index)
                rebuilt = entry.frame(rebuilt_entry(item.body(index), DigestBook()))
                yield data[start : start + len(rebuilt)], rebuilt


@pytest.mark.parametrize("name", ["el", "jr"])
def test_records_of_damaged_files_are_rebuilt(name: str) -> None:
    count = 0
    for path in sorted((DATA / "samples" / name).rglob("*.[lt][ox][gn]")):
        opened = EntryLogScan if name == "el" else JournalScan
        with opened(FILES, str(path)) as scan:
            for stands, rebuilt in records_of(scan.records, path.read_bytes()):
                assert rebuilt == stands
                count += 1
    assert count == {"el": 45, "jr": 26}[name]


# ------------------------------------------------------------------------------------------- whole corpora


@pytest.mark.corpora
@pytest.mark.parametrize("corpus", CORPORA)
def test_journals_and_logs_of_a_corpus_are_rebuilt(corpora: Callable[[str], Path], corpus: str) -> None:
    root = corpora(corpus)
    book = digest_book(FILES, metadata_file=str(root / "zk-crash.json"))
    files = sorted(root.rglob("journal/current/*.txn"))
    logs = sorted(root.rglob("ledgers/current/*.log"))
    assert len(files) >= 3
    assert logs
    for path in files:
        data = path.read_bytes()
        assert rebuilt_journal(data, book, 512) == data, path
    copied = {}
    for path in logs:
        data = path.read_bytes()
        rebuilt, tail = rebuilt_log(data, book)
        assert rebuilt == data, path
        if tail:
            copied[str(path.relative_to(root))] = tail
    torn = {"crash/bookie1/ledgers/current/0.log", "clean/bookie1/ledgers/current/0.log"}
    assert copied.keys() == (torn if corpus == "interleaved" else set())


@pytest.mark.corpora
@pytest.mark.parametrize("corpus", CORPORA)
def test_small_files_and_indexes_of_a_corpus_are_rebuilt(corpora: Callable[[str], Path], corpus: str) -> None:
    root = corpora(corpus)
    idx_files = sorted(root.rglob("*.idx"))
    stores = sorted(path.parent for path in root.rglob("CURRENT"))
    assert (len(stores), bool(idx_files)) == ((12, False) if corpus == "db" else (0, True))
    for path in idx_files:
        data = path.read_bytes()
        assert rebuilt_idx(data) == data, path
    for store in stores:
        rows = rows_of(store)
        assert [rebuilt_row(store.name, *row) for row in rows] == rows, store
    small = [path for path in root.rglob("*") if path.name in SMALL_FILES]
    assert {path.name for path in small} == {"VERSION", "lastMark", "lastId"}
    for path in small:
        data = path.read_bytes()
        assert SMALL_FILES[path.name](data) == data, path
    for dump in ("zk-crash.json", "zk-clean.json"):
        rebuilt = [(data, rebuilt_znode(name, data)) for name, data in znodes_of(root / dump)]
        kept = [(data, made) for data, made in rebuilt if made is not None]
        assert len(kept) >= 25
        for data, made in kept:
            assert made == data


@pytest.mark.corpora
def test_every_file_of_the_samples_is_rebuilt(corpora: Callable[[str], Path]) -> None:
    """The archive has more samples than ``tests/data``, and its journals at their full length."""
    root = corpora("samples")
    counts: Counter[str] = Counter()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        sample, kind = path.relative_to(root).parts[0], path.name.partition(".")[0]
        data = path.read_bytes()
        if sample.partition(".")[0] in ("el", "jr"):
            continue
        if path.suffix == ".txn":
            rebuilt = rebuilt_journal(data, book_for(path), ALIGNMENTS.get(sample, 512))
        elif path.suffix == ".log" and path.parent.name == "current":
            rebuilt, copied = rebuilt_log(data, book_for(path))
            assert copied == 0, path
        elif path.suffix == ".idx":
            rebuilt = rebuilt_idx(data)
        elif kind in SMALL_FILES:
            rebuilt = SMALL_FILES[kind](data)
        else:
            continue
        assert rebuilt == data, path
        counts[path.suffix if path.suffix in (".txn", ".log", ".idx") else kind] += 1
    for store in {path.parent for path in root.rglob("CURRENT")}:
        rows = rows_of(store)
        assert [rebuilt_row(store.name.partition(".")[0], *row) for row in rows] == rows, store
        counts["stores"] += 1
    assert counts == COUNTS


def test_a_scan_of_the_undamaged_samples_names_no_damage() -> None:
    for path in SMALL:
        if path.suffix == ".txn":
            with JournalScan(FILES, str(path)) as scan:
                assert not scan.head.damage
                assert not [item for item in scan if isinstance(item, Damage)]
