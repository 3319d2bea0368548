"""Random damage to good files: what is intact is delivered, what is broken is named, nothing is made up."""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import struct
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from unittest import mock

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import journal as journal_codec
from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch, frame
from bkctl.codec.last_mark import LastMark
from bkctl.scan import records as records_module
from bkctl.scan.checked import CheckedBatch, checked
from bkctl.scan.damage import Damage, Tail, Verdict
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import JournalFile, LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files import entrylogs
from bkctl.scan.files import journals as journal_verbs
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.journal import JournalScan
from bkctl.scan.proof import Evidence
from bkctl.types import DigestType
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import (
    CRC32,
    CRC32C,
    DUMMY,
    MAC,
    PASSWORD,
    Built,
    BuiltEntry,
    EntryLogBuilder,
    JournalBuilder,
    entry_body,
    simple_log,
)

LOG_PATH = "/bookie/current/0.log"
JOURNAL_PATH = "/bookie/current/1.txn"

#: Seconds of CPU for one small file; a scan that loops or goes quadratic takes far more.
SECONDS_MAX = 5.0

# --------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Subject:
    """A good file and how it is read."""

    built: Built
    journal: bool
    digester: Digester
    rolled: bool = False

    @property
    def proves_itself(self) -> bool:
        """Whether every entry's digest can be checked."""
        return self.digester.type is not DigestType.DUMMY


_sizes = st.one_of(st.integers(0, 20), st.integers(0, 300), st.just(60))
_entries = st.lists(st.tuples(st.integers(11, 13), _sizes), min_size=1, max_size=25)
_digesters = st.sampled_from([CRC32C, CRC32C, CRC32, MAC, DUMMY])


