"""Judge the records of a damaged log: which of them a salvage keeps, and which entries are lost.

Of each record it is known how it is proved: by its digest, where the ledger's digest type is known (of the
MAC digest with the password), else only by its place in the chain of sizes and ids; a record of which the
digest says that it is wrong is not kept. Where the digest proves that a record is another entry than its ids
say, it is kept with the right ids. Rows of the index prove where records begin (``swallowed_rows``), and what
follows a record may prove where it ends (``open_ends``).

Kept is what the index names, and what the index has nowhere; a record of which the index has a newer place is
garbage. So is one of a ledger of which neither the index has a row, nor the metadata know anything, nor its
digest a type: it was deleted, or its id is damaged. So is one without a proof in whose place the index has
another entry.

An entry may have a whole log as its payload. So records that no row names, between the place of an entry that
is not found (a row, or damage, says that there may have been one) and the next row, may be the inside of that
entry: they stand for no entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from bkctl.admin.entrylogs.log_place import LogPlace
from bkctl.admin.entrylogs.open_ends import Neighbours, OpenEnd, has_no_digest, is_proved, why_open
from bkctl.admin.entrylogs.outer_records import OuterRecords
from bkctl.admin.entrylogs.rows_of_log import NamedRecords, RowsOfLog
from bkctl.admin.entrylogs.swallowed_rows import RowProof
from bkctl.admin.index.stopped_index import EntryRows, refuse_damaged
from bkctl.admin.next_step import index_rebuild_line
from bkctl.codec.entry import BODY_BYTES_MAX
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.location import Location, decode_value, encode_key
from bkctl.codec.losses import Range
from bkctl.errors import CorruptionError, RefusedError
from bkctl.reporting import Advance, nobody
from bkctl.scan.checked import CheckedBatch, CheckedItem, checked
from bkctl.scan.damage import Damage, MissingEntries, Tail, opens_doubt
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files.digest_survey import survey, survey_all
from bkctl.scan.proof import Evidence
from bkctl.scan.proved_ids import EntryIds, with_ids
from bkctl.vfs.base import FileSystem

#: A damaged range is asked entry by entry only so far; what has a row is known from the rows.
_ASKED_MAX = 100_000
#: More records with an open end than this are counted, not listed.
_LISTED_MAX = 10_000
_SIZE_BYTES = 4


@dataclass(slots=True)
class Counts:
    """The records of a salvage: copied ``by_digest`` and ``by_structure``; left out are the others.

    ``superseded`` have a newer place, ``unknown`` are of ledgers that nobody knows, or stand where the index
    has another entry. Of the copied ones
    ``unnamed`` had no row: they get one where their ledger is known. ``renamed`` got the ids that their
    digests prove, ``second_copies`` stand for damaged records. Of those that are copied by structure
    ``without_digest`` have none by their metadata, and of ``open_ends`` nothing proves the length.
    """

    by_digest: int = 0
    by_structure: int = 0
    superseded: int = 0
    unnamed: int = 0
    unknown: int = 0
    renamed: int = 0
    second_copies: int = 0
    without_digest: int = 0
    open_ends: int = 0

    @property
    def copied(self) -> int:
        """All that are copied."""
        return self.by_digest + self.by_structure

    @property
    def digests_unknown(self) -> int:
        """The records that are copied by structure, and whose digest types are not known."""
        return self.by_structure - self.without_digest

    def count(self, kept: KeptRecords) -> None:
        """Add the records of a batch that are copied."""
        ledgers, check = kept.entries.batch.ledgers, kept.entries.check
        others = [index for index in kept.indices if not is_proved(check, index, ledgers[index])]
        self.by_digest += len(kept.indices) - len(others)
        self.by_structure += len(others)
        self.renamed += len(kept.renamed)
        self.without_digest += sum(has_no_digest(check, index, ledgers[index]) for index in others)
        self.open_ends += len(kept.open_ends)

    def count_second_copies(self, copies: Collection[SecondCopy]) -> None:
        """Add the copies that stand for damaged records."""
        by_digest = sum(copy.is_proved for copy in copies)
        self.by_digest += by_digest
        self.by_structure += len(copies) - by_digest
        self.renamed += sum(copy.is_renamed for copy in copies)
        self.second_copies += len(copies)
        self.open_ends += sum(copy.open_end is not None for copy in copies)


@dataclass(frozen=True, slots=True)
class SecondCopy:
    """A whole copy of an entry: the path of its log, and the offset of its size word.

    ``is_renamed`` says that its ids are others, and that its digest proves whose it is. ``open_end`` is there
    where nothing proves its length.
    """

    path: str
    offset: int
    is_proved: bool
    is_renamed: bool
    open_end: OpenEnd | None = None


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """The records of a batch, by their indices, that are copied; ``renamed`` get other ids on the way.

    Of those among ``open_ends`` nothing proves the length.
    """

    entries: CheckedBatch
    indices: list[int]
    renamed: Mapping[int, EntryIds] = field(default_factory=dict)
    open_ends: frozenset[int] = frozenset()

    def bodies(self) -> list[bytes]:
        """Return the records without their size words, as they are written."""
        batch = self.entries.batch
        return [
            with_ids(bytes(batch.body(index)), self.renamed[index])
            if index in self.renamed
            else bytes(batch.body(index))
            for index in self.indices
        ]

    def ids(self) -> Iterator[EntryIds]:
        """Yield the ids of the records, as they are written."""
        batch = self.entries.batch
        for index in self.indices:
            yield self.renamed.get(index) or EntryIds(batch.ledgers[index], batch.entries[index])


@dataclass(frozen=True, slots=True)
class LostEntries:
    """The entries that are lost, in ``ranges`` by ledger.

    The ``unproved`` ones have neither a row nor a record, and lie between entries of their ledger, or have a
    record that may be the inside of another one. Where the entries are spread over more bookies than have a
    copy of each, they may never have been here.
    """

    ranges: dict[int, list[Range]]
    unproved: set[EntryIds]


@dataclass(slots=True)
class LogReading:
    """Reads the source of a salvage once, by what the index and the digests say.

    ``ledgers`` have a row in the index; ``moved`` are those with a record that is copied, ``renamed`` the
    entries whose records had other ids. ``open_ends`` are copied records of which nothing proves the length.
    Records at the offsets ``inside`` may be the inside of an entry that is not found, and no row names them.
    """

    rows: RowsOfLog
    locations: EntryRows
    ledgers: Set[int]
    book: DigestBook
    path: str
    counts: Counts = field(default_factory=Counts)
    moved: set[int] = field(default_factory=set)
    renamed: set[EntryIds] = field(default_factory=set)
    open_ends: list[OpenEnd] = field(default_factory=list)
    inside: set[int] = field(default_factory=set)
    _doubted: set[EntryIds] = field(default_factory=set)
    _followed: int = HEADER_BYTES
    _open_from: int = -BODY_BYTES_MAX
    _neighbours: Neighbours = field(init=False)

    def learn_digests(self, fs: FileSystem, place: LogPlace) -> None:
        """Let the book learn digest types from the records that rows name, of ledgers without rows from all.

        Records inside a damaged entry may have ids of these ledgers, and another type.
        """
        if not self.book.needs_survey:
            return
        with EntryLogScan(fs, place.log.path) as scan:
            totals = scan.head.ledgers_map
            doubted = survey(
                scan, self.book, NamedRecords(self.rows), until=None if totals is None else set(totals)
            )
        others = doubted - self.rows.ledgers()
        if others:
            with EntryLogScan(fs, place.log.path) as scan:
                survey_all(scan, self.book, others)
        self.book.close_survey()

    def items(self, fs: FileSystem, place: LogPlace, advance: Advance = nobody) -> Iterator[CheckedItem]:
        """Yield what the log holds, checked; a rolled log that ends within a record is damaged."""
        self.book.restart_trials()
        self._followed, self._open_from = HEADER_BYTES, -BODY_BYTES_MAX
        done = 0
        evidence = Evidence(
            digesters=self.book.digesters, located=self.rows.located, named=self.rows.is_named
        )
        with EntryLogScan(fs, place.log.path, evidence) as scan:
            yield from scan.head.damage
            proof = RowProof(self.rows, self.ledgers, scan.file, scan.records, self.book)
            watch = Neighbours(self.rows.is_named, self.ledgers, scan.file.size_bytes, proof.guessed)
            self._neighbours = watch
            outer = OuterRecords(self.rows, scan.file, scan.records, self.book)
            whole = outer.made_whole(checked(scan, scan.records, self.book))
            for item in watch.watched(proof.apart(whole)):
                if isinstance(item, Tail) and item.kind == "torn" and scan.head.header.has_map:
                    size_bytes = scan.file.size_bytes - item.offset
                    yield Damage(
                        place.log.path,
                        item.offset,
                        size_bytes,
                        "rolled log is cut",
                        "whole records",
                        item.found,
                    )
                elif isinstance(item, Damage):
                    self._note_damage(item)
                elif isinstance(item, CheckedBatch):
                    self._note_inside(item)
                    reached = item.batch.offset(len(item.batch) - 1)
                    advance(reached - done)
                    done = reached
                yield item

    def again(self, fs: FileSystem, place: LogPlace) -> Iterator[tuple[CheckedBatch, frozenset[int]]]:
        """Yield the records once more, each batch with the indices of those with an open end."""
        for item in self.items(fs, place):
            if isinstance(item, CheckedBatch):
                yield item, self._neighbours.open_ends

    def kept(self, item: CheckedBatch) -> KeptRecords:
        """Return which records of a batch are copied, and count them."""
        batch, check, counts = item.batch, item.check, self.counts
        sound = {
            index: check.strangers.get(index) or EntryIds(batch.ledgers[index], batch.entries[index])
            for index in range(len(batch))
            if index not in check.failing or index in check.strangers
        }
        named = {index for index, ids in sound.items() if self.rows.take(batch.offset(index), *ids)}
        others = [index for index in sound if index not in named]
        found = places(self.locations, [encode_key(*sound[index]) for index in others])
        nowhere = {index for index, place in zip(others, found, strict=True) if place is None}
        unnamed = {index for index in nowhere if self._may_get_row(item, index, sound[index])}
        kept = [index for index in sound if index in named or index in unnamed]
        renamed = {index: sound[index] for index in kept if index in check.strangers}
        self.moved.update(sound[index].ledger for index in kept)
        self.renamed.update(renamed.values())
        counts.unnamed += len(unnamed)
        counts.unknown += len(nowhere) - len(unnamed)
        counts.superseded += len(others) - len(nowhere)
        result = KeptRecords(item, kept, renamed, self._neighbours.open_ends & set(kept))
        counts.count(result)
        self._list_open_ends(result)
        return result

    def _list_open_ends(self, kept: KeptRecords) -> None:
        batch = kept.entries.batch
        for index in sorted(kept.open_ends)[: _LISTED_MAX - len(self.open_ends)]:
            ids = EntryIds(batch.ledgers[index], batch.entries[index])
            why = why_open(self.book, ids.ledger)
            self.open_ends.append(OpenEnd(ids, self.path, batch.offset(index), batch.sizes[index], why))

    def lost(self, damage: Iterable[Damage]) -> LostEntries:
        """Return the entries that are lost: rows without a record, and what damage names and no row has."""
        ranges: dict[int, list[Range]] = {}
        proved, guessed = set[EntryIds](), set[EntryIds]()
        for ledger, entry in self.rows.left():
            ranges.setdefault(ledger, []).append((entry, entry))
        for missing in self._named_by(damage):
            first, last = missing.first_entry, missing.last_entry
            if (
                missing.ledger not in self.ledgers
                or first is None
                or last is None
                or last - first >= _ASKED_MAX
            ):
                continue
            entries = [
                entry
                for entry in range(first, last + 1)
                if EntryIds(missing.ledger, entry) not in self.renamed
            ]
            found = places(self.locations, [encode_key(missing.ledger, entry) for entry in entries])
            nowhere = [entry for entry, there in zip(entries, found, strict=True) if there is None]
            if nowhere:
                ranges.setdefault(missing.ledger, []).extend((entry, entry) for entry in nowhere)
                kind = guessed if missing.evidence == "gap" else proved
                kind.update(EntryIds(missing.ledger, entry) for entry in nowhere)
        for ids in self._doubted:
            ranges.setdefault(ids.ledger, []).append((ids.entry, ids.entry))
        guessed |= self._doubted
        return LostEntries(ranges, guessed - proved)

    def _named_by(self, damage: Iterable[Damage]) -> Iterator[MissingEntries]:
        """Yield what damage names, without the ids in headers of places whose entries the index knows."""
        for one in damage:
            if not one.readable:
                is_known = self.rows.is_named(one.offset)
                yield from (
                    missing for missing in one.missing if not (is_known and missing.evidence == "header")
                )

    def _note_damage(self, damage: Damage) -> None:
        """Note damage of which nothing says where the record ends that it was in."""
        if opens_doubt(damage) and damage.end > self._followed:
            self._open_from = damage.offset

    def _note_inside(self, item: CheckedBatch) -> None:
        """Note which records stand behind one that is not found, and in front of the next row."""
        batch = item.batch
        for index in range(len(batch)):
            offset = batch.offset(index)
            is_named = self.rows.is_named(offset)
            if index in item.check.failing and not is_named:
                continue  # nothing says that it was a record
            if is_named or not self._may_hold(offset):
                self._followed = offset + _SIZE_BYTES + batch.sizes[index]
                self._open_from = -BODY_BYTES_MAX
            else:
                self.inside.add(offset)

    def _may_hold(self, offset: int) -> bool:
        """Return whether an entry that is not found, by its row or its head, may reach an offset."""
        first = offset - BODY_BYTES_MAX
        return self._open_from > first or any(self.rows.between(max(self._followed, first), offset))

    def _may_get_row(self, item: CheckedBatch, index: int, ids: EntryIds) -> bool:
        """Return whether a record that the index has nowhere is the entry that it names."""
        if item.batch.offset(index) in self.inside and ids.ledger in self.ledgers:
            self._doubted.add(ids)
        return self.is_entry(item, index) and not self._is_of_nobody(ids.ledger)

    def is_entry(self, item: CheckedBatch, index: int) -> bool:
        """Return whether a record that was read may be the entry that it names.

        Where the index has another entry in its place the ids of the record are damaged, unless a digest
        proves them: a row for them would serve an entry that never was.
        """
        batch = item.batch
        offset, ledger, entry = batch.offset(index), batch.ledgers[index], batch.entries[index]
        if offset in self.inside:
            return False
        is_another = self.rows.is_named(offset) and not self.rows.located(offset, ledger, entry)
        return not is_another or is_proved(item.check, index, ledger)

    def _is_of_nobody(self, ledger: int) -> bool:
        """Return whether nothing speaks for a ledger, though the metadata were asked."""
        is_asked = self.book.enabled and self.book.has_metadata
        return is_asked and ledger not in self.ledgers and self.book.digester(ledger) is None


def read_rows(place: LogPlace, store: EntryRows, ledgers: Set[int], book: DigestBook) -> LogReading:
    """Read the rows that the index has of a log.

    Raises CorruptionError where rows may be missing, RefusedError for an index that is lost.
    """
    refuse_damaged(store)
    rows = RowsOfLog(store, place.log.log_id)
    if rows.is_empty_index:
        line = index_rebuild_line(place.current_dir)
        raise RefusedError(f"{store.path}: has no row; rebuild the index first: {line}")
    return LogReading(rows, store, ledgers, book, place.log.path)


def places(store: EntryRows, keys: list[bytes]) -> list[Location | None]:
    """Return where the index has entries; a row that does not decode says nothing."""
    return [None if value is None else _place(value) for value in store.get_many(keys)]


def _place(value: bytes) -> Location | None:
    try:
        return decode_value(value)
    except CorruptionError:
        return None
