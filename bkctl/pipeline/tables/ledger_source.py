"""Ledger metadata, from a dump file or from a metadata store by its URI.

The readers of dumps and stores are imported where they are used: readers of logs run in many processes,
without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bkctl.codec.digest import Digester
from bkctl.codec.ledger_metadata_values import LedgerMetadata
from bkctl.errors import CorruptionError, UsageError
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.stored_digests import StoredDigests
from bkctl.types import DigestType
from bkctl.vfs import FileSystem

_URI_MARKS = ("://", "metadata-store:")


@dataclass(frozen=True, slots=True)
class DescribedLedger:
    """A ledger and its metadata; ``ctime_ms`` None when neither it nor a node says when it was made."""

    ledger: int
    metadata: LedgerMetadata
    version: int
    ctime_ms: int | None


def is_uri(metadata: str) -> bool:
    """Return whether ``metadata`` is the address of a metadata store; otherwise it is the path of a dump."""
    return any(mark in metadata for mark in _URI_MARKS)


def metadata_of(options: TableOptions, paths: Iterable[str]) -> str:
    """Return where ledger metadata is: option ``metadata``, else the only path. Raises UsageError."""
    if options.metadata is not None:
        return options.metadata
    listed = list(paths)
    if len(listed) != 1:
        raise UsageError("ledger metadata: name one metadata URI or one dump file, as path or as metadata=")
    return listed[0]


def ledger_ids(metadata: str) -> Iterator[int]:
    """Yield the ids of all ledgers of a metadata store, ascending. Raises as the store does."""
    from bkctl.metadata.login import logged_in
    from bkctl.metadata.uri import open_metadata_store

    with open_metadata_store(metadata, logged_in(os.environ)) as store:
        yield from store.ledgers.ledgers()


def described_ledgers(
    filesystem: FileSystem, metadata: str, ids: Iterable[int] | None = None
) -> Iterator[DescribedLedger]:
    """Yield the ledgers in ascending order, all of them or those of ``ids`` that still exist.

    Raises CorruptionError for metadata that does not decode, and what opening a store or a dump raises.
    """
    return _stored(metadata, ids) if is_uri(metadata) else _dumped(filesystem, metadata, ids)


def _dumped(filesystem: FileSystem, path: str, ids: Iterable[int] | None) -> Iterator[DescribedLedger]:
    from bkctl.scan.metadata_dump import load_metadata_dump

    dump = load_metadata_dump(filesystem, path)
    wanted = None if ids is None else set(ids)
    for ledger, found, version in dump.ledgers.with_versions():
        if wanted is None or ledger in wanted:
            yield DescribedLedger(ledger, found, version, _stored_ms(found))


def _stored(metadata: str, ids: Iterable[int] | None) -> Iterator[DescribedLedger]:
    from bkctl.metadata.ledger_filter import LedgerFilter, UnreadableLedger, creation_ms, list_ledgers
    from bkctl.metadata.login import logged_in
    from bkctl.metadata.uri import open_metadata_store

    with open_metadata_store(metadata, logged_in(os.environ)) as store:
        if ids is not None:
            for ledger, stored in store.ledgers.read_ledgers(ids):
                if isinstance(stored, CorruptionError):
                    raise stored
                if stored is not None:  # else it was deleted since it was listed
                    yield DescribedLedger(ledger, stored.metadata, stored.version, creation_ms(stored))
            return
        for item in list_ledgers(store.ledgers, LedgerFilter()):
            if isinstance(item, UnreadableLedger):
                raise item.error
            yield DescribedLedger(item.ledger, item.metadata, item.version, creation_ms(item))


def _stored_ms(found: LedgerMetadata) -> int | None:
    return None if found.ctime_ms is None or found.ctime_ms < 0 else found.ctime_ms


def known_digests(filesystem: FileSystem, options: TableOptions) -> KnownDigests | StoredDigests:
    """Return the digest type and password of each ledger in the metadata that the options name, or where they
    are looked up one by one."""
    if options.stored_digests is not None:
        return StoredDigests(options.stored_digests, options.digest_secret)
    return read_digests(filesystem, options)


def read_digests(filesystem: FileSystem, options: TableOptions) -> KnownDigests:
    """Return the digest type and password of each ledger in the metadata that the options name."""
    if options.metadata is None:
        return KnownDigests()
    found: dict[int, Digester] = {}
    for described in described_ledgers(filesystem, options.metadata):
        kind = described.metadata.digest_type
        if kind is not None and options.wants_ledger(described.ledger):
            secret = described.metadata.password
            found[described.ledger] = digester_of(kind, options.password if secret is None else secret)
    return KnownDigests.of(found)


def digester_of(kind: DigestType, password: bytes | None) -> Digester:
    """Return a digester; that of a MAC ledger without a password has no key and can check nothing."""
    if kind is DigestType.MAC and password is None:
        return Digester(kind)
    return Digester.of(kind, password or b"")
