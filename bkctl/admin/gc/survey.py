"""All logs of a space with what decides about each of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from posixpath import basename, join

from bkctl.admin.gc.index_reader import IndexReader
from bkctl.admin.gc.log_facts import LogFacts, LogReader, unreadable
from bkctl.admin.gc.unreplayed import Unreplayed, read_unreplayed
from bkctl.admin.ledgers.known_ledgers import Cluster, KnownLedgers, Source, cookie_in
from bkctl.clock import Clock
from bkctl.codec.entrylog import parse_compacted_name, parse_compacting_name
from bkctl.directories.holders import Holder, holders, is_dirty
from bkctl.directories.index_spaces import IndexSpace
from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.reporting import Advance, counted, nobody
from bkctl.scan.directory import LogFile
from bkctl.scan.index_databases import METADATA_CACHE
from bkctl.scan.log_metadata_cache import LogMetadataCache
from bkctl.vfs import FileSystem

_BEGUN_REBUILD = re.compile(r"(?:ledgers|locations)\.(?:TEMP-.*|bkctl-rebuild)")

#: The step before anything is said about logs of which a ledger index without a row knows nothing.
LOST_INDEX_STEP = (
    "'bkctl index rebuild --all' first, or start the bookie if its journals still hold everything"
)


@dataclass(slots=True)
class Survey:
    """One space before its logs are read.

    ``known`` says which ledgers there are, and ``gone`` are those with a row that exist no more.
    ``judged_dead`` says whether the
    cluster's word is enough to be dead; otherwise the bookie's own rows have to agree. ``holder`` uses the
    directory. ``unfinished`` maps logs to the copy of the compaction that holds them, ``half_copies`` are
    targets of compactions that were cut off, ``rebuilds`` are index rebuilds that have not ended.
    """

    space: IndexSpace
    index: IndexReader
    known: KnownLedgers
    unreplayed: Unreplayed
    holder: Holder | None
    dirty: bool
    gone: set[int] = field(default_factory=set)
    judged_dead: bool = True
    unfinished: dict[int, str] = field(default_factory=dict)
    half_copies: list[str] = field(default_factory=list)
    rebuilds: list[str] = field(default_factory=list)
    _verdicts: dict[int, bool] = field(default_factory=dict)

    def live_among(self, ledgers: Collection[int]) -> set[int]:
        """Pick those of ``ledgers`` whose entries have to stay.

        A ledger without a row is dead if the cluster says so, or if nothing speaks for it: neither the
        cluster, nor records in the journals that bring it back, nor locations of its entries. Raises
        BkctlError.
        """
        new = [ledger for ledger in ledgers if ledger not in self._verdicts]
        for ledger in new:
            if ledger in self.index.ledgers:
                self._verdicts[ledger] = not (self.judged_dead and ledger in self.gone)
        unknown = [ledger for ledger in new if ledger not in self._verdicts]
        if unknown:
            for ledger, kept in self.known.keeps_each(unknown).items():
                self._verdicts[ledger] = self._judge(ledger, kept)
        return {ledger for ledger in ledgers if self._verdicts[ledger]}

    def _judge(self, ledger: int, kept: bool | None) -> bool:
        if kept or (kept is False and self.judged_dead):
            return kept
        return (
            ledger in self.unreplayed.ledgers
            or ledger in self.index.doubtful
            or self.index.has_locations(ledger)
        )

    @property
    def dead(self) -> set[int]:
        """The ledgers that were asked about and are dead."""
        return {ledger for ledger, alive in self._verdicts.items() if not alive}

    @property
    def newest(self) -> int:
        """The newest log with anything in it; -1 without logs."""
        return max((log.log_id for log in self.space.logs if log.size_bytes), default=-1)

    @property
    def index_is_lost(self) -> bool:
        """Whether the ledger index has no row at all, and nothing shows that there need be none."""
        return not (self.index.ledgers or self.index.doubtful or self.known.tells_all)

    @property
    def unseen(self) -> str | None:
        """Return the part of a storage over all directories that was not seen; None when none is missing.

        An index file may be in any of the index directories, and a log id is given out once for all of them.
        So without one of them ledgers that live look deleted, and a copy may get the id of another log.
        """
        space = self.space
        if not space.kind.shares_log_ids:
            return None
        if space.bookie is None:
            return (
                "no cookie says which directories make this bookie, and each may have index files of its"
                " ledgers; bring the cookie back first (bkctl cookie create)"
            )
        if space.absent:
            return (
                f"{', '.join(space.absent)} of its bookie's directories is not found, and may have index"
                " files of ledgers that live; name all of them, or the folder that holds them"
            )
        if space.blank and not self.known.tells_all:
            return (
                f"no index file was ever in {', '.join(space.blank)}: if that was emptied, ledgers that live"
                " look deleted. Make the index again ('bkctl index rebuild') or, if nothing is missing, prove"
                " it with --metadata"
            )
        return None

    def obstacle(self, facts: LogFacts) -> str | None:
        """Return why nothing can be done about a log, however little of it is alive."""
        log_id = facts.log.log_id
        if facts.problem is not None:
            return f"damaged, set aside: {facts.problem}"
        if log_id in self.unfinished:
            return f"a compaction of it is not finished: {self.unfinished[log_id]}"
        if (unseen := self.unseen) is not None:
            return unseen
        if self.index_is_lost and facts.record_bytes:
            return f"the ledger index has no row, so to a bookie all of it is garbage; {LOST_INDEX_STEP}"
        if self.holder is not None and log_id >= self.newest:
            return f"newest log of the directory, and {self.holder} may be writing it"
        if self.holder is not None and self.space.kind.shares_log_ids and not facts.rolled:
            return f"it has no ledgers map yet, and {self.holder} may be writing it"
        if self.unreplayed.records and log_id >= self.newest:
            return (
                f"newest log, perhaps not flushed: the journals hold"
                f" {counted(self.unreplayed.records, 'record')} behind the last mark; start the bookie once"
            )
        if facts.unindexed and self.holder is not None:
            entries = counted(facts.unindexed, "entry of it is", "entries of it are")
            return f"{entries} not in the index yet, which {self.holder} is writing"
        if facts.unindexed:
            entries = counted(facts.unindexed, "entry of live ledgers has", "entries of live ledgers have")
            return (
                f"{entries} no row in the location index; 'bkctl index check' shows which, 'bkctl index"
                " rebuild' brings the rows back"
            )
        return None


def survey(
    filesystem: FileSystem,
    space: IndexSpace,
    index: IndexReader,
    cluster: Cluster,
    *,
    judged_dead: bool = True,
    confirmed: bool = False,
) -> Survey:
    """Survey everything but the logs. Raises RefusedError for another cluster's metadata, BkctlError.

    ``confirmed`` says that it is well that the metadata lack ledgers which are newer than they.
    """
    cookie = cookie_in(filesystem, (*space.log_dirs, *space.index_dirs)) if cluster.is_asked else None
    known = KnownLedgers.of(cluster, cookie, space.bookie, confirmed=confirmed)
    directories = sorted({*space.log_dirs, *space.index_dirs})
    held = [holder for directory in directories for holder in holders(directory)]
    found = Survey(
        space,
        index,
        known,
        read_unreplayed(filesystem, space),
        next(iter(held), None),
        any(map(is_dirty, directories)),
        judged_dead=judged_dead,
    )
    known.local = {Source.ROWS: index.ledgers, Source.JOURNALS: found.unreplayed.ledgers}
    found.gone = known.gone(index.ledgers)
    for directory in directories:
        for name in filesystem.names(directory):
            # A compaction by way of another disk: the log is a link to its copy there.
            copy = filesystem.link_target(join(directory, name)) if name.endswith(".log") else None
            ids = parse_compacted_name(name if copy is None else basename(copy))
            if ids is not None:
                found.unfinished.update(dict.fromkeys(ids, copy or name))
            elif parse_compacting_name(name) is not None:
                found.half_copies.append(join(directory, name))
            elif _BEGUN_REBUILD.fullmatch(name):
                found.rebuilds.append(join(directory, name))
    return found


def read_logs(
    filesystem: FileSystem,
    found: Survey,
    clock: Clock,
    *,
    quick: bool = False,
    log_id: int | None = None,
    advance: Advance = nobody,
) -> Iterator[LogFacts]:
    """Yield the facts of the space's logs, one by one, a log that cannot be read among them.

    Raises CorruptionError and StorageError when the index or the cluster cannot be read, StorageError for a
    log that this user may not read.
    """
    cache = _open_cache(found.space) if quick else None
    try:
        reader = LogReader(filesystem, found.index, found.live_among, clock.time_ms() / 1000, quick, cache)
        for log in found.space.logs:
            if log_id is None or log.log_id == log_id:
                facts = _read(reader, log, advance)
                if facts is not None:
                    yield facts
    finally:
        if cache is not None:
            cache.close()


def _read(reader: LogReader, log: LogFile, advance: Advance) -> LogFacts | None:
    try:
        return reader.read(log, advance)
    except NotFoundError:
        return None  # a running bookie removed it since it was listed
    except StorageError as error:
        if error.path != log.path or error.is_denied:
            raise
        return unreadable(log, error)


def _open_cache(space: IndexSpace) -> LogMetadataCache | None:
    if not space.kind.has_metadata_cache:
        return None
    with suppress(NotFoundError, CorruptionError, StorageError):  # it is only a cache
        return LogMetadataCache.open(join(space.log_dirs[0], METADATA_CACHE))
    return None
