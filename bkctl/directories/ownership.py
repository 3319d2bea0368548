"""Whose the files are that a command leaves in a bookie's directory when root runs it.

A bookie runs as its own user. Files that root makes beside its files are root's, RocksDB's new files
included, and the bookie then cannot start. So at the end of every command that held a directory
(``directories.holders``) the files of root in it are given to the directory's owner, also those that a killed
command has left.

A file that it gives away gets the permissions that most of its neighbours have as well: the owner's files,
or folders, of the same folder, and those of the folder where there is none. Files that repairs keep have
their own.

Root gives away nothing that others know by another name: the owner of the directory may have put a second
name of one of root's files there. Links are neither followed nor given away, and folders of work
(``REBUILD_SUFFIX``) stay: what is in them counts only while they belong to who works there.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence

from bkctl.errors import StorageError
from bkctl.scan.directory import REBUILD_SUFFIX, REPAIRS_NAME

_ROOT = 0
#: ``bkctl-repairs``, the number of a repair, what it keeps of a database.
_DEPTH_MAX = 4
#: A file system's own, which belongs to root wherever it is mounted.
_LOST_AND_FOUND = "lost+found"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Owner = tuple[int, int]


def give_to_owner(descriptor: int, directory: str) -> None:
    """Give what is root's below an open directory to the directory's owner, durably; for root alone.

    Nobody may write there during the call, and databases are closed. Raises StorageError.
    """
    if os.geteuid() != _ROOT:
        return
    try:
        facts = os.fstat(descriptor)
        if not _is_roots(facts):
            _give_below(descriptor, (facts.st_uid, facts.st_gid), _DEPTH_MAX)
    except OSError as error:
        text = f"{directory}: giving root's new files to the directory's owner: {error.strerror}"
        raise StorageError(text, path=directory) from error


def give_new_directories(made: Iterable[str], others: Sequence[str]) -> None:
    """Give directories that root has just made to the owner of a bookie's other ones.

    Without any, or where they have several owners, each goes to the owner of the directory above it. Raises
    StorageError.
    """
    if os.geteuid() != _ROOT:
        return
    for path in made:
        try:
            owners = {_owner(other) for other in others}
            owner = owners.pop() if len(owners) == 1 else _owner(os.path.dirname(path))
            descriptor = os.open(path, _FLAGS | os.O_DIRECTORY)
            try:
                _give(descriptor, owner)
            finally:
                os.close(descriptor)
        except OSError as error:
            text = f"{path}: giving the new directory to the bookie's user: {error.strerror}"
            raise StorageError(text, path=path) from error


def _is_roots(facts: os.stat_result) -> bool:
    return facts.st_uid == _ROOT


def _owner(path: str) -> Owner:
    facts = os.stat(path)
    return facts.st_uid, facts.st_gid


def _give_below(folder: int, owner: Owner, depth: int, *, keeps_modes: bool = False) -> None:
    """Go through an open folder. Raises OSError."""
    names = [
        name for name in os.listdir(folder) if name != _LOST_AND_FOUND and not name.endswith(REBUILD_SUFFIX)
    ]
    modes = None if keeps_modes else _usual_modes(folder, names)
    for name in names:
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode) and depth:
                below = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            elif stat.S_ISREG(facts.st_mode) and _is_roots(facts):
                below = os.open(name, _FLAGS, dir_fd=folder)
            else:
                continue
        except FileNotFoundError:
            continue
        try:
            facts = os.fstat(below)
            is_folder = stat.S_ISDIR(facts.st_mode)
            # Looked at again where it is open: the owner may have put another file in its place.
            if _is_roots(facts) and (is_folder or (stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1)):
                _give(below, owner, None if modes is None or name == REPAIRS_NAME else modes[is_folder])
            if is_folder:
                _give_below(below, owner, depth - 1, keeps_modes=keeps_modes or name == REPAIRS_NAME)
        finally:
            os.close(below)


def _usual_modes(folder: int, names: Iterable[str]) -> dict[bool, int]:
    """Return the permissions of files in an open folder, and with True of folders. Raises OSError."""
    counted: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
    for name in names:
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        is_folder = stat.S_ISDIR(facts.st_mode)
        if (is_folder or stat.S_ISREG(facts.st_mode)) and not _is_roots(facts) and name != REPAIRS_NAME:
            counted[is_folder][facts.st_mode & 0o777] += 1
    own = os.fstat(folder).st_mode
    return {
        False: _most(counted[False], own & 0o666) | stat.S_IRUSR | stat.S_IWUSR,
        True: _most(counted[True], own & 0o777) | stat.S_IRWXU,
    }


def _most(counted: Counter[int], otherwise: int) -> int:
    """Return the permissions that most have, of equally many the fewest."""
    return min(counted, key=lambda mode: (-counted[mode], mode)) if counted else otherwise


def _give(descriptor: int, owner: Owner, mode: int | None = None) -> None:
    os.fchown(descriptor, *owner)
    if mode is not None:
        # Behind the change of owner, which takes bits away.
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~0o777 | mode)
    os.fsync(descriptor)
