"""A dump of a metadata store: every znode below the ledgers root, in one JSON file.

::

    {"/ledgers/00/0000/L0002": {"data": "<base64>", "version": 1, "ephemeral": false}, ...,
     "end": {"kind": "cluster", "complete": true, "time_ms": 1700000000000, "nodes": 30, "next_ledger": 9}}

``version`` is the znode's, and counts its rewrites. The root itself is among the paths; where it is not, it
is what the ledgers' paths have in front. A dump holds the ledgers' passwords in clear: reprs and errors do
not show data.

The file is read node by node and stays open: a dump in memory is its nodes but for the ledgers, of which only
the places in the file are kept.

``end`` is the end marker, the last of all keys. It is written when everything before it was read, so that a
dump without one may be a part of a cluster (tools that are older, or not ours, write none). ``time_ms`` is
when the reading began and ``next_ledger`` the id that the cluster would have generated next at that moment:
of a ledger that is newer the dump says nothing. The undo file of ``ledger delete`` is of kind ``undo``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from bkctl.codec.ledger_path import split_ledger_path
from bkctl.errors import CorruptionError, WrongFileError
from bkctl.reporting import counted
from bkctl.scan.dumped_nodes import (
    DumpedLedgers,
    DumpedNodes,
    DumpedPaths,
    LedgerPlaces,
    Znode,
    decode_dumped_ledger,
    decode_znode,
)
from bkctl.scan.json_members import Member, members
from bkctl.vfs.base import FileSystem, ReadableFile

#: Bound on a dump's size: a million ledgers take some 400 MB.
DUMP_BYTES_MAX = 64 << 30

_WHAT = "metadata dump"
_END = "end"
#: A dump begins with the path of a node, which other tools may write with an escaped slash, or with its end.
_BEGIN = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"(?:\\?/|end")|\Z)')
_BEGIN_BYTES = 512
_INSTANCE_ID = "INSTANCEID"


class DumpKind(enum.Enum):
    """The form in which a file of znodes was written; the value is the word in its end marker."""

    CLUSTER = "cluster"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class DumpEnd:
    """The end marker. ``next_ledger`` is None where the writer did not know it."""

    kind: DumpKind
    time_ms: int
    nodes: int
    next_ledger: int | None

    def as_json(self) -> dict[str, object]:
        """Return the marker as it stands in a file."""
        return {
            "kind": self.kind.value,
            "complete": True,
            "time_ms": self.time_ms,
            "nodes": self.nodes,
            "next_ledger": self.next_ledger,
        }


@dataclass(frozen=True, slots=True)
class MetadataDump:
    """The tree of one cluster.

    ``znodes`` maps whole paths, ``ledgers`` ids (ascending) to decoded metadata, ``ledger_paths`` the same
    ids to their znodes; ``cookies`` maps bookie ids to undecoded cookies. ``root`` is the ledgers root
    without a slash at its end. ``end`` is the end marker, None in a dump that has none.
    """

    root: str
    znodes: Mapping[str, Znode]
    ledgers: DumpedLedgers
    ledger_paths: Mapping[int, str]
    cookies: dict[str, bytes]
    end: DumpEnd | None = None

    @property
    def has_root(self) -> bool:
        """Whether the ledgers root itself is in the dump, as it is when the whole tree was read."""
        return (self.root or "/") in self.znodes

    @property
    def instance_id(self) -> str | None:
        """The cluster's UUID, None where the dump has none."""
        node = self.znodes.get(f"{self.root}/{_INSTANCE_ID}")
        return node.data.decode("utf-8", "replace") if node is not None and node.data else None


def load_metadata_dump(fs: FileSystem, path: str) -> MetadataDump:
    """Read a dump file, and decode everything in it once.

    Raises WrongFileError for a file that does not begin as a dump does, CorruptionError naming the file, and
    the znode where there is one; NotFoundError; StorageError. Looking a ledger up raises the same when the
    file is not what it was.
    """
    file = fs.open(path)
    try:
        _require_dump(file, path)
        return _read(file)
    except CorruptionError as error:
        file.close()
        raise error.located(path) from None
    except BaseException:
        file.close()
        raise


def _require_dump(file: ReadableFile, path: str) -> None:
    if file.size_bytes <= DUMP_BYTES_MAX and not _BEGIN.match(file.read_at(0, _BEGIN_BYTES)):
        raise WrongFileError(path, f"a {_WHAT}", "JSON that 'bkctl metadata dump' writes")


