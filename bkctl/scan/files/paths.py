"""From paths to the files they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import basename, dirname, normpath

from bkctl.codec.entrylog import MAGIC as ENTRY_LOG_MAGIC
from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.journal import MAGIC as JOURNAL_MAGIC
from bkctl.codec.journal import parse_journal_name
from bkctl.errors import NotFoundError, UsageError
from bkctl.scan.directory import (
    BookieDirectory,
    JournalFile,
    LogFile,
    find_directories,
    first_bytes,
    inspect_directory,
)
from bkctl.vfs import FileSystem


def entry_logs(filesystem: FileSystem, paths: Iterable[str], log_id: int | None = None) -> list[LogFile]:
    """Return the entry logs that ``paths`` stand for, each once, in the order of the paths and then by id.

    A ledger directory may have none: its entries are in the journal still. Raises NotFoundError when there
    is no such path or no log ``log_id``, UsageError for a file that is no entry log and for a directory that
    is no ledger directory.
    """
    found: dict[str, LogFile] = {}
    for path in paths:
        facts = filesystem.status(path)
        if facts is not None and not facts.is_dir:
            log = _one_log(filesystem, path, facts.size_bytes)
            found.setdefault(normpath(log.path), log)
            continue
        found_directories = find_directories(filesystem, path)
        if not any(directory.holds_logs for directory in found_directories):
            raise UsageError(f"{path}: no entry log and no ledger directory in it")
        for directory in found_directories:
            for log in directory.logs:
                if not log.compaction:
                    found.setdefault(normpath(log.path), log)
    if log_id is None:
        return list(found.values())
    chosen = [log for log in found.values() if log.log_id == log_id]
    if not chosen:
        raise NotFoundError(f"no entry log {log_id} (0x{log_id:x}) in {', '.join(paths)}")
    return chosen


def _one_log(filesystem: FileSystem, path: str, size_bytes: int) -> LogFile:
    name = basename(path)
    log_id = parse_log_name(name)
    if log_id is None:
        log_id = parse_log_name(".".join(name.split(".")[:2]))
    if log_id is None:
        if first_bytes(filesystem, path, 4) != ENTRY_LOG_MAGIC:
            raise UsageError(f"{path}: is not an entry log (neither <hex id>.log nor starting with BKLO)")
        log_id = 0
    return LogFile(path, log_id, size_bytes)


def journals(
    filesystem: FileSystem, paths: Iterable[str], journal_id: int | None = None
) -> list[JournalFile]:
    """Return the journals that ``paths`` stand for; errors as :func:`entry_logs`."""
    found: dict[str, JournalFile] = {}
    for path in paths:
        facts = filesystem.status(path)
        if facts is not None and not facts.is_dir:
            journal = _one_journal(filesystem, path, facts.size_bytes)
            found.setdefault(normpath(path), journal)
            continue
        files = [
            journal for directory in find_directories(filesystem, path) for journal in directory.journals
        ]
        if not files:
            raise UsageError(f"{path}: no journal in it")
        for journal in files:
            found.setdefault(normpath(journal.path), journal)
    chosen = [journal for journal in found.values() if journal_id is None or journal.journal_id == journal_id]
    if not chosen:
        raise NotFoundError(f"no journal {journal_id} (0x{journal_id:x}) in {', '.join(paths)}")
    return chosen


def _one_journal(filesystem: FileSystem, path: str, size_bytes: int) -> JournalFile:
    journal_id = parse_journal_name(basename(path))
    if journal_id is None:
        if first_bytes(filesystem, path, 4) != JOURNAL_MAGIC:
            raise UsageError(f"{path}: is not a journal (neither <hex id>.txn nor starting with BKLG)")
        journal_id = 0
    return JournalFile(path, journal_id, size_bytes)


def directories(
    filesystem: FileSystem, paths: Iterable[str], vanished: list[str] | None = None
) -> list[BookieDirectory]:
    """Return the bookie directories that ``paths`` stand for, each once; a file stands for its directory.

    A folder that is removed during the search is left out, and noted in ``vanished``.
    Raises NotFoundError, and UsageError for a path with nothing of a bookie's.
    """
    found: dict[str, BookieDirectory] = {}
    for path in paths:
        facts = filesystem.status(path)
        if facts is not None and not facts.is_dir:
            here = [inspect_directory(filesystem, dirname(path) or ".")]
            if here[0].is_empty:
                raise UsageError(f"{path}: a file, and no journal, entry log, index or cookie is beside it")
        else:
            here = find_directories(filesystem, path, vanished)
        for directory in here:
            found.setdefault(normpath(directory.path), directory)
    return list(found.values())
