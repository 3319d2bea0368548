"""Targets: files of a bookie as the scans read them, whole, over a file system in memory."""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from bkctl.admin.index.rebuild.state import WorkDirectory, read_json
from bkctl.admin.inspection import inspect_file
from bkctl.codec import entry as entries
from bkctl.codec import entrylog
from bkctl.codec import journal as journals
from bkctl.codec.digest import Digester
from bkctl.codec.entry import BODY_BYTES_MAX, EntryBatch
from bkctl.errors import BkctlError, CorruptionError
from bkctl.kvstore import synced_log
from bkctl.pipeline.table_sets import read_table_set
from bkctl.scan.checked import CheckedBatch, checked
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files.digest_survey import survey
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.journal import JournalScan, judged
from bkctl.scan.metadata_dump import DumpEnd, DumpKind, decode_metadata_dump
from bkctl.scan.proof import Evidence
from bkctl.scan.sure_records import SureRecords
from bkctl.server.http.guard import read_token
from bkctl.types import DigestType
from bkctl.vfs.memory import MemoryFileSystem
from tests.fuzz.codec_targets import TARGETS as CODEC_TARGETS
from tests.fuzz.target import Target, check_error, check_message, decodes, json_seeds, one_of, seeds_of
from tests.support.log_builder import (
    CRC32,
    MAC,
    PASSWORD,
    entry_body,
    simple_journal,
    simple_log,
)

_DATA = Path(__file__).resolve().parents[1] / "data"
_LOG = "/bookie/current/0.log"
_JOURNAL = "/bookie/current/1.txn"
_HEADER = entrylog.EntryLogHeader(1, 1024, 2)


def entry_codecs(data: bytes) -> None:
    """An entry's header and payload, and runs of records: what the columns say stands in the bytes."""
    decodes(data, entries.decode_header)
    for digest_type in DigestType:
        body = decodes(data, lambda body, digest=digest_type: entries.payload(body, digest))  # type: ignore[misc]
        assert body is None or data.endswith(body)
    batch, stop = entries.walk(data)
    columns, columns_stop = entries.walk_columns(data)
    assert columns_stop == stop <= len(data)
    lists = (batch.starts, batch.sizes, batch.ledgers, batch.entries)
    assert columns == tuple(array("q", each).tobytes() for each in lists)
    position = 0
    for index, (ledger, entry) in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
        framed = entries.frame(batch.body(index))
        assert data[position : position + len(framed)] == framed
        assert struct.unpack_from(">qq", framed, 4) == (ledger, entry)
        position += len(framed)
    assert position == stop


def _log_head(data: bytes) -> None:
    header = decodes(data, entrylog.decode_header)
    if header is not None:
        assert entrylog.decode_header(entrylog.encode_header(header)) == header
    entrylog.is_direct(data)
    decodes(data, entrylog.decode_map_batch)


def _log_map(data: bytes) -> None:
    totals = decodes(data, lambda data: entrylog.decode_map(data, _HEADER))
    if totals is not None:
        assert entrylog.decode_map(entrylog.encode_map(totals), _HEADER) == totals


def _journal_head(data: bytes) -> None:
    header = decodes(data, journals.decode_header)
    if header is not None and header.version > 1:
        assert data.startswith(journals.encode_header(header.version)[: journals.SHORT_HEADER_BYTES])


def _journal_records(data: bytes) -> None:
    """Records follow each other as they would be written, up to the first that is none."""
    version, data = 1 + (data[0] if data else 0) % 6, data[1:]
    position = 0
    while position < len(data):
        try:
            record = journals.decode_record(data, version, position, size_max=BODY_BYTES_MAX)
        except CorruptionError as error:
            check_error(error, len(data))
            return
        assert data[position : position + record.framed_bytes] == journals.encode_record(record)
        assert record.framed_bytes > 0
        position += record.framed_bytes
    assert position == len(data)


_PARTS = [_log_head, _log_map, _journal_head, _journal_records]


def parts_of_logs(data: bytes) -> None:
    """Headers, ledgers maps and journal records."""
    one_of(data, _PARTS)


def _part_seeds() -> list[bytes]:
    log, journal = simple_log(2, 3, rolled=True), simple_journal(preallocated=False)
    header = entrylog.decode_header(log.data)
    return seeds_of(
        [
            [log.data[:1100], entrylog.encode_header(entrylog.EntryLogHeader(direct=True))],
            [log.data[header.map_offset :]],
            [journal.data[:600], journals.encode_header(4)],
            [b"\x05" + journal.data[512:], b"\x03" + simple_journal(4, preallocated=False).data[8:]],
        ]
    )