def decode_metadata_dump(data: bytes) -> MetadataDump:
    """Decode the bytes of a dump file.

    Raises CorruptionError; within a znode's data the offset counts from the data's first byte.
    """
    return _read(_Bytes(data))


class _Bytes:
    """A file in memory."""

    path = _WHAT

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def close(self) -> None:
        """Close nothing: no file is open."""


def _read(file: ReadableFile) -> MetadataDump:
    if file.size_bytes > DUMP_BYTES_MAX:
        raise CorruptionError(
            _WHAT,
            offset=DUMP_BYTES_MAX,
            expected=f"at most {DUMP_BYTES_MAX} bytes",
            found=str(file.size_bytes),
        )
    reader = _Reader(file)
    end: DumpEnd | None = None
    count = 0
    for member in members(file, _WHAT):
        if end is not None:
            raise CorruptionError(
                f"{_WHAT}: end marker", expected="nothing behind it", found=member.name[:200]
            )
        if member.name == _END:
            end = _end(member.value)
        else:
            reader.take(member)
            count += 1
    if end is not None and end.nodes != count:
        raise CorruptionError(_WHAT, expected=counted(end.nodes, "znode"), found=f"{count}")
    return reader.dump(end)


class _Reader:
    """Sorts nodes as they come. Which paths are those of ledgers is known only at the end, by the root."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._others: dict[str, Znode] = {}
        # For each path that may be the root of ledgers: the nodes that would be ledgers, and the first error.
        self._places: dict[str, LedgerPlaces] = {}
        self._errors: dict[str, CorruptionError] = {}
        self._shortest: str | None = None
        self._above = ""

    def take(self, member: Member) -> None:
        """Note a node. Raises CorruptionError."""
        path = member.name
        node = decode_znode(path, member.value)
        self._note_path(path)
        split = split_ledger_path(path)
        if split is None:
            self._others[path] = node
            return
        root, ledger = split
        if root not in self._places:
            self._places[root] = LedgerPlaces(self._file)
        self._places[root].add(ledger, member)
        if root not in self._errors:
            try:
                decode_dumped_ledger(path, node.data)
            except CorruptionError as error:
                self._errors[root] = error

    def _note_path(self, path: str) -> None:
        if self._shortest is None:
            self._shortest, self._above = path, path.rstrip("/")
        elif len(path) < len(self._shortest):
            self._shortest = path
        while not (path == self._above or path.startswith(self._above + "/")):
            self._above = self._above.rpartition("/")[0]

    def dump(self, end: DumpEnd | None) -> MetadataDump:
        """Return the dump, when all nodes were taken. Raises CorruptionError."""
        root = self._root()
        if root in self._errors:
            raise self._errors[root]
        places = self._places.pop(root, None) or LedgerPlaces(self._file)
        for foreign in self._places.values():
            self._others.update(foreign.node(at) for at in range(len(foreign)))
        places.settle()
        places.own_file()
        prefix = f"{root}/cookies/"
        cookies = {
            path[len(prefix) :]: node.data for path, node in self._others.items() if path.startswith(prefix)
        }
        nodes = DumpedNodes(self._others, places)
        return MetadataDump(root, nodes, DumpedLedgers(places), DumpedPaths(places), cookies, end)

    def _root(self) -> str:
        """Return the ledgers root: the path above all others, else what stands before the ledgers."""
        if self._shortest is None:
            raise CorruptionError(_WHAT, expected="znodes", found="none")
        if split_ledger_path(self._shortest) is None and self._shortest.rstrip("/") == self._above:
            return self._above
        if len(self._places) != 1:
            raise CorruptionError(
                _WHAT,
                expected="one ledgers root above all znodes",
                found=f"{len(self._places)} of them",
            )
        return next(iter(self._places))


def _end(value: object) -> DumpEnd:
    """Return the end marker. Raises CorruptionError."""
    what = f"{_WHAT}: end marker"
    if not isinstance(value, dict) or value.get("complete") is not True:
        raise CorruptionError(what, expected='an object with "complete": true')
    kinds = {kind.value: kind for kind in DumpKind}
    kind = kinds.get(str(value.get("kind")))
    if kind is None:
        raise CorruptionError(what, expected=f"kind {' or '.join(kinds)}", found=str(value.get("kind"))[:200])
    time_ms, nodes, upcoming = (value.get(key) for key in ("time_ms", "nodes", "next_ledger"))
    if not _is_count(time_ms) or not _is_count(nodes) or not (upcoming is None or _is_count(upcoming)):
        raise CorruptionError(what, expected="time_ms, nodes and next_ledger, whole numbers >= 0")
    return DumpEnd(kind, time_ms, nodes, upcoming)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
