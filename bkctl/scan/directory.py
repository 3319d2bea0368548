"""The contents of the directories of a bookie.

::

    <journalDir>/current/   <hex>.txn  VERSION
    <ledgerDir>/current/    <hex>.log  <hex>.log.compacting  <hex>.log.<hex>.compacted
                            lastMark[.<i>]  lastId  VERSION  DIRTY  BOOKIE_STATUS  metadata-cache/
    <indexDir>/current/     locations/ ledgers/ (RocksDB)  or  <hex>/<hex>/<hex>.idx  VERSION

A path may be a file, a ``current`` directory, a ledger, index or journal directory, or a folder that holds
several of them, at most ``FOLDER_DEPTH_MAX`` levels down.

Source: formats of ``org.apache.bookkeeper.bookie.BookieImpl`` and ``LedgerDirsManager``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from posixpath import basename, dirname, join, normpath

from bkctl.codec.cookie import decode_cookie
from bkctl.codec.entrylog import parse_compacted_name, parse_compacting_name, parse_log_name
from bkctl.codec.journal import parse_journal_name
from bkctl.codec.last_mark import ZERO_MARK, LastMark, decode_last_mark
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.reporting import counted
from bkctl.storage_kinds import IDX, KINDS, kind_in
from bkctl.vfs import FileSystem

FOLDER_DEPTH_MAX = 5
FOLDERS_MAX = 10_000
SMALL_FILE_BYTES_MAX = 1 << 20

COOKIE_NAME = "VERSION"
#: The mark of a bookie that runs, or ended without shutting down.
DIRTY_NAME = "DIRTY"
#: How the name of a rebuild's work directory ends.
REBUILD_SUFFIX = ".bkctl-rebuild"
#: The work directory of a conversion to another ledger storage. While its files change names the cookie of
#: the directory is in it, so that no bookie starts.
CONVERSION_NAME = f"convert{REBUILD_SUFFIX}"
#: In it: what a conversion renames in this directory.
PLAN_NAME = "plan.json"
#: How the folder begins in which a conversion keeps the old index: no storage and no tool knows the name.
OLD_INDEX_PREFIX = "bkctl-old-index-"
#: Copies of a compaction by way of another disk: below a scratch directory, in one directory for each ledger
#: directory, whose logs link to them.
SCRATCH_NAME = "compaction-scratch"
#: In a directory of files: the records of repairs, and what they keep of the old state.
REPAIRS_NAME = "bkctl-repairs"
#: Beside an index that was rebuilt: why it is not proved that the logs have every entry.
NOT_PROVED_NAME = "bkctl-not-proved"
#: In a ledger directory's files: logs that nobody reads for now, each with a manifest.
QUARANTINE_NAME = "bkctl-quarantine"
CURRENT = "current"
#: Takes the path of a last mark, or of the directory of one, that the disk refuses, and the error.
UnreadMark = Callable[[str, StorageError], None]

LAST_MARK_NAME = re.compile(r"lastMark(\.[0-9]+)?")
_LEDGERS = "ledgers"
_KEY_VALUE_NAMES = ("locations", _LEDGERS, "metadata-cache")
_HEX_DIRECTORY = re.compile(r"[0-9a-f]{1,2}")


@dataclass(frozen=True, slots=True)
class LogFile:
    """An entry log: ``<hex>.log``, or one of a compaction's intermediate names when ``compaction``."""

    path: str
    log_id: int
    size_bytes: int
    compaction: bool = False

    @property
    def directory(self) -> str:
        """The directory it lies in; a log id means something only together with it."""
        return dirname(self.path) or "."


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal."""

    path: str
    journal_id: int
    size_bytes: int

    @property
    def directory(self) -> str:
        """The directory it lies in."""
        return dirname(self.path) or "."


@dataclass(frozen=True, slots=True)
class BookieDirectory:
    """One directory that holds files of a bookie, normally named ``current``."""

    path: str
    logs: tuple[LogFile, ...] = ()
    journals: tuple[JournalFile, ...] = ()
    last_marks: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    has_cookie: bool = False
    dirty: bool = False
    #: Whether there are folders of ``.idx`` files. They stay, empty, when the last ledger is deleted.
    has_idx_folders: bool = False

    @property
    def holds_logs(self) -> bool:
        """Whether it is a ledger directory, or has logs all the same."""
        return bool(self.logs or self.last_marks)

    @property
    def has_index(self) -> bool:
        """Whether it has an index of any kind; what a collector keeps of entry logs is none."""
        return kind_in(self.indexes) is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a bookie's was found."""
        return not (self.logs or self.journals or self.last_marks or self.indexes or self.has_cookie)


