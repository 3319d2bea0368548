"""The replay of one journal directory, file by file from the last mark.

``replayed_directory`` has the losses and doubts of the directory, ``file_replay`` the effect of each record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from bkctl.codec.journal import journal_name, parse_journal_name
from bkctl.codec.last_mark import ZERO_MARK, LastMark
from bkctl.engine.file_replay import FileReplay, ReplayedEnd
from bkctl.engine.replay_report import ReplayReport
from bkctl.engine.replayed_directory import ReplayedDirectory
from bkctl.engine.replayed_ledgers import ReplayedLedgers
from bkctl.engine.second_keys import ReplayedFile
from bkctl.reporting import counted
from bkctl.scan.journal_ends import JournalEnds
from bkctl.scan.lost_marks import ALL_GONE
from bkctl.vfs import FileSystem


class JournalReplay:
    """Replays ``directory``, journal directory ``number`` of ``journals``."""

    def __init__(
        self,
        filesystem: FileSystem,
        number: int,
        journals: int,
        directory: str,
        ledgers: ReplayedLedgers,
        report: ReplayReport,
        *,
        accept_loss: bool,
    ) -> None:
        self._filesystem = filesystem
        self._path = directory
        self._report = report
        self._directory = ReplayedDirectory(
            filesystem, number, journals, ledgers, report, accept_loss=accept_loss
        )

    @property
    def lossy(self) -> bool:
        """Whether a loss was met and accepted."""
        return self._directory.lossy

    def run(self, mark: LastMark, *, marks_lost: bool) -> ReplayedEnd | None:
        """Replay what is behind ``mark``; the end of the last file, None without files.

        ``marks_lost`` says that there is no mark although there was one.
        """
        found = map(parse_journal_name, self._filesystem.names(self._path))
        every = sorted(journal for journal in found if journal is not None)
        if marks_lost and not every:
            self._missing(f"*.txn: {ALL_GONE}")
        ids = [journal for journal in every if journal >= mark.journal_id]
        if mark.journal_id > 0 and (not ids or ids[0] != mark.journal_id):
            name = journal_name(mark.journal_id)
            self._missing(f"{name}: the last mark names this journal and it is gone")
            if not ids:
                # Such a mark is none, or the newest journals are gone: what is there is replayed whole.
                mark, ids = ZERO_MARK, every
        # With no mark at all nothing was ever flushed: the newest journal has its tail all the same.
        paths = {journal: f"{self._path}/{journal_name(journal)}" for journal in ids}
        ends = JournalEnds(self._filesystem, paths.items(), mark)
        self._directory.files = [
            ReplayedFile(
                journal,
                path,
                mark.offset if journal == mark.journal_id else 0,
                ends.unsynced_from(journal),
                ends.known_end(journal),
            )
            for journal, path in paths.items()
        ]
        end: ReplayedEnd | None = None
        gaps = dict(missing_journals(ids))
        for file in self._directory.files:
            if file.journal in gaps:
                self._missing(gaps[file.journal])
            end = FileReplay(self._directory, file).run()
            self._report.journals += 1
        self._directory.judge()
        return end

    def _missing(self, what: str) -> None:
        self._directory.refuse_unless_accepted(f"{self._path}/{what}")
        self._report.missing_journals += 1


def missing_journals(ids: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Find the gaps between journals, ascending: the id behind each, and what to say of it.

    The ids of a directory follow each other, in Java's journals too, and files go when the mark has passed
    them. So nothing may be missing between two that are at the mark or behind it.
    """
    for before, behind in pairwise(ids):
        if behind != before + 1:
            count = behind - before - 1
            between = f"between {journal_name(before)} and {journal_name(behind)}"
            gone = journal_name(before + 1) + (f" to {journal_name(behind - 1)}" if count > 1 else "")
            yield (
                behind,
                f"{gone}: {counted(count, f'journal {between} is', f'journals {between} are')} gone",
            )
