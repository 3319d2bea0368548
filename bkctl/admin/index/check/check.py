"""``index check``: one space after the other, findings as they come."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from operator import itemgetter

import numpy as np

from bkctl.admin.index.check.damaged_logs import DamagedLogs
from bkctl.admin.index.check.expected_ledgers import ExpectedLedgers
from bkctl.admin.index.check.finding import (
    Finding,
    Kind,
    about_directory,
    about_ledger,
)
from bkctl.admin.index.check.index_rows import IndexRows
from bkctl.admin.index.check.indexed_ledgers import IndexedLedgers, no_ledgers, read_ledgers
from bkctl.admin.index.check.journal_key_check import check_journal_keys
from bkctl.admin.index.check.log_entries import LogEntryReader
from bkctl.admin.index.check.master_keys import MasterKeyCheck
from bkctl.admin.index.check.placed_entries import PlacedEntries, Stripe
from bkctl.admin.index.check.places import LogPlaces
from bkctl.admin.index.check.replay import Replay
from bkctl.admin.index.check.strange_ledgers import StrangeLedgers
from bkctl.admin.index.rows.comparison import (
    JOURNALED,
    NO_COPY,
    Comparison,
    Flags,
    compare,
    side_by_side,
)
from bkctl.admin.index.rows.journal_entries import kept_entries
from bkctl.admin.index.rows.location_runs import Rows, no_rows
from bkctl.admin.index.rows.lost_entries import LostEntries, note_lost
from bkctl.admin.index.rows.row_sort import RowSorter, block_rows
from bkctl.admin.ledgers.known_ledgers import Cluster, KnownLedgers, NoCluster, known_in
from bkctl.codec.journal import parse_journal_name
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.codec.location import ID_MAX, OFFSET_MAX
from bkctl.directories.index_spaces import IndexSpace
from bkctl.errors import CorruptionError
from bkctl.reporting import Advance
from bkctl.scan.columns.column import Column
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.journals import journals_before_mark
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index import DirectoryIndex, IdxIndex, open_index
from bkctl.scan.kept_doubts import kept_doubts
from bkctl.scan.ledger_places import place_of_counted
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs import FileSystem

#: (ledger, entry, the finding or, for what replay repairs, what is wrong until then)
_Judged = tuple[int, int, "Finding | str"]
#: Missing in a directory because the disk of another one is in its place.
_OF_THE_RIGHT_DISK = frozenset({Kind.MISSING_LEDGER, Kind.MISSING_ENTRIES})


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """``cluster`` says which ledgers there are; where nobody was asked ``metadata`` does, ledger id to
    metadata, None when not given. ``memory_bytes`` bounds rows in memory. ``placed`` has the entries that
    the metadata place on the bookie, by ledger, and so says which ledgers these are; empty when nobody is to
    compare them."""

    book: DigestBook
    metadata: Mapping[int, LedgerMetadata] | None
    memory_bytes: int
    cluster: Cluster = field(default_factory=NoCluster)
    placed: Mapping[int, Sequence[Stripe]] = field(default_factory=dict)

    @property
    def is_told(self) -> bool:
        """Whether somebody says which ledgers there are."""
        return self.metadata is not None or self.cluster.is_asked


def check_spaces(
    filesystem: FileSystem, spaces: Sequence[IndexSpace], options: CheckOptions, advance: Advance
) -> Iterator[Finding]:
    """Yield the findings of every space. An index that cannot be read any further is a finding, too.

    Raises StorageError when a directory, a journal or the temporary directory fails, RefusedError when the
    metadata are another cluster's.
    """
    known = [_known(filesystem, space, options) for space in spaces]
    for space, ledgers in zip(spaces, known, strict=True):
        check = _SpaceCheck(filesystem, space, options, ledgers)
        try:
            for finding in check.findings(advance):
                if not (check.holds_others and finding.kind in _OF_THE_RIGHT_DISK):
                    yield finding
        except CorruptionError as error:
            yield about_directory(Kind.UNREADABLE_INDEX, space.dir, f"{error}; the rest was not checked")


class _SpaceCheck:
    """One index, or the ``.idx`` files of one bookie."""

    def __init__(
        self, filesystem: FileSystem, space: IndexSpace, options: CheckOptions, known: KnownLedgers
    ) -> None:
        self._in_cluster = known
        self._filesystem = filesystem
        self._space = space
        self._options = options
        self._pending = _PendingReplay(space.dir)
        self._only_kept: dict[int, LostEntries] = {}
        # Without the journals nobody knows what the next start brings; directories without any bring nothing.
        has_journals = bool(space.journal_dirs or space.empty_journal_dirs)
        self._placed = PlacedEntries(space, options.placed if has_journals else {})
        self._places: LogPlaces
        self._salvages: DamagedLogs
        self._quarantined = {
            each.log.log_id: each
            for directory in space.log_dirs
            for each in quarantined_logs(filesystem, directory)
        }
        self._other_places: LogPlaces
        #: Nearly all ledgers belong to another directory of the bookie: its disk is in this one's place.
        self.holds_others = False

    def findings(self, advance: Advance) -> Iterator[Finding]:
        space = self._space
        yield from self._premises()
        if not space.index_dirs:
            yield from self._without_index(advance)
            return
        # The mark is read before everything else. A running bookie may flush entries during the check, to
        # logs that are not read here, and move the mark past them.
        kept = journals_before_mark(self._filesystem, space.journal_dirs, space.mark_dirs)
        with ExitStack() as stack:
            indexes = [stack.enter_context(self._opened(directory)) for directory in space.index_dirs]
            keys = MasterKeyCheck(self._metadata_of if self._options.is_told else None)
            known = yield from read_ledgers(self._filesystem, space, indexes, keys)
            self.holds_others = _holds_others(space, known)
            sorter = stack.enter_context(RowSorter(self._options.memory_bytes))
            reader = LogEntryReader(self._filesystem, space, self._options.book)
            yield from reader.read(sorter, advance)
            expected = self._expected()
            replay = Replay()
            replay.read(
                self._filesystem,
                space,
                sorter,
                self._options.book,
                partial(_of_strangers, known, expected) if expected.is_known else None,
            )
            self._placed.leave_out(replay.failing)
            for rows in kept_entries(self._filesystem, kept, partial(_of_ledgers, known, expected)):
                sorter.add(rows)
            self._places = stack.enter_context(
                LogPlaces(self._filesystem, space.logs, reader.damage, reader.failing)
            )
            self._other_places = stack.enter_context(LogPlaces(self._filesystem, space.other_logs, {}, {}))
            self._salvages = DamagedLogs(self._filesystem, reader.damage.keys() | reader.failing.keys())
            yield from map(_cut_journal, replay.cut)
            strange = StrangeLedgers(space, expected, replay.master_keys)
            journaled = yield from self._compared(indexes, known, sorter, replay, strange)
            yield from self._without_entries(known, journaled)
            yield from self._only_in_journals(known)
            yield from check_journal_keys(
                self._filesystem, space, indexes, self._metadata_of if self._options.is_told else None
            )
            yield from self._placed.findings(known)

    def _premises(self) -> Iterator[Finding]:
        """Report what keeps some of the questions from being asked."""
        space = self._space
        if not space.kind.shares_log_ids and space.position is None:
            detail = (
                f"{space.directories} index directories, but no cookie that fits their paths: whether "
                "ledgers are in the right one was not checked"
            )
            yield about_directory(Kind.POSITION_UNKNOWN, space.dir, detail)
        if space.absent:
            detail = (
                f"{', '.join(space.absent)}, which the cookie names, is not found: ledgers whose index files"
                " are there count as deleted, and entries whose logs are there as missing"
            )
            yield about_directory(Kind.POSITION_UNKNOWN, space.dir, detail)
        if not space.journal_dirs:
            detail = "no journal of this bookie was found: what a replay would repair counts as damage"
            yield about_directory(Kind.NO_JOURNAL, space.dir, detail)
        if doubts := kept_doubts(self._filesystem, space.index_dirs):
            detail = (
                "the rebuild that made the index could not prove that the logs have every entry; what a"
                f" log had that is gone is answered with 'no such entry': {'; '.join(doubts)}"
            )
            yield about_directory(Kind.NOT_PROVED, space.dir, detail)
        if self._options.is_told and space.bookie is None:
            detail = "no cookie: which ledgers of the metadata are this bookie's is not known"
            yield about_directory(Kind.BOOKIE_UNKNOWN, space.dir, detail)

    def _without_index(self, advance: Advance) -> Iterator[Finding]:
        """Report that there is no index: the bookie has not flushed yet, or its index was lost.

        Of a bookie that has not flushed yet the journals alone have every entry, and all of them behind the
        last mark: what stands in front of it was in the logs and the index when the mark was set.
        """
        # As with an index the mark is read in front of the logs.
        kept = journals_before_mark(self._filesystem, self._space.journal_dirs, self._space.mark_dirs)
        with RowSorter(self._options.memory_bytes) as sorter:
            reader = LogEntryReader(self._filesystem, self._space, self._options.book)
            damaged = any(reader.read(sorter, advance))
            replay = Replay()
            replay.read(self._filesystem, self._space, sorter, self._options.book)
            yield from map(_cut_journal, replay.cut)
            self._placed.leave_out(replay.failing)
            for _, rows in side_by_side(iter(()), sorter.blocks()):
                compared = compare(no_rows(), rows)
                damaged |= not bool(compared.unindexed_journaled.all())
                self._placed.add(compared)
        if damaged or self._space.directories > 1:
            detail = "there is no index, and not every entry of the logs is in the journal past the last mark"
            if not damaged and not self._space.logs and self._space.dir not in self._space.mark_dirs:
                detail = (
                    "nothing but the cookie is there, while others of the bookie's directories have logs or"
                    " an index: whatever was there is lost, and a reader is told that there is no such ledger"
                )
                yield about_directory(Kind.EMPTIED_DIRECTORY, self._space.dir, detail)
                return
            yield about_directory(Kind.LOST_INDEX, self._space.dir, detail)
            return
        with closing(kept_entries(self._filesystem, kept, _all_of)) as batches:
            flushed = next(batches, None)
        if flushed is not None:
            detail = (
                "there is no index, and entries in front of the last mark, which were in it and in the logs"
                f" when the mark was set, stand in the journal alone (ledger {flushed.ledgers[0]}, entry"
                f" {flushed.entries[0]} is one), where no start replays them"
            )
            yield about_directory(Kind.LOST_INDEX, self._space.dir, detail)
            return
        detail = "there is no index yet: whatever is in the logs is in the journal past the last mark, too"
        yield about_directory(Kind.NO_INDEX, self._space.dir, detail)
        yield from self._placed.findings(no_ledgers())

    def _opened(self, directory: str) -> DirectoryIndex:
        index = open_index(self._filesystem, directory)
        if index is not None:
            return index
        if self._space.kind.has_databases:
            raise CorruptionError("index", expected="locations/ and ledgers/", path=directory)
        return IdxIndex(directory, IdxTree(self._filesystem, directory))  # folders without a file

    def _metadata_of(self, ledgers: Collection[int]) -> Mapping[int, LedgerMetadata | CorruptionError]:
        if self._options.cluster.is_asked:
            return self._options.cluster.metadata_of(ledgers)
        metadata = self._options.metadata or {}
        return {ledger: metadata[ledger] for ledger in ledgers if ledger in metadata}

    def _expected(self) -> ExpectedLedgers:
        """Find the ledgers whose metadata have this bookie in an ensemble."""
        known = self._in_cluster if self._options.cluster.is_asked else None
        placed = self._options.placed
        return ExpectedLedgers(self._space.bookie, self._options.metadata or {}, known, placed)

    def _compared(
        self,
        indexes: Sequence[DirectoryIndex],
        known: IndexedLedgers,
        sorter: RowSorter,
        replay: Replay,
        strange: StrangeLedgers,
    ) -> Generator[Finding, None, set[int]]:
        """Yield findings in order of ledgers; return the known ledgers with entries in the journal alone."""
        index = IndexRows(indexes, known)
        journaled: set[int] = set()
        blocks = index.blocks(block_rows(self._options.memory_bytes))
        for index_rows, other_rows in side_by_side(blocks, sorter.blocks()):
            yield from index.take_findings()
            yield from self._odd_rows(index.take_odd(), known, strange)
            compared = compare(index_rows, other_rows)
            self._placed.add(compared)
            at, is_known = known.find(compared.rows.ledgers)
            known.seen[at[is_known & ~compared.from_journal]] = True
            self._note_kept(compared.only_kept, known)
            is_replayed = compared.rows.locations == JOURNALED
            journaled.update(np.unique(compared.rows.ledgers[is_known & is_replayed]).tolist())
            yield from strange.add(compared, ~is_known)
            yield from self._judged(compared, known, replay)
        yield from index.take_findings()
        yield from self._odd_rows(index.take_odd(), known, strange)
        yield from self._pending.close()
        yield from strange.end()
        return journaled

    def _note_kept(self, rows: Rows, known: IndexedLedgers) -> None:
        """Note entries that only journals in front of the mark have."""
        if len(rows):
            _, is_known = known.find(rows.ledgers)
            unsaid = np.array(sorted(known.hidden), np.int64)
            note_lost(self._only_kept, rows.select(is_known & ~np.isin(rows.ledgers, unsaid)))

    def _only_in_journals(self, known: IndexedLedgers) -> Iterator[Finding]:
        where = "only in a journal in front of the last mark, which no start replays, in no log or index"
        for ledger, lost in sorted(self._only_kept.items()):
            in_limbo = ledger in known.limbo
            answer = (
                "to clear the limbo would hide that they are lost here"
                if in_limbo
                else "a reader is told that there is no such entry"
            )
            kind = Kind.LIMBO if in_limbo else Kind.ONLY_IN_JOURNAL
            yield about_ledger(kind, self._space.dir, ledger, f"{lost}: {where}: {answer}")

    def _odd_rows(self, rows: Rows, known: IndexedLedgers, strange: StrangeLedgers) -> Iterator[Finding]:
        """Judge locations of negative entry ids, which no log reader takes for entries."""
        if not len(rows):
            return
        at, is_known = known.find(rows.ledgers)
        known.seen[at[is_known]] = True
        for ledger, entry, packed, there in _lines(rows, is_known):
            if not there:
                strange.add_negative(ledger, 1)
            elif (judged := self._unproved(ledger, entry, packed, False, NO_COPY)) is not None:
                assert isinstance(judged, Finding), "what is not journaled is a finding"
                yield judged

    def _judged(self, compared: Comparison, known: IndexedLedgers, replay: Replay) -> Iterator[Finding]:
        unproved = self._unproved_rows(compared, known, replay)
        unindexed = self._unindexed(compared, known)
        for ledger, _, finding in merge(unproved, unindexed, key=itemgetter(0, 1)):
            if isinstance(finding, str):
                yield from self._pending.add(ledger, finding)
            else:
                yield finding

    def _unproved_rows(self, compared: Comparison, known: IndexedLedgers, replay: Replay) -> list[_Judged]:
        """Look at the places in order of logs and offsets, and put what is wrong back in order of keys."""
        rows = compared.unproved
        _, is_known = known.find(rows.ledgers)
        order = np.argsort(rows.locations, kind="stable")
        judged: list[_Judged] = []
        columns = (is_known, compared.unproved_journaled, compared.copies)
        chosen = (column[order] for column in columns)
        for ledger, entry, packed, there, journaled, copy in _lines(rows.select(order), *chosen):
            if entry == ID_MAX and not there:
                continue  # a deletion leaves this row behind, and its log may be gone
            comes_back = journaled and (there or ledger in replay.master_keys)
            finding = self._unproved(ledger, entry, packed, bool(comes_back), copy)
            if finding is not None:
                judged.append((ledger, entry, finding))
        judged.sort(key=itemgetter(0, 1))
        return judged

    def _unproved(
        self, ledger: int, entry: int, packed: int, journaled: bool, copy: int
    ) -> Finding | str | None:
        """Judge what a row of the index says that no entry of the logs confirms."""
        fault = self._places.fault(ledger, entry, packed)
        if fault is None:
            return None
        kind, detail = fault.kind, fault.detail
        self._salvages.add(fault.damaged)
        aside = self._quarantined.get(packed >> 32)
        if aside is not None and self._places.log_of(packed) is None:
            kind = Kind.SALVAGED_LOCATION if aside.is_salvaged else Kind.QUARANTINED_LOCATION
            detail = f"its log is in quarantine: {aside.log.path}"
        other = self._other_places.log_of(packed)
        if other is not None and self._other_places.fault(ledger, entry, packed) is None:
            if self._space.is_elsewhere(ledger):
                return None  # wrong_directory says it for the whole ledger
            kind = Kind.WRONG_LOG_ID_SPACE
            detail = f"the entry stands there in {other.path}, the log of another ledger directory; {detail}"
        if journaled:
            return "a location that is wrong"
        if copy != NO_COPY:
            detail += f"; the entry stands in log {copy >> 32} at {copy & OFFSET_MAX}"
        finding = Finding(kind, self._space.dir, ledger, entry, packed >> 32, packed & OFFSET_MAX, detail)
        return self._with_salvage(finding, packed)

    def _with_salvage(self, finding: Finding, packed: int) -> Finding:
        """Return a finding about a location with the damaged log that it names."""
        return replace(finding, damaged_log=self._salvages.among(self._places.log_of(packed)))

    def _unindexed(self, compared: Comparison, known: IndexedLedgers) -> Iterator[_Judged]:
        """Judge entries of known ledgers without a row."""
        rows = compared.unindexed
        _, is_known = known.find(rows.ledgers)
        if not is_known.any():
            return
        chosen = rows.select(is_known)
        for ledger, entry, packed, journaled in _lines(chosen, compared.unindexed_journaled[is_known]):
            if ledger in known.hidden:
                continue
            if journaled:
                yield ledger, entry, "no location"
                continue
            detail = "the entry stands in the log, and the index has no row of it"
            log_id, offset = packed >> 32, packed & OFFSET_MAX
            finding = Finding(Kind.MISSING_LOCATION, self._space.dir, ledger, entry, log_id, offset, detail)
            yield ledger, entry, self._with_salvage(finding, packed)

    def _without_entries(self, known: IndexedLedgers, journaled: set[int]) -> Iterator[Finding]:
        for ledger in known.ids[~known.seen].tolist():
            if ledger in known.hidden:
                continue
            detail = "no entry in the index or the logs; natural for a ledger that is empty or only fenced"
            if ledger in journaled:
                detail = "its entries are in the journal alone so far"
            yield about_ledger(Kind.LEDGER_WITHOUT_ENTRIES, self._space.dir, ledger, detail)


def _cut_journal(damage: Damage) -> Finding:
    directory, _, name = damage.path.rpartition("/")
    detail = (
        f"{damage.path}: {damage.found}, and there must be {damage.expected}: entries that were acknowledged "
        "are lost, and the next start is refused"
    )
    journal = parse_journal_name(name)
    return Finding(Kind.CUT_JOURNAL, directory, None, None, None, damage.offset, detail, journal)


def _all_of(rows: Rows) -> Rows:
    return rows


def _of_strangers(known: IndexedLedgers, expected: ExpectedLedgers, rows: Rows) -> Rows:
    """Select the rows of ledgers that the metadata place here and the index does not know."""
    _, is_known = known.find(rows.ledgers)
    return rows.select(~is_known & _are_expected(expected, rows.ledgers, ~is_known))


def _of_ledgers(known: IndexedLedgers, expected: ExpectedLedgers, rows: Rows) -> Rows:
    """Select the rows of ledgers that the index knows or the metadata place here."""
    _, is_known = known.find(rows.ledgers)
    if is_known.all() or not expected.is_known:
        return rows.select(is_known)
    return rows.select(is_known | _are_expected(expected, rows.ledgers, ~is_known))


def _are_expected(expected: ExpectedLedgers, ledgers: Column, asked: Flags) -> Flags:
    here = expected.among(np.unique(ledgers[asked]).tolist())
    return np.isin(ledgers, np.array(sorted(here), np.int64))


def _holds_others(space: IndexSpace, known: IndexedLedgers) -> bool:
    """Return whether nearly all ledgers of an index belong to one other directory of its bookie."""
    if space.position is None or space.directories < 2:
        return False
    counts = np.bincount(known.ids % space.directories, minlength=space.directories)
    return place_of_counted(counts.tolist()) not in (None, space.position)


def _known(filesystem: FileSystem, space: IndexSpace, options: CheckOptions) -> KnownLedgers:
    """Ask what the cluster says to the bookie of a space. Raises RefusedError."""
    try:
        return known_in(filesystem, options.cluster, (*space.log_dirs, *space.index_dirs))
    except CorruptionError:
        # It is unknown then whose directory this is, and no ledger is taken for gone here anyway.
        return KnownLedgers.of(options.cluster, None, space.bookie)


class _PendingReplay:
    """Makes one note for each ledger of which a replay repairs something; ledgers come in order."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ledger: int | None = None
        self._counts: dict[str, int] = {}

    def add(self, ledger: int, what: str) -> Iterator[Finding]:
        """Count one entry; yield the note about the ledger before it when the ledger changes."""
        if ledger != self._ledger:
            yield from self.close()
            self._ledger = ledger
        self._counts[what] = self._counts.get(what, 0) + 1

    def close(self) -> Iterator[Finding]:
        """Yield the note about the last ledger."""
        if self._ledger is not None:
            listed = ", ".join(f"{count} with {what}" for what, count in sorted(self._counts.items()))
            detail = (
                f"entries: {listed}; all are in the journal past the last mark and come at the next start"
            )
            yield about_ledger(Kind.PENDING_REPLAY, self._directory, self._ledger, detail)
        self._ledger = None
        self._counts = {}


def _lines(rows: Rows, *columns: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Return rows and further columns as tuples of Python's integers."""
    listed = [column.tolist() for column in (rows.ledgers, rows.entries, rows.locations, *columns)]
    return zip(*listed, strict=True)