def current(directory: str) -> str:
    """Return the folder with the files of a configured directory."""
    return join(directory, CURRENT)


def home_of(directory: str) -> str:
    """Return what a configuration calls a directory of files: without ``current``."""
    path = normpath(directory)
    return dirname(path) if basename(path) == CURRENT else path


def journal_ids(filesystem: FileSystem, directory: str) -> list[int]:
    """Return the ids of the journals in a directory, the oldest first; none where it is not there."""
    if filesystem.status(directory) is None:
        return []
    found = map(parse_journal_name, filesystem.names(directory))
    return sorted(each for each in found if each is not None)


def first_bytes(filesystem: FileSystem, path: str, length: int) -> bytes:
    """Return the first bytes of a file. Raises NotFoundError, StorageError."""
    file = filesystem.open(path)
    try:
        return file.read_at(0, length)
    finally:
        file.close()


def read_small(filesystem: FileSystem, path: str) -> bytes:
    """Return all bytes of a small file. Raises StorageError above 1 MiB, NotFoundError, StorageError."""
    file = filesystem.open(path)
    try:
        if file.size_bytes > SMALL_FILE_BYTES_MAX:
            raise StorageError(
                f"{path}: {counted(file.size_bytes, 'byte')} where at most {SMALL_FILE_BYTES_MAX} make sense",
                path=path,
            )
        return file.read_at(0, file.size_bytes)
    finally:
        file.close()


def inspect_directory(filesystem: FileSystem, path: str) -> BookieDirectory:
    """Return the files and folders directly in ``path``."""
    logs: list[LogFile] = []
    journals: list[JournalFile] = []
    marks: list[str] = []
    indexes: list[str] = []
    folders: list[str] = []
    names = filesystem.names(path)
    for name in names:
        full = join(path, name)
        if (log_id := parse_log_name(name)) is not None and name == f"{log_id:x}.log":
            logs.append(LogFile(full, log_id, _size(filesystem, full)))
        elif (target := _compaction_target(name)) is not None:
            logs.append(LogFile(full, target, _size(filesystem, full), compaction=True))
        elif (journal_id := parse_journal_name(name)) is not None:
            journals.append(JournalFile(full, journal_id, _size(filesystem, full)))
        elif LAST_MARK_NAME.fullmatch(name):
            marks.append(name)
        elif name in _KEY_VALUE_NAMES and _may_be(is_key_value_store, filesystem, full):
            indexes.append(name)
        elif _HEX_DIRECTORY.fullmatch(name):
            folders.append(full)
    if indexes == [_LEDGERS] and not (logs or marks or journals or COOKIE_NAME in names):
        # Operators call ledger directories so, too. One that this user may not look into is no proof of a
        # database: taken for one, its folder would be a bookie's directory that has lost its logs.
        indexes = [name for name in indexes if _is_surely(is_key_value_store, filesystem, join(path, name))]
    if any(_may_be(_holds_idx, filesystem, folder) for folder in folders):
        indexes += IDX.indexes
    return BookieDirectory(
        path,
        tuple(sorted(logs, key=lambda log: (log.log_id, log.compaction, log.path))),
        tuple(sorted(journals, key=lambda journal: journal.journal_id)),
        tuple(marks),
        tuple(indexes),
        COOKIE_NAME in names,
        DIRTY_NAME in names,
        # Beside traces of databases the folders are left over: BookKeeper's conversion removes only files.
        not any(kind.has_trace_in(names) for kind in KINDS)
        and any(_may_be(_holds_folders, filesystem, folder) for folder in folders),
    )


