"""A dump of a metadata store: every znode below the ledgers root, in one JSON file.

::

    {"/ledgers/00/0000/L0002": {"data": "<base64>", "version": 1, "ephemeral": false}, ...}

``version`` is the znode's, and counts its rewrites. The root itself is among the paths; where it is not, it
is what the ledgers' paths have in front. A dump holds the ledgers' passwords in clear: reprs and errors do
not show data.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bkctl.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from bkctl.codec.ledger_path import split_ledger_path
from bkctl.errors import CorruptionError
from bkctl.vfs.base import FileSystem

#: Bound on a dump's size: a million ledgers take some 400 MB.
DUMP_BYTES_MAX = 2 << 30

_VERSION_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Znode:
    """One node of the tree; ``version`` counts the rewrites of its data."""

    data: bytes = field(repr=False)
    version: int
    ephemeral: bool


@dataclass(frozen=True, slots=True)
class MetadataDump:
    """The tree of one cluster.

    ``znodes`` maps whole paths, ``ledgers`` ids (ascending) to decoded metadata, ``ledger_paths`` the same
    ids to their znodes; ``cookies`` maps bookie ids to undecoded cookies. ``root`` is the ledgers root
    without a slash at its end.
    """

    root: str
    znodes: Mapping[str, Znode]
    ledgers: dict[int, LedgerMetadata]
    ledger_paths: dict[int, str]
    cookies: dict[str, bytes]


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
    znodes = _znodes(_parse(data))
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
    return MetadataDump(root, znodes, ledgers, paths, cookies)


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
