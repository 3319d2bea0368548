"""The directories of a bookie over ``.idx`` files that a rebuild does not see, or that were emptied.

A ledger's file may be in any of them, and so may logs: what the others have says nothing of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import basename, normpath

from bkctl.directories.index_spaces import index_spaces
from bkctl.directories.placement import Placement
from bkctl.errors import NotFoundError, UsageError
from bkctl.scan.directory import home_of, inspect_directory
from bkctl.vfs import FileSystem


@dataclass(slots=True)
class UnseenParts:
    """The directories that are ``absent`` or ``emptied``, which may have had files of ledgers, and logs."""

    absent: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()

    @property
    def whys(self) -> tuple[str, ...]:
        """Return all of it."""
        return (*self.absent, *self.emptied)


def unseen_parts(filesystem: FileSystem, placement: Placement) -> UnseenParts:
    """Find the directories that the cookie names and of which nothing is here. Raises BkctlError.

    A directory in use has a last mark, also where no ledger's file was ever made in it.
    """
    folders = sorted({path for each in placement.directories for path in (each.ledger_dir, each.index_dir)})
    try:
        spaces = index_spaces(filesystem, [inspect_directory(filesystem, folder) for folder in folders])
    except (NotFoundError, UsageError):
        # Directories that were given by hand need not be what their cookies say.
        return UnseenParts()
    shared = [space for space in spaces if space.kind.shares_log_ids]
    in_use = {basename(home_of(path)) for space in shared for path in space.mark_dirs}
    blank = [path for space in shared for path in space.blank if basename(normpath(path)) not in in_use]
    return UnseenParts(
        tuple(
            f"{path}, one of the bookie's directories, is not here"
            for space in shared
            for path in space.absent
        ),
        tuple(f"{path}, one of the bookie's directories, has neither logs nor index files" for path in blank),
    )
