"""Ledgers of a dump, left where they stand in its file: of each are held its id and its place.

A million ledgers take some twenty megabytes that way. The file stays open as long as the mappings are in use,
and is read again for what is looked up.
"""

from __future__ import annotations

import base64
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bkctl.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from bkctl.codec.ledger_path import split_ledger_path
from bkctl.errors import CorruptionError
from bkctl.scan.json_members import Member, parse_member
from bkctl.vfs.base import ReadableFile

_VERSION_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Znode:
    """One node of the tree; ``version`` counts the rewrites of its data."""

    data: bytes = field(repr=False)
    version: int
    ephemeral: bool


def decode_znode(path: str, value: object) -> Znode:
    """Return a node by its value in a dump. Raises CorruptionError naming the node."""
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


def decode_dumped_ledger(path: str, data: bytes) -> LedgerMetadata:
    """Return the metadata in a ledger's node. Raises CorruptionError naming the node."""
    try:
        return decode_ledger_metadata(data)
    except CorruptionError as error:
        raise CorruptionError(
            f"znode {path}: {error.what}", offset=error.offset, expected=error.expected, found=error.found
        ) from None


class LedgerPlaces:
    """The paths of the nodes of ledgers in a dump file."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._ids = array("q")
        self._offsets = array("q")
        self._lengths = array("l")

    def own_file(self) -> None:
        """Close the file when nobody looks anything up any more."""
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> array[int]:
        """Ids of the ledgers, ascending after :meth:`settle`."""
        return self._ids

    def add(self, ledger: int, member: Member) -> None:
        """Note the place of a ledger's node."""
        self._ids.append(ledger)
        self._offsets.append(member.offset)
        self._lengths.append(member.length)

    def settle(self) -> None:
        """Put the ledgers in order. Raises CorruptionError for one that is there twice, StorageError."""
        ids = self._ids
        if any(ids[at] > ids[at + 1] for at in range(len(ids) - 1)):
            order = sorted(range(len(ids)), key=ids.__getitem__)
            self._ids = array("q", map(ids.__getitem__, order))
            self._offsets = array("q", map(self._offsets.__getitem__, order))
            self._lengths = array("l", map(self._lengths.__getitem__, order))
        for at in range(len(ids) - 1):
            if self._ids[at] == self._ids[at + 1]:
                (first, _), (second, _) = self.node(at), self.node(at + 1)
                raise CorruptionError(f"znode {second}", expected=f"ledger {self._ids[at]} once", found=first)

    def find(self, ledger: object) -> int | None:
        """Return the position of a ledger, None when it is not there."""
        if not isinstance(ledger, int):
            return None
        at = bisect_left(self._ids, ledger)
        return at if at < len(self._ids) and self._ids[at] == ledger else None

    def node(self, at: int) -> tuple[str, Znode]:
        """Return the path and node of the ledger at a position. Raises CorruptionError, StorageError."""
        data = self._file.read_at(self._offsets[at], self._lengths[at])
        try:
            path, value = parse_member(data)
            split = split_ledger_path(path)
        except ValueError:
            split = None
        if split is None or split[1] != self._ids[at]:
            raise CorruptionError(
                "metadata dump",
                offset=self._offsets[at],
                expected=f"ledger {self._ids[at]}, as when it was read",
                found="something else",
                path=self._file.path,
            )
        return path, decode_znode(path, value)


class DumpedLedgers(Mapping[int, LedgerMetadata]):
    """The metadata of the ledgers in a dump, ascending by ledger.

    They are decoded at each look-up, and not kept.
    """

    def __init__(self, places: LedgerPlaces) -> None:
        self._places = places

    def __getitem__(self, ledger: int) -> LedgerMetadata:
        at = self._places.find(ledger)
        if at is None:
            raise KeyError(ledger)
        path, node = self._places.node(at)
        return decode_dumped_ledger(path, node.data)

    def __contains__(self, ledger: object) -> bool:
        return self._places.find(ledger) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._places.ids)

    def __len__(self) -> int:
        return len(self._places)

    def with_versions(self) -> Iterator[tuple[int, LedgerMetadata, int]]:
        """Yield each ledger, ascending, with its metadata and the version of its node, read once."""
        for at, ledger in enumerate(self._places.ids):
            path, node = self._places.node(at)
            yield ledger, decode_dumped_ledger(path, node.data), node.version

    def __repr__(self) -> str:
        return f"<{len(self)} ledgers>"


class DumpedPaths(Mapping[int, str]):
    """Paths of the nodes by ledger, ascending."""

    def __init__(self, places: LedgerPlaces) -> None:
        self._places = places

    def __getitem__(self, ledger: int) -> str:
        at = self._places.find(ledger)
        if at is None:
            raise KeyError(ledger)
        return self._places.node(at)[0]

    def __iter__(self) -> Iterator[int]:
        return iter(self._places.ids)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<paths of {len(self)} ledgers>"


class DumpedNodes(Mapping[str, Znode]):
    """All nodes by path: ``others`` are held, those of ledgers stand in the file."""

    def __init__(self, others: dict[str, Znode], places: LedgerPlaces) -> None:
        self._others = others
        self._places = places

    def __getitem__(self, path: str) -> Znode:
        if path in self._others:
            return self._others[path]
        split = split_ledger_path(path)
        at = None if split is None else self._places.find(split[1])
        if at is not None:
            found, node = self._places.node(at)
            if found == path:
                return node
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        yield from self._others
        for at in range(len(self._places)):
            yield self._places.node(at)[0]

    def __len__(self) -> int:
        return len(self._others) + len(self._places)

    def __repr__(self) -> str:
        return f"<{len(self)} znodes>"
