"""Planning tasks over entry logs: which logs are wanted, and where large ones may be cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.errors import NotFoundError, StorageError
from bkctl.ledger_set import LedgerSet
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.ledger_source import known_digests
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import log_files
from bkctl.pipeline.tables.split import Split, SplitFile, packed
from bkctl.pipeline.tables.stored_digests import StoredDigests
from bkctl.scan.entrylog import EntryLogDialect, read_head
from bkctl.scan.proof import Evidence, Prover
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem, PosixFileSystem

#: How far from where a log should be cut a record is looked for.
_SEARCHED_BYTES = 64 << 20
#: Of one log. At the sizes that are usual there are some ten.
_PIECES_MAX = 1024


def plan_logs(
    paths: Sequence[str], options: TableOptions, *, digests: bool = True, pieces: bool = True
) -> list[Split]:
    """Plan tasks over the entry logs of ``paths``, with the known digests of the ledgers in them.

    Logs whose ledgers map names no wanted ledger are left out. If digests are in a file the tasks look them
    up there, and no log is opened for them. ``digests`` False leaves metadata unread, ``pieces`` False never
    cuts a log.
    """
    filesystem = PosixFileSystem()
    files = log_files(filesystem, paths, options)
    ledgers: dict[str, set[int] | None] = {}
    known = known_digests(filesystem, options) if digests and options.digest != "off" else None
    packed_digests = known if isinstance(known, KnownDigests) and len(known) else None
    if options.ledgers or packed_digests is not None:
        ledgers = {file.path: _mapped(filesystem, file) for file in files}
        files = [file for file in files if _wanted(ledgers[file.path], options)]
    if pieces:
        files = [piece for file in files for piece in _cut(filesystem, file, options)]
    splits = []
    for group in packed(files, options.split_bytes, options.cores):
        split = Split(group)
        if isinstance(known, StoredDigests):
            split = replace(split, known=known)
        elif packed_digests is not None:
            maps = [ledgers[file.path] for file in group]
            inside = None if None in maps else set().union(*(found for found in maps if found))
            split = replace(split, known=packed_digests if inside is None else packed_digests.only(inside))
        splits.append(split)
    return splits


def _mapped(filesystem: FileSystem, file: SplitFile) -> set[int] | None:
    """Return the ledgers of a log by its map.

    None when the log has no map, or cannot be read, which its reader reports.
    """
    with suppress(NotFoundError, StorageError):
        log = SteadyFile(filesystem.open(file.path))
        try:
            totals = read_head(log).ledgers_map
        finally:
            log.close()
        return None if totals is None else set(totals)
    return None


def _wanted(ledgers: set[int] | None, options: TableOptions) -> bool:
    return ledgers is None or any(map(options.wants_ledger, ledgers))


def _cut(filesystem: FileSystem, file: SplitFile, options: TableOptions) -> Iterator[SplitFile]:
    """Yield the file, or pieces of it that begin at records which carry their own proof.

    How many cores there are does not matter: a task is so large at most whoever runs it, is tried again after
    a failure in so little time, and the driver of a cluster does not know the executors' cores.
    """
    if file.bytes <= options.large_log_bytes:
        yield file
        return
    start = 0
    for cut in _boundaries(filesystem, file, options):
        yield replace(file, start=start, stop=cut)
        start = cut
    yield replace(file, start=start)


def _boundaries(filesystem: FileSystem, file: SplitFile, options: TableOptions) -> list[int]:
    pieces = max(2, min(_PIECES_MAX, -(-file.bytes // options.split_bytes)))
    step = file.bytes // pieces
    found: list[int] = []
    try:
        log = SteadyFile(filesystem.open(file.path))
    except (NotFoundError, StorageError):
        return []  # its reader reports it
    try:
        head = read_head(log)
        if head.damage or head.short:
            return []
        dialect = EntryLogDialect(head.header.direct)
        prover = Prover(log, Evidence(ledgers=LedgerSet(head.ledgers_map or ())), dialect.reserved)
        end = head.header.map_offset if head.ledgers_map is not None else log.size_bytes
        for number in range(1, pieces):
            target = max(HEADER_BYTES, number * step)
            record = prover.find(target, min(target + min(step, _SEARCHED_BYTES), end))
            if record is not None and prover.certain and record > (found[-1] if found else 0):
                found.append(record)
    finally:
        log.close()
    return found