def _fill(style: int, ledger: int, entry: int, size: int) -> bytes:
    """Payloads: random, text, zeros, small big-endian numbers, 0xF0."""
    if style == 0:
        return random.Random(ledger * 1000 + entry).randbytes(size)
    if style == 1:
        return (b"<%d:%d>" % (ledger, entry) * (size // 5 + 1))[:size]
    if style == 2:
        return bytes(size)
    if style == 3:
        return (struct.pack(">q", 60) * (size // 8 + 1))[:size]
    return b"\xf0" * size


@st.composite
def logs(draw: st.DrawFn) -> Subject:
    digester = draw(_digesters)
    direct = draw(st.booleans())
    # Where the payload ends and the filler begins cannot be told when both are the same.
    style = draw(st.integers(0, 3 if direct else 4))
    log = EntryLogBuilder(version=1, direct=direct)
    counts: dict[int, int] = {}
    for ledger, size in draw(_entries):
        entry = counts[ledger] = counts.get(ledger, -1) + 1
        log.add(entry_body(ledger, entry, _fill(style, ledger, entry, size), digester))
        if direct and size % 7 == 0:
            log.flush()
    rolled = draw(st.booleans())
    if rolled:
        log.roll()
    else:
        log.flush()
    if direct:
        log.zeros(draw(st.sampled_from([0, 4096])))
    return Subject(log.build(), False, digester, rolled)


@st.composite
def journals(draw: st.DrawFn) -> Subject:
    digester = draw(_digesters)
    version = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 6, 6]))
    style = draw(st.integers(0, 4))
    journal = JournalBuilder(version)
    counts: dict[int, int] = {}
    for ledger, size in draw(_entries):
        entry = counts[ledger] = counts.get(ledger, -1) + 1
        if entry == 0 and version >= 3:
            journal.special(journal_codec.master_key_record(ledger, bytes(range(20))))
        journal.add(entry_body(ledger, entry, _fill(style, ledger, entry, size), digester))
        if size % 11 == 0 and version >= 4:
            journal.special(journal_codec.fence_record(ledger))
        if size % 13 == 0 and version >= 6:
            blob = struct.pack(">qq", ledger, entry)
            journal.special(journal_codec.explicit_lac_record(ledger, blob + digester.compute(blob, b"")))
        if size % 3 == 0:
            journal.flush()
    if draw(st.booleans()):
        journal.preallocate(2048)
    return Subject(journal.build(), True, digester)


# -------------------------------------------------------------------------------------------- damage


@dataclass
class Wreck:
    """A damaged file. ``origin[i]``: where byte ``i`` stood in the good file, -1 for a byte that is new."""

    data: bytearray
    origin: list[int]
    in_place: bool = True

    @classmethod
    def of(cls, good: bytes) -> Wreck:
        return cls(bytearray(good), list(range(len(good))))

    def write(self, at: int, data: bytes) -> None:
        for position, octet in enumerate(data[: len(self.data) - at], at):
            if self.data[position] != octet:
                self.data[position] = octet
                self.origin[position] = -1

    def insert(self, at: int, data: bytes) -> None:
        self.data[at:at] = data
        self.origin[at:at] = [-1] * len(data)
        self.in_place = False

    def remove(self, at: int, length: int) -> None:
        del self.data[at : at + length]
        del self.origin[at : at + length]
        self.in_place = False

    def place_of(self, entry: BuiltEntry) -> int | None:
        """Where an entry stands whole and unchanged now."""
        try:
            at = self.origin.index(entry.offset)
        except ValueError:
            return None
        framed = entry.end - entry.offset
        return at if self.origin[at : at + framed] == list(range(entry.offset, entry.end)) else None


Operation = tuple[str, int, int, bytes]
_operation = st.tuples(
    st.sampled_from(["flip", "flip", "write", "zero", "block", "cut", "insert", "remove", "swap", "copy"]),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
    st.one_of(
        st.binary(min_size=1, max_size=40),
        st.sampled_from(
            [b"\0" * 4, b"\xff" * 8, b"\0\0\0\x10", b"\0\0\0\x30", b"\xff\xff\xff\0", b"\xf0" * 16]
        ),
    ),
)


def _spot(good: Built, number: int) -> int:
    """A byte of the file; every other number hits the head of a record, where damage does most."""
    spans = [span for span in good.spans if span.kind in ("entry", "special", "padding", "map")]
    if number % 2 and spans:
        span = spans[number // 2 % len(spans)]
        return min(span.stop - 1, span.start + number // 64 % 24)
    return number // 2 % max(1, len(good.data))


def wreck(good: Built, operations: Iterable[Operation]) -> Wreck:
    """``good`` after the operations."""
    result = Wreck.of(good.data)
    for name, first, second, data in operations:
        if not result.data:
            break
        at = min(_spot(good, first), len(result.data) - 1)
        other = second % len(result.data)
        if name == "flip":
            result.write(at, bytes([result.data[at] ^ (1 << second % 8)]))
        elif name == "write":
            result.write(at, data)
        elif name == "zero":
            result.write(at, bytes(1 + second % 200))
        elif name == "block":
            result.write(at // 512 * 512, bytes(512))
        elif name == "cut":
            result.remove(at, len(result.data) - at)
        elif name == "insert":
            result.insert(at, data)
        elif name == "remove":
            result.remove(at, 1 + second % 64)
        elif name == "swap":
            length = min(1 + second % 300, len(result.data) - max(at, other))
            one, two = bytes(result.data[at : at + length]), bytes(result.data[other : other + length])
            result.write(at, two)
            result.write(other, one)
        else:
            length = min(1 + second % 300, len(result.data) - max(at, other))
            result.write(at, bytes(result.data[other : other + length]))
    return result


# ------------------------------------------------------------------------------------------- reading


def files(data: bytes) -> MemoryFileSystem:
    return MemoryFileSystem({LOG_PATH: data, JOURNAL_PATH: data})


def new_book(subject: Subject) -> DigestBook:
    return DigestBook(dict.fromkeys(range(11, 14), subject.digester), password=PASSWORD)


def open_scan(subject: Subject, data: bytes, book: DigestBook) -> EntryLogScan | JournalScan:
    evidence = Evidence(digesters=book.digesters)
    if subject.journal:
        return JournalScan(files(data), JOURNAL_PATH, evidence)
    return EntryLogScan(files(data), LOG_PATH, evidence)


def verify(
    subject: Subject, data: bytes, mark: LastMark | None = None, *, marked: bool = True
) -> FileVerdict:
    """Verify a file. Without a ``mark`` all of a journal was synced, or there is none if not ``marked``."""
    book = new_book(subject)
    if subject.journal:
        journal = JournalFile(JOURNAL_PATH, 1, len(data))
        if marked and mark is None:
            mark = LastMark(1, len(data))
        (verdict,) = journal_verbs.verify_journals(files(data), [journal], book, mark=mark)
    else:
        (verdict,) = entrylogs.verify_logs(files(data), [LogFile(LOG_PATH, 0, len(data))], book)
    return verdict


def digest_is_right(body: bytes, digester: Digester) -> bool:
    """The digest by the book of formats, without the codec."""
    head = body[:32]
    if digester.type is DigestType.CRC32C:
        return len(body) >= 36 and body[32:36] == struct.pack(">I", crc32c(head + body[36:]))
    if digester.type is DigestType.CRC32:
        return len(body) >= 40 and body[32:40] == struct.pack(">q", zlib.crc32(head + body[40:]))
    if digester.type is DigestType.MAC:
        key = hashlib.sha1(b"mac" + PASSWORD).digest()
        right = hmac.new(key, head + body[52:], "sha1").digest()
        return len(body) >= 52 and body[32:52] == right
    return len(body) >= 32


Piece = tuple[int, int, str]


def pieces_of(items: Iterable[object], size_bytes: int) -> list[Piece]:
    """What the items of a scan cover; a record whose size word alone is damage covers what is behind it."""
    found: list[Piece] = []
    size_words: set[int] = set()
    for item in items:
        if isinstance(item, CheckedBatch):
            item = item.batch
        if isinstance(item, EntryBatch):
            for index in range(len(item)):
                start = item.offset(index)
                end = start + 4 + item.sizes[index]
                found.append((start + 4 if start in size_words else start, end, "entry"))
        elif isinstance(item, MarkedRecord):
            found.append((item.offset, item.end, "marked"))
        elif isinstance(item, Tail):
            found.append((item.offset, size_bytes, "tail"))
        elif isinstance(item, Damage) and not item.expected.endswith("as the entry's digest proves"):
            found.append((item.offset, item.end, item.reason))
        elif isinstance(item, Damage) and item.reason == "record size":
            found.append((item.offset, item.end, item.reason))
            size_words.add(item.offset)
    return found


def assert_covers(found: list[Piece], start: int, stop: int) -> None:
    """Every byte of ``[start, stop)`` once, in order."""
    position = start
    for first, end, what in found:
        assert first == position, f"{what} at {first}, {position} expected: {found}"
        assert end >= first
        position = end
    assert position == stop or (not found and start >= stop), found


def start_of(scan: EntryLogScan | JournalScan) -> int:
    if scan.head.short:
        return 0
    return scan.records._start if scan.file.size_bytes > scan.records._start else scan.file.size_bytes


# --------------------------------------------------------------------------------------- the property


def scan_checked(subject: Subject, data: bytes) -> list[CheckedBatch | MarkedRecord | Damage | Tail]:
    book = new_book(subject)
    with open_scan(subject, data, book) as scan:
        return list(checked(scan, scan.records, book))


def delivered(items: Iterable[object]) -> dict[int, bytes]:
    """Bodies by the offset of their size word."""
    found: dict[int, bytes] = {}
    for item in items:
        if isinstance(item, CheckedBatch):
            for index in range(len(item.batch)):
                offset = item.batch.offset(index)
                assert offset not in found
                found[offset] = item.batch.body(index)
    return found


def everything(subject: Subject) -> dict[int, bytes]:
    return {entry.offset: entry.body for entry in subject.built.entries}


def check_everything(subject: Subject, damaged: Wreck, window: int) -> None:
    data = bytes(damaged.data)
    started = time.process_time()
    with mock.patch.object(records_module, "WINDOW_BYTES", window):
        with open_scan(subject, data, new_book(subject)) as scan:
            raw = list(scan)
            start = start_of(scan)
        items = scan_checked(subject, data)
        verdict = verify(subject, data)
    assert time.process_time() - started < SECONDS_MAX
    assert isinstance(raw[-1], Tail)
    assert isinstance(items[-1], Tail)
    assert_covers(pieces_of(raw, len(data)), start, len(data))
    assert_covers(pieces_of(items, len(data)), start, len(data))
    check_digests(subject, items)
    check_delivery(subject, damaged, delivered(items))
    check_verdict(subject, damaged, verdict)


def check_digests(subject: Subject, items: Iterable[object]) -> None:
    """Nothing is called good that is not."""
    for item in items:
        if not isinstance(item, CheckedBatch):
            continue
        for index, ledger in enumerate(item.batch.ledgers):
            right = digest_is_right(item.batch.body(index), subject.digester)
            ok = item.check.ok(index, ledger)
            assert ok is not True or right
            assert ok is not False or not right or subject.digester.type is DigestType.DUMMY


def check_delivery(subject: Subject, damaged: Wreck, found: dict[int, bytes]) -> None:
    """Entries with a digest are delivered wherever they stand whole.

    Without one only what stands before the damage is sure, except the last ones in front of it: a size word
    of theirs may be what is wrong.
    """
    if damaged.origin[:1036] != list(range(len(damaged.origin)))[:1036] and not subject.proves_itself:
        return
    places = [(entry, damaged.place_of(entry)) for entry in subject.built.entries]
    if subject.proves_itself:
        for entry, place in places:
            if place is not None and _may_be_lost(subject, damaged, entry, place, found):
                continue
            if place is not None and subject.journal and place < 512 and damaged.origin[:8] != list(range(8)):
                continue  # where records start is not known without the header
            assert place is None or found.get(place) == entry.body, f"{entry} at {place} is lost"
        return
    untouched = next((i for i, origin in enumerate(damaged.origin) if origin != i), len(damaged.origin))
    before = [entry for entry in subject.built.entries if entry.end <= untouched]
    for entry in before[: -records_module.HELD_RECORDS]:
        assert found.get(entry.offset) == entry.body


def _may_be_lost(
    subject: Subject, damaged: Wreck, entry: BuiltEntry, place: int, found: dict[int, bytes]
) -> bool:
    """A damaged or copied record that now ends behind other records holds them, when no digest proves another
    end. (Wrong sizes alone have tests of their own, in which nothing is lost.)

    Bytes that were taken out or put in may also move an entry to where the header is, or into a special
    record in front of it, which has no digest.
    """
    if any(offset < place < offset + 4 + len(body) for offset, body in found.items()):
        return True
    if damaged.in_place:
        return False
    header = max(8, subject.built.spans[0].stop if subject.built.spans[0].kind == "header" else 0)
    return place < header or any(
        span.kind == "special" and span.stop == entry.offset for span in subject.built.spans
    )


def check_verdict(subject: Subject, damaged: Wreck, verdict: FileVerdict) -> None:
    """Changed entries are noticed where a digest can tell."""
    good, data = subject.built.data, bytes(damaged.data)
    if data == good:
        assert verdict.verdict is (Verdict.UNCHECKED if verdict.unchecked else Verdict.CLEAN)
        assert verdict.records >= len(subject.built.entries)
        return
    if not damaged.in_place or not subject.proves_itself:
        return
    changed = [
        entry for entry in subject.built.entries if data[entry.offset : entry.end] != frame(entry.body)
    ]
    if not changed or any(_is_another_record(data, entry) for entry in changed):
        return
    intact_behind = any(
        entry.offset > changed[0].offset and damaged.place_of(entry) is not None
        for entry in subject.built.entries
    )
    if intact_behind:
        assert verdict.verdict is Verdict.DAMAGED
    elif verdict.verdict in (Verdict.CLEAN, Verdict.UNCHECKED):
        assert not any(data[changed[0].offset :]), "damage was not noticed"


def _is_another_record(data: bytes, entry: BuiltEntry) -> bool:
    """A record was overwritten in a way no digest can tell: its ledger id (it may be another ledger's), or
    by the copy of a whole record."""
    if data[entry.offset + 4 : entry.offset + 12] != entry.body[:8]:
        return True
    size = int.from_bytes(data[entry.offset : entry.offset + 4], "big")
    body = data[entry.offset + 4 : entry.offset + 4 + size]
    return any(digest_is_right(body, digester) for digester in (CRC32C, CRC32, MAC))


_windows = st.sampled_from([4 << 20, 4 << 20, 64, 300])
_operations = st.lists(_operation, min_size=0, max_size=4)


@given(logs(), _operations, _windows)
def test_damaged_entry_logs(subject: Subject, operations: list[Operation], window: int) -> None:
    check_everything(subject, wreck(subject.built, operations), window)


@given(journals(), _operations, _windows)
def test_damaged_journals(subject: Subject, operations: list[Operation], window: int) -> None:
    check_everything(subject, wreck(subject.built, operations), window)


@given(st.one_of(logs(), journals()), _windows)
def test_good_files_are_clean(subject: Subject, window: int) -> None:
    check_everything(subject, Wreck.of(subject.built.data), window)


@given(
    st.one_of(logs(), journals()),
    st.integers(0, 1000),
    st.integers(1, 6),
    _windows,
)
def test_size_words_that_swallow(subject: Subject, number: int, count: int, window: int) -> None:
    """A size word that ends exactly behind one of the following records."""
    records = subject.built.entries
    first = records[number % len(records)]
    last = records[min(number % len(records) + count, len(records) - 1)]
    damaged = Wreck.of(subject.built.data)
    damaged.write(first.offset, struct.pack(">i", last.end - first.offset - 4))
    check_everything(subject, damaged, window)
    if subject.proves_itself:
        assert delivered(scan_checked(subject, bytes(damaged.data))) == everything(subject)


@given(st.one_of(logs(), journals()), st.integers(0, 1000), st.integers(0, 1 << 31), _windows)
def test_size_words_alone(subject: Subject, number: int, size: int, window: int) -> None:
    """Whatever a size word says, an entry with a digest is delivered, the last one included."""
    entry = subject.built.entries[number % len(subject.built.entries)]
    damaged = Wreck.of(subject.built.data)
    damaged.write(entry.offset, struct.pack(">I", size))
    check_everything(subject, damaged, window)
    # At 0, in version 1, the file has lost what it begins with; and zeros in front of zeros have no end.
    endless = entry.body.endswith(bytes(8)) and subject.built.spans[-1].kind == "zeros"
    if subject.proves_itself and entry.offset and not endless:
        assert delivered(scan_checked(subject, bytes(damaged.data))) == everything(subject)


@given(journals(), st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 8)), min_size=1, max_size=3))
def test_holes_behind_the_mark_are_an_unsynced_tail(subject: Subject, holes: list[tuple[int, int]]) -> None:
    """Sectors that never reached the disk of the newest journal are no damage; before the mark they are."""
    damaged = Wreck.of(subject.built.data)
    first = journal_codec.JournalHeader(2).first_record
    for at, blocks in holes:
        start, stop = (at % len(damaged.data) // 512 * 512 + more for more in (0, 512 * blocks))
        # Old formats have records in the header's sector; zeros there would pass for a padded header.
        start = max(start, 512)
        if start < len(damaged.data):
            damaged.write(start, bytes(max(stop - start, 0)))
    data = bytes(damaged.data)
    verdict = verify(subject, data, LastMark(1, first))
    if subject.built.data[:4] == b"BKLG":
        assert verdict.verdict is not Verdict.DAMAGED
    behind = verify(subject, data, LastMark(1, len(data)))
    assert behind.tail is not Verdict.UNSYNCED_TAIL
    assert (behind.verdict is Verdict.DAMAGED) == (verdict.tail is Verdict.UNSYNCED_TAIL) or (
        verdict.verdict is Verdict.DAMAGED
    )
    # A bookie without a last mark has given up no journal: a start replays all of it, as one behind the mark.
    unmarked = verify(subject, data, marked=False)
    if subject.built.data[:4] == b"BKLG":
        assert (unmarked.verdict, unmarked.tail) == (verdict.verdict, verdict.tail)
    elif data[:512] == subject.built.data[:512]:
        # Its first record begins in front of the mark. (Half a first sector, which no power cut leaves, makes
        # a journal without a header unrecognizable: its length is there and its record is not.)
        assert unmarked.verdict is not Verdict.DAMAGED


# ------------------------------------------------------------------------------------------- hostile

HOSTILE_BYTES = 1 << 20 if "SOAK_EXAMPLES" in os.environ else 1 << 19
#: CPU time of one pass; verify makes two, one to learn the digests and one to check them. A slow machine
#: takes half of this; work that grows with the square of the bytes takes a hundred times as much.
HOSTILE_SECONDS_PER_MIB = 8.0
PASSES = 2


def _head(size: int, entry: int = 3, lac: int = 2) -> bytes:
    return struct.pack(">iqqqq", size, 7, entry, lac, 9)


def _hostile(name: str) -> bytes:
    generator = random.Random(name)
    count = HOSTILE_BYTES
    repeated = {
        "ones": b"\1",
        "zeros": b"\0",
        "filler": b"\xf0",
        "nested logs": b"x" + simple_log(3, 50, 100).data + b"\xff\xff",
        "equal heads": _head(300) + b"y",
        "heads of maps": struct.pack(">iqqi", 36, -1, -2, 7) + b"zzzz",
        "heads of large maps": struct.pack(">iqqi", 20 + 16 * 9999, -1, -2, 9999),
        "malformed special records": struct.pack(">iqqi", 60_000, 5, -0x1000, 7),
        "nested special records": struct.pack(">iqqi", 60_000, 5, -0x1000, 60_000 - 20),
        "padding": struct.pack(">ii", -256, 100_000),
        "padding of zeros": struct.pack(">ii", -256, 60_000) + bytes(500),
        "numbers": struct.pack(">q", 60),
    }
    if name in repeated:
        return (repeated[name] * (count // len(repeated[name]) + 1))[:count]
    if name == "random":
        return generator.randbytes(count)
    if name == "zeros with stray ones":
        return bytes(generator.choices([0] * 9 + [1], k=count))
    if name == "small bytes":
        return bytes(generator.choices([0, 0, 0, 0, 1, 16, 32, 36, 40], k=count))
    if name == "heads of any size":
        return b"".join(_head(generator.randrange(36, count)) for _ in range(count // 36))
    if name == "heads of near sizes":
        return b"".join(
            _head(generator.randrange(36, 4000), generator.randrange(9), -1) for _ in range(count // 36)
        )
    if name == "small ones in front of large ones":
        chain = struct.pack(">iqq", 16, 7, 1) * 3
        return b"".join(
            chain + _head(max(36, generator.randrange(count - 96 * number))) for number in range(count // 96)
        )
    if name == "ledgers of one entry":
        return b"".join(frame(entry_body(1000 + number, 0, b"abcd", DUMMY)) for number in range(count // 40))
    assert name == "every third record bad"
    return b"".join(
        b"\xff" * 100 if number % 3 == 0 else frame(entry_body(5, number, b"q" * 60))
        for number in range(count // 100)
    )


@pytest.mark.parametrize(
    "name",
    [
        "ones", "zeros", "filler", "nested logs", "equal heads", "heads of maps", "heads of large maps",
        "malformed special records", "nested special records", "padding", "padding of zeros", "numbers",
        "random", "zeros with stray ones", "small bytes", "heads of any size", "heads of near sizes",
        "small ones in front of large ones", "ledgers of one entry", "every third record bad",
    ],
)  # fmt: skip
@pytest.mark.parametrize("journal", [False, True])
def test_hostile_files_take_time_in_proportion(name: str, journal: bool) -> None:
    good = b"".join(frame(entry_body(11, entry, b"abc")) for entry in range(3))
    last = frame(entry_body(11, 9, b"the last one"))
    if journal:
        head = journal_codec.encode_header(6)
    else:
        head = EntryLogBuilder().build().data
    data = head + good + _hostile(name) + last
    subject = Subject(Built(data, (), ()), journal, CRC32C)
    started = time.process_time()
    verdict = verify(subject, data)
    seconds = time.process_time() - started
    assert seconds < PASSES * HOSTILE_SECONDS_PER_MIB * len(data) / (1 << 20)
    assert verdict.records >= 3