def _covers(items: Iterable[object], start: int, size_bytes: int) -> None:
    """Every byte from ``start`` on is in one item, in order, but for sizes that a digest corrected."""
    position, size_words = start, set[int]()
    for item in items:
        if isinstance(item, CheckedBatch):
            item = item.batch
        if isinstance(item, EntryBatch):
            for index in range(len(item)):
                at = item.offset(index)
                assert position == (at + 4 if at in size_words else at)
                position = at + 4 + item.sizes[index]
        elif isinstance(item, MarkedRecord | Tail):
            assert item.offset == position
            position = size_bytes if isinstance(item, Tail) else item.end
        elif isinstance(item, Damage) and (
            not item.expected.endswith("as the entry's digest proves") or item.reason == "record size"
        ):
            assert item.offset == position
            assert item.end >= position
            position = item.end
            if item.reason == "record size":
                size_words.add(item.offset)
    assert position == size_bytes or start >= size_bytes


def _book(digester: int) -> DigestBook:
    if digester % 4 == 0:
        return DigestBook(password=PASSWORD)
    forced = (Digester(DigestType.CRC32C), CRC32, MAC)[digester % 4 - 1]
    return DigestBook(dict.fromkeys(range(11, 14), forced), password=PASSWORD)


def _start_of(scan: EntryLogScan | JournalScan) -> int:
    return 0 if scan.head.short else min(scan.records._start, scan.file.size_bytes)


def entry_log(data: bytes) -> None:
    """Whatever stands in an entry log, its scan covers every byte of it once."""
    choice, data = (data[0] if data else 0), data[1:]
    files, book = MemoryFileSystem({_LOG: data}), _book(choice)
    with EntryLogScan(files, _LOG) as first:
        survey(first, book, SureRecords())
    with EntryLogScan(files, _LOG, Evidence(digesters=book.digesters)) as scan:
        items = list(checked(scan, scan.records, book))
        _covers(items, _start_of(scan), len(data))


def journal(data: bytes) -> None:
    """Whatever stands in a journal, its scan covers every byte of it once."""
    choice, data = (data[0] if data else 0), data[1:]
    journals.decode_previous_end(data)
    files, book = MemoryFileSystem({_JOURNAL: data}), _book(choice)
    unsynced = len(data) // 2 if choice >= 128 else None
    with JournalScan(files, _JOURNAL) as first:
        survey(first, book, SureRecords())
    with JournalScan(files, _JOURNAL, Evidence(digesters=book.digesters), unsynced_from=unsynced) as scan:
        items = list(judged(checked(scan, scan.records, book), scan))
        _covers(items, _start_of(scan), len(data))


def _log_seeds() -> list[bytes]:
    return [
        bytes((choice,)) + built.data
        for choice, built in (
            (0, simple_log(2, 4)),
            (1, simple_log(2, 3, rolled=True)),
            (2, simple_log(1, 4, digester=CRC32)),
            (3, simple_log(1, 3, digester=MAC)),
        )
    ]


def _journal_seeds() -> list[bytes]:
    return [
        bytes((choice,)) + simple_journal(version, entries=4, preallocated=False).data + tail
        for choice, version, tail in (
            (0, 6, b""),
            (129, 6, bytes(600)),
            (1, 5, b""),
            (2, 4, b""),
            (0, 1, b""),
        )
    ]


def idx_tree(data: bytes) -> None:
    """An ``.idx`` file among others gives rows and damage; the row asked for is the row that is listed."""
    files = MemoryFileSystem({"/current/0/1f/1f07.idx": data, "/current/0/1/1.idx": b""})
    tree = IdxTree(files, "/current")
    list(tree.ledger_rows())
    found = [
        (ledger, entry, log_id, offset)
        for columns in tree.locations(0x1F07)
        if not isinstance(columns, IndexDamage)
        for ledger, entry, log_id, offset in zip(
            columns.ledgers, columns.entries, columns.log_ids, columns.offsets, strict=True
        )
    ]
    for ledger, entry, log_id, offset in found[:20]:
        where = tree.get(ledger, entry)
        assert where is not None
        assert (where.log_id, where.offset) == (log_id, offset)
    with suppress(CorruptionError):
        last = tree.last_entry(0x1F07)
        assert last is None or not found or last >= found[-1][1]


