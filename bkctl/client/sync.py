"""The client for programs without an event loop: scripts, notebooks, commands.

::

    with BookKeeperSync("zk://localhost:2181/ledgers") as client:
        with client.create(3, 2, 2) as ledger:
            ledger.append_all(lines)
        for entry in client.open(ledger.ledger).entries():
            print(entry.payload)

An event loop runs in a thread of its own. Every call waits for its outcome; an interrupt (Ctrl-C) cancels
what is waited for. May be used from several threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import wraps
from operator import itemgetter
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.driver import BookieChoice
from bkctl.client.ledger_handle import LedgerHandle, ReadOnlyLedgerHandle, WriterHandle
from bkctl.client.ledger_handle_adv import LedgerHandleAdv
from bkctl.client.loop_thread import LoopThread, flattened
from bkctl.client.ops.ledger_access import LedgerEntry
from bkctl.client.ops.recovery import RecoveryResult, RecoverySettings
from bkctl.client.settings import ClientSettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.settings import MetadataSettings
from bkctl.types import DigestType

_Value = TypeVar("_Value")
_Handle = TypeVar("_Handle", bound=WriterHandle | ReadOnlyLedgerHandle)
_WriterHandle = TypeVar("_WriterHandle", bound=WriterHandle)
_Item = TypeVar("_Item")
_SyncWriter = TypeVar("_SyncWriter")
_Arguments = ParamSpec("_Arguments")

#: Bounds of what is handed to the loop at once.
_BATCH_ENTRIES = 256
_BATCH_BYTES = 1 << 20


class _OpenLedger(Generic[_Handle]):
    """The common part of writers and readers."""

    def __init__(self, thread: LoopThread, handle: _Handle) -> None:
        self._thread = thread
        self.handle = handle

    @property
    def ledger(self) -> int:
        """The ledger's id."""
        return self.handle.ledger

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as far as this handle knows."""
        return self.handle.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is acknowledged with all before it and may be read, -1 when there is none."""
        return self.handle.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes up to there; a reader's are exact once the ledger is closed."""
        return self.handle.length


class _Writer(_OpenLedger[_WriterHandle]):
    """The common part of both kinds of writers."""

    def read(self, first: int, last: int) -> list[LedgerEntry]:
        """Return the entries that are acknowledged."""
        return self._thread.call(self.handle.read(first, last))

    def force(self) -> int:
        """Make what is acknowledged durable on all bookies. See :meth:`LedgerHandle.force`."""
        return self._thread.call(self.handle.force())

    def flush_last_add_confirmed(self) -> int:
        """Send the LAC to the bookies. See :meth:`LedgerHandle.flush_last_add_confirmed`."""
        return self._thread.call(self.handle.flush_last_add_confirmed())

    def close(self) -> LedgerMetadata:
        """Close the ledger behind the last entry confirmed. See :meth:`LedgerHandle.close`."""
        return self._thread.call(self.handle.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self.handle.__aexit__(kind, error, trace))


class LedgerWriter(_Writer[LedgerHandle]):
    """A ledger's writer; a context manager that closes the ledger. See :class:`LedgerHandle`."""

    def append(self, data: bytes) -> int:
        """Append an entry, wait until it is acknowledged, return its id. See :meth:`LedgerHandle.append`."""
        return self._thread.call(self.handle.append(data))

    def append_all(self, entries: Iterable[bytes]) -> int:
        """Append entries, as many outstanding as the settings allow, and wait for all; their number.

        Raises the error of the first that fails. The input is read in batches in the calling thread.
        """
        return self.append_batches(_batches(entries))

    def append_batches(self, batches: Iterable[list[bytes]]) -> int:
        """Append all batches; each one is sent before the next one is asked for."""
        count = 0
        for batch in batches:
            self._thread.call(self._submit(batch))
            count += len(batch)
        self._thread.call(self.handle.drain())
        return count

    async def _submit(self, batch: list[bytes]) -> None:
        for data in batch:
            await self.handle.submit(data)


class LedgerWriterAdv(_Writer[LedgerHandleAdv]):
    """A writer that chooses the ids of entries, with the same end. See :class:`LedgerHandleAdv`."""

    def append(self, entry: int, data: bytes) -> int:
        """Write an entry and wait until it is acknowledged. See :meth:`LedgerHandleAdv.append`."""
        return self._thread.call(self.handle.append(entry, data))

    def append_all(self, entries: Iterable[tuple[int, bytes]]) -> int:
        """Write entries, given in any order, and wait for all; their number. Raises the first error.

        They go out by their ids: what fills a gap would else stand in the queue behind what waits for it.
        """
        return self._thread.call(self._submit(list(entries)))

    async def _submit(self, entries: list[tuple[int, bytes]]) -> int:
        for entry, data in sorted(entries, key=itemgetter(0)):
            await self.handle.submit(entry, data)
        await self.handle.drain()
        return len(entries)


