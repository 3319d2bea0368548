"""A dump of a metadata store: every znode below the ledgers root, in one JSON file.

::

    {"/ledgers/00/0000/L0002": {"data": "<base64>", "version": 1, "ephemeral": false}, ...,
     "end": {"kind": "cluster", "complete": true, "time_ms": 1700000000000, "nodes": 30, "next_ledger": 9}}

``version`` is the znode's, and counts its rewrites. The root itself is among the paths; where it is not, it
is what the ledgers' paths have in front. A dump holds the ledgers' passwords in clear: reprs and errors do
not show data.

``end`` is the end marker, the last of all keys. It is written when everything before it was read, so that a
dump without one may be a part of a cluster (tools that are older, or not ours, write none). ``time_ms`` is
when the reading began and ``next_ledger`` the id that the cluster would have generated next at that moment:
of a ledger that is newer the dump says nothing. The undo file of ``ledger delete`` is of kind ``undo``.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from bkctl.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from bkctl.codec.ledger_path import split_ledger_path
from bkctl.errors import CorruptionError
from bkctl.vfs.base import FileSystem

#: Bound on a dump's size: a million ledgers take some 400 MB.
DUMP_BYTES_MAX = 2 << 30

_VERSION_LIMIT = 2**31
_END = "end"
_INSTANCE_ID = "INSTANCEID"


@dataclass(frozen=True, slots=True)
class Znode:
    """One node of the tree; ``version`` counts the rewrites of its data."""

    data: bytes = field(repr=False)
    version: int
    ephemeral: bool


class DumpKind(enum.Enum):
    """What a file of znodes was written as; the value is the word in its end marker."""

    CLUSTER = "cluster"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class DumpEnd:
    """The end marker. ``next_ledger`` is None where the writer could not tell."""

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
    ledgers: dict[int, LedgerMetadata]
    ledger_paths: dict[int, str]
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
    """Read and decode a dump file.

    Raises CorruptionError naming the file, and the znode where there is one; NotFoundError; StorageError.
    """
    file = fs.open(path)
    try:
        size = file.size_bytes
        if size > DUMP_BYTES_MAX:
            raise CorruptionError(
                "metadata dump",
                path=path,
                offset=DUMP_BYTES_MAX,
                expected=f"at most {DUMP_BYTES_MAX} bytes",
                found=str(size),
            )
        data = file.read_at(0, size)
    finally:
        file.close()
    try:
        return decode_metadata_dump(data)
    except CorruptionError as error:
        raise error.located(path) from None


def decode_metadata_dump(data: bytes) -> MetadataDump:
    """Decode the bytes of a dump file.

    Raises CorruptionError; within a znode's data the offset counts from the data's first byte.
    """
    tree = _parse(data)
    end = _end(tree)
    znodes = _znodes(tree)
    if end is not None and end.nodes != len(znodes):
        raise CorruptionError("metadata dump", expected=f"{end.nodes} znodes", found=f"{len(znodes)}")
    root = _root(znodes)
    ledgers: dict[int, LedgerMetadata] = {}
    paths: dict[int, str] = {}
    for ledger, path in sorted(_ledgers_below(root, znodes)):
        if ledger in paths:
            raise CorruptionError(f"znode {path}", expected=f"ledger {ledger} once", found=paths[ledger])
        try:
            ledgers[ledger] = decode_ledger_metadata(znodes[path].data)
        except CorruptionError as error:
            raise CorruptionError(
                f"znode {path}: {error.what}", offset=error.offset, expected=error.expected, found=error.found
            ) from None
        paths[ledger] = path
    prefix = f"{root}/cookies/"
    cookies = {path[len(prefix) :]: node.data for path, node in znodes.items() if path.startswith(prefix)}
    return MetadataDump(root, znodes, ledgers, paths, cookies, end)


def _parse(data: bytes) -> dict[str, object]:
    try:
        tree: object = json.loads(data)
    except json.JSONDecodeError as error:
        raise CorruptionError(
            "metadata dump", offset=error.pos, expected="JSON", found="other text"
        ) from None
    except (ValueError, RecursionError):
        raise CorruptionError("metadata dump", expected="JSON", found="other bytes") from None
    if not isinstance(tree, dict):
        raise CorruptionError(
            "metadata dump", expected="one JSON object of znodes", found=type(tree).__name__
        )
    return tree


def _end(tree: dict[str, object]) -> DumpEnd | None:
    """Take the end marker out of the tree; None where there is none."""
    if _END not in tree:
        return None
    last = next(reversed(tree))
    value = tree.pop(_END)
    what = "metadata dump: end marker"
    if last != _END:
        raise CorruptionError(what, expected="nothing behind it", found=last[:200])
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


def _znodes(tree: dict[str, object]) -> dict[str, Znode]:
    return {path: _znode(path, value) for path, value in tree.items()}


def _znode(path: str, value: object) -> Znode:
    what = f"znode {path[:200]}"
    if not path.startswith("/"):
        raise CorruptionError(what, expected="a path that starts with a slash")
    if not isinstance(value, dict):
        raise CorruptionError(what, expected="an object with data, version and ephemeral")
    data, version, ephemeral = value.get("data"), value.get("version", 0), value.get("ephemeral", False)
    if data is not None and not isinstance(data, str):
        raise CorruptionError(what, expected="data in base64")
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < _VERSION_LIMIT:
        raise CorruptionError(what, expected="version, an i32 >= 0")
    if not isinstance(ephemeral, bool):
        raise CorruptionError(what, expected="ephemeral, true or false")
    try:
        return Znode(base64.b64decode(data or "", validate=True), version, ephemeral)
    except ValueError:
        raise CorruptionError(what, expected="data in base64") from None


def _root(paths: Iterable[str]) -> str:
    """The ledgers root: the path above all others, else what stands before the ledgers."""
    shortest = min(paths, key=len, default="")
    if not shortest:
        raise CorruptionError("metadata dump", expected="znodes", found="none")
    if split_ledger_path(shortest) is None and all(
        path == shortest or path.startswith(shortest.rstrip("/") + "/") for path in paths
    ):
        return shortest.rstrip("/")
    roots = {split[0] for path in paths if (split := split_ledger_path(path))}
    if len(roots) != 1:
        raise CorruptionError(
            "metadata dump", expected="one ledgers root above all znodes", found=f"{len(roots)} of them"
        )
    return roots.pop()


def _ledgers_below(root: str, paths: Iterable[str]) -> Iterable[tuple[int, str]]:
    for path in paths:
        split = split_ledger_path(path)
        if split is not None and split[0] == root:
            yield split[1], path
