"""Rebuilding the ``.idx`` files of Sorted- and InterleavedLedgerStorage.

The swap is file by file (``idx_swap``). Each file is old or new and whole at every moment, and no file
depends on another, so a mixture after a kill is a correct index; the rerun replaces the rest. Only where
files were lost is a mixture none: then a note beside them (``accepted_losses``) has every start refused until
all of them are back.

Limbo is a bit of a header that Java keeps and does not know (ADR 0019). With ``--accept-loss`` a ledger
that may have lost entries is fenced and in limbo: bookies of ours answer "unknown" for what is lost, Java's
"no such entry", so that its entries must be replicated again before clients read from one of those. The
result says so for each ledger.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import asdict, replace
from functools import partial

from bkctl.admin.index.damaged_keys import right_keys
from bkctl.admin.index.rebuild.bookie_facts import last_written_ms
from bkctl.admin.index.rebuild.census import take_census
from bkctl.admin.index.rebuild.completeness import Completeness, judge_logs
from bkctl.admin.index.rebuild.difference import (
    Difference,
    kept_differences,
    locations_lost,
    only_in_journal,
    told_first,
)
from bkctl.admin.index.rebuild.entry_search import EntrySearch
from bkctl.admin.index.rebuild.idx_build import sync_tree, verify_idx_files, write_idx_files
from bkctl.admin.index.rebuild.idx_swap import IdxSwap
from bkctl.admin.index.rebuild.journal_facts import JournalFacts, read_journals
from bkctl.admin.index.rebuild.kept_doubts import MADE_IN_DOUBT, forget_doubts, keep_doubts
from bkctl.admin.index.rebuild.ledger_rows import LedgerPlan, LedgerSources, plan_ledgers
from bkctl.admin.index.rebuild.log_files import find_logs
from bkctl.admin.index.rebuild.log_set import LogSet, check_loss, read_logs
from bkctl.admin.index.rebuild.old_locations import rows_of_idx_files
from bkctl.admin.index.rebuild.old_places import OldIndex
from bkctl.admin.index.rebuild.old_rows import OldRows
from bkctl.admin.index.rebuild.old_tree import OldTree
from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult
from bkctl.admin.index.rebuild.rehearsal import rehearsed_logs
from bkctl.admin.index.rebuild.run_merging import MERGED, RUNS_MAX, fewer_runs
from bkctl.admin.index.rebuild.state import (
    SWAP_MARKER,
    WorkDirectory,
    drop_whole,
    read_json,
    sync_directory,
    write_json,
)
from bkctl.admin.index.rebuild.swap import BACKUP, backup_stamp, finish_drops
from bkctl.admin.index.rebuild.unseen_parts import unseen_parts
from bkctl.admin.index.rows.location_runs import ROW_BYTES, Run
from bkctl.admin.index.rows.lost_entries import no_limbo
from bkctl.admin.ledgers.known_ledgers import KnownLedgers, Source, known_in
from bkctl.codec.file_info import FENCED, LIMBO, FileInfoHeader, decode_header, parse_index_path
from bkctl.codec.ledger_data import LedgerData
from bkctl.directories.placement import Placement
from bkctl.engine.accepted_losses import (
    ACCEPTED_NAME,
    CUT_OFF,
    HALF_BACK,
    HALF_REBUILT,
    accepted_parts,
    forget_accepted,
    note_accepted,
)
from bkctl.engine.interleaved_storage.index_headers import row_of
from bkctl.engine.interleaved_storage.index_places import was_written
from bkctl.errors import CorruptionError, RefusedError, storage_error
from bkctl.reporting import counted, nobody
from bkctl.scan.directory import REBUILD_SUFFIX
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.kept_doubts import are_rows_unproved, kept_doubts
from bkctl.storage_kinds import IDX
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.presence import is_there
from bkctl.workers import Workers

_TREE = "tree"
#: All of the index, where it was lost, in the words of a start.
_WHOLE = IDX.indexes[0]


class IdxRebuild:
    """All ledger and index directories of one bookie."""

    def __init__(self, placement: Placement, options: RebuildOptions, workers: Workers) -> None:
        self._placement = placement
        self._options = options
        self._workers = workers
        self._fs = PosixFileSystem()
        self._indexes = sorted({directory.index_dir for directory in placement.directories})
        self._works = {path: WorkDirectory(f"{path}/idx{REBUILD_SUFFIX}") for path in self._indexes}
        self._main = self._works[self._indexes[0]]
        self._lost: list[int] = []
        self._accepted = accepted_parts(self._fs, *self._indexes)
        #: Parts of the index that were lost and are put back file by file.
        self._half_back: dict[str, str] = {}
        self._merged: list[Run] | None = None
        #: To be kept; None where nothing was judged.
        self._doubts: list[str] | None = None
        self._rows_unproved = any(are_rows_unproved(self._fs, path) for path in self._indexes)
        self._search = EntrySearch(
            self._fs, rows_of_idx_files, self._indexes, placement, options, self._few_runs
        )
        folders = [d.ledger_dir for d in placement.directories] + self._indexes
        self._known: KnownLedgers = known_in(self._fs, options.cluster, folders)

    def run(self) -> RebuildResult:
        """Rebuild the index, verify and swap it. Raises RefusedError, CorruptionError, StorageError."""
        ledger_dirs = sorted({directory.ledger_dir for directory in self._placement.directories})
        logs = find_logs(self._fs, ledger_dirs)
        index = OldIndex(tuple(self._indexes), tuple(ledger_dirs), has_databases=False)
        if not self._options.dry_run:
            for path in self._indexes:
                finish_drops(path, *IDX.indexes)
        if self._options.dry_run:
            found = rehearsed_logs(logs, index, self._options)
            check_loss(found, self._options)
        else:
            found = read_logs(logs, index, self._main, self._options, self._workers)
        old = self._old_tree()
        headers, differences = self._headers(old, found)
        slots = None
        backups: list[str] = []
        if not self._options.dry_run:
            slots, differences = self._replace(old, found, headers, differences, backups)
        return RebuildResult(
            self._indexes[0],
            slots,
            len(headers),
            0.0,
            tuple(backups),
            tuple(differences),
            bool(found.damaged),
        )

    def _old_tree(self) -> OldTree:
        old = OldTree({}, {})
        for path in self._indexes:
            tree = IdxTree(self._fs, path)
            for ledger, name in _files(tree):
                old.take(ledger, path, _header(name))
        old.settle()
        return old

    def _headers(self, old: OldTree, found: LogSet) -> tuple[dict[int, FileInfoHeader], list[Difference]]:
        """Make the header of every new file, and report how ledgers differ from before."""
        rows = OldRows(problem=None if old.homes else "there is no .idx file")
        if self._accepted.get(_WHOLE) == HALF_BACK:
            rows.problem = rows.problem or HALF_REBUILT
        for ledger, header in old.headers.items():
            if header is None:
                rows.damaged.add(ledger)
            else:
                rows.rows[ledger] = row_of(header)
        self._half_back = self._lost_parts(rows)
        facts = JournalFacts()
        if rows.problem is not None or rows.damaged:
            facts = self._read_journals()
        local: dict[Source, Set[int]] = {Source.LOGS: found.ledgers}
        if rows.problem is not None:
            local[Source.JOURNALS] = facts.ledgers
        known = self._known
        judged = self._judged(rows, found)
        vague: set[int] = set()
        if judged is not None:
            vague = self._vague(rows, judged, found)
            local[Source.METADATA] = judged.missing.keys() | vague
        census = take_census(
            rows,
            local,
            known,
            _any,
            partial(self._search.replayed_ledgers, found),
            self._search.stranded_ledgers,
        )
        if census.added and not facts.read:
            facts = self._read_journals()
        unread = [ledger for ledger in census.ledgers if not rows.trusts(ledger)]
        ledger_dirs = {directory.ledger_dir for directory in self._placement.directories}
        current = known.is_newer_than(last_written_ms(self._placement.journals, *ledger_dirs))
        metadata = known.metadata_of(unread)
        keys = right_keys(rows.rows, known)
        sources = LedgerSources(facts, metadata, current, has_limbo=False, right_keys=keys)
        plan = plan_ledgers(rows, census, sources)
        headers = {ledger: _header_of(data, old.headers.get(ledger)) for ledger, data in plan.rows.items()}
        gone = self._gone(old, found, headers, plan)
        if judged is not None:
            plan.differences += judged.differences()
            gone |= judged.missing.keys() | vague
        self._lost = sorted((found.lost(list(headers)) | gone | census.stranded) & headers.keys())
        joined = [
            Difference("note", ledger, f"two .idx files; the one in {path} was joined to the other")
            for ledger, path in old.others
        ]
        return headers, [*plan.differences, *found.doubts, *joined, *self._fence_lost(headers)]

    def _judged(self, rows: OldRows, found: LogSet) -> Completeness | None:
        """Judge whether the logs have every entry; None where the old files say it.

        Raises RefusedError for entries that are missing by the metadata, unless their loss is accepted.
        """
        damaged = f"the .idx file of ledger {min(rows.damaged)} cannot be read" if rows.damaged else None
        earlier = kept_doubts(self._fs, self._indexes)
        unseen = unseen_parts(self._fs, self._placement)
        accepted = None
        if self._accepted:
            accepted = CUT_OFF if self._was_accepted else HALF_REBUILT
        self._rows_unproved |= bool(rows.problem or accepted or unseen.emptied)
        why = rows.problem or damaged or accepted or next(iter(unseen.whys), None)
        why = why or (MADE_IN_DOUBT if earlier else None)
        if why is None:
            return None
        ledger_dirs = sorted({directory.ledger_dir for directory in self._placement.directories})
        written = last_written_ms(self._placement.journals, *ledger_dirs)
        rehearsed = self._options.dry_run
        judged = judge_logs(
            self._fs,
            ledger_dirs,
            why,
            found,
            self._known,
            self._search,
            _any,
            written,
            rehearsed=rehearsed,
            more=[*earlier, *(each for each in unseen.whys if each not in earlier)],
        )
        # A directory that is not here may come back as it was.
        self._doubts = [each for each in judged.doubts if each not in unseen.absent]
        if judged.missing and not self._options.accept_loss:
            raise no_limbo(self._indexes[0], "are placed on this bookie by the metadata", judged.missing)
        return judged

    def _vague(self, rows: OldRows, judged: Completeness, found: LogSet) -> set[int]:
        """Return the ledgers of which entries may be lost, where the files were, once that is accepted.

        Raises RefusedError for those without any entry, unless their loss is accepted.
        """
        current = self._indexes[0]
        if rows.problem is None and not self._was_accepted:
            return set()
        vague = judged.may_be_lost - rows.rows.keys()
        if self._options.accept_loss:
            return vague
        vague -= found.ledgers
        if vague:
            raise RefusedError(
                f"{current}: by the metadata this bookie holds {counted(len(vague), 'ledger')} that"
                f" {'is' if len(vague) == 1 else 'are'} not closed (the first: {min(vague)}). Here such a"
                " ledger has no index file and no entry in a log, and logs may be missing. Nothing was"
                " changed: Java knows no limbo over index files. Bring the logs back, or name all of the"
                " bookie's directories; with --accept-loss the rebuild goes on without them"
            )
        return vague

    def _lost_parts(self, rows: OldRows) -> dict[str, str]:
        """Return what is lost: all of the index, or the directories that have no trace of it."""
        if rows.problem is not None or self._was_accepted:
            return {_WHOLE: HALF_BACK}
        gone = [path for path in self._indexes if not was_written(self._fs, [path])]
        return {**self._accepted, **dict.fromkeys(gone, HALF_BACK)}

    @property
    def _was_accepted(self) -> bool:
        """Whether a start has accepted the loss of files, without coming to its end."""
        return any(state != HALF_BACK for state in self._accepted.values())

    def _read_journals(self) -> JournalFacts:
        with self._options.phase("reading journals", sum(j.size_bytes for j in self._placement.journals)):
            return read_journals(self._fs, self._placement.journals)

    def _gone(
        self, old: OldTree, found: LogSet, headers: dict[int, FileInfoHeader], plan: LedgerPlan
    ) -> set[int]:
        """Return the ledgers with entries that the old index or a journal has and no log.

        Raises RefusedError unless their loss is accepted.
        """
        options = self._options
        gone = self._search.by_old_index(found, old.homes.keys() & headers.keys())
        if gone and not options.accept_loss:
            raise no_limbo(self._indexes[0], "have a location in the old index", gone)
        # Of a ledger that was in limbo before nothing is said again.
        said = {ledger for ledger, header in old.headers.items() if header is not None and header.limbo}
        kept = self._search.by_journals(found, headers.keys() - said)
        if kept and not options.accept_loss and not options.dry_run:
            raise no_limbo(self._indexes[0], "stand in a journal in front of the last mark", kept)
        plan.differences += locations_lost(gone)
        plan.differences += only_in_journal(kept, rehearsed=options.dry_run)
        return gone.keys() | (set() if options.dry_run else kept.keys())

    def _fence_lost(self, headers: dict[int, FileInfoHeader]) -> list[Difference]:
        differences = []
        for ledger in self._lost:
            headers[ledger] = replace(headers[ledger], state=headers[ledger].state | FENCED | LIMBO)
            differences.append(
                Difference(
                    "entries_lost",
                    ledger,
                    "fenced and in limbo, which a Java bookie over index files does not know: it answers "
                    '"no such entry" for a lost one; replicate the ledger again before it serves',
                )
            )
        return differences

    def _replace(
        self,
        old: OldTree,
        found: LogSet,
        headers: dict[int, FileInfoHeader],
        differences: list[Difference],
        backups: list[str],
    ) -> tuple[int, list[Difference]]:
        marker = read_json(self._main.at(SWAP_MARKER))
        # Where something else has worked in the directories, files of that run may be neither old nor new.
        if marker is not None and marker.get("is_announced") and not self._options.record.goes_on:
            marker = None
        resumed = marker is not None and self._still_fits(marker["logs"], old, found, headers)
        if marker is None or not resumed:
            if marker is not None and marker.get("is_announced"):
                # Some files are those of that run, and what they differ in is said by nobody else.
                differences = told_first(kept_differences(marker["differences"]), differences)
            self._main.forget_swap()
            slots = self._build(old, found, headers)
            found.check_unchanged()
            marker = {
                "stamp": backup_stamp(),
                "slots": slots,
                "logs": found.fingerprint(),
                "differences": [asdict(difference) for difference in differences],
            }
            write_json(self._main.at(SWAP_MARKER), marker)
            sync_directory(self._indexes[0])
        found.check_unchanged()
        self._options.recheck()
        self._keep_doubts()
        backup = f"idx{BACKUP}{marker['stamp']}"
        swaps = [
            IdxSwap(path, work, work.at(_TREE), f"{path}/{backup}") for path, work in self._works.items()
        ]
        for swap in swaps:
            swap.keep_old()
        self._options.record.announce_folders([folder for swap in swaps for folder in swap.folders()])
        if not marker.get("is_announced"):
            marker["is_announced"] = True
            write_json(self._main.at(SWAP_MARKER), marker)
        self._note_half_back()
        for swap in swaps:
            swap.put_in_place()
            swap.remove_files([ledger for ledger, path in old.others if path == swap.current])
            if is_there(swap.backup):
                backups.append(swap.backup)
        if resumed and not self._are_sound(marker["slots"], found):
            self._main.forget_swap()
            return self._replace(old, found, headers, differences, backups)
        if self._options.drop_old:
            for backup in backups:
                drop_whole(backup)
            backups.clear()
        if self._doubts == []:
            forget_doubts(self._fs, self._options.record, self._indexes)
        forget_accepted(self._fs, *self._indexes)
        for path in reversed(self._indexes):  # the marker goes last
            self._works[path].drop()
            sync_directory(path)
        # After a kill during the swap the old state is half gone: what the first run said counts.
        return marker["slots"], kept_differences(marker["differences"])

    def _keep_doubts(self) -> None:
        """Keep durably which entries may be lost, in front of files that no longer show it."""
        if self._doubts:
            keep_doubts(
                self._fs,
                self._options.record,
                self._indexes,
                self._doubts,
                rows_unproved=self._rows_unproved,
            )

    def _note_half_back(self) -> None:
        """Note what is lost until all files are back: a start would take those that are for all."""
        if self._half_back:
            for path in self._indexes:
                self._options.record.announce_file(f"{path}/{ACCEPTED_NAME}")
                note_accepted(self._fs, path, self._half_back)

    def _still_fits(self, logs: str, old: OldTree, found: LogSet, headers: dict[int, FileInfoHeader]) -> bool:
        """Return whether the files that wait for their swap, or are in place, are still the right ones."""
        if logs != found.fingerprint():
            return False
        moved = set(headers)
        for work in self._works.values():
            if not work.exists(_TREE):
                continue  # its files are in place, and an earlier run has removed it already
            for ledger, path in _files(IdxTree(self._fs, work.at(_TREE))):
                if _header(path) != headers.get(ledger):
                    return False
                moved.discard(ledger)
        return all(old.headers.get(ledger) is not None for ledger in moved)

    def _are_sound(self, slots: int, found: LogSet) -> bool:
        """Return whether the files in place, which an earlier run has proved, have not been damaged since."""
        try:
            verify_idx_files(self._indexes, found.logs, slots, self._options.rows_max, nobody)
        except CorruptionError:
            return False
        return True

    def _few_runs(self, found: LogSet) -> list[Run]:
        """Return the runs of the logs, merged where they are very many; they are made once."""
        if self._merged is None:
            rows_max = self._options.rows_beside(found.held_bytes)
            self._merged = fewer_runs(self._main, MERGED, found.runs, RUNS_MAX, rows_max, self._workers)
        return self._merged

    def _build(self, old: OldTree, found: LogSet, headers: dict[int, FileInfoHeader]) -> int:
        trees = {path: work.at(_TREE) for path, work in self._works.items()}
        for work in self._works.values():
            work.discard(_TREE)
            work.prepare(_TREE)
        roots = {ledger: trees[old.home(ledger, self._indexes[0])] for ledger in headers}
        rows_max = self._options.rows_beside(found.held_bytes)
        runs = self._few_runs(found)
        total = sum(run.rows for run in runs)
        with self._options.phase("writing the index", total * ROW_BYTES) as advance:
            slots = write_idx_files(roots, headers, runs, rows_max, lambda n: advance(n * ROW_BYTES))
        self._main.discard(MERGED)
        self._merged = None
        with self._options.phase("verifying the index", slots * ROW_BYTES) as advance:
            verify_idx_files(
                list(trees.values()), found.logs, slots, rows_max, lambda n: advance(n * ROW_BYTES)
            )
        for tree in trees.values():
            sync_tree(tree)
        return slots


def _any(_: int) -> bool:
    return True


def _files(tree: IdxTree) -> list[tuple[int, str]]:
    """List the ledger and the path of every file; files that stand at a wrong place raise CorruptionError."""
    damage, files = tree.files()
    for row in damage:
        parse_index_path(row.path)  # raises: no reader would look for it there
    return sorted(files.items())


def _header(path: str) -> FileInfoHeader | None:
    try:
        with open(path, "rb") as file:
            return decode_header(file.read(1024))
    except CorruptionError:
        return None
    except OSError as error:
        raise storage_error(error, path) from error


def _header_of(data: LedgerData, old: FileInfoHeader | None) -> FileInfoHeader:
    """Make a header: version and unknown state bits of the old file are kept; a new file has version 1."""
    if old is None:
        return FileInfoHeader(1, data.master_key, FENCED if data.fenced else 0, data.explicit_lac)
    return replace(old, state=old.state | (FENCED if data.fenced else 0))
