"""A new disk in the place of one that was lost: rows for the ledgers that belong there, then the cookie.

The cookie in the metadata store says that the bookie has these directories. So a bookie, ours or Java's,
refuses to start on an empty one: it would answer "no such entry" for everything that was on the disk.

Here the new directory first gets a row for each ledger that the metadata place on it: with the ledger's key,
fenced, and in limbo, so that every entry is "unknown" until it is back. Over ``.idx`` files it gets a file
for each ledger that has none any more (:mod:`bkctl.server.life.lost_index_files`). Only then it gets its
cookie, the one in the store, and the bookie may start.

The entries come over the network while the bookie runs (``ledger repair --bookie``). That command proves the
copies and reads them back, and a ledger leaves limbo when it has all of them. The bookie serves and takes new
ledgers during the repair, and a kill at any time leaves the ledgers in limbo.

Where a journal directory is lost and ledger directories are still there, entries that only the journal had
may be missing in any ledger that writes to it. So each of these ledgers is fenced and in limbo in the
directories that are there, too, and the last marks of the journal begin at zero: the journal that they name
is gone. Where such a directory has lost the rows of its ledgers as well, these rows would hide that from the
next start. So there every ledger gets a row in limbo that the metadata place there, whichever journal it has.

The order is: a marker in each new directory, rows (synced), last marks, cookies, markers away. A run that was
killed leaves directories without a cookie, on which no bookie starts. The marker in them shows the next run
that it may use them again, and which other directories had lost their rows before the first one
(:mod:`bkctl.directories.half_rebuilt`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from posixpath import join

from bkctl.codec.cookie import encode_cookie
from bkctl.codec.digest import master_key
from bkctl.codec.last_mark import ZERO_MARK, encode_last_mark, last_mark_name
from bkctl.codec.ledger_data import LedgerData, decode_ledger_data, encode_ledger_data, encode_ledger_key
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.config.bookie import BookieConfig
from bkctl.directories.cookie_rules import DirectoryFacts, StoredCookie, cookie_of, decide
from bkctl.directories.exchanged_disks import refuse_exchanged_disks
from bkctl.directories.half_rebuilt import MARKER_NAME, encode_marker, lost_before
from bkctl.directories.placement import LedgerDirectory
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.kvstore.base import KeyValueReader, KeyValueStore, Operation, Put, note_written
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.scan.directory import COOKIE_NAME, REPAIRS_NAME, current, home_of, is_key_value_store
from bkctl.scan.index_databases import LEDGERS
from bkctl.server.life import own_directories as directories
from bkctl.server.life.identity import SystemHostNames, bookie_id, candidate_ids
from bkctl.server.life.lost_index_files import LimboFiles, LostIndexFiles
from bkctl.vfs import WritableFileSystem

_BATCH_ROWS = 10_000

#: Opens, or makes, the ``ledgers`` database in a directory.
OpenLedgers = Callable[[str], KeyValueStore]
#: Opens one that is there, and changes nothing.
ReadLedgers = Callable[[str], KeyValueReader]


@dataclass(frozen=True, slots=True)
class NewDirectory:
    """A directory without a cookie. ``number`` is its place among the ledger directories, -1 for a journal's.

    ``index`` is where its databases are.
    """

    path: str
    number: int = -1
    index: str = ""


@dataclass(frozen=True, slots=True)
class LostDisk:
    """A bookie without some of its directories.

    ``cookie`` is the one in the store, ``directories`` are the new and empty ones.
    """

    bookie: str
    cookie: StoredCookie
    directories: tuple[NewDirectory, ...]
    ledger_directories: int
    #: Ledger directories that are there while a journal directory is lost.
    survivors: tuple[NewDirectory, ...] = ()
    #: The places of the journal directories that are lost, of so many.
    lost_journals: tuple[int, ...] = ()
    journal_directories: int = 1
    #: Survivors, by the places of their databases, that had lost their rows before a run that was cut off.
    rowless_before: tuple[str, ...] = ()
    #: Of a storage over index files, which has no databases: where its files are and were.
    index_files: LostIndexFiles | None = None

    def is_written_to_lost_journal(self, ledger: int) -> bool:
        """Return whether records of a ledger went into a journal directory that is lost."""
        return ledger % self.journal_directories in self.lost_journals


@dataclass(slots=True)
class RebuiltRows:
    """Ledgers with a row in limbo, by directory; those among them that a run which was cut off has made.

    Of ``unreadable`` ones the metadata do not decode: nobody knows whether they belong here, so that they
    have a row in limbo as well, without a key.
    """

    ledgers: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0


def find_lost_disk(config: BookieConfig, metadata: MetadataStore, filesystem: WritableFileSystem) -> LostDisk:
    """Return which directories of a known bookie are new and empty.

    Raises RefusedError when the bookie is not known, runs, or its directories are not as they must be.
    """
    names, port = SystemHostNames(), config.identity.port
    stored = directories.read_stored(metadata.cookies, candidate_ids(config.identity, port, names))
    if not stored:
        raise RefusedError(
            "the metadata store has no cookie of this bookie. So this is a new bookie, which cannot have "
            "lost a disk: make it with 'bkctl bookie init'"
        )
    wanted = cookie_of(
        bookie_id(config.identity, port, names), config.directories, metadata.layout.instance_id()
    )
    up = [one.bookie for one in stored if one.bookie in metadata.registration.bookies().everyone]
    if up:
        raise RefusedError(f"bookie {up[0]} is registered: it still runs, or its session has not ended yet")
    found = directories.examine(filesystem, config.directories, config.storage_kind)
    # As if every directory had its cookie: what else is wrong is said here, in the words of a start.
    decide(wanted, [_with_cookie(one, stored[-1]) for one in found], stored, allow_expansion=False)
    new = [one.path for one in found if one.cookie is None]
    for path in new:
        _require_empty(filesystem, path)
    if config.storage_kind.has_databases:
        refuse_exchanged_disks(filesystem, _left(config, new))
    journals = config.directories.journals
    lost_journals = tuple(number for number, path in enumerate(journals) if path in new)
    shape = _of_databases if config.storage_kind.has_databases else _of_index_files
    return shape(
        filesystem,
        config,
        new,
        LostDisk(
            wanted.bookie_host,
            stored[-1],
            (),
            len(config.directories.ledgers),
            (),
            lost_journals,
            len(journals),
        ),
    )


def _left(config: BookieConfig, new: Sequence[str]) -> list[LedgerDirectory]:
    """Return the ledger directories that are there. In another one's place they show which disk is lost."""
    ledgers, indexes = config.directories.ledgers, config.directories.index_places
    return [
        LedgerDirectory(number, len(ledgers), current(path), current(index))
        for number, (path, index) in enumerate(zip(ledgers, indexes, strict=True))
        if path not in new and index not in new
    ]


