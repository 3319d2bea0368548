"""What the directories of a stopped bookie serve: entries that its index finds in its logs."""

from __future__ import annotations

import struct
from pathlib import Path

from bkctl.codec.location import Location
from bkctl.errors import BkctlError
from bkctl.scan.directory import find_directories
from bkctl.scan.index import DirectoryIndex, open_index
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import PosixFileSystem

_HEAD = struct.Struct(">iqq")


def readable(root: Path) -> dict[tuple[int, int], bytes]:
    """Entries below ``root`` that a reader finds: the ledger has a row, the location names its record.

    An index that cannot be opened serves nothing.
    """
    found: dict[tuple[int, int], bytes] = {}
    filesystem = PosixFileSystem()
    directories = find_directories(filesystem, str(root))
    logs = {}
    for directory in directories:
        for log in directory.logs:
            content = Path(log.path).read_bytes()
            logs[directory.path, log.log_id] = content
            logs.setdefault(("", log.log_id), content)
    for directory in directories:
        if not directory.indexes:
            continue
        try:
            index = open_index(filesystem, directory.path)
            if index is None:
                continue
            with index:
                # The log ids of .idx files are of all directories.
                space = "" if directory.indexes == ("idx",) else directory.path
                found |= _of_index(index, {at: data for (place, at), data in logs.items() if place == space})
        except BkctlError:
            continue
    return found


def _of_index(index: DirectoryIndex, logs: dict[int, bytes]) -> dict[tuple[int, int], bytes]:
    found = {}
    ledgers = {row.ledger for row in index.ledgers.merged() if not isinstance(row, IndexDamage)}
    for item in index.locations.rows():
        if isinstance(item, IndexDamage):
            continue
        for ledger, entry, log_id, offset in zip(
            item.ledgers, item.entries, item.log_ids, item.offsets, strict=True
        ):
            body = _body(logs.get(log_id, b""), Location(log_id, offset), ledger, entry)
            if ledger in ledgers and body is not None:
                found[ledger, entry] = body
    return found


def _body(data: bytes, at: Location, ledger: int, entry: int) -> bytes | None:
    start = at.offset - 4
    if start < 0 or start + _HEAD.size > len(data):
        return None
    size, *ids = _HEAD.unpack_from(data, start)
    if ids != [ledger, entry] or size < 16 or at.offset + size > len(data):
        return None
    return data[at.offset : at.offset + size]