def metadata_dump(data: bytes) -> None:
    """A dump is whole or corrupt, and each of its ledgers can be looked up."""
    try:
        dump = decode_metadata_dump(data)
    except CorruptionError as error:
        check_error(error, sys.maxsize)
        return
    for ledger in list(dump.ledgers)[:20]:
        assert dump.ledgers[ledger].write_quorum is not None
    assert dump.has_root in (True, False)
    assert dump.instance_id is None or isinstance(dump.instance_id, str)


def _dump_seeds() -> list[bytes]:
    seeds = {target.name: target.seeds for target in CODEC_TARGETS}
    stored = [base64.b64encode(data).decode() for data in seeds["ledger-metadata"]()]
    nodes = {
        "/ledgers": {"data": "", "version": 0, "ephemeral": False},
        "/ledgers/LAYOUT": {"data": base64.b64encode(b"2\nflat:1").decode()},
        "/ledgers/INSTANCEID": {"data": base64.b64encode(b"5b3d").decode()},
        "/ledgers/cookies/a:3181": {"data": base64.b64encode(seeds["cookie"]()[0]).decode()},
        **{f"/ledgers/00/0000/L{at:04d}": {"data": data, "version": at} for at, data in enumerate(stored)},
    }
    ends = [DumpEnd(kind, 1_600_000_000_000, len(nodes), 7).as_json() for kind in DumpKind]
    return [json.dumps(nodes).encode(), *(json.dumps({**nodes, "end": end}).encode() for end in ends), b"{}"]


_KINDS = [
    "VERSION",
    "lastMark",
    "lastId",
    "BOOKIE_STATUS",
    "0.log",
    "1.txn",
    "0/1f/1f07.idx",
    "DIRTY",
    "metadata",
    "zk.json",
    "1.log.compacting",
]


def inspected(data: bytes) -> None:
    """``bkctl inspect`` says something about every file, whatever its name and content."""
    if not data:
        return
    path = f"/d/{_KINDS[data[0] % len(_KINDS)]}"
    found = inspect_file(MemoryFileSystem({path: data[1:]}), path)
    assert found.path == path
    json.dumps(found.facts, default=str)


def _inspected_seeds() -> list[bytes]:
    seeds = {target.name: target.seeds for target in CODEC_TARGETS}
    return [
        b"\0" + seeds["cookie"]()[0],
        b"\4" + simple_log(1, 2, rolled=True).data,
        b"\5" + simple_journal(entries=1, preallocated=False).data,
        b"\6" + seeds["idx-file"]()[0],
        *(b"\x08" + each for each in seeds["ledger-metadata"]()),
        b"\x09" + _dump_seeds()[0],
        b"\3" + b"1,READ_WRITE,5,true\n",
    ]


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a directory of this process, for readers that take a path; it goes with the process."""
    return tempfile.TemporaryDirectory(prefix="bkctl-fuzz-")


def _work() -> str:
    return _scratch().name


def _written(name: str, data: bytes) -> str:
    path = os.path.join(_work(), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(data)
    return path


def _note(data: bytes) -> None:
    """RocksDB's note of what is synced: none, or sizes; a log that is not what it says is corrupt."""
    middle = data.find(b"\0")
    note, log = (data, b"") if middle < 0 else (data[:middle], data[middle + 1 :])
    folder = os.path.dirname(_written("db/CURRENT", b"MANIFEST-000005\n"))
    _written("db/000004.log", log)
    _written(f"db/{synced_log.NAME}", note)
    found = synced_log.read_note(folder)
    assert found is None or all(size >= 0 for size in found.sizes.values())
    try:
        assert synced_log.check_synced(folder) == (found is not None)
    except CorruptionError as error:
        check_message(error, folder)


def _noted_log(data: bytes) -> None:
    """The same where the note is right and the log is not."""
    folder = os.path.dirname(_written("db/CURRENT", b"MANIFEST-000005\n"))
    _written("db/000004.log", data)
    synced_log.write_note(folder, synced_log.current_logs(folder))
    with suppress(CorruptionError):
        assert synced_log.check_synced(folder)