def _of_databases(
    filesystem: WritableFileSystem, config: BookieConfig, new: Sequence[str], lost: LostDisk
) -> LostDisk:
    places = zip(config.directories.ledgers, config.directories.index_places, strict=True)
    survivors = [
        NewDirectory(path, number, index)
        for number, (path, index) in enumerate(places)
        if lost.lost_journals and path not in new
    ]
    return replace(
        lost,
        directories=_placed(config, new),
        survivors=tuple(survivors),
        rowless_before=lost_before(filesystem, map(current, new), [current(one.index) for one in survivors]),
    )


def _of_index_files(
    filesystem: WritableFileSystem, config: BookieConfig, new: Sequence[str], lost: LostDisk
) -> LostDisk:
    """Return the lost directories of a storage that has its files in any of them.

    Raises RefusedError where only indexes are lost, which the logs give back.
    """
    ledgers, indexes = config.directories.ledgers, config.directories.index_places
    gone = [path for path in indexes if path in new]
    if gone and not any(path in new for path in ledgers):
        raise RefusedError(
            f"{gone[0]} is new, but no entry log is lost. Rebuild the index from the entry logs: first "
            "'bkctl cookie create', then 'bkctl index rebuild'"
        )
    there = tuple(current(path) for path in indexes if path not in new)
    files = LostIndexFiles(
        there,
        tuple(map(current, gone)),
        tuple(current(path) for path in ledgers if path in new),
        lost_before(filesystem, map(current, new), there),
    )
    survivors = [NewDirectory(path) for path in ledgers if lost.lost_journals and path not in new]
    return replace(
        lost,
        directories=tuple(NewDirectory(path) for path in new),
        survivors=tuple(survivors),
        index_files=files,
    )


