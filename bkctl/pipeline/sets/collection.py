"""Collecting a bookie: one pass over its files, one set in a store.

The order is what makes a set true of one moment although the bookie is at work. Journals come first, with the
last mark: entries behind the mark count as held, and those in front of it were flushed into logs that are
listed afterwards. Then come the logs, then the index, and in the end a second listing for logs that went away
during the pass.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bkctl import __version__
from bkctl.errors import UsageError
from bkctl.pipeline.index_spaces import partial_spaces
from bkctl.pipeline.jobs.index_audit import INDEX_AUDIT
from bkctl.pipeline.results import CLEAN, FOUND
from bkctl.pipeline.sets.base_rows import BaseUnreadError
from bkctl.pipeline.sets.index_pass import read_indexes
from bkctl.pipeline.sets.log_pass import Keep, file_state
from bkctl.pipeline.sets.manifest import PARTLY_READ, SetFile
from bkctl.pipeline.sets.parts import PartWriters
from bkctl.pipeline.sets.reading import (
    ReadLogs,
    ReadTask,
    carried_rows,
    earlier_progress,
    grouped_tasks,
    read_logs,
    unchanged,
)
from bkctl.pipeline.sets.rest_pass import (
    asked_blocks,
    keep_unread_indexes,
    read_blocks,
    read_journal_damage,
    read_journals,
    read_suspects,
)
from bkctl.pipeline.sets.set_draft import SetDraft
from bkctl.pipeline.sets.set_tables import OF_LOGS, OF_THE_REST, TABLES
from bkctl.pipeline.sets.store import CompleteSet, SetStore, new_set_id
from bkctl.pipeline.survey import (
    Survey,
    bookies_table,
    survey,
    unread_indexes,
)
from bkctl.pipeline.tables.ledger_source import known_digests
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import journal_files, log_files
from bkctl.pipeline.tables.split import SplitFile, packed
from bkctl.pipeline.tables.unread_notes import unread_in
from bkctl.reporting import Phase, counted, silent_phase
from bkctl.scan.directory import inspect_directory, last_mark_of
from bkctl.vfs import FileSystem
from bkctl.workers import Workers

#: The modules that define the tasks of other processes.
_WORK_MODULES = ("bkctl.pipeline.sets.reading",)
_PROCESSES_FROM_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """The request for a collection: what to collect and where to put it.

    ``full`` reads every log, whether it changed or not; ``resume`` goes on with the newest set of the bookie
    that has no manifest. ``blocks`` is a table ``blocks_to_compare``, whose entries are written one by one.
    """

    paths: tuple[str, ...]
    options: TableOptions = field(default_factory=lambda: TableOptions(damage="rows"))
    full: bool = False
    resume: bool = False
    rate_bytes: int = 0
    jobs: int = 1
    memory_bytes: int = 1 << 30
    blocks: str | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """A set that was published, and what the pass came to."""

    complete: CompleteSet
    logs_read: int
    logs_carried: int
    bytes_read: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """0, 1 or 3, by the set's verdict."""
        return {CLEAN: 0, FOUND: 1}.get(self.complete.manifest.verdict, 3)

    def as_row(self) -> dict[str, Any]:
        """Return the set and its verdict as a row of JSON."""
        manifest = self.complete.manifest
        parts = [part for parts in manifest.tables.values() for part in parts]
        return {
            "bookie": manifest.bookie,
            "set": self.complete.location.text,
            "verdict": manifest.verdict,
            "exit_code": self.exit_code,
            "logs_read": self.logs_read,
            "logs_carried": self.logs_carried,
            "logs_gone": manifest.logs_gone,
            "log_bytes_read": self.bytes_read,
            "set_bytes": sum(part.bytes for part in parts),
            "rows": {name: sum(part.rows for part in parts) for name, parts in manifest.tables.items()},
            "guards": list(manifest.guards),
            "not_read": dict(manifest.not_read),
            "seconds": round(self.seconds, 3),
            "base": manifest.base,
        }


