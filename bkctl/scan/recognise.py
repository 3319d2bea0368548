"""The kind of a file: by its first bytes where a format has a magic, else by its name."""

from __future__ import annotations

import enum
import re
from posixpath import basename

from bkctl.codec.entrylog import MAGIC as ENTRY_LOG_MAGIC
from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.journal import MAGIC as JOURNAL_MAGIC
from bkctl.codec.journal import parse_journal_name
from bkctl.codec.last_id import LAST_ID_NAME
from bkctl.scan.directory import COOKIE_NAME, DIRTY_NAME, LAST_MARK_NAME, first_bytes, is_key_value_store
from bkctl.vfs import FileSystem

_HEAD_BYTES = 64
_COMPACTION = re.compile(r"[0-9a-f]+\.log\.(compacting|[0-9a-f]+\.compacted)")
_METADATA_HEADER = b"BookieMetadataFormatVersion\t"


class FileKind(enum.Enum):
    """Kinds of files and directories; the value is the word in JSON."""

    ENTRY_LOG = "entry_log"
    COMPACTION_LOG = "compaction_log"
    JOURNAL = "journal"
    INDEX_FILE = "index_file"
    COOKIE = "cookie"
    LAST_MARK = "last_mark"
    LAST_ID = "last_id"
    BOOKIE_STATUS = "bookie_status"
    DIRTY = "dirty"
    LOCATIONS = "locations"
    LEDGERS = "ledgers"
    METADATA_CACHE = "metadata_cache"
    ROCKSDB = "rocksdb"
    LEDGER_METADATA = "ledger_metadata"
    METADATA_DUMP = "metadata_dump"
    UNKNOWN = "unknown"


_NAMES = {
    COOKIE_NAME: FileKind.COOKIE,
    LAST_ID_NAME: FileKind.LAST_ID,
    "BOOKIE_STATUS": FileKind.BOOKIE_STATUS,
    DIRTY_NAME: FileKind.DIRTY,
}
_STORES = {
    "locations": FileKind.LOCATIONS,
    "ledgers": FileKind.LEDGERS,
    "metadata-cache": FileKind.METADATA_CACHE,
}


def recognise_store(filesystem: FileSystem, path: str) -> FileKind | None:
    """Return the kind of a directory when it is one RocksDB database, else None."""
    if not is_key_value_store(filesystem, path):
        return None
    return _STORES.get(basename(path.rstrip("/")), FileKind.ROCKSDB)


def recognise_file(filesystem: FileSystem, path: str) -> FileKind:
    """Return the kind of a regular file."""
    name = basename(path)
    if name in _NAMES:
        return _NAMES[name]
    if LAST_MARK_NAME.fullmatch(name):
        return FileKind.LAST_MARK
    if _COMPACTION.fullmatch(name):
        return FileKind.COMPACTION_LOG
    return _by_content(first_bytes(filesystem, path, _HEAD_BYTES)) or _by_name(name)


def _by_content(head: bytes) -> FileKind | None:
    if head.startswith(ENTRY_LOG_MAGIC):
        return FileKind.ENTRY_LOG
    if head.startswith(JOURNAL_MAGIC):
        return FileKind.JOURNAL
    if head.startswith(b"BKLE"):
        return FileKind.INDEX_FILE
    if head.startswith(_METADATA_HEADER):
        return FileKind.LEDGER_METADATA
    if head.lstrip().startswith(b"{"):
        return FileKind.METADATA_DUMP
    if re.match(rb"[0-9]+\nbookieHost:", head):
        return FileKind.COOKIE
    return None


def _by_name(name: str) -> FileKind:
    if parse_log_name(name) is not None:
        return FileKind.ENTRY_LOG
    if parse_journal_name(name) is not None:
        return FileKind.JOURNAL
    if name.endswith((".idx", ".idx.rloc")):
        return FileKind.INDEX_FILE
    return FileKind.UNKNOWN