def _may_be(kind: Callable[[FileSystem, str], bool], filesystem: FileSystem, path: str) -> bool:
    """Return whether a directory is, or may be, of a kind; opening an unreadable one will report why."""
    try:
        return kind(filesystem, path)
    except NotFoundError:
        return False  # removed since it was listed
    except StorageError:
        return True


def _is_surely(kind: Callable[[FileSystem, str], bool], filesystem: FileSystem, path: str) -> bool:
    """Return whether a directory can be looked into and is of a kind."""
    try:
        return kind(filesystem, path)
    except (NotFoundError, StorageError):
        return False


def _compaction_target(name: str) -> int | None:
    """Return the log that a file of a compaction is, or is to be."""
    whole = parse_compacted_name(name)
    return parse_compacting_name(name) if whole is None else whole[0]


def _size(filesystem: FileSystem, path: str) -> int:
    """Return the length of a file; 0 where the system does not say, opening it will report why."""
    try:
        facts = filesystem.status(path)
    except StorageError:
        return 0
    return facts.size_bytes if facts else 0


def is_key_value_store(filesystem: FileSystem, path: str) -> bool:
    """Return whether ``path`` is a RocksDB directory."""
    facts = filesystem.status(join(path, "CURRENT"))
    return facts is not None and not facts.is_dir


def _holds_idx(filesystem: FileSystem, path: str) -> bool:
    return any(
        leaf.endswith((".idx", ".idx.rloc"))
        for folder in _idx_folders(filesystem, path)
        for leaf in filesystem.names(folder)
    )


def _holds_folders(filesystem: FileSystem, path: str) -> bool:
    """Return whether a folder of ``.idx`` files is in ``path``, if only an empty one."""
    return next(_idx_folders(filesystem, path), None) is not None


def _idx_folders(filesystem: FileSystem, path: str) -> Iterator[str]:
    facts = filesystem.status(path)
    if facts is None or not facts.is_dir:
        return
    for name in filesystem.names(path):
        facts = filesystem.status(join(path, name)) if _HEX_DIRECTORY.fullmatch(name) else None
        if facts is not None and facts.is_dir:
            yield join(path, name)


def find_directories(
    filesystem: FileSystem, path: str, vanished: list[str] | None = None
) -> list[BookieDirectory]:
    """Return the bookie directories that a directory path stands for.

    A folder below it that is removed while it is looked into is left out, and noted in ``vanished``. Raises
    NotFoundError when there is no such path, UsageError when it is a file or holds nothing of a bookie's.
    """
    facts = filesystem.status(path)
    if facts is None:
        raise NotFoundError(f"{path}: no such file or directory")
    if not facts.is_dir:
        raise UsageError(f"{path}: is a file, a directory is needed")
    if is_key_value_store(filesystem, path):
        return [inspect_directory(filesystem, dirname(normpath(path)) or ".")]
    found: list[BookieDirectory] = []
    budget = [FOLDERS_MAX]
    _search(filesystem, path, FOLDER_DEPTH_MAX, found, budget, vanished if vanished is not None else [])
    if not found:
        raise UsageError(f"{path}: no journal, entry log, index or cookie in it or in the folders below it")
    return found


def _search(
    filesystem: FileSystem,
    path: str,
    depth: int,
    found: list[BookieDirectory],
    budget: list[int],
    vanished: list[str],
) -> None:
    budget[0] -= 1
    if budget[0] < 0:
        raise UsageError(f"{path}: more than {FOLDERS_MAX} folders; name a directory closer to the bookie's")
    here = inspect_directory(filesystem, path)
    if not here.is_empty:
        found.append(here)
        return
    current = join(path, CURRENT)
    facts = filesystem.status(current)
    if facts is not None and facts.is_dir:
        _search(filesystem, current, 0, found, budget, vanished)
        return
    if depth == 0:
        return
    for name in filesystem.names(path):
        below = join(path, name)
        facts = filesystem.status(below)
        if (
            facts is not None
            and facts.is_dir
            and not name.startswith(".")
            and name != SCRATCH_NAME
            and not is_key_value_store(filesystem, below)
        ):
            try:
                _search(filesystem, below, depth - 1, found, budget, vanished)
            except NotFoundError:
                vanished.append(below)


