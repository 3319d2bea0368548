"""``index check``: one space after the other, findings as they come."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bkctl.admin.index.check.absent_index import AbsentIndex
from bkctl.admin.index.check.expected_ledgers import ExpectedLedgers
from bkctl.admin.index.check.finding import (
    Finding,
    Kind,
    about_directory,
    about_ledger,
)
from bkctl.admin.index.check.index_rows import IndexRows
from bkctl.admin.index.check.indexed_ledgers import IndexedLedgers, read_ledgers
from bkctl.admin.index.check.journal_key_check import check_journal_keys
from bkctl.admin.index.check.log_entries import LogEntryReader
from bkctl.admin.index.check.master_keys import MasterKeyCheck
from bkctl.admin.index.check.placed_entries import PlacedEntries, Stripe
from bkctl.admin.index.check.premises import premises
from bkctl.admin.index.check.replay import Replay
from bkctl.admin.index.check.row_judge import RowJudge
from bkctl.admin.index.check.strange_ledgers import StrangeLedgers
from bkctl.admin.index.rows.comparison import (
    JOURNALED,
    Flags,
    compare,
    side_by_side,
)
from bkctl.admin.index.rows.journal_entries import kept_entries
from bkctl.admin.index.rows.location_runs import Rows
from bkctl.admin.index.rows.lost_entries import LostEntries, note_lost
from bkctl.admin.index.rows.row_sort import RowSorter, block_rows
from bkctl.admin.ledgers.known_ledgers import Cluster, KnownLedgers, NoCluster, known_in
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.directories.index_spaces import IndexSpace
from bkctl.errors import CorruptionError
from bkctl.reporting import Advance
from bkctl.scan.columns.column import Column
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journals import journals_before_mark
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index import DirectoryIndex, IdxIndex, open_index
from bkctl.scan.ledger_places import place_of_counted
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs import FileSystem

#: Missing in a directory because the disk of another one is in its place.
_OF_THE_RIGHT_DISK = frozenset({Kind.MISSING_LEDGER, Kind.MISSING_ENTRIES})


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Knowledge and bounds of a check.

    ``cluster`` says which ledgers there are. Where it was not asked ``metadata`` does, by ledger id; None is
    not given. ``memory_bytes`` bounds the rows in memory. ``placed`` has the entries that the metadata place
    on the bookie, by ledger. It is empty when they are not to be compared.
    """

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
        self._only_kept: dict[int, LostEntries] = {}
        # Without the journals nobody knows what the next start brings; directories without any bring nothing.
        has_journals = bool(space.journal_dirs or space.empty_journal_dirs)
        self._placed = PlacedEntries(space, options.placed if has_journals else {})
        self._quarantined = {
            each.log.log_id: each
            for directory in space.log_dirs
            for each in quarantined_logs(filesystem, directory)
        }
        #: Nearly all ledgers belong to another directory of the bookie: its disk is in this one's place.
        self.holds_others = False

    def findings(self, advance: Advance) -> Iterator[Finding]:
        space = self._space
        yield from premises(self._filesystem, space, is_told=self._options.is_told)
        if not space.index_dirs:
            book, memory_bytes = self._options.book, self._options.memory_bytes
            absent = AbsentIndex(self._filesystem, space, book, memory_bytes, self._placed)
            yield from absent.findings(advance)
            return
        # The mark is read before everything else. A running bookie may flush entries during the check, to
        # logs that are not read here, and move the mark past them.
        kept = journals_before_mark(self._filesystem, space.journal_dirs, space.mark_dirs)
        with ExitStack() as stack:
            indexes = [stack.enter_context(self._opened(directory)) for directory in space.index_dirs]
            yield from self._with_index(indexes, kept, advance)

    def _with_index(
        self, indexes: Sequence[DirectoryIndex], kept: Sequence[tuple[JournalFile, int]], advance: Advance
    ) -> Iterator[Finding]:
        """Compare the rows with the entries of the logs, and those with the journals and the metadata."""
        space = self._space
        metadata_of = self._metadata_of if self._options.is_told else None
        known = yield from read_ledgers(self._filesystem, space, indexes, MasterKeyCheck(metadata_of))
        self.holds_others = _holds_others(space, known)
        with RowSorter(self._options.memory_bytes) as sorter:
            reader = LogEntryReader(self._filesystem, space, self._options.book)
            yield from reader.read(sorter, advance)
            expected = self._expected()
            replay = self._replayed(sorter, known, expected)
            for rows in kept_entries(self._filesystem, kept, partial(_of_ledgers, known, expected)):
                sorter.add(rows)
            yield from replay.cut_journals()
            strange = StrangeLedgers(space, expected, replay.master_keys)
            with RowJudge(self._filesystem, space, reader, self._quarantined) as judge:
                journaled = yield from self._compared(indexes, known, sorter, replay, strange, judge)
            yield from self._without_entries(known, journaled)
            yield from self._only_in_journals(known)
            yield from check_journal_keys(self._filesystem, space, indexes, metadata_of)
            yield from self._placed.findings(known)

    def _replayed(self, sorter: RowSorter, known: IndexedLedgers, expected: ExpectedLedgers) -> Replay:
        """Add the entries that the next start brings back to the sorter."""
        choose = partial(_of_strangers, known, expected) if expected.is_known else None
        replay = Replay()
        replay.read(self._filesystem, self._space, sorter, self._options.book, choose)
        self._placed.leave_out(replay.failing)
        return replay

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
        judge: RowJudge,
    ) -> Generator[Finding, None, set[int]]:
        """Yield findings in order of ledgers; return the known ledgers with entries in the journal alone."""
        index = IndexRows(indexes, known)
        journaled: set[int] = set()
        blocks = index.blocks(block_rows(self._options.memory_bytes))
        for index_rows, other_rows in side_by_side(blocks, sorter.blocks()):
            yield from index.take_findings()
            yield from judge.negative_rows(index.take_odd(), known, strange)
            compared = compare(index_rows, other_rows)
            self._placed.add(compared)
            at, is_known = known.find(compared.rows.ledgers)
            known.seen[at[is_known & ~compared.from_journal]] = True
            self._note_kept(compared.only_kept, known)
            is_replayed = compared.rows.locations == JOURNALED
            journaled.update(np.unique(compared.rows.ledgers[is_known & is_replayed]).tolist())
            yield from strange.add(compared, ~is_known)
            yield from judge.compared_rows(compared, known, replay)
        yield from index.take_findings()
        yield from judge.negative_rows(index.take_odd(), known, strange)
        yield from judge.end()
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

    def _without_entries(self, known: IndexedLedgers, journaled: set[int]) -> Iterator[Finding]:
        for ledger in known.ids[~known.seen].tolist():
            if ledger in known.hidden:
                continue
            detail = "no entry in the index or the logs; natural for a ledger that is empty or only fenced"
            if ledger in journaled:
                detail = "its entries are in the journal alone so far"
            yield about_ledger(Kind.LEDGER_WITHOUT_ENTRIES, self._space.dir, ledger, detail)


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
