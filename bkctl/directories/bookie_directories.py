"""The contents of a bookie's directories before it starts: cookies, data, layouts it cannot start on.

Source: ``BookieImpl.checkDirectoryStructure``, ``LegacyCookieValidation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import join

from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.cookie_rules import DirectoryFacts
from bkctl.directories.half_converted import refuse_half_converted
from bkctl.directories.half_rebuilt import is_half_rebuilt
from bkctl.errors import CorruptionError, RefusedError
from bkctl.scan.directory import COOKIE_NAME, CURRENT, current, inspect_directory, read_small
from bkctl.storage_kinds import DEFAULT, StorageKind, kind_in, short_names
from bkctl.vfs import FileSystem

_OLD_LAYOUT = re.compile(r"VERSION|.*\.(?:txn|idx|log)")
#: A half-made cookie that a crash left behind.
_HALF_COOKIE = re.compile(r"VERSION\.[0-9a-f]+\.tmp")


def every_directory(directories: DirectorySettings) -> list[str]:
    """Return the journal, ledger and index directories, each once, as cookies are stamped."""
    names = (*directories.journals, *directories.ledgers, *directories.index_places)
    return list(dict.fromkeys(names))


def examine(
    filesystem: FileSystem, directories: DirectorySettings, kind: StorageKind = DEFAULT
) -> list[DirectoryFacts]:
    """Examine every directory for :func:`bkctl.directories.cookie_rules.decide`; write nothing.

    Raises RefusedError for directories that a bookie with a storage of ``kind`` can not start on (a layout
    older than 3, another storage's index), CorruptionError naming a VERSION file that does not parse,
    StorageError.
    """
    places = set(directories.index_places)
    names = every_directory(directories)
    return [directory_facts(filesystem, path, path in places, kind) for path in names]


def directory_facts(
    filesystem: FileSystem, directory: str, holds_index: bool, kind: StorageKind = DEFAULT
) -> DirectoryFacts:
    """Return one configured directory; ``holds_index``: the storage keeps an index in it.

    Raises as :func:`examine`.
    """
    path = current(directory)
    status = filesystem.status(path)
    if status is None:
        refuse_old_layout(filesystem, directory)
        return DirectoryFacts(directory, None, is_empty=True)
    if not status.is_dir:
        raise RefusedError(f"{path}: is a file, but must be the directory with the bookie's files")
    refuse_half_converted(filesystem, path)
    names = filesystem.names(path)
    found = inspect_directory(filesystem, path)
    if holds_index and kind.finds_nothing_in(found.indexes):
        there = kind_in(found.indexes)
        classes = there.classes if there is not None else ()
        raise RefusedError(
            f"{path}: holds an index of {short_names(classes)}; a bookie with {short_names(kind.classes)} "
            f"would find none of its ledgers. Set ledgerStorageClass={classes[0] if classes else ''}, or "
            "convert the directory: bkctl bookie convert"
        )
    return DirectoryFacts(
        directory,
        _read_cookie(filesystem, join(path, COOKIE_NAME)) if COOKIE_NAME in names else None,
        is_empty=holds_nothing(names),
        holds_data=bool(found.logs or found.journals or found.indexes),
        is_half_rebuilt=is_half_rebuilt(filesystem, path),
    )


def holds_nothing(names: Iterable[str]) -> bool:
    """Return whether there is nothing among the files of a directory but a cookie, or half of one."""
    return all(name == COOKIE_NAME or _HALF_COOKIE.fullmatch(name) for name in names)


def refuse_old_layout(filesystem: FileSystem, directory: str) -> None:
    """Raise RefusedError when a directory holds a bookie's files itself, without ``current``."""
    if filesystem.status(directory) is None:
        return
    old = [name for name in filesystem.names(directory) if _OLD_LAYOUT.fullmatch(name)]
    if old:
        raise RefusedError(
            f"{directory}: holds {old[0]} directly, without a directory `{CURRENT}`: this layout is older "
            "than version 3. Name the right directory, or upgrade with BookKeeper's own `bookkeeper "
            "upgrade --upgrade`"
        )


def _read_cookie(filesystem: FileSystem, path: str) -> Cookie:
    try:
        return decode_cookie(read_small(filesystem, path))
    except CorruptionError as error:
        raise error.located(path) from error
