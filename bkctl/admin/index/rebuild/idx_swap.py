"""Put new ``.idx`` files in the place of the old ones of one index directory, so that the old ones stay.

First every old file gets a second name in the backup tree, those that stay in place included: from then on
the tree is the old index, whatever stands in ``current``. Then each new file is renamed over the old one. A
note in the work directory says that the backup is whole, so that a rerun after a kill does not take new files
for old ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bkctl.admin.index.rebuild.idx_build import sync_tree
from bkctl.admin.index.rebuild.options import IndexFolder
from bkctl.admin.index.rebuild.state import WorkDirectory, read_json, sync_directory, write_json
from bkctl.codec.file_info import index_path
from bkctl.errors import as_storage_errors, storage_error
from bkctl.scan.idx_tree import is_hex_folder
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.presence import is_there

_KEPT = "kept.json"


@dataclass(frozen=True, slots=True)
class IdxSwap:
    """The files of ``tree`` replace those in ``current``, whose old state stays in ``backup``."""

    current: str
    work: WorkDirectory
    tree: str
    backup: str

    def keep_old(self) -> None:
        """Give every old file a second name in the backup, durably, unless an earlier run has done so.

        Raises StorageError.
        """
        self.work.prepare()
        noted = read_json(self.work.at(_KEPT))
        if noted is not None and noted["backup"] == os.path.basename(self.backup):
            return
        with as_storage_errors(self.current):
            for name in _folder_names(self.current):
                _link_files(os.path.join(self.current, name), os.path.join(self.backup, name))
            if is_there(self.backup):
                sync_tree(self.backup)
        write_json(self.work.at(_KEPT), {"backup": os.path.basename(self.backup)})
        sync_directory(self.current)

    def folders(self) -> Iterator[IndexFolder]:
        """Yield every folder of index files that is there, was there, or will be."""
        names = {*_folder_names(self.current), *_folder_names(self.tree), *_folder_names(self.backup)}
        for name in sorted(names):
            yield IndexFolder(os.path.join(self.current, name), os.path.join(self.backup, name))

    def put_in_place(self) -> None:
        """Rename every new file over the old one. May be called again after a kill. Raises StorageError."""
        with as_storage_errors(self.current):
            for folder, _, names in os.walk(self.tree):
                there = os.path.join(self.current, os.path.relpath(folder, self.tree))
                if not names:
                    if is_there(there):
                        sync_directory(there)  # a run that was killed may have moved the last file
                    continue
                # Its name is durable, in the folder above as well, before a file leaves the tree for it.
                PosixFileSystem().make_directories(there)
                for name in names:
                    source, target = os.path.join(folder, name), os.path.join(there, name)
                    os.replace(source, target)
                    if is_there(f"{target}.rloc"):
                        os.unlink(f"{target}.rloc")  # its content is in the backup
                    sync_directory(there)
            sync_directory(self.current)

    def remove_files(self, ledgers: Sequence[int]) -> None:
        """Remove the files of ledgers that are at home in another directory; the backup has them.

        May be called again after a kill. Raises StorageError.
        """
        with as_storage_errors(self.current):
            for ledger in ledgers:
                live = os.path.join(self.current, index_path(ledger))
                for path in (live, f"{live}.rloc"):
                    if is_there(path):
                        os.unlink(path)
                sync_directory(os.path.dirname(live))


def _folder_names(directory: str) -> list[str]:
    """Return the names of the folders of index files in a directory, which may not be there."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error(error, directory) from error
    return sorted(
        entry.name for entry in entries if is_hex_folder(entry.name) and entry.is_dir(follow_symlinks=False)
    )


def _link_files(folder: str, kept: str) -> None:
    """Make a folder like another one, whose files are the same files. Raises OSError."""
    os.makedirs(kept, exist_ok=True)
    for entry in list(os.scandir(folder)):
        there = os.path.join(kept, entry.name)
        if entry.is_dir(follow_symlinks=False):
            _link_files(entry.path, there)
        elif not is_there(there):
            os.link(entry.path, there, follow_symlinks=False)
