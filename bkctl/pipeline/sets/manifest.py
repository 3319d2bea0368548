"""The manifest of a set: ``manifest.json``, written when everything else of the set is.

::

    {"manifest": {"format": 1, "bookie": ..., "tables": {...}, "files": [...], ...},
     "sha256": "<of the manifest's text>"}

A set without a manifest, or with one that does not match its own checksum, is not complete, on whatever store
it is: no rename is needed. Names of a bookie in a path have all but letters, digits, ``.`` and ``-`` as ``_``
and two hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from bkctl.errors import CorruptionError

FORMAT = 1
MANIFEST_NAME = "manifest.json"
#: Bound on a manifest: some 200 bytes for each entry log.
MANIFEST_BYTES_MAX = 1 << 30

#: States of files that could not be read, or not whole.
PARTLY_READ, UNREADABLE = "partly_read", "unreadable"

_WHAT = "manifest of a set"


@dataclass(frozen=True, slots=True)
class SetFile:
    """A file of the bookie and its state when it was looked at.

    ``kind`` is ``entry_log`` or ``journal``; ``state`` ``read``, ``carried`` (unchanged since the set before,
    whose rows were taken over), ``gone`` (removed while the others were read), ``partly_read`` (the disk
    refused bytes that may be records) or ``unreadable``. ``head`` and ``tail`` are checksums of the first and
    the last bytes, -1 where these could not be read; ``read_ms`` is when its entries were read.
    """

    kind: str
    dir: str
    id: int
    path: str
    bytes: int
    mtime_ms: int
    head: int
    tail: int
    state: str
    read_ms: int
    sealed: bool = False
    whole: bool = True

    @property
    def is_unread(self) -> bool:
        """Whether rows of it are lacking, or may be."""
        return self.state in (PARTLY_READ, UNREADABLE)


@dataclass(frozen=True, slots=True)
class IndexTable:
    """A table file of an index's locations and its state when it was looked at; -1 bytes when it was gone,
    or its ends could not be read.

    ``head`` and ``tail`` are checksums of both ends, ``first`` and ``last`` ledgers of its outer rows.
    """

    name: str
    bytes: int
    mtime_ms: int
    head: int
    tail: int
    first: int
    last: int

    @property
    def gone(self) -> bool:
        """Whether the file was removed before it was looked at, or could not be."""
        return self.bytes < 0


@dataclass(frozen=True, slots=True)
class IndexState:
    """The files of a directory's index when its locations were read, without damage.

    ``unsettled`` are stretches of ledgers, the last included, of which rows were in write-ahead logs.
    """

    dir: str
    tables: tuple[IndexTable, ...]
    unsettled: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PartFile:
    """A Parquet file of the set: its name in the set's directory."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a set: what the set is of, and what it holds.

    ``not_read`` gives for a table why a part of it is lacking. ``verdict`` is ``clean``, ``found`` (damage)
    or ``unexamined`` (something could not be read). ``last_marks`` are those of the journal directories.
    """

    bookie: str
    set_id: str
    instance_id: str | None
    host: str
    cookie: str | None
    dirs: tuple[str, ...]
    started_ms: int
    ended_ms: int
    version: str
    kernel: str
    digest_known: str
    verdict: str
    guards: tuple[str, ...]
    unread_indexes: tuple[str, ...]
    logs_gone: int
    not_read: Mapping[str, str]
    last_marks: tuple[Mapping[str, Any], ...]
    tables: Mapping[str, tuple[PartFile, ...]]
    files: tuple[SetFile, ...]
    bookies: tuple[Mapping[str, Any], ...]
    base: str | None = None
    indexes: tuple[IndexState, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the text of a manifest, with its checksum."""
    text = json.dumps(asdict(manifest), separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"manifest":{text},"sha256":"{digest}"}}\n'.encode()


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Read a manifest. Raises CorruptionError for one that is not whole or of a format that is not known."""
    try:
        found = json.loads(data)
        body = found["manifest"]
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        if hashlib.sha256(text.encode()).hexdigest() != found["sha256"]:
            raise CorruptionError(_WHAT, expected="the checksum that it has", found="another", path=path)
        if body["format"] != FORMAT:
            raise CorruptionError(
                _WHAT, expected=f"format {FORMAT}", found=f"format {body['format']}", path=path
            )
        values = dict(body)
        values["tables"] = {
            str(name): tuple(PartFile(**part) for part in parts) for name, parts in body["tables"].items()
        }
        values["files"] = tuple(SetFile(**each) for each in body["files"])
        values["indexes"] = tuple(_index_state(**each) for each in body.get("indexes", ()))
        for name in ("dirs", "guards", "unread_indexes", "last_marks", "bookies"):
            values[name] = tuple(body[name])
        return Manifest(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(_WHAT, expected="a whole manifest", found=str(error), path=path) from None


def _index_state(dir: str, tables: list[dict[str, Any]], unsettled: list[list[int]]) -> IndexState:
    stretches = tuple((int(first), int(last)) for first, last in unsettled)
    return IndexState(dir, tuple(IndexTable(**table) for table in tables), stretches)


def name_in_path(bookie: str) -> str:
    """Return the name of a bookie as a directory's."""
    return quote(bookie, safe="").replace("_", "%5F").replace("~", "%7E").replace("%", "_")


def bookie_of_name(name: str) -> str:
    """Return the bookie whose name in a path it is."""
    return unquote(name.replace("_", "%"))
