"""An open ledger: :class:`LedgerHandle` for its one writer, :class:`ReadOnlyLedgerHandle` for readers.

Handles belong to the event loop of their client. Awaiting calls may run side by side.

Source: ``org.apache.bookkeeper.client.LedgerHandle``, ``ReadOnlyLedgerHandle``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self, cast

from bkctl.client.driver import Driver, retrieve
from bkctl.client.errors import ClientError, HandleClosedError
from bkctl.client.machine import Notify, Token
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry
from bkctl.client.ops.metadata_update import UpdateOutcome
from bkctl.client.ops.read import ReadMachine, ReadResult, ReadSettings, StickyIndex
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine, TryReadLacMachine
from bkctl.client.ops.tail import TailMachine, TailResult
from bkctl.client.ops.write import Appended, Asked, WriteMachine
from bkctl.codec.entry import HEADER_BYTES
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import UsageError
from bkctl.protocol.messages import Wire
from bkctl.types import LedgerState

#: Bytes that a frame holds besides an entry: lengths, tags, ids, the master key.
_FRAME_OVERHEAD_BYTES = 256

#: A reader fetches at first so many entries at once, then as many as have about so many bytes.
_FIRST_FETCH_ENTRIES = 16
_FETCH_BYTES = 4 << 20
_FETCH_ENTRIES_MAX = 4096

#: Long polls in a row that may fail before tailing does; over v2, and between failures, so long is paused.
TAIL_ERRORS_MAX = 5
_TAIL_PAUSE_S = 0.5


class _Ledger:
    """The common part of both kinds of handle."""

    def __init__(self, driver: Driver, access: LedgerAccess, metadata: LedgerMetadata, version: int) -> None:
        self._driver = driver
        self._metadata = metadata
        self._version = version
        self._sticky = StickyIndex() if driver.settings.sticky_reads else None
        self.access = access

    @property
    def ledger(self) -> int:
        """The ledger's id."""
        return self.access.ledger

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as far as this handle knows."""
        return self._metadata

    @property
    def version(self) -> int:
        """The version of :attr:`metadata`."""
        return self._version

    def _read_settings(self) -> ReadSettings:
        settings = self._driver.settings
        return ReadSettings(
            parallel_max=settings.outstanding_reads_max,
            speculation=settings.speculation,
            avoid=self._driver.slow_bookies(),
        )

    async def _read(
        self, first: int, last: int, lac: int, *, unconfirmed: bool, up_to_error: bool = False
    ) -> ReadResult:
        machine = ReadMachine(
            self.access,
            self.metadata,
            first,
            last,
            lac=lac,
            unconfirmed=unconfirmed,
            up_to_error=up_to_error,
            sticky=self._sticky,
            settings=self._read_settings(),
        )
        return cast("ReadResult", await self._driver.run(machine))


class ReadOnlyLedgerHandle(_Ledger):
    """A ledger opened for reading.

    ``last_add_confirmed`` is the last entry that may be read, -1 when there is none; it grows while somebody
    writes. ``length`` counts payload bytes: exact once the ledger is closed, before that what is known.
    """

    def __init__(
        self,
        driver: Driver,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        version: int,
        last_add_confirmed: int,
        length: int,
    ) -> None:
        super().__init__(driver, access, metadata, version)
        self.last_add_confirmed = last_add_confirmed
        self.length = length

    @property
    def closed(self) -> bool:
        """Whether nothing will be added to the ledger any more."""
        return self._metadata.state is LedgerState.CLOSED

    async def read(self, first: int, last: int, *, unconfirmed: bool = False) -> list[LedgerEntry]:
        """Return the entries ``first`` to ``last``, both included, digests checked, all or none.

        All of it is held in memory: see :meth:`entries` for long ranges. ``unconfirmed`` allows entries above
        :attr:`last_add_confirmed`, which may vanish in a recovery. Raises UsageError for a range that cannot
        be, NoSuchEntryError, NoAnswerError, DigestMismatchError, BookieRefusalError.
        """
        result = await self._read(first, last, self.last_add_confirmed, unconfirmed=unconfirmed)
        self._confirm(result.max_lac)
        return list(result.entries)

    async def batches(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncIterator[list[LedgerEntry]]:
        """Yield the entries ``first`` to ``last`` in batches of bounded size.

        Without ``last`` they end with the last one that is confirmed now. Raises as :meth:`read` does, but
        only after all entries below the one that cannot be read.
        """
        end = self.last_add_confirmed if last is None else last
        count = _FIRST_FETCH_ENTRIES
        while first <= end:
            until = min(end, first + count - 1)
            result = await self._read(
                first, until, self.last_add_confirmed, unconfirmed=unconfirmed, up_to_error=True
            )
            self._confirm(result.max_lac)
            found = list(result.entries)
            if found:
                yield found
            if result.error is not None:
                raise result.error
            first = until + 1
            average = sum(len(entry.payload) for entry in found) // len(found) + HEADER_BYTES
            count = max(1, min(4 * count, _FETCH_BYTES // average, _FETCH_ENTRIES_MAX))

    async def entries(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncIterator[LedgerEntry]:
        """Yield the entries of :meth:`batches` one by one."""
        async for batch in self.batches(first, last, unconfirmed=unconfirmed):
            for entry in batch:
                yield entry

    async def tail_batches(self, first: int | None = None) -> AsyncIterator[list[LedgerEntry]]:
        """Yield the entries from ``first`` (default: behind the last confirmed now) as they are confirmed.

        Ends when the ledger is closed and all of it was given. Metadata is read again whenever there is
        nothing new, so an ensemble change is followed. Raises NoSuchLedgerError when the ledger is deleted,
        and the bookies' error when :data:`TAIL_ERRORS_MAX` long polls in a row failed.
        """
        following = self.last_add_confirmed + 1 if first is None else first
        failures = 0
        while True:
            if following <= self.last_add_confirmed:
                async for batch in self.batches(following, self.last_add_confirmed):
                    following = batch[-1].entry + 1
                    yield batch
                failures = 0
            elif self.closed:
                return
            else:
                try:
                    found = await self._wait_for(following)
                except ClientError:
                    failures += 1
                    if failures >= TAIL_ERRORS_MAX:
                        raise
                    await asyncio.sleep(_TAIL_PAUSE_S)
                else:
                    failures = 0
                    if found is not None:
                        following += 1
                        yield [found]
                        continue
                await self.refresh()

    async def tail(self, first: int | None = None) -> AsyncIterator[LedgerEntry]:
        """Yield the entries of :meth:`tail_batches` one by one."""
        async for batch in self.tail_batches(first):
            for entry in batch:
                yield entry

    async def _wait_for(self, entry: int) -> LedgerEntry | None:
        """Return the entry when a long poll brings it.

        None when there is nothing, or the LAC alone has moved.
        """
        if self._driver.pool.settings.wire is not Wire.V3:
            await asyncio.sleep(_TAIL_PAUSE_S)
            await self.try_read_last_add_confirmed()
            return None
        machine = TailMachine(
            self.access,
            self._metadata,
            entry,
            lac=self.last_add_confirmed,
            timeout_ms=self._driver.settings.tail_timeout_ms,
            avoid=self._driver.slow_bookies(),
        )
        found = cast("TailResult", await self._driver.run(machine))
        self._confirm(found.lac)
        return found.entry

    async def read_last_add_confirmed(self) -> int:
        """Ask the bookies, to quorum coverage; raises :attr:`last_add_confirmed` and returns it.

        Metadata is read first, so that a changed ensemble or a close by somebody else is seen. Raises
        RecoveryFailedError when too few bookies answer, NoSuchLedgerError when the ledger was deleted.
        """
        await self.refresh()
        if not self.closed:
            explicit = self._driver.pool.settings.wire is Wire.V3
            machine = ReadLacMachine(self.access, self._metadata, explicit=explicit)
            found = cast("LacResult", await self._driver.run(machine))
            self._confirm(found.lac)
        return self.last_add_confirmed

    async def try_read_last_add_confirmed(self) -> int:
        """Ask the bookies; the first one that knows more than this handle is enough."""
        if not self.closed:
            machine = TryReadLacMachine(self.access, self._metadata, self.last_add_confirmed)
            self._confirm(cast("int", await self._driver.run(machine)))
        return self.last_add_confirmed

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata again. Raises NoSuchLedgerError when the ledger was deleted."""
        if self.closed:
            return self._metadata
        found = await self._driver.read_ledger(self.ledger, missing="was deleted")
        self._metadata, self._version = found.metadata, found.version
        if found.metadata.state is LedgerState.CLOSED:
            self.last_add_confirmed = found.metadata.last_entry
            self.length = found.metadata.length
        return self._metadata

    def _confirm(self, lac: int) -> None:
        # In a closed ledger the last entry is known for good.
        if not self.closed:
            self.last_add_confirmed = max(self.last_add_confirmed, lac)