def _with_cookie(facts: DirectoryFacts, stored: StoredCookie) -> DirectoryFacts:
    if facts.cookie is not None:
        return facts
    return DirectoryFacts(facts.path, stored.cookie, is_empty=True)


def _require_empty(filesystem: WritableFileSystem, path: str) -> None:
    folder = current(path)
    if filesystem.status(folder) is None:
        return
    # A run that was killed leaves the record of its repair, too.
    names = set(filesystem.names(folder)) - {REPAIRS_NAME}
    if names and MARKER_NAME not in names:
        raise RefusedError(
            f"{folder}: has no cookie, but is not empty ({sorted(names)[0]}). A rebuild needs a new, empty "
            "directory. If the directory is this bookie's and only its cookie is lost, restore the cookie: "
            "bkctl cookie create"
        )


def _placed(config: BookieConfig, new: Sequence[str]) -> tuple[NewDirectory, ...]:
    """Return the new directories with their places. Raises RefusedError for a half without the other."""
    ledgers, indexes = config.directories.ledgers, config.directories.index_places
    alone = [path for path in config.directories.journals if path in new and path not in ledgers]
    found = []
    for number, (path, index) in enumerate(zip(ledgers, indexes, strict=True)):
        if (path in new) != (index in new):
            there, gone = (index, path) if path in new else (path, index)
            raise RefusedError(
                f"{gone} is new, but {there}, which belongs to it, is not. If the index is lost, rebuild it "
                "from the logs: first 'bkctl cookie create', then 'bkctl index rebuild'. If the logs are "
                "lost, empty the index directory, too"
            )
        if path in new:
            found.append(NewDirectory(path, number, index))
    found += [
        NewDirectory(index) for index in dict.fromkeys(indexes) if index in new and index not in ledgers
    ]
    found += [NewDirectory(path) for path in dict.fromkeys(alone)]
    return tuple(found)


