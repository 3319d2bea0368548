"""The ledger client of one cluster, for asyncio.

::

    async with await BookKeeper.connect("zk://localhost:2181/ledgers") as client:
        async with await client.create(3, 2, 2, password=b"secret") as ledger:
            await ledger.append(b"hello")
        reader = await client.open(ledger.ledger)
        print(await reader.read(0, reader.last_add_confirmed))

Source: ``org.apache.bookkeeper.client.BookKeeper``, ``LedgerCreateOp``, ``LedgerOpenOp``, ``LedgerDeleteOp``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from secrets import randbits
from types import TracebackType
from typing import Self, TypeVar, cast

from bkctl.client.addresses import AddressBook
from bkctl.client.bookie_choice import RegisteredChoice
from bkctl.client.driver import BookieChoice, Driver
from bkctl.client.errors import NoSuchLedgerError
from bkctl.client.ledger_handle import LedgerHandle, ReadOnlyLedgerHandle
from bkctl.client.ledger_handle_adv import LedgerHandleAdv
from bkctl.client.machine import Machine
from bkctl.client.ops.create import CreatedLedger, CreateMachine, NewLedger
from bkctl.client.ops.delete import DeleteMachine
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine
from bkctl.client.ops.recovery import RecoveryMachine, RecoveryResult, RecoverySettings
from bkctl.client.ops.write import WriteMachine, WriteSettings
from bkctl.client.ops.write_adv import AdvWriteMachine
from bkctl.client.settings import ClientSettings
from bkctl.clock import SystemClock
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.opening import open_on_thread
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store
from bkctl.net.pool import BookiePool
from bkctl.protocol.messages import Wire
from bkctl.types import DigestType, LedgerState

_Value = TypeVar("_Value")


class BookKeeper:
    """A client; an async context manager, made within the event loop that it belongs to.

    ``store`` stays open at the end unless ``owns_store``. ``choice`` says which bookies a new ledger gets,
    and which replace a failed one; the default chooses among the writable ones at random.
    """

    def __init__(
        self,
        store: MetadataStore,
        settings: ClientSettings | None = None,
        *,
        choice: BookieChoice | None = None,
        owns_store: bool = False,
    ) -> None:
        self.store = store
        self.settings = settings or ClientSettings()
        self._owns_store = owns_store
        self._threads = ThreadPoolExecutor(
            self.settings.metadata_threads, thread_name_prefix="bookkeeper-metadata"
        )
        self._addresses = AddressBook(store.registration)
        self.pool = BookiePool(self._addresses.resolve, self.settings.net)
        self._driver = Driver(
            self.pool,
            store.ledgers,
            choice or RegisteredChoice(store.registration),
            self._threads,
            self.settings,
        )
        self._closed = False

    @classmethod
    async def connect(
        cls,
        uri: str,
        settings: ClientSettings | None = None,
        *,
        metadata: MetadataSettings | None = None,
        choice: Callable[[MetadataStore], BookieChoice] | None = None,
    ) -> Self:
        """Return a client of the cluster that a metadata URI names. Raises what opening the store raises."""
        store = await open_on_thread(lambda given_up: open_metadata_store(uri, metadata, given_up=given_up))
        return cls(store, settings, choice=None if choice is None else choice(store), owns_store=True)

    # --- ledgers --------------------------------------------------------------------------------------------

    async def create(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: tuple[tuple[str, bytes], ...] = (),
        ledger: int | None = None,
        write: WriteSettings | None = None,
    ) -> LedgerHandle:
        """Return a new ledger, open for writing; no bookie is contacted yet.

        ``ledger`` None takes a new id. Raises UsageError for quorums that do not go together,
        NotEnoughBookiesError, LedgerExistsError for an id that is taken.
        """
        new = NewLedger(ensemble_size, write_quorum, ack_quorum, digest, password, custom_metadata)
        access, made = await self._create(new, ledger)
        return LedgerHandle(self._driver, access, WriteMachine(access, made.metadata, made.version, write))

    async def create_adv(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: tuple[tuple[str, bytes], ...] = (),
        ledger: int | None = None,
        write: WriteSettings | None = None,
    ) -> LedgerHandleAdv:
        """Return a new ledger whose writer chooses the ids of entries; otherwise as :meth:`create`."""
        new = NewLedger(ensemble_size, write_quorum, ack_quorum, digest, password, custom_metadata)
        access, made = await self._create(new, ledger)
        machine = AdvWriteMachine(access, made.metadata, made.version, write)
        return LedgerHandleAdv(self._driver, access, machine)

    async def _create(self, new: NewLedger, ledger: int | None) -> tuple[LedgerAccess, CreatedLedger]:
        new = replace(new, c_token=randbits(63), ctime_ms=SystemClock().time_ms())
        made = cast("CreatedLedger", await self._driver.run(CreateMachine(new, ledger)))
        return LedgerAccess(made.ledger, new.digest_type, new.password), made

    async def open(
        self,
        ledger: int,
        *,
        password: bytes | None = None,
        digest: DigestType | None = None,
        recovery: RecoverySettings | None = None,
    ) -> ReadOnlyLedgerHandle:
        """Open a ledger for reading; one that is not closed is recovered first, which stops its writer.

        ``password`` None takes the stored one. ``digest`` counts where none is stored. Raises
        NoSuchLedgerError, AccessDeniedError, RecoveryFailedError.
        """
        stored, access = await self._look_up(ledger, password, digest)
        metadata, version = stored.metadata, stored.version
        if metadata.state is not LedgerState.CLOSED:
            machine = RecoveryMachine(access, metadata, version, self._avoiding_slow(recovery))
            result = cast("RecoveryResult", await self._driver.run(machine))
            metadata, version = result.metadata, result.version
        return ReadOnlyLedgerHandle(
            self._driver, access, metadata, version, metadata.last_entry, metadata.length
        )

    async def open_without_recovery(
        self, ledger: int, *, password: bytes | None = None, digest: DigestType | None = None
    ) -> ReadOnlyLedgerHandle:
        """Open a ledger for reading and leave its writer alone; the entries confirmed by now can be read.

        Raises as :meth:`open`; RecoveryFailedError also means that too few bookies reported their LAC.
        """
        stored, access = await self._look_up(ledger, password, digest)
        metadata = stored.metadata
        lac, length = metadata.last_entry, metadata.length
        if metadata.state is not LedgerState.CLOSED:
            found = await self._read_lac(access, metadata)
            lac, length = found.lac, found.length
        return ReadOnlyLedgerHandle(self._driver, access, metadata, stored.version, lac, length)

    async def recover(
        self,
        ledger: int,
        *,
        password: bytes | None = None,
        digest: DigestType | None = None,
        settings: RecoverySettings | None = None,
        stored: StoredLedger | None = None,
    ) -> RecoveryResult:
        """Recover and close a ledger, or with ``settings.dry_run`` find out what that would do.

        ``stored`` is its metadata when that has just been read. Raises as :meth:`open`.
        """
        stored, access = await self._look_up(ledger, password, digest, stored)
        machine = RecoveryMachine(access, stored.metadata, stored.version, self._avoiding_slow(settings))
        return cast("RecoveryResult", await self._driver.run(machine))

    async def ask_replicas(
        self,
        ledger: int,
        *,
        fence: bool = False,
        wait_all: bool = True,
        password: bytes | None = None,
        digest: DigestType | None = None,
    ) -> tuple[StoredLedger, LacResult]:
        """Return the answer of every bookie of the last ensemble, with or without fencing the ledger there.

        Waits for all of them, and goes on without those that do not answer; with ``wait_all`` False only
        until the answers cover the ledger. Raises NoSuchLedgerError, AccessDeniedError, and without
        ``wait_all`` TooFewAnswersError.
        """
        stored, access = await self._look_up(ledger, password, digest)
        return stored, await self._read_lac(access, stored.metadata, fence=fence, wait_all=wait_all)

    async def delete(self, ledger: int, *, version: int | None = None) -> None:
        """Delete a ledger's metadata; bookies find out by themselves. One that is gone already is fine.

        ``version`` deletes only what was read with it: VersionConflictError otherwise.
        """
        if version is None:
            try:
                version = (await self.read_metadata(ledger)).version
            except NoSuchLedgerError:
                return
        await self._driver.run(DeleteMachine(ledger, version))

    async def read_metadata(self, ledger: int) -> StoredLedger:
        """Return a ledger's metadata. Raises NoSuchLedgerError."""
        return await self._driver.read_ledger(ledger, missing="the metadata store has no such ledger")

    async def run(self, machine: Machine) -> object:
        """Return the value that a machine finishes with. Raises its error."""
        return await self._driver.run(machine)

    def slow_bookies(self) -> frozenset[str]:
        """Return the bookies that keep this client waiting now."""
        return self._driver.slow_bookies()

    async def in_thread(self, call: Callable[[], _Value]) -> _Value:
        """Return the result of a blocking call of the store, made in one of the client's threads."""
        return await self._driver.in_thread(call)

    # --- the end --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all operations and connections. Ledgers that are being written stay open; see their close."""
        if self._closed:
            return
        self._closed = True
        self._driver.end_all()
        await self.pool.close()
        self._addresses.close()
        if self._owns_store:
            await asyncio.to_thread(self.store.close)
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _look_up(
        self,
        ledger: int,
        password: bytes | None,
        digest: DigestType | None,
        stored: StoredLedger | None = None,
    ) -> tuple[StoredLedger, LedgerAccess]:
        stored = stored or await self.read_metadata(ledger)
        if stored.metadata.digest_type is None and digest is not None:
            return stored, LedgerAccess(ledger, digest, password or b"")
        return stored, LedgerAccess.of(ledger, stored.metadata, password)

    def _avoiding_slow(self, settings: RecoverySettings | None) -> RecoverySettings:
        settings = settings or RecoverySettings()
        return replace(settings, avoid=settings.avoid | self._driver.slow_bookies())

    async def _read_lac(
        self, access: LedgerAccess, metadata: LedgerMetadata, *, fence: bool = False, wait_all: bool = False
    ) -> LacResult:
        machine = ReadLacMachine(
            access,
            metadata,
            explicit=self.pool.settings.wire is Wire.V3,
            fence=fence,
            wait_all=wait_all,
        )
        return cast("LacResult", await self._driver.run(machine))
