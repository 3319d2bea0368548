"""Entry logs: what DefaultEntryLogger of BookKeeper makes of crafted, real and our own files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bkctl.codec import entry as entry_codec
from bkctl.codec import entrylog
from bkctl.codec.digest import Digester
from bkctl.errors import CorruptionError
from bkctl.scan.entrylog import EntryLogScan
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support.java_bookkeeper import (
    EntryLogVerdict,
    JavaDriver,
    copy_directory,
    sample_directory,
    stable_error,
    start_driver,
)

pytestmark = pytest.mark.interop

_RECORD = re.compile(r"lid=(-?\d+) off=(\d+) size=(\d+)")
_PAIR = re.compile(r"(-?\d+) => (\d+)")

# (ledger, entry, offset of the size word, size)
Delivered = tuple[int, int | None, int, int]

# Crafted logs of which we deliver other entries than Java: (what Java alone delivers, what we alone deliver).
DELIBERATE_DIFFERENCES: dict[int, tuple[set[Delivered], set[Delivered]]] = {
    # A size word of 2^31-1: Java's scan ends with an error, ours names it and goes on behind it.
    0x07: (set(), {(5, 2, 1128, 46)}),
    # Zeros in front of a size word: Java's resync byte by byte takes them for records that never were.
    0x14: ({(5764607523034234880, None, 1635, 1), (2, None, 1644, 5)}, {(5, 2, 1636, 336)}),
}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


@dataclass
class ShippedVerdict:
    ledgers: dict[int, int] = field(default_factory=dict)
    metadata_error: str | None = None
    records: list[tuple[int, int, int]] = field(default_factory=list)
    error: str | None = None


def shipped_verdicts(text: str) -> dict[int, ShippedVerdict]:
    """The content of ``el.expected.txt``."""
    verdicts: dict[int, ShippedVerdict] = {}
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("log "):
            verdict = verdicts[int(words[4:], 16)] = ShippedVerdict()
        elif words.startswith("meta -> "):
            verdict.metadata_error = stable_error(words[8:])
        elif words.startswith("meta "):
            verdict.ledgers = {int(ledger): int(size) for ledger, size in _PAIR.findall(words)}
        elif words.startswith("scan -> "):
            verdict.error = stable_error(words[8:])
        elif record := _RECORD.match(words):
            ledger, offset, size = map(int, record.groups())
            verdict.records.append((ledger, offset, size))
    return verdicts


@pytest.fixture(scope="module")
def crafted(corpora: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the crafted logs: the directory that holds ``current``."""
    return copy_directory(sample_directory("el/l", corpora), tmp_path_factory.mktemp("crafted") / "l")


def test_the_shipped_verdicts_are_those_of_the_jars(
    java: JavaDriver, crafted: Path, corpora: Callable[[str], Path]
) -> None:
    expected = shipped_verdicts(sample_directory("el.expected.txt", corpora).read_text())
    assert len(expected) == 23
    for log_id, shipped in expected.items():
        verdict = java.entry_log(crafted, log_id)
        found = ShippedVerdict(
            verdict.metadata if isinstance(verdict.metadata, dict) else {},
            stable_error(verdict.metadata) if isinstance(verdict.metadata, str) else None,
            [(record.ledger, record.offset, record.size) for record in verdict.records],
            stable_error(verdict.error),
        )
        assert (log_id, found) == (log_id, shipped)


def test_from_crafted_logs_we_deliver_what_java_does_but_for_the_deliberate_differences(
    java: JavaDriver, crafted: Path
) -> None:
    for log_id in range(1, 0x18):
        theirs = set(entries_of(java.entry_log(crafted, log_id)))
        our_own = set(ours(log_path(crafted, log_id)))
        expected = DELIBERATE_DIFFERENCES.get(log_id, (set(), set()))
        assert (log_id, theirs - our_own, our_own - theirs) == (log_id, *expected)


def test_java_and_we_accept_and_refuse_the_same_ledgers_maps(java: JavaDriver, crafted: Path) -> None:
    for log_id in range(1, 0x18):
        java_map = java.entry_log(crafted, log_id).ledgers_map
        data = log_path(crafted, log_id).read_bytes()
        assert (log_id, our_map(data)) == (log_id, java_map if isinstance(java_map, dict) else None)


@pytest.mark.parametrize("sample", ["a/l", "a18/l", "r/l", "d/l", "i/l", "pl/l", "m/l1"])
def test_real_logs_read_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, sample: str
) -> None:
    copy = copy_directory(sample_directory(sample, corpora), tmp_path / "l")
    logs = sorted((copy / "current").glob("*.log"))
    assert logs
    for path in logs:
        log_id = entrylog.parse_log_name(path.name)
        assert log_id is not None
        verdict = java.entry_log(copy, log_id)
        assert verdict.error is None
        assert ours(path) == entries_of(verdict)
        if isinstance(verdict.ledgers_map, dict):
            assert our_map(path.read_bytes()) == verdict.ledgers_map