def collect(
    filesystem: FileSystem, store: SetStore, request: CollectRequest, phase: Phase = silent_phase
) -> Collected:
    """Read a bookie's directories and publish what was seen as a set.

    Raises UsageError for paths of no bookie or of several, RefusedError for a place that is no store,
    NotFoundError, StorageError.
    """
    started = time.time()
    surveyed = survey(filesystem, request.paths)
    rows = bookies_table(filesystem, surveyed, request.options.bookie).to_pylist()
    bookie = _one_bookie(rows)
    store.claim()
    work = _Collection(filesystem, store, request, surveyed, bookie, rows, started)
    return work.run(phase)


def _one_bookie(rows: Sequence[dict[str, Any]]) -> str:
    names = sorted({row["bookie"] for row in rows if row["bookie"]})
    if len(names) > 1:
        raise UsageError(f"these are directories of {len(names)} bookies: {', '.join(names)}; name one's")
    if not names:
        raise UsageError("no directory has a cookie that names its bookie: give --bookie ID")
    return str(names[0])


class _Collection:
    def __init__(
        self,
        filesystem: FileSystem,
        store: SetStore,
        request: CollectRequest,
        surveyed: Survey,
        bookie: str,
        rows: list[dict[str, Any]],
        started_s: float,
    ) -> None:
        self._filesystem = filesystem
        self._store = store
        self._request = request
        self._surveyed = surveyed
        self._bookie = bookie
        self._rows = rows
        self._started_s = started_s
        self._options = replace(request.options, bookie=bookie)
        self._set_id = self._resumed() or new_set_id(int(started_s * 1000))
        self._place = store.place_of(bookie, self._set_id)
        self._draft = SetDraft(filesystem, self._place, bookie, self._set_id, rows, started_s)
        self._base = None if request.full else self._usable(store.newest(bookie))
        self._bytes_read = 0

    def _resumed(self) -> str | None:
        """Return the newest set of the bookie when it has no manifest."""
        ids = self._store.set_ids(self._bookie) if self._request.resume else []
        newest = ids[0] if ids else None
        if newest is None or isinstance(self._store.read(self._bookie, newest), CompleteSet):
            return None
        return newest

    def _usable(self, base: CompleteSet | None) -> CompleteSet | None:
        """Return a set from whose rows others can be made: of the same version, with digests known as now."""
        if base is None or base.manifest.version != __version__:
            return None
        return base if base.manifest.digest_known == self._digest_known() else None

    def _digest_known(self) -> str:
        """Return how digests are known: what was checked by learning alone is checked again with metadata."""
        options = self._options
        how = [options.digest]
        if options.metadata is not None:
            how.append("metadata")
        if options.password is not None:
            how.append("password")
        return "+".join(how)

    def _read_as(self) -> str:
        return f"{__version__} {self._digest_known()}"

    # ---------------------------------------------------------------------------------------------- the pass

    def run(self, phase: Phase) -> Collected:
        """Read everything, then publish."""
        blocks = self._request.blocks
        asked = None if blocks is None else asked_blocks(blocks, self._bookie)
        self._write_bookies()
        self._read_journals()
        files = log_files(self._filesystem, self._surveyed.paths_with("runs"), self._options)
        looked_at = self._looked_at(files)
        there = [file for file in files if (file.dir, file.id) in looked_at]
        left, carried = self._carry(there, looked_at)
        self._read_logs(left, looked_at, phase)
        unread = self._read_indexes()
        gone = len(files) - len(there) + sum(file.state == "gone" for file in self._draft.files)
        gone += sum(
            file.state in ("read", "carried", PARTLY_READ) and self._filesystem.status(file.path) is None
            for file in self._draft.files
            if file.kind == "entry_log"
        )
        if gone:
            self._draft.guards.append(
                f"{counted(gone, 'entry log')} went away while files were read: a running bookie compacts. "
                "What it copied out of them may be in no table"
            )
        if asked is not None:
            self._read_blocks(asked)
        manifest = self._draft.manifest(unread, gone, self._digest_known(), self._base)
        complete = self._store.publish(manifest)
        logs = [file for file in self._draft.files if file.kind == "entry_log"]
        return Collected(
            complete,
            sum(file.state in ("read", PARTLY_READ) for file in logs),
            carried,
            self._bytes_read,
            time.time() - self._started_s,
        )

    def _write_bookies(self) -> None:
        with PartWriters(self._place, OF_THE_REST) as writers:
            writers.add("bookies", pa.Table.from_pylist(self._rows, TABLES["bookies"]).to_batches())
            self._draft.take(writers.close())
        self._draft.guards += partial_spaces(self._rows)

    def _looked_at(self, files: Sequence[SplitFile]) -> dict[tuple[str, int], SetFile]:
        found = {}
        for file in files:
            state = file_state(self._filesystem, "entry_log", file)
            if state is not None:
                found[file.dir, file.id] = state
        return found

    def _read_journals(self) -> None:
        paths = self._surveyed.paths_with("journal")
        for path in self._surveyed.paths:
            for directory in path.directories:
                if directory.journals:
                    inspected = inspect_directory(self._filesystem, directory.path)
                    # One that the disk refuses is noted by whoever reads the journals.
                    mark = last_mark_of(self._filesystem, inspected, unread=lambda path, error: None)
                    if mark is not None:
                        self._draft.last_marks.append(
                            {"dir": directory.path, "journal_id": mark.journal_id, "offset": mark.offset}
                        )
        if not paths:
            self._draft.guards.append("no journals were given: what is only in a journal is not known")
            return
        for file in journal_files(self._filesystem, paths, self._options):
            state = file_state(self._filesystem, "journal", file)
            if state is not None:
                self._draft.files.append(replace(state, read_ms=int(time.time() * 1000)))
        with PartWriters(self._place, OF_THE_REST | OF_LOGS) as writers, _notes() as notes:
            options = replace(self._options, digest="off", metadata=None, unread_notes=notes)
            read_journals(paths, options, writers.add)
            read_journal_damage(paths, self._options, self._draft.counting(writers))
            self._draft.take(writers.close())
            self._draft.heed_journals(unread_in(notes))

    def _carry(
        self, files: Sequence[SplitFile], looked_at: dict[tuple[str, int], SetFile]
    ) -> tuple[list[SplitFile], int]:
        """Take over what an earlier set, or the ended pass of this one, has of logs that did not change;
        the logs that are left, and how many were taken over."""
        done: set[tuple[str, int]] = set()
        if self._request.resume:
            for earlier in earlier_progress(self._place, looked_at, self._read_as()):
                keys = {(file.dir, file.id) for file in earlier.files}
                if not keys & done:
                    done |= keys
                    self._keep(earlier)
        done |= self._carry_over(done, looked_at)
        return [file for file in files if (file.dir, file.id) not in done], len(done)

    def _carry_over(
        self, done: set[tuple[str, int]], looked_at: dict[tuple[str, int], SetFile]
    ) -> set[tuple[str, int]]:
        """Take over what the set before has of logs that are not done, and return which these are: none where
        rows of it cannot be read."""
        base = self._base
        if base is None:
            return set()
        carried: dict[tuple[str, int], SetFile] = {}
        kept: dict[str, list[int]] = defaultdict(list)
        for before in base.manifest.files:
            key = (before.dir, before.id)
            is_log = before.kind == "entry_log" and key not in done
            if is_log and unchanged(before, looked_at.get(key)):
                kept[before.dir].append(before.id)
                carried[key] = replace(before, state="carried")
        try:
            with PartWriters(self._place, OF_LOGS) as writers:
                for table, schema in OF_LOGS.items():
                    writers.add(table, carried_rows(base, table, schema, kept))
                self._draft.take(writers.close())
        except BaseUnreadError as error:
            self._draft.guards.append(f"nothing was taken over from the set before: {error}")
            self._base = None
            return set()
        self._draft.files += carried.values()
        return set(carried)

    def _keep(self, done: ReadLogs) -> None:
        self._draft.files += done.files
        self._draft.take(dict(done.parts))

    def _read_logs(
        self, files: Sequence[SplitFile], looked_at: dict[tuple[str, int], SetFile], phase: Phase
    ) -> None:
        request, total = self._request, sum(file.bytes for file in files)
        known = known_digests(self._filesystem, self._options)
        jobs = min(request.jobs, len(files)) if total >= _PROCESSES_FROM_BYTES else 1
        jobs = max(1, jobs)
        options = replace(self._options, metadata=None)

        def task(group: tuple[SplitFile, ...], states: tuple[SetFile, ...]) -> ReadTask:
            rate_bytes = request.rate_bytes / jobs
            return ReadTask(self._place.text, group, states, known, options, rate_bytes, self._read_as())

        groups = packed(files, options.split_bytes, jobs)
        modules = _WORK_MODULES if jobs > 1 else ()
        with (
            phase("reading entry logs", total) as advance,
            Workers(jobs, modules) as workers,
        ):
            for done in workers.results(read_logs, grouped_tasks(groups, looked_at, task), advance):
                self._keep(done)
        self._bytes_read = total

    def _read_indexes(self) -> dict[str, str]:
        """Read what can be read of the indexes; the directories whose index was left out, and why."""
        options = self._options
        unread = unread_indexes(self._filesystem, self._surveyed, self._bookie)
        for path, reason in sorted(unread.items()):
            self._draft.guards.append(
                f"the index of {path} is left out: {reason}; 'bkctl doctor' says what to do"
            )
        paths = self._surveyed.paths_with("index_runs")
        if not paths:
            self._draft.guards.append("no indexes were given: tables of indexes are empty")
            return unread
        narrowed = replace(options, without_indexes=frozenset(unread), digest="off", metadata=None)
        damages = self._draft.damages
        try:
            self._read_locations(unread, paths, narrowed, self._base)
        except BaseUnreadError as error:
            self._draft.guards.append(f"no locations were taken over from the set before: {error}")
            self._draft.damages = damages
            self._read_locations(unread, paths, narrowed, None)
        reads = {"bookies", "logs", "runs", "index_runs", "index_ledgers"}
        parts = {name: self._draft.loadable(name) for name in sorted(reads)}
        paths = request_paths(self._surveyed)

        def suspects(keep: Keep) -> str | None:
            with _notes() as notes:
                noting = replace(narrowed, unread_notes=notes)
                why = read_suspects(INDEX_AUDIT, parts, paths, noting, keep, self._request.memory_bytes)
                return why or _lacking(notes)

        self._draft.read_again("suspect_entries", suspects)
        return unread

    def _read_locations(
        self,
        unread: dict[str, str],
        paths: Sequence[str],
        narrowed: TableOptions,
        base: CompleteSet | None,
    ) -> None:
        with PartWriters(self._place, OF_THE_REST | OF_LOGS) as writers:
            keep_unread_indexes(unread, paths, self._options, self._draft.counting(writers))
            self._draft.indexes = read_indexes(paths, narrowed, self._draft.counting(writers), base)
            self._draft.take(writers.close())

    def _read_blocks(self, asked: pa.Table) -> None:
        def replicas(keep: Keep) -> str | None:
            with _notes() as notes:
                options = replace(self._options, unread_notes=notes)
                read_blocks(asked, self._surveyed.paths_with("runs"), options, keep)
                return _lacking(notes)

        self._draft.read_again("replicas", replicas)


def _notes() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the notes of what cannot be read."""
    return tempfile.TemporaryDirectory(prefix="bkctl-notes-")


def _lacking(notes: str) -> str | None:
    """Return why a table may lack entries of logs, None if it does not."""
    unread = unread_in(notes)
    return "; ".join(one.why for one in unread) or None


def request_paths(surveyed: Survey) -> tuple[str, ...]:
    """Return the paths with entry logs or indexes."""
    return tuple(dict.fromkeys((*surveyed.paths_with("runs"), *surveyed.paths_with("index_runs"))))
