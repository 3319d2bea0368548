"""Rebuilding the two databases of one directory of DbLedgerStorage.

Order: the logs are read first, so that damage is known before anything is changed. Ledger rows are put in
place before locations: they carry fences and limbo, and whoever sees an index without lost entries must see
those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from dataclasses import asdict, replace
from functools import partial
from typing import Any

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
from bkctl.admin.index.rebuild.journal_facts import JournalFacts, read_journals
from bkctl.admin.index.rebuild.kept_doubts import MADE_IN_DOUBT, forget_doubts, keep_doubts
from bkctl.admin.index.rebuild.ledger_build import build_ledgers
from bkctl.admin.index.rebuild.ledger_rows import LedgerPlan, LedgerSources, plan_ledgers, put_into_limbo
from bkctl.admin.index.rebuild.location_build import build_locations
from bkctl.admin.index.rebuild.log_files import find_logs
from bkctl.admin.index.rebuild.log_set import LogSet, check_loss, read_logs
from bkctl.admin.index.rebuild.old_locations import NO_LOCATIONS, OldLocations, old_ledgers, rows_of_databases
from bkctl.admin.index.rebuild.old_places import OldIndex
from bkctl.admin.index.rebuild.old_rows import OldRows, read_old_rows
from bkctl.admin.index.rebuild.options import RebuildOptions, RebuildResult
from bkctl.admin.index.rebuild.rehearsal import rehearsed_logs
from bkctl.admin.index.rebuild.run_merging import MERGED, RUNS_MAX, fewer_runs
from bkctl.admin.index.rebuild.state import (
    SWAP_MARKER,
    WorkDirectory,
    drop_whole,
    read_json,
    sync_directory,
)
from bkctl.admin.index.rebuild.swap import (
    Swap,
    announce,
    backup_stamp,
    earlier_result,
    exchange,
    finish_drops,
    finish_exchange,
    is_between,
)
from bkctl.admin.index.rebuild.verification import holds_rows, verify_locations
from bkctl.admin.index.rows.location_runs import ROW_BYTES, Run
from bkctl.admin.ledgers.known_ledgers import KnownLedgers, Source, known_in
from bkctl.directories.placement import LedgerDirectory, Placement
from bkctl.engine.accepted_losses import CUT_OFF, accepted_parts, forget_accepted, note_accepted
from bkctl.errors import RefusedError
from bkctl.scan.directory import REBUILD_SUFFIX
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.kept_doubts import are_rows_unproved, kept_doubts
from bkctl.vfs import PosixFileSystem
from bkctl.workers import Workers

#: Differences that want new ledger rows, though only locations were asked for.
_NEW_ROWS = ("limbo_set", "ledger_added")


class DbRebuild:
    """One directory of a bookie's."""

    def __init__(
        self,
        directory: LedgerDirectory,
        placement: Placement,
        options: RebuildOptions,
        workers: Workers,
    ) -> None:
        self._directory = directory
        self._placement = placement
        self._journals = placement.journals
        self._options = options
        self._workers = workers
        self._fs = PosixFileSystem()
        current = directory.index_dir
        self._locations = Swap(current, LOCATIONS, WorkDirectory(f"{current}/{LOCATIONS}{REBUILD_SUFFIX}"))
        self._ledgers = Swap(current, LEDGERS, WorkDirectory(f"{current}/{LEDGERS}{REBUILD_SUFFIX}"))
        self._stamp = backup_stamp()
        self._exchanged: dict[str, str | None] = {}
        #: Databases that a start has made in the place of lost ones, without coming to its end.
        self._accepted = accepted_parts(self._fs, current)
        self._lost: list[int] = []
        self._merged: list[Run] | None = None
        self._judgement: Completeness | None = None
        self._rows_unproved = are_rows_unproved(self._fs, current)
        self._search = EntrySearch(
            self._fs, rows_of_databases, [directory.index_dir], placement, options, self._few_runs
        )
        self._known: KnownLedgers = known_in(self._fs, options.cluster, [directory.ledger_dir, current])

    def run(self) -> RebuildResult:
        """Rebuild the indexes, verify and swap them; :meth:`finish` is to follow.

        Raises RefusedError, CorruptionError, StorageError.
        """
        if not self._options.dry_run:
            finish_drops(self._directory.index_dir, LEDGERS, LOCATIONS)
            for swap in (self._ledgers, self._locations):
                # The locations of a first run are read as the old ones: they may know more than the logs.
                finish_exchange(swap)
        old = read_old_rows(self._ledgers.live)
        if LEDGERS in self._accepted:
            old.problem = old.problem or CUT_OFF
        if not self._options.ledgers and old.problem is not None:
            raise RefusedError(
                f"{self._ledgers.live}: {old.problem}; which entries belong into locations cannot be told "
                "without it: rebuild both with --all"
            )
        found = self._read_logs() if self._options.locations or old.problem is not None else None
        plan = self._plan(old, found)
        differences = [*plan.differences, *self._notes(old)]
        rows: int | None = None
        if not self._options.dry_run:
            if self._options.ledgers or any(d.kind in _NEW_ROWS for d in plan.differences):
                differences = self._replace_ledgers(old, plan, differences)
            if self._options.locations and found is not None:
                rows = self._replace_locations(found, plan)
        lossy = found is not None and bool(found.damaged)
        return RebuildResult(
            self._directory.index_dir,
            rows,
            len(plan.rows),
            0.0,
            self._backups,
            tuple(differences),
            lossy,
        )

    @property
    def _backups(self) -> tuple[str, ...]:
        return tuple(backup for backup in self._exchanged.values() if backup is not None)

    def _read_logs(self) -> LogSet:
        logs = find_logs(self._fs, [self._directory.ledger_dir])
        index = OldIndex((self._directory.index_dir,), (self._directory.ledger_dir,), has_databases=True)
        if not self._options.dry_run:
            return read_logs(logs, index, self._locations.work, self._options, self._workers)
        found = rehearsed_logs(logs, index, self._options)
        check_loss(found, self._options)
        return found

    def _plan(self, old: OldRows, found: LogSet | None) -> LedgerPlan:
        located = old_ledgers(self._directory.index_dir)
        if LOCATIONS in self._accepted:
            located.problem = located.problem or CUT_OFF
        # If the old locations cannot be read, only a kept journal may still name a ledger without a row.
        incomplete = old.problem is not None or located.problem is not None
        facts = JournalFacts()
        if incomplete or old.damaged:
            facts = self._read_journals()
        local: dict[Source, Set[int]] = {
            Source.LOCATIONS: located.ledgers,
            Source.LOGS: frozenset() if found is None else found.ledgers,
        }
        if incomplete:
            local[Source.JOURNALS] = facts.ledgers
        known = self._known
        judged = self._judgement = self._judged(old, found, located)
        self._rows_unproved |= old.problem is not None
        if judged is not None:
            vague = judged.may_be_lost if old.problem is not None or self._was_doubted else set()
            local[Source.METADATA] = judged.missing.keys() | vague
        census = take_census(
            old,
            local,
            known,
            self._directory.serves,
            partial(self._search.replayed_ledgers, found),
            self._stranded,
        )
        if census.added and not facts.read:
            facts = self._read_journals()
        unread = [ledger for ledger in census.ledgers if not old.trusts(ledger)]
        current = known.is_newer_than(last_written_ms(self._journals, self._directory.ledger_dir))
        sources = LedgerSources(
            facts, known.metadata_of(unread), current, right_keys=right_keys(old.rows, known)
        )
        plan = plan_ledgers(old, census, sources)
        self._set_limbo(plan, old, found, located)
        if judged is not None and found is not None:
            bare = old.rows.keys() - found.ledgers - facts.ledgers if located.problem is not None else set()
            self._limbo_of_missing(plan, judged, bare)
        plan.differences += [
            Difference("note", None, f"{path}: damaged; fences and keys in it may be missing")
            for path in facts.damaged
        ]
        return plan

    @property
    def _was_doubted(self) -> bool:
        return bool(kept_doubts(self._fs, [self._directory.index_dir]))

    def _judged(self, old: OldRows, found: LogSet | None, located: OldLocations) -> Completeness | None:
        """Judge whether the logs have every entry; None where the old locations or an earlier run do."""
        if found is None or not (self._options.locations or old.problem is not None):
            return None
        directory = self._directory
        earlier = kept_doubts(self._fs, [directory.index_dir])
        # A run that was cut off within its swap has judged them.
        cut_off = is_between(self._locations)
        if not earlier and (located.problem is None or cut_off):
            return None
        return judge_logs(
            self._fs,
            [directory.ledger_dir],
            MADE_IN_DOUBT if located.problem is None or cut_off else located.problem,
            found,
            self._known,
            self._search,
            directory.serves,
            last_written_ms(self._journals, directory.ledger_dir),
            rehearsed=self._options.dry_run,
            more=earlier,
        )

    def _limbo_of_missing(self, plan: LedgerPlan, judged: Completeness, bare: Set[int]) -> None:
        """Set limbo for what the metadata miss.

        If logs may be missing, it is set of ``bare`` ledgers as well, which have a row and no entry.
        """
        put_into_limbo(plan, dict.fromkeys(judged.missing, "the metadata place entries here that no log has"))
        if judged.doubts:
            put_into_limbo(plan, dict.fromkeys(bare, "it has a row and no entry, and logs may be missing"))
        plan.differences += judged.differences()

    def _read_journals(self) -> JournalFacts:
        with self._options.phase("reading journals", sum(j.size_bytes for j in self._journals)):
            return read_journals(self._fs, self._journals)

    def _stranded(self) -> set[int]:
        with self._options.phase("searching the journals", sum(j.size_bytes for j in self._journals)):
            return self._search.stranded_ledgers()

    def _set_limbo(self, plan: LedgerPlan, old: OldRows, found: LogSet | None, located: OldLocations) -> None:
        """Set limbo for what damage of the logs, or a log that is not there any more, may have taken."""
        if found is None:
            return
        self._lost = sorted(found.lost(list(plan.rows)))
        put_into_limbo(plan, dict.fromkeys(self._lost, "entries may be lost with the damage"))
        plan.differences += found.doubts
        if not self._options.locations:
            return
        if located.problem != NO_LOCATIONS:
            if located.problem is not None:
                text = f"old locations not compared as a whole: {located.problem}"
                plan.differences.append(Difference("note", None, text))
            gone = self._search.by_old_index(found, (located.ledgers | located.last_only) & plan.rows.keys())
            plan.differences += locations_lost(gone)
            put_into_limbo(plan, dict.fromkeys(gone, "the old index knew entries that no log has"))
        if self._options.dry_run and located.problem is not None:
            text = "whether only journals have some entries is seen by the rebuild itself: it reads all logs"
            plan.differences.append(Difference("note", None, text))
            return
        # Of a ledger that was in limbo before nothing is said again.
        said = {ledger for ledger, data in old.rows.items() if data.limbo}
        told = plan.rows.keys() - said
        kept = self._search.by_journals(found, told)
        plan.differences += only_in_journal(kept, rehearsed=self._options.dry_run)
        if not self._options.dry_run:
            put_into_limbo(plan, dict.fromkeys(kept, "a journal has entries that no log has"))

    def _notes(self, old: OldRows) -> list[Difference]:
        notes = []
        if old.problem is not None:
            notes.append(Difference("note", None, f"old ledger rows not relied on: {old.problem}"))
            if not self._journals:
                notes.append(Difference("note", None, "no journal was found"))
        return notes

    def _replace_ledgers(
        self, old: OldRows, plan: LedgerPlan, differences: list[Difference]
    ) -> list[Difference]:
        """Build and swap the ledger rows; the differences, of the run that built them."""
        options = self._options
        known = self._known
        # Of a live store the next id changes all the time, and so may its answers: those of the first run
        # stand, because its rows are in place.
        upcoming = None if known.cluster.is_live else known.next_ledger
        asked = (known.cluster.instance_id, known.unproved, known.cluster.time_ms, upcoming)
        fingerprint = hashlib.sha256(repr((options.accept_loss, asked, self._lost)).encode()).hexdigest()
        # Rows that wait for their swap may be older than what a bookie has written since: made again. So are
        # those in place when they have been damaged since.
        sound = old.problem is None and not old.damaged and not old.collapsed
        # Where more is lost by now, they are made again as well.
        fits = sound and _has_all(old, plan)
        told = self._told_before()
        if earlier_result(self._ledgers, fingerprint if fits else "", only_in_place=True) is None:
            differences = told_first(told, differences)
            build_ledgers(self._ledgers.work, plan)
            result = {"differences": [asdict(difference) for difference in differences]}
            announce(self._ledgers, self._stamp, fingerprint, result)
        else:
            differences = told
        self._keep_doubts()  # no start takes the rows for all that there were
        self._exchange(self._ledgers)
        return differences

    def _told_before(self) -> list[Difference]:
        """Return what the rows in place differ in that are the work of a run which was killed."""
        marker = read_json(self._ledgers.work.at(SWAP_MARKER))
        if marker is None or self._ledgers.proved != self._ledgers.live:
            return []
        return kept_differences(marker["result"]["differences"])

    def _replace_locations(self, found: LogSet, plan: LedgerPlan) -> int:
        """Build and swap the locations; return how many. Doubts are kept durably before the swap."""
        ledgers_path = self._locations.work.write_ledgers(plan.rows)
        fingerprint = found.fingerprint(sorted(plan.rows))
        result = earlier_result(self._locations, fingerprint)
        if result is not None and not holds_rows(self._locations.proved, result["rows"]):
            # Damaged since it was proved; its swap is finished all the same, for the old one's sake.
            result = earlier_result(self._locations, "")
        is_new = result is None
        if result is None:
            result = self._build_locations(found, ledgers_path)
        found.check_unchanged()
        self._keep_doubts()
        if is_new:
            announce(self._locations, self._stamp, fingerprint, result)
        self._exchange(self._locations)
        rows: int = result["rows"]
        return rows

    def _keep_doubts(self) -> None:
        if self._judgement is not None and self._judgement.doubts:
            self._options.recheck()
            keep_doubts(
                self._fs,
                self._options.record,
                [self._directory.index_dir],
                self._judgement.doubts,
                rows_unproved=self._rows_unproved,
            )

    def _exchange(self, swap: Swap) -> None:
        """Put a new database into its place; the way back is durable before."""
        self._options.recheck()
        self._options.record.announce(swap.live, swap.backup)
        self._exchanged[swap.live] = exchange(swap)

    def _is_rebuilt(self, name: str) -> bool:
        return f"{self._directory.index_dir}/{name}" in self._exchanged

    def _few_runs(self, found: LogSet) -> list[Run]:
        """Return the runs of the logs, merged where they are very many; they are made once."""
        if self._merged is None:
            rows_max = self._options.rows_beside(found.held_bytes)
            work = self._locations.work
            self._merged = fewer_runs(work, MERGED, found.runs, RUNS_MAX, rows_max, self._workers)
        return self._merged

    def _build_locations(self, found: LogSet, ledgers_path: str) -> dict[str, Any]:
        work, options = self._locations.work, self._options
        rows_max = options.rows_beside(found.held_bytes)
        runs = self._few_runs(found)
        total = sum(run.rows for run in runs)
        with options.phase("writing the index", total * ROW_BYTES) as advance:
            tables = build_locations(
                work, runs, ledgers_path, rows_max, self._workers, lambda rows: advance(rows * ROW_BYTES)
            )
        work.discard(MERGED)
        self._merged = None
        rows = sum(table.rows for table in tables)
        with options.phase("verifying the index", 2 * rows * ROW_BYTES) as advance:
            verify_locations(
                work, tables, found.logs, rows_max, self._workers, lambda n: advance(n * ROW_BYTES)
            )
        return {"rows": rows}

    def finish(self, result: RebuildResult) -> RebuildResult:
        """Remove what a rerun would need, once every directory's indexes are in place; return the result.

        The old indexes go first: a rerun after a kill goes on with them. The markers of the ledger rows go
        last, because they hold the differences. Raises StorageError.
        """
        if self._options.dry_run:
            return result
        if self._judgement is not None and not self._judgement.doubts:
            forget_doubts(self._fs, self._options.record, [self._directory.index_dir])
        left = {name: state for name, state in self._accepted.items() if not self._is_rebuilt(name)}
        if self._options.drop_old:
            for backup in self._backups:
                drop_whole(backup)
            self._exchanged.clear()
        if left:
            note_accepted(self._fs, self._directory.index_dir, left)
        else:
            forget_accepted(self._fs, self._directory.index_dir)
        self._locations.work.drop()
        self._ledgers.work.drop()
        sync_directory(self._directory.index_dir)
        return replace(result, backups=self._backups)


def _has_all(old: OldRows, plan: LedgerPlan) -> bool:
    """Return whether the rows in place have every ledger of a plan, and are in limbo where it says so."""
    return all(
        ledger in old.rows and (old.rows[ledger].limbo or not data.limbo)
        for ledger, data in plan.rows.items()
    )
