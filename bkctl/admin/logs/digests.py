"""The digest book of a command: from ledger metadata, a password, a forced type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol, runtime_checkable

from bkctl.admin.ledgers.known_ledgers import cookie_in, names, refuse_another
from bkctl.codec.digest import Digester
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError, StorageError
from bkctl.scan.digest_book import DigestBook
from bkctl.types import DigestType
from bkctl.vfs import FileSystem

#: One for all ledgers of a type, of which there may be a million.
_KEYLESS = {kind: Digester(kind) for kind in DigestType}

#: The metadata of one ledger, None when it is certain that there is no such ledger.
FindMetadata = Callable[[int], LedgerMetadata | None]


def digest_book(
    filesystem: FileSystem,
    *,
    mode: str = "auto",
    metadata_file: str | None = None,
    find: FindMetadata | None = None,
    password: bytes | None = None,
    beside: Iterable[str] = (),
) -> DigestBook:
    """Return a book for ``--digest MODE`` (``auto``, ``off`` or a type), ledger metadata and a password.

    The metadata comes from a dump, and for ledgers that it does not have from ``find``, which is asked once
    for each ledger. A ledger's password in the metadata wins over ``password``. ``beside`` are the
    directories of the files that are to be checked. Raises RefusedError where a cookie in one of them is of
    another cluster than the metadata, and what reading the dump raises; the book raises what ``find`` does.
    """
    known: Mapping[int, Digester] | None = None
    if metadata_file is not None or find is not None:
        clusters = _clusters_of(filesystem, beside, find)
        dumped = {} if metadata_file is None else _known(filesystem, metadata_file, password, clusters)
        known = dumped if find is None else _FoundDigests(dumped, find, password)
    forced = None
    if mode not in ("auto", "off"):
        forced = _digester(DigestType(mode), password)
    return DigestBook(known, forced=forced, password=password, enabled=mode != "off")


@runtime_checkable
class OfCluster(Protocol):
    """Metadata of a cluster that has an instance id."""

    @property
    def instance_id(self) -> str | None:
        """The UUID of the cluster, None where it has none. Raises what the store raises."""
        ...


@runtime_checkable
class EveryMetadata(Protocol):
    """Metadata that can be listed."""

    def every(self) -> Iterator[tuple[int, LedgerMetadata | None]]:
        """Yield every ledger, with None where its metadata do not decode. Raises what the store raises."""
        ...

    def is_damaged(self, ledger: int) -> bool:
        """Return whether the metadata of a ledger that was looked for are there and do not decode."""
        ...


class LedgersMetadata:
    """The metadata of ledgers, from a dump and, where the dump lacks them, from ``find``."""

    def __init__(self, dumped: Mapping[int, LedgerMetadata], find: FindMetadata | None) -> None:
        self._dumped = dumped
        self._find = find

    def __call__(self, ledgers: Collection[int]) -> dict[int, LedgerMetadata]:
        """Return the metadata of those of some ledgers that have any. Raises what ``find`` raises."""
        found = {ledger: self._dumped[ledger] for ledger in ledgers if ledger in self._dumped}
        if self._find is not None:
            for ledger in sorted(set(ledgers) - found.keys()):
                metadata = self._find(ledger)
                if metadata is not None:
                    found[ledger] = metadata
        return found

    def naming(self, bookie: str | None) -> Iterator[int]:
        """Yield the ledgers whose metadata name a bookie, all where it is not known. Raises as ``find``.

        Those of the store whose metadata do not decode are among them.
        """
        for ledger, metadata in self._dumped.items():
            if bookie is None or names(metadata, bookie):
                yield ledger
        yield from placed_ledgers(self._find, bookie)


def placed_ledgers(find: FindMetadata | None, bookie: str | None) -> Iterator[int]:
    """Yield the ledgers that ``find`` can list and that name a bookie; all where it is not known.

    A ledger whose metadata do not decode may name it: it is one of them, as it is for a start. Raises what
    the store raises.
    """
    source: object = find
    for ledger, metadata in source.every() if isinstance(source, EveryMetadata) else ():
        if metadata is None or bookie is None or names(metadata, bookie):
            yield ledger


def is_placed(find: FindMetadata, ledger: int, bookie: str) -> bool:
    """Return whether a ledger is one of :func:`placed_ledgers`. Raises what the store raises."""
    metadata = find(ledger)
    if metadata is not None:
        return names(metadata, bookie)
    source: object = find
    return isinstance(source, EveryMetadata) and source.is_damaged(ledger)


def metadata_finder(
    filesystem: FileSystem,
    *,
    metadata_file: str | None,
    find: FindMetadata | None,
    beside: Iterable[str] = (),
) -> LedgersMetadata | None:
    """Return the metadata of ledgers, from a dump and from ``find``; None without either.

    Raises RefusedError where a cookie in one of the directories ``beside`` is of another cluster, and what
    reading the dump raises.
    """
    if metadata_file is None and find is None:
        return None
    from bkctl.scan.metadata_dump import load_metadata_dump

    clusters = _clusters_of(filesystem, beside, find)
    if metadata_file is None:
        return LedgersMetadata({}, find)
    dump = load_metadata_dump(filesystem, metadata_file)
    _refuse_others(dump.instance_id, clusters, metadata_file)
    return LedgersMetadata(dump.ledgers, find)


def digesters_of(ledgers: Mapping[int, LedgerMetadata], password: bytes | None = None) -> dict[int, Digester]:
    """Return how the entries of ledgers with these metadata are checked."""
    known = {}
    for ledger, metadata in ledgers.items():
        digester = _digester_of(metadata, password)
        if digester is not None:
            known[ledger] = digester
    return known


def _known(
    filesystem: FileSystem, metadata_file: str, password: bytes | None, clusters: Collection[str]
) -> dict[int, Digester]:
    from bkctl.scan.metadata_dump import load_metadata_dump  # protobuf and all; only when there is a dump

    dump = load_metadata_dump(filesystem, metadata_file)
    _refuse_others(dump.instance_id, clusters, metadata_file)
    return digesters_of(dump.ledgers, password)


def _clusters_of(filesystem: FileSystem, directories: Iterable[str], find: FindMetadata | None) -> list[str]:
    """Return the instance ids in the cookies of directories; a cookie that cannot be read says nothing.

    Raises RefusedError where ``find`` asks another cluster.
    """
    found: set[str] = set()
    for directory in set(directories):
        with suppress(CorruptionError, StorageError):
            cookie = cookie_in(filesystem, [directory])
            if cookie is not None and cookie.instance_id:
                found.add(cookie.instance_id)
    clusters = sorted(found)
    source: object = find
    if isinstance(source, OfCluster) and clusters:
        _refuse_others(source.instance_id, clusters, "the metadata store")
    return clusters


def _refuse_others(instance_id: str | None, clusters: Iterable[str], name: str) -> None:
    for cluster in clusters:
        refuse_another(instance_id, cluster, name)


class _FoundDigests(Mapping[int, Digester]):
    """Digests of ledgers whose metadata is looked for when they are first asked for.

    Iterates over those that were found.
    """

    def __init__(self, known: dict[int, Digester], find: FindMetadata, password: bytes | None) -> None:
        self._known = known
        self._find = find
        self._password = password
        self._absent: set[int] = set()

    def __getitem__(self, ledger: int) -> Digester:
        if ledger not in self._known:
            metadata = None if ledger in self._absent or ledger < 0 else self._find(ledger)
            digester = None if metadata is None else _digester_of(metadata, self._password)
            if digester is None:
                self._absent.add(ledger)
                raise KeyError(ledger)
            self._known[ledger] = digester
        return self._known[ledger]

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _digester_of(metadata: LedgerMetadata, password: bytes | None) -> Digester | None:
    if metadata.digest_type is None:
        return None
    return _digester(metadata.digest_type, metadata.password if metadata.password is not None else password)


def _digester(digest_type: DigestType, password: bytes | None) -> Digester:
    """Make a digester.

    Without a password a MAC digester has no key and can check nothing, but its length is known.
    """
    if digest_type is not DigestType.MAC or password is None:
        return _KEYLESS[digest_type]
    return Digester.of(digest_type, password)
