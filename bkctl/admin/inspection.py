"""``inspect``: what a path is and what it says, whatever file of BookKeeper's it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from posixpath import join
from typing import Any

from bkctl.codec import file_info
from bkctl.codec.bookie_status import decode_bookie_status
from bkctl.codec.cookie import decode_cookie
from bkctl.codec.journal import journal_name
from bkctl.codec.last_id import decode_last_id
from bkctl.codec.last_mark import decode_last_mark
from bkctl.codec.ledger_metadata import decode_ledger_metadata
from bkctl.errors import CorruptionError, NotFoundError, UsageError, WrongFileError
from bkctl.scan import entrylog, journal_head
from bkctl.scan.damage import Damage
from bkctl.scan.directory import find_directories, first_bytes, read_small
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.scan.recognise import FileKind, recognise_file, recognise_store
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Inspection:
    """One file or database. ``facts`` depend on ``kind``; ``problem`` says what is wrong with it."""

    path: str
    kind: FileKind
    bytes: int | None
    facts: Facts = field(default_factory=dict)
    problem: str | None = None


def inspect(filesystem: FileSystem, path: str) -> Iterator[Inspection]:
    """Inspect the file at ``path``, or everything of a bookie's in and below a directory.

    Only headers and small files are read. Raises NotFoundError, UsageError when a directory holds nothing of
    a bookie's.
    """
    facts = filesystem.status(path)
    if facts is None:
        raise NotFoundError(f"{path}: no such file or directory")
    if not facts.is_dir:
        yield inspect_file(filesystem, path)
        return
    store = recognise_store(filesystem, path)
    if store is not None:
        yield _inspect_store(filesystem, path, store)
        return
    for directory in find_directories(filesystem, path):
        yield from _inspect_directory(filesystem, directory.path)


def _inspect_directory(filesystem: FileSystem, path: str) -> Iterator[Inspection]:
    idx_files = 0
    idx_bytes = 0
    for name, full in ((name, join(path, name)) for name in filesystem.names(path)):
        facts = filesystem.status(full)
        if facts is None:
            continue  # removed since it was listed
        if not facts.is_dir:
            yield inspect_file(filesystem, full)
            continue
        store = recognise_store(filesystem, full)
        if store is not None:
            yield _inspect_store(filesystem, full, store)
        elif len(name) <= 2:
            for size in _idx_sizes(filesystem, full):
                idx_files += 1
                idx_bytes += size
    if idx_files:
        yield Inspection(path, FileKind.INDEX_FILE, idx_bytes, {"files": idx_files})


def _idx_sizes(filesystem: FileSystem, path: str) -> Iterator[int]:
    for middle in filesystem.names(path):
        below = join(path, middle)
        facts = filesystem.status(below)
        if facts is not None and facts.is_dir:
            for name in filesystem.names(below):
                leaf = filesystem.status(join(below, name))
                if leaf is not None and name.endswith((".idx", ".idx.rloc")):
                    yield leaf.size_bytes


def _inspect_store(filesystem: FileSystem, path: str, kind: FileKind) -> Inspection:
    sizes = [filesystem.status(join(path, name)) for name in filesystem.names(path)]
    present = [facts.size_bytes for facts in sizes if facts is not None and not facts.is_dir]
    return Inspection(path, kind, sum(present), {"files": len(present)})


def inspect_file(filesystem: FileSystem, path: str) -> Inspection:
    """Inspect one regular file."""
    status = filesystem.status(path)
    size_bytes = None if status is None else status.size_bytes
    kind = recognise_file(filesystem, path)
    reader = _READERS.get(kind)
    if reader is None:
        return Inspection(path, kind, size_bytes)
    try:
        facts = reader(filesystem, path)
    except (CorruptionError, WrongFileError) as error:
        return Inspection(path, kind, size_bytes, problem=str(error))
    return Inspection(path, kind, size_bytes, facts, facts.pop("problem", None))


def _entry_log(filesystem: FileSystem, path: str) -> Facts:
    file = SteadyFile(filesystem.open(path))
    try:
        head = entrylog.read_head(file)
    finally:
        file.close()
    known = not any(damage.offset < 8 for damage in head.damage)
    facts: Facts = {
        "version": head.header.version if known else None,
        "layout": "direct" if head.header.direct else "default",
        "ledgers_map_offset": head.header.map_offset or None,
        "ledgers": head.header.ledgers if head.header.has_map else None,
    }
    if head.short:
        facts = {"state": "only allocated" if not file.size_bytes else "cut inside its header"}
    if head.damage:
        facts["problem"] = _problem(head.damage[0])
    return facts


def _journal(filesystem: FileSystem, path: str) -> Facts:
    file = SteadyFile(filesystem.open(path))
    try:
        head = journal_head.read_head(file)
    finally:
        file.close()
    facts: Facts = {"version": None if head.damage else head.version}
    if head.short:
        facts = {"state": "cut inside its header"}
    if head.damage:
        facts["problem"] = _problem(head.damage[0])
    return facts


def _problem(damage: Damage) -> str:
    return f"{damage.reason} at {damage.offset}: expected {damage.expected}, found {damage.found}"


def _index_file(filesystem: FileSystem, path: str) -> Facts:
    header = file_info.decode_header(first_bytes(filesystem, path, file_info.HEADER_BYTES))
    return {
        "ledger": file_info.parse_index_path(path).ledger,
        "version": header.version,
        "fenced": header.fenced,
        "has_explicit_lac": header.explicit_lac is not None,
    }


def _cookie(filesystem: FileSystem, path: str) -> Facts:
    cookie = decode_cookie(read_small(filesystem, path))
    return {
        "layout_version": cookie.layout_version,
        "bookie_host": cookie.bookie_host,
        "journal_dirs": list(cookie.journal_paths),
        "ledger_dirs": list(cookie.ledger_paths),
        "index_dirs": list(cookie.index_paths) if cookie.index_dirs is not None else None,
        "instance_id": cookie.instance_id,
    }


def _last_mark(filesystem: FileSystem, path: str) -> Facts:
    mark = decode_last_mark(read_small(filesystem, path))
    return {"journal_id": mark.journal_id, "journal": journal_name(mark.journal_id), "offset": mark.offset}


def _last_id(filesystem: FileSystem, path: str) -> Facts:
    return {"log_id": decode_last_id(read_small(filesystem, path))}


def _bookie_status(filesystem: FileSystem, path: str) -> Facts:
    status = decode_bookie_status(read_small(filesystem, path))
    return {"mode": status.mode.value, "updated_ms": status.updated_ms, "manual": status.manual}


def _dirty(filesystem: FileSystem, path: str) -> Facts:
    return {"state": "a bookie runs here, or its last shutdown was unclean"}


def _ledger_metadata(filesystem: FileSystem, path: str) -> Facts:
    metadata = decode_ledger_metadata(read_small(filesystem, path))
    return {
        "format_version": metadata.metadata_version,
        "state": metadata.state.value,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "last_entry": metadata.last_entry,
        "length": metadata.length,
        "digest": None if metadata.digest_type is None else metadata.digest_type.value,
        "ensembles": [
            {"first_entry": segment.first_entry, "bookies": list(segment.bookies)}
            for segment in metadata.segments
        ],
    }


def _metadata_dump(filesystem: FileSystem, path: str) -> Facts:
    dump = load_metadata_dump(filesystem, path)
    end = dump.end
    return {
        "dump_kind": None if end is None else end.kind.value,
        "complete": end is not None,
        "time_ms": None if end is None else end.time_ms,
        "next_ledger": None if end is None else end.next_ledger,
        "root": dump.root,
        "znodes": len(dump.znodes),
        "ledgers": len(dump.ledgers),
        "bookies": sorted(dump.cookies),
    }


_READERS: dict[FileKind, Callable[[FileSystem, str], Facts]] = {
    FileKind.ENTRY_LOG: _entry_log,
    FileKind.COMPACTION_LOG: _entry_log,
    FileKind.JOURNAL: _journal,
    FileKind.INDEX_FILE: _index_file,
    FileKind.COOKIE: _cookie,
    FileKind.LAST_MARK: _last_mark,
    FileKind.LAST_ID: _last_id,
    FileKind.BOOKIE_STATUS: _bookie_status,
    FileKind.DIRTY: _dirty,
    FileKind.LEDGER_METADATA: _ledger_metadata,
    FileKind.METADATA_DUMP: _metadata_dump,
}


def refuse_unknown(found: list[Inspection]) -> None:
    """Raise UsageError when a single named file is nothing that BookKeeper writes."""
    if len(found) == 1 and found[0].kind is FileKind.UNKNOWN:
        raise UsageError(f"{found[0].path}: not a BookKeeper file, by its content or its name")