class WriterHandle(_Ledger):
    """The common part of both kinds of writers: an async context manager that closes the ledger.

    When an append fails for good (the ledger is fenced, a bookie cannot be replaced, ...), all that are
    pending fail with it and later ones are refused with the same error.
    """

    def __init__(self, driver: Driver, access: LedgerAccess, machine: WriteMachine) -> None:
        super().__init__(driver, access, machine.metadata, machine.version)
        self._machine = machine
        self._told: dict[Token, asyncio.Future[object]] = {}
        self._room = asyncio.Event()
        settings = driver.settings
        self._adds_max = settings.outstanding_adds_max
        self._bytes_max = settings.outstanding_add_bytes_max
        self._payload_max = (
            settings.net.frame_bytes_max - _FRAME_OVERHEAD_BYTES - HEADER_BYTES - access.digester.size_bytes
        )
        self._running = driver.start(machine, self._notified)
        self._running.finished.add_done_callback(self._ended)

    @property
    def metadata(self) -> LedgerMetadata:
        return self._machine.metadata

    @property
    def version(self) -> int:
        return self._machine.version

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is acknowledged with all before it; -1 at first."""
        return self._machine.lac

    @property
    def length(self) -> int:
        """Payload bytes up to :attr:`last_add_confirmed`."""
        return self._machine.length

    def _check_size(self, data: bytes) -> None:
        if len(data) > self._payload_max:
            raise UsageError(
                f"ledger {self.ledger}: an entry of {len(data)} bytes is over the limit of "
                f"{self._payload_max} (nettyMaxFrameSizeBytes of the bookies)"
            )

    async def _wait_for_room(self, needed_now: Callable[[], bool] = lambda: False) -> None:
        """Wait while as much is outstanding as the settings allow, and it is not ``needed_now``."""
        machine = self._machine
        while (
            machine.death is None
            and not self._running.finished.done()
            and (machine.pending >= self._adds_max or machine.pending_bytes >= self._bytes_max)
            and not needed_now()
        ):
            self._room.clear()
            await self._room.wait()
        if self._running.finished.done():
            raise HandleClosedError("the handle is closed", ledger=self.ledger)

    async def drain(self) -> None:
        """Wait until everything that was submitted is acknowledged. Raises the error of what is not."""
        # Shielded: a caller that gives this wait up must not cancel what others wait for.
        await asyncio.gather(*map(asyncio.shield, self._told.values()))
        if self._machine.death is not None:
            raise self._machine.death

    async def force(self) -> int:
        """Make what is acknowledged durable on all bookies, for deferred sync; return the new LAC."""
        return cast("int", await self._begun(self._machine.force()))

    async def flush_last_add_confirmed(self) -> int:
        """Send the LAC to the bookies, so that readers see the last entry without a further one."""
        return cast("int", await self._begun(self._machine.flush_lac()))

    async def read(self, first: int, last: int) -> list[LedgerEntry]:
        """Read entries that this writer has got acknowledged; raises as :meth:`ReadOnlyLedgerHandle.read`."""
        return list((await self._read(first, last, self.last_add_confirmed, unconfirmed=False)).entries)

    async def close(self) -> LedgerMetadata:
        """Fail what is pending, and close the ledger behind the last entry confirmed; return its metadata.

        Raises HandleFencedError when another client recovers the ledger, ClosedDifferentlyError when it was
        closed elsewhere, errors of the metadata store. A second call gives the same.
        """
        self._running.perform(self._machine.close())
        outcome = cast("UpdateOutcome", await asyncio.shield(self._running.finished))
        return outcome.metadata

    def abandon(self) -> None:
        """Forget the ledger without closing it, as a writer that dies; the ledger has to be recovered."""
        self._running.end(HandleClosedError("the handle was abandoned", ledger=self.ledger))

    # --- outcomes -------------------------------------------------------------------------------------------

    def _begun(self, asked: Appended | Asked) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        # An append that failed with all the others need not be looked at by everybody.
        future.add_done_callback(retrieve)
        if self._running.finished.done():
            future.set_exception(HandleClosedError("the handle is closed", ledger=self.ledger))
            return future
        self._told[asked.token] = future
        self._running.perform(asked.instructions)
        return future

    def _notified(self, note: Notify) -> None:
        self._room.set()
        future = self._told.pop(note.token, None)
        if future is None or future.done():
            return
        if note.error is not None:
            future.set_exception(note.error)
        else:
            future.set_result(note.value)

    def _ended(self, finished: asyncio.Future[object]) -> None:
        """End the machine: nothing that is still pending will be reported."""
        self._room.set()
        cause = None if finished.cancelled() else finished.exception()
        error = HandleClosedError("the handle was closed before this was acknowledged", ledger=self.ledger)
        error.__cause__ = cause
        told, self._told = self._told, {}
        for future in told.values():
            if not future.done():
                future.set_exception(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            # The error is the caller's; the ledger is closed behind its last acknowledged entry all the same.
            await asyncio.gather(self.close(), return_exceptions=True)


class LedgerHandle(WriterHandle):
    """A ledger's writer, whose entries get the next id each. See :class:`WriterHandle`."""

    async def append(self, data: bytes) -> int:
        """Append an entry and wait until it is acknowledged; return its id.

        Raises UsageError for data that fits into no frame, HandleFencedError, HandleClosedError,
        NotEnoughBookiesError, AccessDeniedError, AddTimeoutError, WriteFailedError.
        """
        return await (await self.submit(data))

    async def submit(self, data: bytes) -> asyncio.Future[int]:
        """Send an entry and return a future of its id, done when it is acknowledged.

        Waits while as many appends or bytes are outstanding as the settings allow. Calls that wait have no
        order among each other, so a caller that wants its entries in order awaits one call after the other.
        Raises as :meth:`append`.
        """
        self._check_size(data)
        await self._wait_for_room()
        return cast("asyncio.Future[int]", self._begun(self._machine.append(data)))