class DiskRebuild:
    """Makes the new directories ones that the bookie may start on.

    The directories are locked while it runs.
    """

    def __init__(
        self,
        filesystem: WritableFileSystem,
        metadata: MetadataStore,
        lost: LostDisk,
        open_ledgers: OpenLedgers,
        read_ledgers: ReadLedgers,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._fs = filesystem
        self._metadata = metadata
        self._lost = lost
        self._open = open_ledgers
        self._read = read_ledgers
        self._advance = advance
        self._files = None if lost.index_files is None else LimboFiles(filesystem, lost.index_files)

    def count(self) -> RebuiltRows:
        """Return what :meth:`run` would write."""
        rows, fs = RebuiltRows(), self._fs
        paths = {one.number: join(current(one.index), LEDGERS) for one in self._lost.survivors}
        rowless = {number for number, path in paths.items() if not is_key_value_store(fs, path)}
        with ExitStack() as stack:
            half_done = {
                number: stack.enter_context(closing(self._read(paths[number])))
                for number in self._rowless_before - rowless
            }
            found = self._file_rows(rows) if self._files is not None else self._rows(rows, rowless, half_done)
            for _ in found:
                pass
        return rows

    def ledgers(self) -> list[int]:
        """Return the ledgers whose index files :meth:`run` would make or change."""
        return [ledger for ledger, _ in self._file_rows(RebuiltRows())]

    def run(self) -> RebuiltRows:
        """Write rows, then cookies. Raises StorageError, RefusedError, and what the metadata store raises."""
        rows = RebuiltRows()
        for step in self.steps(rows):
            step()
        return rows

    def steps(self, rows: RebuiltRows) -> Iterator[Callable[[], None]]:
        """Yield what makes something durable, one after the other; a kill may come between any two."""
        marker = b""

        def mark(one: NewDirectory) -> None:
            nonlocal marker
            # All of them before the first one is made: a run that is cut off may leave one alone.
            marker = marker or encode_marker(self._lost_rows())
            self._mark(one, marker)

        for one in self._lost.directories:
            yield lambda one=one: mark(one)  # type: ignore[misc]
        if self._files is None:
            yield lambda: self._write_rows(rows)
        else:
            files = self._files
            yield lambda: files.write(self._file_rows(rows))
            yield files.note_log_ids
        for path in mark_files(self._lost):
            yield lambda path=path: self._fs.replace(path, encode_last_mark(ZERO_MARK))  # type: ignore[misc]
        for one in self._lost.directories:
            yield lambda one=one: self._stamp(one)  # type: ignore[misc]
        for one in self._lost.directories:
            yield lambda one=one: self._unmark(one)  # type: ignore[misc]

    def _lost_rows(self) -> list[str]:
        """Return the directories that are there and have lost their rows, or had before a run was cut off."""
        if self._files is not None:
            return self._files.lost
        found = list(self._lost.rowless_before)
        for one in self._lost.survivors:
            with closing(self._open(join(current(one.index), LEDGERS))) as store:
                if store.never_written:
                    found.append(current(one.index))
        return found

    @property
    def _rowless_before(self) -> set[int]:
        before = self._lost.rowless_before
        return {one.number for one in self._lost.survivors if current(one.index) in before}

    def _mark(self, directory: NewDirectory, content: bytes) -> None:
        path = current(directory.path)
        if self._fs.status(path) is None:
            self._fs.make_directories(path)
        self._fs.replace(join(path, MARKER_NAME), content)

    def _write_rows(self, rows: RebuiltRows) -> None:
        stores: dict[int, KeyValueStore] = {}
        batches: dict[int, list[Operation]] = {}
        try:
            for one in (*self._lost.directories, *self._lost.survivors):
                if one.number >= 0:
                    stores[one.number] = self._open(join(current(one.index), LEDGERS))
                    batches[one.number] = []
            rowless = {one.number for one in self._lost.survivors if stores[one.number].never_written}
            half_done = {number: stores[number] for number in self._rowless_before - rowless}
            for number, ledger, key in self._rows(rows, rowless, half_done):
                batches[number].append(_limbo_row(stores[number], ledger, key))
                if len(batches[number]) >= _BATCH_ROWS:
                    stores[number].write(batches[number], sync=True)
                    batches[number] = []
            for number, store in stores.items():
                store.write(batches[number], sync=True)
                # Also where no ledger belongs there: a database without a write would count as lost.
                note_written(store)
        finally:
            for store in stores.values():
                store.close()

    def _rows(
        self, rows: RebuiltRows, rowless: Container[int], half_done: Mapping[int, KeyValueReader]
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield the number of its directory, the id and the key of each ledger that may lack something.

        ``rowless`` are the numbers of directories that are there and have lost the rows of their ledgers.
        The ``half_done`` ones, each with its rows, had lost them before a run that was cut off: what rows
        they have again stay as they are.
        """
        lost = self._lost
        paths = {one.number: one.path for one in lost.directories if one.number >= 0}
        survivors = {one.number: one.path for one in lost.survivors}
        ledgers = self._metadata.ledgers
        for ledger, stored in ledgers.read_ledgers(ledgers.ledgers()):
            self._advance(1)
            number = ledger % lost.ledger_directories
            path = paths.get(number)
            all_lost = number in rowless or number in half_done
            if path is None and (all_lost or lost.is_written_to_lost_journal(ledger)):
                path = survivors.get(number)
            if path is None or stored is None:
                continue
            key = self._key(stored, rows)
            if key is None:
                continue
            there = None if number not in half_done else half_done[number].get(encode_ledger_key(ledger))
            if there is not None and not lost.is_written_to_lost_journal(ledger):
                # The run that was cut off made it, or it was never lost.
                rows.ledgers[path] += _is_in_limbo(there)
                continue
            rows.ledgers[path] += 1
            yield number, ledger, key

    def _file_rows(self, rows: RebuiltRows) -> Iterator[tuple[int, bytes]]:
        """Yield id and key of each ledger whose index file is lost, or whose journal."""
        lost = self._lost
        assert self._files is not None, "it is a storage over index files"
        assert lost.index_files is not None, "it is a storage over index files"
        home = next(iter((*lost.survivors, *lost.directories))).path
        if lost.index_files.new:
            home = home_of(lost.index_files.new[0])
        files_are_lost = bool(lost.index_files.new) or self._files.were_lost
        ledgers = self._metadata.ledgers
        for ledger, stored in ledgers.read_ledgers(ledgers.ledgers()):
            self._advance(1)
            file_is_lost = files_are_lost and not self._files.has(ledger)
            if stored is None or not (file_is_lost or lost.is_written_to_lost_journal(ledger)):
                continue
            key = self._key(stored, rows)
            if key is not None:
                rows.ledgers[home] += 1
                yield ledger, key

    def _key(self, stored: StoredLedger | CorruptionError, rows: RebuiltRows) -> bytes | None:
        """Return the key of a ledger on this bookie, empty when it is unknown; None for no such ledger."""
        if isinstance(stored, CorruptionError):
            rows.unreadable += 1
            return b""
        return key_on(stored.metadata, self._lost.bookie)

    def _stamp(self, directory: NewDirectory) -> None:
        content = encode_cookie(self._lost.cookie.cookie)
        self._fs.replace(join(current(directory.path), COOKIE_NAME), content)

    def _unmark(self, directory: NewDirectory) -> None:
        path = current(directory.path)
        with suppress(NotFoundError):
            self._fs.remove(join(path, MARKER_NAME))
        self._fs.sync_directory(path)


def mark_files(lost: LostDisk) -> list[str]:
    """Return the files of the last marks that name a journal which is lost.

    One that is not there is made: logs without any mark say that one was lost (``scan.lost_marks``).
    """
    names = [last_mark_name(number, lost.journal_directories) for number in lost.lost_journals]
    return [join(current(one.path), name) for one in lost.survivors for name in names]


def _limbo_row(store: KeyValueStore, ledger: int, key: bytes) -> Operation:
    """Return what puts a ledger into limbo; of a row that is there the rest stays as it is.

    Raises CorruptionError when that row cannot be read.
    """
    name = encode_ledger_key(ledger)
    value = store.get(name)
    row = LedgerData(fenced=True, master_key=key) if value is None else decode_ledger_data(value)
    return Put(name, encode_ledger_data(replace(row, fenced=True, limbo=True)))


def _is_in_limbo(row: bytes) -> bool:
    """Return whether a row that is left alone is one in limbo; one that cannot be read is none."""
    try:
        return bool(decode_ledger_data(row).limbo)
    except CorruptionError:
        return False


def key_on(metadata: LedgerMetadata, bookie: str) -> bytes | None:
    """Return the ledger's master key for a bookie that the metadata name, None for another bookie.

    The key is empty when the metadata do not contain the password: the copies of entries bring the key.
    """
    if not any(bookie in segment.bookies for segment in metadata.segments):
        return None
    return b"" if metadata.password is None else master_key(metadata.password)