def _manifest(data: bytes) -> None:
    """A manifest of a rebuild holds for the log as it is, or does not count."""
    log = _written("0.log", b"BKLO")
    facts = os.stat(log)
    data = data.replace(b"@size", b"%d" % facts.st_size).replace(b"@time", b"%d" % facts.st_mtime_ns)
    path = _written("logs/0.json", data)
    _written("logs/0-0.run", b"")
    content = read_json(path)
    assert content is None or isinstance(content, dict)
    manifest = WorkDirectory(_work()).manifest(LogFile(log, 0, 4), "auto")
    assert manifest is None or manifest.size_bytes == 4


def _summary(data: bytes) -> None:
    """The summary of a set of tables is read, or corrupt."""
    folder = os.path.dirname(_written("tables/summary.json", data))
    with suppress(CorruptionError):
        found = read_table_set(folder)
        assert found.started_ms is None or isinstance(found.started_ms, int)


def _token(data: bytes) -> None:
    """A token is one line that can be sent, or the file is refused."""
    with suppress(BkctlError):
        token = read_token(_written("token", data))
        assert token.isascii()
        assert token.isprintable()
        assert len(token) >= 16


_WRITTEN: list[Callable[[bytes], None]] = [_note, _noted_log, _manifest, _summary, _token]


def written_files(data: bytes) -> None:
    """Notes, manifests, summaries and tokens: files that bkctl reads by their path."""
    one_of(data, _WRITTEN)


def _written_seeds() -> list[bytes]:
    head = struct.pack("<IHB", 0, 5, 1) + b"hello"
    manifest = {
        "log_id": 0,
        "size_bytes": 4,
        "mtime_ns": "@",
        "mode": "auto",
        "entries": 0,
        "unchecked": 0,
        "ledgers": [],
        "runs": [],
        "format": 1,
    }
    manifest["runs"] = [{"path": "x", "rows": 0, "checksum": 0}]
    stored = [each.replace(b'"@"', b"@time") for each in json_seeds(manifest)]
    summary = {
        "job": "stats",
        "started_ms": 5,
        "seconds": 1.5,
        "guards": ["a"],
        "unread_indexes": ["/l"],
        "logs_gone": 1,
    }
    return seeds_of(
        [
            [b"MANIFEST-000005\n000004.log 5\ncrc32 00000000\n\0" + head, b""],
            [head, bytes(64)],
            [*stored, b"[" * 100_000],
            [*json_seeds(summary), b"[" * 100_000],
            [b"0123456789abcdef\n", b"short"],
        ]
    )


def _sample_logs() -> list[bytes]:
    """Return the beginnings of a real bookie's files."""
    return [
        b"\0" + path.read_bytes()[:3000]
        for path in sorted((_DATA / "demo/bookie1/ledgers/current").glob("*.log"))
    ]


def _sample_journals() -> list[bytes]:
    return [
        b"\0" + path.read_bytes()[:3000]
        for path in sorted((_DATA / "demo/bookie1/journal/current").glob("*.txn"))
    ]


TARGETS = [
    Target(
        "entry-codecs",
        entry_codecs,
        lambda: [entries.frame(entry_body(7, 3)) * 3, entry_body(7, 3), entry_body(7, 3, digester=MAC)],
        sanitized=True,
    ),
    Target("parts-of-logs", parts_of_logs, _part_seeds, (b"BKLO", b"BKLG", b"\xff\xff\xff\x00")),
    Target(
        "entry-log",
        entry_log,
        lambda: _log_seeds() + _sample_logs(),
        (b"BKLO", b"\xff\xff\xff\xff\xff\xff\xff\xfe", b"\0\0\0\x3c"),
        bytes_per_byte=4000,
        weight=4,
        sanitized=True,
    ),
    Target(
        "journal",
        journal,
        lambda: _journal_seeds() + _sample_journals(),
        (b"BKLG", b"\xff\xff\xff\x00", b"\xff\xff\xff\xff\xff\xff\xf0\x00", b"\0\0\0\x10"),
        bytes_per_byte=4000,
        weight=4,
    ),
    Target(
        "idx-tree",
        idx_tree,
        lambda: {target.name: target.seeds for target in CODEC_TARGETS}["idx-file"](),
        (b"BKLE",),
        bytes_per_byte=4000,
    ),
    Target(
        "metadata-dump", metadata_dump, _dump_seeds, (b'"data": "', b'"version": ', b"/ledgers"), weight=2
    ),
    Target("inspected", inspected, _inspected_seeds, bytes_per_byte=4000),
    Target("written-files", written_files, _written_seeds, (b"@size", b"@time", b'"runs": [')),
]