@pytest.mark.corpora
@pytest.mark.parametrize("storage", ["db", "sorted", "interleaved", "perledger"])
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_the_logs_of_real_bookies_read_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, storage: str, state: str
) -> None:
    source = corpora(storage) / state / "bookie1" / "ledgers"
    copy = copy_directory(source, tmp_path / "ledgers")
    for path in sorted((copy / "current").glob("*.log")):
        log_id = entrylog.parse_log_name(path.name)
        assert log_id is not None
        assert ours(path) == entries_of(java.entry_log(copy, log_id))


# --- they read ours -----------------------------------------------------------------------------------------


@dataclass
class OurLog:
    data: bytes
    entries: list[Delivered]
    bodies: list[bytes]
    totals: dict[int, int]


def make_log(entries: list[tuple[int, int, bytes]], *, direct: bool = False, digest: DigestType) -> OurLog:
    """A rolled log of (ledger, entry, payload), in either layout."""
    digester = Digester.of(digest, b"secret")
    parts = [b""]
    position = entrylog.DIRECT_HEADER_BYTES if direct else entrylog.HEADER_BYTES
    log = OurLog(b"", [], [], {})
    for ledger, entry, payload in entries:
        header = entry_codec.EntryHeader(ledger, entry, entry - 1, 1000)
        body = entry_codec.encode(header, payload, digester)
        log.entries.append((ledger, entry, position, len(body)))
        log.bodies.append(body)
        log.totals[ledger] = log.totals.get(ledger, 0) + 4 + len(body)
        parts.append(entry_codec.frame(body))
        position += 4 + len(body)
    if direct:
        parts.append(entrylog.direct_filler(position))
        position += len(parts[-1])
    parts.append(entrylog.encode_map(log.totals))
    parts[0] = entrylog.encode_header(entrylog.EntryLogHeader(1, position, len(log.totals), direct))
    log.data = b"".join(parts)
    return log


@pytest.mark.parametrize("direct", [False, True], ids=["default", "direct"])
@pytest.mark.parametrize("digest", list(DigestType))
def test_java_reads_a_log_that_we_wrote(
    java: JavaDriver, tmp_path: Path, digest: DigestType, direct: bool
) -> None:
    entries = [(7 + i % 3, i // 3, bytes([i]) * (i * 97 % 5000)) for i in range(30)]
    log = make_log(entries, direct=direct, digest=digest)
    write_log(tmp_path, 0x1C, log.data)
    verdict = java.entry_log(tmp_path, 0x1C)
    assert verdict.error is None
    assert entries_of(verdict) == log.entries
    assert verdict.ledgers_map == verdict.metadata == log.totals
    for (ledger, entry, offset, _), body, (*_, payload) in zip(log.entries, log.bodies, entries, strict=True):
        assert entry is not None
        assert java.entry(tmp_path, ledger, entry, (0x1C << 32) | (offset + 4)) == body
        assert java.opened_entry(digest.value, b"secret", ledger, entry, body) == payload


def test_java_reads_a_ledgers_map_of_several_batches(java: JavaDriver, tmp_path: Path) -> None:
    entries = [(ledger, 0, b"") for ledger in range(entrylog.MAP_BATCH_LEDGERS_MAX + 1)]
    log = make_log(entries, digest=DigestType.CRC32C)
    write_log(tmp_path, 0, log.data)
    assert java.entry_log(tmp_path, 0).ledgers_map == log.totals
    assert our_map(log.data) == log.totals


def test_a_cut_log_ends_for_java_and_for_us_at_the_same_entry(java: JavaDriver, tmp_path: Path) -> None:
    log = make_log([(5, i, b"x" * 40) for i in range(4)], digest=DigestType.CRC32)
    third = log.entries[2][2]
    for log_id, size in enumerate(range(third - 6, third + 30, 5)):
        path = write_log(tmp_path, log_id, log.data[:size])
        assert (size, ours(path)) == (size, entries_of(java.entry_log(tmp_path, log_id)))


def log_path(ledger_dir: Path, log_id: int) -> Path:
    return ledger_dir / "current" / entrylog.log_name(log_id)


def write_log(ledger_dir: Path, log_id: int, data: bytes) -> Path:
    path = log_path(ledger_dir, log_id)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def entries_of(verdict: EntryLogVerdict) -> list[Delivered]:
    """The records that metadata extraction would count: no negative ledger ids."""
    return [
        (record.ledger, record.entry, record.offset, record.size)
        for record in verdict.records
        if record.ledger >= 0
    ]


def ours(path: Path) -> list[Delivered]:
    with EntryLogScan(PosixFileSystem(), str(path)) as scan:
        return [
            (batch.ledgers[i], batch.entries[i], batch.offset(i), batch.sizes[i])
            for batch in scan.batches()
            for i in range(len(batch))
        ]


def our_map(data: bytes) -> dict[int, int] | None:
    """The ledgers map, None where there is none or it is refused."""
    try:
        header = entrylog.decode_header(data[:2048])
        if not header.has_map or header.map_offset < 0:
            return None
        return entrylog.decode_map(data[header.map_offset :], header, header.map_offset)
    except CorruptionError:
        return None
