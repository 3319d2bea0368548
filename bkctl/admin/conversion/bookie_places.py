"""The directories of a bookie whose index is converted, and what has to be true of them before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from posixpath import join, normpath

from bkctl.admin.index.stopped_index import rocks_databases
from bkctl.codec.cookie import Cookie, decode_cookie
from bkctl.config.bookie import BookieConfig
from bkctl.engine.checkpoint import LastMarks
from bkctl.engine.interleaved_storage.index_places import was_written
from bkctl.engine.journaled_entries import JournalPlace
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.lost_index import LostIndex, find_lost_indexes, ledgers_of_log, logs_with_records
from bkctl.engine.lost_index_refusal import refuse_lost_indexes
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.reporting import counted
from bkctl.scan.directory import (
    CONVERSION_NAME,
    COOKIE_NAME,
    REBUILD_SUFFIX,
    current,
    home_of,
    inspect_directory,
    is_key_value_store,
    read_small,
)
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.storage_kinds import IDX, StorageKind, kind_in, short_names
from bkctl.vfs.base import FileSystem, WritableFileSystem


@dataclass(frozen=True, slots=True)
class BookiePlaces:
    """The ``current`` directories of a bookie, in the order of its configuration.

    ``names`` are the ledger, index and journal directories as configured, for comparison with cookies;
    ``cache_path`` is where the collectors keep what they know of logs, if not in the ledger directories.
    """

    ledgers: tuple[str, ...]
    indexes: tuple[str, ...]
    journals: tuple[str, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    cache_path: str | None = None

    @property
    def every(self) -> tuple[str, ...]:
        """Ledger and index directories, each once; the first one is a ledger directory."""
        return tuple(dict.fromkeys((*self.ledgers, *self.indexes)))

    @property
    def locked(self) -> tuple[str, ...]:
        """All directories that no other process may use during the conversion."""
        return tuple(dict.fromkeys((*self.ledgers, *self.indexes, *self.journals)))


def places_of(config: BookieConfig) -> BookiePlaces:
    """Return the directories that a configuration names."""
    directories = config.directories
    return BookiePlaces(
        tuple(map(current, directories.ledgers)),
        tuple(map(current, directories.index_places)),
        tuple(map(current, directories.journals)),
        (tuple(directories.ledgers), tuple(directories.index_places)),
        config.gc.metadata_cache_path,
    )


def kind_here(fs: FileSystem, places: BookiePlaces) -> StorageKind | None:
    """Return the kind of index that a bookie has, None where it has none.

    Raises RefusedError where it has several, NotFoundError without a directory, StorageError.
    """
    found = {path: inspect_directory(fs, path).indexes for path in dict.fromkeys(places.indexes)}
    kinds = {kind for indexes in found.values() if (kind := kind_in(indexes)) is not None}
    where = ", ".join(found)
    if not kinds:
        return None
    kind = kinds.pop()
    if kinds or any(kind.has_others_in(indexes) for indexes in found.values()):
        raise RefusedError(
            f"{where}: there are indexes of two ledger storages, and it is not known which one is newer. "
            "Keep the one of the storage with which the bookie ran last, and move the other one away"
        )
    return kind


def refuse_lost_index(fs: WritableFileSystem, places: BookiePlaces) -> None:
    """Refuse a bookie without an index whose logs hold what no journal has: the index was lost.

    One that was killed before its first flush has none yet: what its logs hold stands in the journals, and
    is replayed by whichever storage starts. Raises RefusedError, StorageError.
    """
    _check_cookies(fs, places)
    index = IndexPlace(places.ledgers, places.indexes[0], IDX)
    lost = _lost(fs, places, [index], lambda _: {"index": "gone"})
    if lost and lost[0].logs_lost:
        raise RefusedError(f"{lost[0].found}. Bring it back, or first start the bookie with --accept-loss")
    if lost:
        raise RefusedError(
            f"{lost[0].found}. Bring it back, or rebuild it with the storage that the bookie had: 'bkctl "
            f"index rebuild {home_of(places.ledgers[0])} --storage db' or '--storage idx'. Then convert it"
        )


def _lost(
    fs: WritableFileSystem,
    places: BookiePlaces,
    indexes: Sequence[IndexPlace],
    parts: Callable[[int], Mapping[str, str]],
) -> list[LostIndex]:
    marks = LastMarks(fs, places.ledgers, len(places.journals))
    return find_lost_indexes(
        fs,
        indexes,
        lambda: [JournalPlace(path, marks.read(number)) for number, path in enumerate(places.journals)],
        parts,
    )


def refuse_lost_parts(fs: WritableFileSystem, places: BookiePlaces, source: StorageKind) -> None:
    """Refuse a bookie that has lost its index in some directories: what is left would become all of it.

    No start over the other storage would see the loss any more, as one of the present storage does. Raises
    RefusedError, CorruptionError of a database, StorageError.
    """
    if source.has_databases:
        pairs = zip(places.ledgers, places.indexes, strict=True)
        indexes = [IndexPlace((ledgers,), index, source) for ledgers, index in pairs]
        databases = partial(_lost_databases, fs, places, source)
        refuse_lost_indexes(fs, _lost(fs, places, indexes, databases))
        return
    index = IndexPlace(places.ledgers, places.indexes[0], source, places.indexes[1:])
    refuse_lost_indexes(fs, _lost(fs, places, [index], lambda _: {}))
    unused = next((path for path in places.indexes if not was_written(fs, [path])), None)
    if unused is None:
        return
    logs = logs_with_records(fs, places.ledgers)
    with_files = {ledger for path in places.indexes for ledger in IdxTree(fs, path).files()[1]}
    without = {ledger for log in logs for ledger in ledgers_of_log(fs, log)} - with_files
    if without or not logs:
        which = f"ledger {min(without)} of the logs has no index file" if without else "no log is left"
        raise RefusedError(
            f"{unused}: has no trace of an index file, but other directories have, and {which}. So it has "
            "lost its files, or it never had one; only the cluster's metadata show which. Start the bookie "
            f"once with {short_names(source.classes)}: the start checks this, and is refused if files were "
            "lost. Then stop the bookie cleanly, and convert"
        )


def _lost_databases(fs: FileSystem, places: BookiePlaces, kind: StorageKind, number: int) -> dict[str, str]:
    states, databases = {}, rocks_databases()
    for name in kind.indexes:
        path = join(places.indexes[number], name)
        if not is_key_value_store(fs, path):
            states[name] = "gone"
            continue
        # One that is damaged is refused where its rows are read.
        with suppress(CorruptionError):
            if databases.is_unused(path):
                states[name] = "empty"
    return states


def check_places(fs: FileSystem, places: BookiePlaces, source: StorageKind, target: StorageKind) -> None:
    """Refuse what a conversion could lose something of.

    Raises RefusedError, NotFoundError for a directory that is not there, CorruptionError for a cookie that
    does not parse, StorageError.
    """
    _check_cookies(fs, places)
    if not target.shares_log_ids and len(places.indexes) != len(places.ledgers):
        raise RefusedError(
            f"{counted(len(places.ledgers), 'ledger directory', 'ledger directories')} and "
            f"{counted(len(places.indexes), 'index directory', 'index directories')}: "
            f"{short_names(target.classes)} needs as many of one as of the other; change indexDirectories "
            "first, with allowStorageExpansion=true, and start the bookie once"
        )
    if len(set(places.ledgers)) < len(places.ledgers) or len(set(places.indexes)) < len(places.indexes):
        raise RefusedError("the configuration names a directory twice; name each directory once")
    for path in places.every:
        for name in fs.names(path):
            if name.endswith(REBUILD_SUFFIX) and name != CONVERSION_NAME:
                raise RefusedError(
                    f"{join(path, name)}: an index rebuild was cut off. Run it again first: "
                    "bkctl index rebuild"
                )
    for path in places.ledgers:
        for log in inspect_directory(fs, path).logs:
            if log.compaction:
                raise RefusedError(
                    f"{log.path}: a compaction was cut off, and the bookie finishes it at a start. Start "
                    f"the bookie once with {short_names(source.classes)}, stop it cleanly, then convert"
                )
        for each in quarantined_logs(fs, path):
            if not each.is_salvaged:
                raise RefusedError(
                    f"{each.log.path}: is in quarantine. First bring it back (bkctl entrylog quarantine "
                    "--release), or copy its readable records (bkctl entrylog salvage)"
                )
    _check_cache(fs, places)


def _check_cookies(fs: FileSystem, places: BookiePlaces) -> None:
    first: Cookie | None = None
    for path in places.locked:
        try:
            cookie = decode_cookie(read_small(fs, join(path, COOKIE_NAME)))
        except NotFoundError:
            raise RefusedError(
                f"{path}: no cookie ({COOKIE_NAME}): a disk is not mounted, or was lost, so its files "
                "cannot be converted"
            ) from None
        except CorruptionError as error:
            raise error.located(join(path, COOKIE_NAME)) from None
        if first is not None and cookie != first:
            raise RefusedError(f"{path}: its cookie is not that of {places.locked[0]}")
        first = cookie
        for key, found, wanted in (
            ("ledgerDirectories", cookie.ledger_paths, places.names[0]),
            ("indexDirectories", cookie.index_paths, places.names[1]),
        ):
            if tuple(found) != wanted:
                raise RefusedError(
                    f"{path}: {key}: the cookie has {','.join(found)}, the configuration {','.join(wanted)}; "
                    f"set {key}={','.join(found)}"
                )


def _check_cache(fs: FileSystem, places: BookiePlaces) -> None:
    """Refuse a cache elsewhere, which names logs by the ids that they have now."""
    if places.cache_path is None:
        return
    for name in ("", *map(str, range(len(places.ledgers)))):
        cache = normpath(join(places.cache_path, name, "metadata-cache"))
        if fs.status(cache) is not None:
            raise RefusedError(
                f"{cache}: names entry logs by ids that the conversion changes; it is a cache: remove it"
            )