class LedgerReader(_OpenLedger[ReadOnlyLedgerHandle]):
    """A ledger opened for reading. See :class:`ReadOnlyLedgerHandle`."""

    @property
    def closed(self) -> bool:
        """Whether nothing will be added any more."""
        return self.handle.closed

    def read(self, first: int, last: int, *, unconfirmed: bool = False) -> list[LedgerEntry]:
        """Read entries, all of them or none. See :meth:`ReadOnlyLedgerHandle.read`."""
        return self._thread.call(self.handle.read(first, last, unconfirmed=unconfirmed))

    def entries(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> Iterator[LedgerEntry]:
        """Yield the entries one by one. See :meth:`ReadOnlyLedgerHandle.entries`."""
        return flattened(self._thread, self.handle.batches(first, last, unconfirmed=unconfirmed))

    def read_last_add_confirmed(self) -> int:
        """Ask the bookies. See :meth:`ReadOnlyLedgerHandle.read_last_add_confirmed`."""
        return self._thread.call(self.handle.read_last_add_confirmed())

    def tail(self, first: int | None = None) -> Iterator[LedgerEntry]:
        """Yield the entries as they are confirmed, until the ledger is closed."""
        return flattened(self._thread, self.handle.tail_batches(first))


def _creates(
    create: Callable[Concatenate[BookKeeper, _Arguments], Coroutine[Any, Any, _Handle]],
    writer: Callable[[LoopThread, _Handle], _SyncWriter],
) -> Callable[Concatenate[BookKeeperSync, _Arguments], _SyncWriter]:
    """Return a method of :class:`BookKeeper` as one of :class:`BookKeeperSync`, its handle in a writer."""

    @wraps(create)
    def method(client: BookKeeperSync, /, *args: _Arguments.args, **named: _Arguments.kwargs) -> _SyncWriter:
        return writer(client._thread, client.call(create(client.client, *args, **named)))

    return method


class BookKeeperSync:
    """A client of one cluster. ``cluster`` is a metadata URI, or a store that stays open at the end."""

    def __init__(
        self,
        cluster: str | MetadataStore,
        settings: ClientSettings | None = None,
        *,
        metadata: MetadataSettings | None = None,
        choice: Callable[[MetadataStore], BookieChoice] | None = None,
    ) -> None:
        self._thread = LoopThread()
        try:
            self.client = self._thread.call(_connected(cluster, settings, metadata, choice))
        except BaseException:
            self._thread.close()
            raise

    @property
    def store(self) -> MetadataStore:
        """The metadata store."""
        return self.client.store

    create = _creates(BookKeeper.create, LedgerWriter)
    create_adv = _creates(BookKeeper.create_adv, LedgerWriterAdv)

    def open(
        self,
        ledger: int,
        *,
        password: bytes | None = None,
        digest: DigestType | None = None,
        recovery: RecoverySettings | None = None,
    ) -> LedgerReader:
        """Open a ledger, recovering it when it is not closed. See :meth:`BookKeeper.open`."""
        work = self.client.open(ledger, password=password, digest=digest, recovery=recovery)
        return LedgerReader(self._thread, self._thread.call(work))

    def open_without_recovery(
        self, ledger: int, *, password: bytes | None = None, digest: DigestType | None = None
    ) -> LedgerReader:
        """Open a ledger and leave its writer alone. See :meth:`BookKeeper.open_without_recovery`."""
        work = self.client.open_without_recovery(ledger, password=password, digest=digest)
        return LedgerReader(self._thread, self._thread.call(work))

    def recover(
        self,
        ledger: int,
        *,
        password: bytes | None = None,
        digest: DigestType | None = None,
        settings: RecoverySettings | None = None,
    ) -> RecoveryResult:
        """Recover and close a ledger. See :meth:`BookKeeper.recover`."""
        work = self.client.recover(ledger, password=password, digest=digest, settings=settings)
        return self._thread.call(work)

    def delete(self, ledger: int, *, version: int | None = None) -> None:
        """Delete a ledger. See :meth:`BookKeeper.delete`."""
        self._thread.call(self.client.delete(ledger, version=version))

    def read_metadata(self, ledger: int) -> StoredLedger:
        """Return a ledger's metadata. Raises NoSuchLedgerError."""
        return self._thread.call(self.client.read_metadata(ledger))

    def call(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Return the outcome of a coroutine of :attr:`client`."""
        return self._thread.call(work)

    def flatten(self, batches: AsyncIterator[list[_Item]]) -> Iterator[_Item]:
        """Iterate over the items of an asynchronous iterator of batches, of :attr:`client`."""
        return flattened(self._thread, batches)

    def close(self) -> None:
        """End all operations and connections. Ledgers that are being written stay open."""
        try:
            self._thread.call(self.client.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _connected(
    cluster: str | MetadataStore,
    settings: ClientSettings | None,
    metadata: MetadataSettings | None,
    choice: Callable[[MetadataStore], BookieChoice] | None,
) -> BookKeeper:
    if isinstance(cluster, str):
        return await BookKeeper.connect(cluster, settings, metadata=metadata, choice=choice)
    return BookKeeper(cluster, settings, choice=None if choice is None else choice(cluster))


def _batches(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the entries in batches of bounded number and size."""
    batch: list[bytes] = []
    size = 0
    for data in entries:
        batch.append(data)
        size += len(data)
        if len(batch) >= _BATCH_ENTRIES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