def last_mark_of(
    filesystem: FileSystem,
    journal_directory: BookieDirectory,
    ledger_dirs: Collection[str] = (),
    unread: UnreadMark | None = None,
) -> LastMark | None:
    """Return the last mark that counts for a journal directory, None when no ledger directory is found.

    Where ledger directories are found and none has a mark that counts it is the zero mark: a bookie replays
    from there then.

    Ledger directories are looked for among the neighbours of the journal directory and where its cookie
    says; ``ledger_dirs`` are those that the caller knows, wherever they are. When both have a cookie it must
    be the same. Of several marks the highest one counts, of those with an index (several journal
    directories) the ones whose journal is in this directory.

    ``unread`` is called for each mark that the disk refuses, which does not count, and for each ledger
    directory that it does not let be listed. Without it such a directory raises StorageError.
    """
    ids = {journal.journal_id for journal in journal_directory.journals}
    cookie = _cookie_bytes(filesystem, journal_directory.path)
    if cookie is None:
        theirs = (_cookie_bytes(filesystem, directory) for directory in ledger_dirs)
        cookie = next((found for found in theirs if found is not None), None)
    marks: list[tuple[str, LastMark]] = []
    nowhere = True
    for directory in _ledger_directories(filesystem, journal_directory.path, cookie, ledger_dirs, unread):
        try:
            here = inspect_directory(filesystem, directory)
        except StorageError as error:
            if unread is None:
                raise
            unread(directory, error)
            continue
        nowhere = nowhere and not (here.holds_logs or here.indexes)
        for name in here.last_marks:
            mark = _read_mark(filesystem, join(directory, name), unread)
            if mark is not None:
                marks.append((name, mark))
    indexed = [mark for name, mark in marks if name != "lastMark" and mark.journal_id in ids]
    plain = [mark for name, mark in marks if name == "lastMark"]
    return max(indexed or plain, default=None if nowhere or marks else ZERO_MARK)


def _read_mark(filesystem: FileSystem, path: str, unread: UnreadMark | None) -> LastMark | None:
    """Return a last mark; like Java, one that does not yield 16 bytes does not count."""
    try:
        return decode_last_mark(read_small(filesystem, path))
    except StorageError as error:
        if unread is not None:
            unread(path, error)
    except (CorruptionError, NotFoundError):
        pass
    return None


def _cookie_bytes(filesystem: FileSystem, directory: str) -> bytes | None:
    try:
        return read_small(filesystem, join(directory, COOKIE_NAME))
    except (NotFoundError, StorageError):
        return None


def _ledger_directories(
    filesystem: FileSystem,
    journal_path: str,
    cookie: bytes | None,
    known: Collection[str],
    unread: UnreadMark | None,
) -> list[str]:
    candidates = [journal_path, *known]
    parent = dirname(normpath(journal_path))
    folder = dirname(parent) if basename(normpath(journal_path)) == CURRENT else parent
    facts = filesystem.status(folder) if folder else None
    if facts is not None and facts.is_dir:
        for name in filesystem.names(folder)[:FOLDERS_MAX]:
            candidates += [join(folder, name, CURRENT), join(folder, name)]
    if cookie is not None:
        with suppress(CorruptionError):
            candidates += [join(path, CURRENT) for path in decode_cookie(cookie).ledger_paths]
    found = []
    for candidate in dict.fromkeys(normpath(path) for path in candidates):
        try:
            facts = filesystem.status(candidate)
        except StorageError as error:
            if unread is None:
                raise
            unread(candidate, error)
            continue
        if facts is None or not facts.is_dir:
            continue
        theirs = _cookie_bytes(filesystem, candidate)
        if cookie is None or theirs is None or theirs == cookie:
            found.append(candidate)
    return found
