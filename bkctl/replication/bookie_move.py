"""Moving all ledgers that name some bookies: one pass over the metadata of the cluster.

The memory is bounded: it holds a group of ledgers with their metadata, and a few ledgers that are moved at
once. A ledger is moved under its replication lock, be it marked or not, so that no worker copies it as well,
and no collector of surplus replicas, which Java's bookies have, deletes copies before the metadata name their
bookie; a ledger whose lock another process holds is left to that process. When a mark names only bookies that
have left the ledger, it is deleted, by the version that was read under the lock; a mark that was changed
since then stays.

A copy that had chosen a bookie while it was writable names it only when it is over. So a ledger whose lock
somebody has waits as well, while a bookie that leaves and is up has entries of it, or where the lock is older
than the bookie's registration as one that is read-only: such a copy may not have sent it anything yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable, Sequence
from functools import partial
from itertools import islice
from random import Random

from bkctl.client.adherence import Adheres
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import NoSuchLedgerError
from bkctl.clock import Clock, SystemClock
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError, UsageError
from bkctl.metadata.api import MetadataStore, NoClusterError
from bkctl.metadata.autorecovery_api import LockHolder, Taken
from bkctl.replication.auditor_office import LedgerRow
from bkctl.replication.bookie_check import named_bookies
from bkctl.replication.gone_targets import NamedTargets
from bkctl.replication.ledger_move import LedgerMove, MoveSettings
from bkctl.replication.moved_ledger import MovedLedger, MoveOutcome
from bkctl.replication.rate import ByteRate
from bkctl.replication.steps import ClientSteps
from bkctl.types import LedgerState

#: Ledgers whose metadata are held at once.
GROUP = 256

#: The pause before a lock is given back once more that the store did not take; doubled, up to the longest.
_PAUSE_S = 0.5
_PAUSE_MAX_S = 30.0

#: How long others may choose a bookie that has become read-only: until they hear of it.
HEARD_MS = 3_000

#: How long locks are given back when moves are cancelled.
_GIVE_BACK_S = 5.0


class BookieMove:
    """Moves ledgers off bookies, on the running event loop.

    ``store`` and ``client`` belong to the caller; nobody else takes locks in the store's session.
    ``at_once`` ledgers are moved at a time, with no more than ``rate_bytes_per_s`` copied. ``adheres`` says
    which placements are counted as off the policy. ``host`` is the name that others read in the locks.
    """

    def __init__(
        self,
        store: MetadataStore,
        client: BookKeeper,
        leaving: Iterable[str],
        settings: MoveSettings | None = None,
        *,
        rate_bytes_per_s: int | None = None,
        at_once: int = 4,
        adheres: Adheres | None = None,
        host: str | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.leaving = frozenset(leaving)
        self._store = store
        self._client = client
        self._settings = settings or MoveSettings()
        self._steps = ClientSteps(client)
        self._rate = ByteRate(rate_bytes_per_s, clock or SystemClock())
        self._at_once = at_once
        self._adheres = adheres
        self._host = host
        self._random = random or Random()  # noqa: S311 - chooses entries to look at, keeps no secret
        self._sessions = _Sessions()
        self._at_work: set[LedgerMove] = set()
        #: Ledgers whose lock may be there unknown to this process: the call that was to make it failed, or it
        #: was not given back.
        self._strays: set[int] = set()
        #: Ledgers that are moved now: a lock that was a stray one may be adopted, and is theirs.
        self._moving: set[int] = set()
        self._named = NamedTargets()
        #: When the last of the bookies that are up became read-only; locks that were taken later chose none.
        self._read_only_ms = 0
        self._entries_written = self._bytes_written = 0

    @property
    def entries_written(self) -> int:
        """Entries that were copied so far, those of ledgers at work included."""
        return self._entries_written + sum(one.counts.entries_written for one in self._at_work)

    @property
    def bytes_written(self) -> int:
        """Bytes of the entries that were copied so far."""
        return self._bytes_written + sum(one.counts.bytes_written for one in self._at_work)

    async def groups(
        self, only: Sequence[int] | None = None, *, recoveries: bool = False, locked: Container[int] = ()
    ) -> AsyncIterator[list[LedgerRow]]:
        """Yield the ledgers that name the bookies or whose metadata cannot be read, some at a time.

        With ``recoveries`` those that are being recovered as well, and those that are ``locked``. Those with
        a copy whose targets are to be asked are there always. A listing that ends without an error is
        complete.
        """
        ledgers, in_thread = self._store.ledgers, self._client.in_thread
        rows = iter(
            await in_thread(lambda: ledgers.read_ledgers(ledgers.ledgers() if only is None else sorted(only)))
        )
        while group := await in_thread(lambda: list(islice(rows, GROUP))):
            yield [row for row in group if self._concerns(row, recoveries=recoveries, locked=locked)]

    def _concerns(self, row: LedgerRow, *, recoveries: bool, locked: Container[int]) -> bool:
        ledger, stored = row
        if stored is None or isinstance(stored, CorruptionError):
            return stored is not None
        if self.names(stored.metadata) or ledger in locked or ledger in self._named:
            return True
        return recoveries and _is_being_recovered(stored.metadata)

    def names(self, metadata: LedgerMetadata) -> bool:
        """Return whether a ledger's metadata name one of the bookies."""
        return not self.leaving.isdisjoint(named_bookies(metadata))

    async def moved(
        self, only: Sequence[int] | None = None, *, rehearse: bool = False
    ) -> AsyncGenerator[MovedLedger]:
        """Move every ledger, or find out what that would be; yield each as soon as it is done.

        Raises NoClusterError and the store's errors where the list of ledgers cannot be read.
        """
        running: set[asyncio.Task[MovedLedger | None]] = set()
        ready: set[asyncio.Task[MovedLedger | None]] = set()
        self._store.registration.add_session_listener(self._sessions)
        try:
            await self._give_strays_back()
            # Read before the metadata: a copy whose lock is gone by now has named its bookies by then.
            marks = self._store.underreplication
            locked = {} if rehearse else await self._client.in_thread(marks.locks)
            if locked:
                self._read_only_ms = await self._client.in_thread(self._became_read_only)
            async for group in self.groups(only, recoveries=not rehearse, locked=locked):
                for row in group:
                    # Before the move begins: it may adopt such a lock, and would lose it at once.
                    await self._give_strays_back()
                    holder = locked.get(row[0])
                    running.add(asyncio.create_task(self._one(row, holder, rehearse=rehearse)))
                    if len(running) >= self._at_once:
                        ready, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    while ready:
                        if (moved := ready.pop().result()) is not None:
                            yield moved
            while running:
                ready, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                while ready:
                    if (moved := ready.pop().result()) is not None:
                        yield moved
            await self._give_strays_back()
        finally:
            for task in running:
                task.cancel()
            if running:
                # They give their locks back, but do not wait for ever for a store that is away.
                _, late = await asyncio.wait(running, timeout=_GIVE_BACK_S)
                for task in late:
                    task.cancel()
            await asyncio.gather(*running, *ready, return_exceptions=True)
            self._store.registration.remove_session_listener(self._sessions)

    async def _one(self, row: LedgerRow, holder: LockHolder | None, *, rehearse: bool) -> MovedLedger | None:
        """Move one ledger, whose lock ``holder`` has; None for one that has nothing to do with them."""
        ledger, stored = row
        if isinstance(stored, CorruptionError):
            reason = f"its metadata cannot be read: {stored}"
            return MovedLedger(ledger, MoveOutcome.BLOCKED_METADATA, reason)
        if rehearse:
            return await self._new_move(ledger).run(rehearse=True)
        try:
            named = stored is not None and self.names(stored.metadata)
            if not named and holder is not None and await self._may_be_copied(ledger, holder):
                who = holder.host or "somebody"
                reason = f"{who} is at work on it, and may name bookies that leave when it is done"
                if holder.damage:
                    reason += f"; its lock is damaged: {holder.damage}"
                return MovedLedger(ledger, MoveOutcome.BUSY, reason)
            is_unasked = ledger in self._named
            if not named and not is_unasked and not await self._new_move(ledger).concerns():
                return None
            self._moving.add(ledger)
            return await self._under_lock(ledger)
        except NoClusterError:
            raise
        except (NoSuchLedgerError, UsageError):
            return None  # it does not name them, and nobody can recover it
        except BkctlError as error:
            return MovedLedger(ledger, MoveOutcome.FAILED, f"try again: {error}")
        finally:
            self._moving.discard(ledger)

    def _became_read_only(self) -> int:
        """Return when the last of the bookies that leave and are up was registered as it is; 0 for none."""
        found = map(self._store.registration.registration, sorted(self.leaving))
        return max([one.registered_ms for one in found if one is not None], default=0)

    async def _may_be_copied(self, ledger: int, holder: LockHolder) -> bool:
        """Return whether who has the lock of a ledger may be copying it to a bookie that leaves."""
        if self._read_only_ms and holder.since_ms <= self._read_only_ms + HEARD_MS:
            return True
        return await self._new_move(ledger).may_be_copied_to_leaving()

    def _new_move(self, ledger: int, may_write: Callable[[], bool] = lambda: True) -> LedgerMove:
        return LedgerMove(
            ledger,
            self.leaving,
            self._steps,
            self._rate,
            self._random,
            self._settings,
            self._adheres,
            may_write,
            self._named,
        )

    async def _under_lock(self, ledger: int) -> MovedLedger:
        marks, in_thread = self._store.underreplication, self._client.in_thread
        session = self._sessions.lost
        taken = await self._acquire(ledger)
        if taken is None:
            return MovedLedger(ledger, MoveOutcome.BUSY, await self._who_is_at_work(ledger))
        move = self._new_move(ledger, lambda: self._sessions.lost == session)
        self._at_work.add(move)
        try:
            row = await move.run()
            named = taken.mark.replicas
            if row.outcome.is_done and named and self.leaving.issuperset(named):
                await in_thread(partial(marks.finish, taken))
            return row
        finally:
            self._at_work.discard(move)
            self._entries_written += move.counts.entries_written
            self._bytes_written += move.counts.bytes_written
            await self._give_back(taken, session)

    async def _who_is_at_work(self, ledger: int) -> str:
        try:
            holder = await self._client.in_thread(partial(self._store.underreplication.replicator_of, ledger))
        except CorruptionError as error:
            return f"somebody has its lock, which is damaged: {error}"
        return f"{holder} is at work on it" if holder else "somebody else has its lock"

    async def _acquire(self, ledger: int) -> Taken | None:
        acquire = partial(
            self._store.underreplication.acquire_ledger,
            ledger,
            host=self._host,
            unmarked=True,
            adopt=ledger in self._strays,
        )
        try:
            taken = await self._client.in_thread(acquire)
        except BkctlError:
            self._strays.add(ledger)
            raise
        self._strays.discard(ledger)
        return taken

    async def _give_back(self, taken: Taken, session: int) -> None:
        """Give a lock back, however often the store must be asked: it would else be kept by this session.

        A lock that counts as lost may be one of the session that is there now: the end of the one before may
        be reported after the lock was taken.
        """
        pause_s = _PAUSE_S
        try:
            while self._sessions.lost == session:
                try:
                    await self._client.in_thread(partial(self._store.underreplication.release, taken))
                except ConnectionFailedError:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                else:
                    return
            self._strays.add(taken.ledger)
        except BkctlError:
            self._strays.add(taken.ledger)
            raise

    async def _give_strays_back(self) -> None:
        """Give back locks that may be there; nobody else repairs these ledgers as long as this session lives.

        The ledgers may need no further try: they were deleted, or somebody else has moved them.
        """
        for ledger in sorted(self._strays - self._moving):
            try:
                taken = await self._acquire(ledger)
                if taken is not None:
                    await self._give_back(taken, self._sessions.lost)
            except BkctlError:
                return  # the next try gives them back


def _is_being_recovered(metadata: LedgerMetadata) -> bool:
    # Without a digest in the metadata, no entry of a ledger is proved before it is closed.
    return metadata.state is LedgerState.IN_RECOVERY and metadata.digest_type is not None


class _Sessions:
    """Counts the sessions that have ended, and with each of them all locks that were held."""

    def __init__(self) -> None:
        self.lost = 0

    def session_lost(self) -> None:
        self.lost += 1

    def session_restored(self) -> None:
        """Do nothing: a ledger whose lock is gone is moved by the next try."""

    def registration_failed(self, error: BkctlError) -> None:
        """Do nothing: no bookie is registered here."""
