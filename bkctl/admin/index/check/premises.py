"""Gaps in what is known of an index before it is checked, for which some questions cannot be asked."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.index.check.finding import Finding, Kind, about_directory
from bkctl.directories.index_spaces import IndexSpace
from bkctl.reporting import counted
from bkctl.scan.kept_doubts import kept_doubts
from bkctl.vfs import FileSystem


def premises(filesystem: FileSystem, space: IndexSpace, *, is_told: bool) -> Iterator[Finding]:
    """Report what keeps some of the questions from being asked.

    ``is_told``: somebody says which ledgers there are.
    """
    if not space.kind.shares_log_ids and space.position is None:
        detail = (
            f"{counted(space.directories, 'index directory', 'index directories')}, but no cookie that fits "
            "their paths: whether ledgers are in the right one was not checked"
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
    if doubts := kept_doubts(filesystem, space.index_dirs):
        detail = (
            "the rebuild that made the index could not prove that the logs have every entry; what a"
            f" log had that is gone is answered with 'no such entry': {'; '.join(doubts)}"
        )
        yield about_directory(Kind.NOT_PROVED, space.dir, detail)
    if is_told and space.bookie is None:
        detail = "no cookie: which ledgers of the metadata are this bookie's is not known"
        yield about_directory(Kind.BOOKIE_UNKNOWN, space.dir, detail)
