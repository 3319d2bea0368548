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

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from functools import wraps
from operator import itemgetter
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.driver import BookieChoice
from bkctl.client.ledger_handle import LedgerHandle, ReadOnlyLedgerHandle, WriterHandle
from bkctl.client.ledger_handle_adv import LedgerHandleAdv
from bkctl.client.ops.ledger_access import LedgerEntry
from bkctl.client.ops.recovery import RecoveryResult, RecoverySettings
from bkctl.client.settings import ClientSettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import UsageError
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.settings import MetadataSettings
from bkctl.types import DigestType

_Value = TypeVar("_Value")
_Handle = TypeVar("_Handle", bound=WriterHandle | ReadOnlyLedgerHandle)
_WriterHandle = TypeVar("_WriterHandle", bound=WriterHandle)
_Item = TypeVar("_Item")
_SyncWriter = TypeVar("_SyncWriter")
_Arguments = ParamSpec("_Arguments")


class _LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._begun: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bookkeeper-client", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether :meth:`close` was not called so far."""
        return self._thread.is_alive()

    def call(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Return the outcome of a coroutine. Raises UsageError after :meth:`close`."""
        if not self._thread.is_alive():
            work.close()
            raise UsageError("the client is closed")
        future: Future[_Value] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run(self, make: Callable[[], Coroutine[Any, Any, _Value]]) -> _Value:
        """Return the outcome of a coroutine that the loop's thread makes; it goes on after an interrupt here.

        An interrupt comes to the calling thread alone: no coroutine is made and then never started.
        """
        if not self._thread.is_alive():
            raise UsageError("the client is closed")
        outcome: Future[_Value] = Future()

        def hand_over(task: asyncio.Task[_Value]) -> None:
            self._begun.discard(task)
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def begin() -> None:
            task = self._loop.create_task(make())
            self._begun.add(task)
            task.add_done_callback(hand_over)

        self._loop.call_soon_threadsafe(begin)
        return outcome.result()

    def close(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        self.run(_cancel_the_others)
        self.run(self._loop.shutdown_asyncgens)
        self.run(self._loop.shutdown_default_executor)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _OpenLedger(Generic[_Handle]):
    """The common part of writers and readers."""

    def __init__(self, thread: _LoopThread, handle: _Handle) -> None:
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
        return _flattened(self._thread, self.handle.batches(first, last, unconfirmed=unconfirmed))

    def read_last_add_confirmed(self) -> int:
        """Ask the bookies. See :meth:`ReadOnlyLedgerHandle.read_last_add_confirmed`."""
        return self._thread.call(self.handle.read_last_add_confirmed())

    def tail(self, first: int | None = None) -> Iterator[LedgerEntry]:
        """Yield the entries as they are confirmed, until the ledger is closed."""
        return _flattened(self._thread, self.handle.tail_batches(first))


def _creates(
    create: Callable[Concatenate[BookKeeper, _Arguments], Coroutine[Any, Any, _Handle]],
    writer: Callable[[_LoopThread, _Handle], _SyncWriter],
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
        self._thread = _LoopThread()
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
        return _flattened(self._thread, batches)

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


def _flattened(thread: _LoopThread, batches: AsyncIterator[list[_Item]]) -> Iterator[_Item]:
    """Yield the items of an asynchronous iterator of batches, a visit to the loop's thread for each batch."""
    steps = _Steps(batches)
    try:
        while (batch := thread.run(steps.following)) is not None:
            yield from batch
    finally:
        # After an interrupt this may run when the client is closed already; closing it ended the batches.
        if thread.is_running:
            thread.run(steps.close)


class _Steps(Generic[_Item]):
    """The batches of an asynchronous iterator, one after the other; belongs to the loop's thread.

    An interrupt may come anywhere in the calling thread, also when the next batch was asked for and nobody
    will wait for it; so the close does not rely on the caller to have cancelled that.
    """

    def __init__(self, batches: AsyncIterator[list[_Item]]) -> None:
        self._batches = batches
        self._running: asyncio.Task[Any] | None = None

    async def following(self) -> list[_Item] | None:
        """Return the next batch, None at the end."""
        self._running = asyncio.current_task()
        try:
            return await anext(self._batches)
        except StopAsyncIteration:
            return None
        finally:
            self._running = None

    async def close(self) -> None:
        """End the iterator, and what it does at the moment."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        close = getattr(self._batches, "aclose", None)
        if close is not None:
            await close()


async def _cancel_the_others() -> None:
    """End every task of the loop but this one."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_BATCH_ENTRIES = 256
_BATCH_BYTES = 1 << 20


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
