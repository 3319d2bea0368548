"""Taking a bookie out of service: its ledgers are moved, pass after pass, and its cookie is deleted last.

The metadata are the only state: a ledger that was moved does not name the bookie any more. So a drain that
was interrupted, at whatever step, is simply started again. It copies by itself and uses no marks: for Java's
workers and ours a bookie that is up lacks nothing, so none of them would copy a marked ledger.

The bookie must not be writable, because new ledgers would come as fast as old ones go. When a whole pass has
found no ledger that names the bookie, a client that does not know of the change yet may still make one. So
there is a pause and one more pass. Only after that, and while the bookie is still not writable, the cookie is
deleted, in the version that it had when the drain began: a cookie that was written again is another bookie's.

Source: ``org.apache.bookkeeper.client.BookKeeperAdmin`` (``decommissionBookie``).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bkctl.client.bookkeeper import BookKeeper
from bkctl.clock import Clock, SystemClock
from bkctl.errors import NotFoundError, RefusedError
from bkctl.metadata.api import MetadataStore, Versioned
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.moved_ledger import MovedLedger, MoveOutcome

#: Ledgers that could not be moved, which a result names; it counts all of them.
NAMED_MAX = 1_000

#: How often a drain starts over because clients placed another ledger on the bookie.
_ROUNDS_MAX = 20

_TICK_S = 1.0


class DrainPhase(enum.Enum):
    """The phase of a drain; the value is the JSON form."""

    MOVING = "moving"
    WAITING = "waiting"
    VERIFYING = "verifying"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """``wait_ms`` is how long a drain that makes no progress waits for writers, workers and bookies.

    It looks again after ``poll_ms``. ``settle_ms`` is the pause before the last pass. ``accepted`` are
    ledgers whose loss is accepted, as in :class:`MoveSettings`. Without ``delete_cookie`` the cookie stays.
    """

    wait_ms: int = 60_000
    poll_ms: int = 2_000
    settle_ms: int = 3_000
    accepted: Container[int] = ()
    delete_cookie: bool = True


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How far a drain is. ``rate_bytes_per_s`` and ``left_s`` are None while they cannot be estimated.

    ``moved`` ledgers and ``bytes`` are this drain's; ``left`` is how many ledgers of the last whole pass
    still name the bookie, None before its end.
    """

    phase: DrainPhase
    moved: int
    entries: int
    bytes: int
    left: int | None
    passed_s: float
    rate_bytes_per_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class DrainResult:
    """How a drain ended. ``left`` ledgers still name the bookie; ``rows`` are the first of them.

    ``accepted`` are ledgers that were moved without entries, or passed over, as their loss was accepted.
    ``reason`` says why the cookie stayed although nothing is left.
    """

    moved: int
    entries: int
    bytes: int
    left: int
    blocked: int
    rows: tuple[MovedLedger, ...]
    accepted: tuple[MovedLedger, ...]
    off_policy: int
    cookie_deleted: bool
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """0 done; 1 done, losses accepted; 3 partly done, or waiting; 4 blocked, and nothing was moved."""
        if self.left or self.reason:
            return 4 if self.blocked and not self.moved else 3
        return 1 if self.accepted else 0


class DrainTally:
    """The result of one pass over all ledgers, or of a rehearsal. ``accepted`` are as in DrainSettings."""

    def __init__(self, accepted: Container[int] = ()) -> None:
        self.named = self.moved = self.blocked = self.off_policy = self.entries = self.bytes = 0
        self.rows: list[MovedLedger] = []
        self.losses: dict[int, MovedLedger] = {}
        self._accepted = accepted

    @property
    def left(self) -> int:
        """Ledgers that still name the bookie."""
        return self.named - self.moved

    def add(self, row: MovedLedger) -> None:
        """Count a ledger."""
        self.off_policy += row.off_policy
        self.entries += row.entries
        self.bytes += row.bytes
        if row.outcome is MoveOutcome.BLOCKED_METADATA and row.ledger in self._accepted:
            self.losses[row.ledger] = replace(row, accepted=True)
            return
        if row.outcome in (MoveOutcome.NOT_NAMED, MoveOutcome.LEDGER_GONE):
            return
        self.named += 1
        if row.outcome in (MoveOutcome.MOVED, MoveOutcome.MOVABLE):
            self.moved += 1
            if row.accepted:
                self.losses[row.ledger] = row
            return
        self.blocked += not row.outcome.may_pass
        if len(self.rows) < NAMED_MAX:
            self.rows.append(row)

    def result(self) -> DrainResult:
        """Return the tally as the result of a drain that was this one pass."""
        losses = tuple([self.losses[ledger] for ledger in sorted(self.losses)])
        return DrainResult(
            self.moved,
            self.entries,
            self.bytes,
            self.left,
            self.blocked,
            tuple(self.rows),
            losses,
            self.off_policy,
            cookie_deleted=False,
        )


class BookieDrain:
    """One drain, on the running event loop. ``bytes_total`` is the plan's, for the time that is left."""

    def __init__(
        self,
        store: MetadataStore,
        client: BookKeeper,
        move: BookieMove,
        settings: DrainSettings | None = None,
        *,
        bytes_total: int = 0,
        tell: Callable[[DrainProgress], None] = lambda progress: None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._move = move
        self._settings = settings or DrainSettings()
        self._bytes_total = bytes_total
        self._tell = tell
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic()
        self._phase = DrainPhase.MOVING
        self._moved = self._off_policy = 0
        self._left: int | None = None
        self._losses: dict[int, MovedLedger] = {}
        self._cookies: dict[str, Versioned] = {}
        self._cookie_deleted = False

    def progress(self) -> DrainProgress:
        """Return how far the drain is."""
        passed_s = self._clock.monotonic() - self._began_s
        entries, size = self._move.entries_written, self._move.bytes_written
        told = DrainProgress(self._phase, self._moved, entries, size, self._left, passed_s)
        if not size or passed_s <= 0:
            return told
        rate = size / passed_s
        return replace(told, rate_bytes_per_s=rate, left_s=max(0, self._bytes_total - size) / rate)

    async def run(self) -> DrainResult:
        """Move everything, look again, and delete the cookie.

        Raises RefusedError while a bookie is writable, and the store's errors where ledgers cannot be listed.
        """
        await self._refuse_writable()
        await self._read_cookies()
        ticker = asyncio.create_task(self._tick())
        try:
            found, reason = await self._move_all()
            if not found.left and not reason and self._settings.delete_cookie:
                reason = await self._delete_cookies()
        finally:
            ticker.cancel()
        self._phase = DrainPhase.ENDED
        self._tell(self.progress())
        return replace(
            found.result(),
            moved=self._moved,
            entries=self._move.entries_written,
            bytes=self._move.bytes_written,
            accepted=tuple([self._losses[ledger] for ledger in sorted(self._losses)]),
            off_policy=self._off_policy,
            cookie_deleted=self._cookie_deleted,
            reason=reason,
        )

    # --- passes ---------------------------------------------------------------------------------------------

    async def _until_nothing_moves(self) -> DrainTally:
        """Make passes until nothing is left, or what is left does not change within the time for waiting."""
        stuck_since_s = None
        only: list[int] | None = None
        while True:
            found = await self._pass(only)
            # While it waits, only what was left is looked at again; the metadata of a cluster may be many.
            only = [row.ledger for row in found.rows] if len(found.rows) == found.left else None
            now_s = self._clock.monotonic()
            if not found.left:
                return found
            if found.moved:
                stuck_since_s = None
            elif stuck_since_s is None:
                stuck_since_s = now_s
            if found.blocked == found.left and not found.moved:
                return found
            if stuck_since_s is not None:
                if now_s - stuck_since_s >= self._settings.wait_ms / 1000:
                    return found
                self._phase = DrainPhase.WAITING
                self._tell(self.progress())
                await asyncio.sleep(self._settings.poll_ms / 1000)
                self._phase = DrainPhase.MOVING

    async def _move_all(self) -> tuple[DrainTally, str]:
        """Move everything, and look once more when clients have had time to hear that the bookie is leaving.

        Return the last pass, and why it does not count as the last.
        """
        for _ in range(_ROUNDS_MAX):
            found = await self._until_nothing_moves()
            if found.left:
                return found, ""
            self._phase = DrainPhase.VERIFYING
            self._tell(self.progress())
            await asyncio.sleep(self._settings.settle_ms / 1000)
            found = await self._pass()
            if not found.named:
                return found, ""
            self._phase = DrainPhase.MOVING
        return found, "clients go on placing new ledgers on the bookie"

    async def _tick(self) -> None:
        """Report the progress also while a single large ledger is moved."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._tell(self.progress())

    async def _pass(self, only: Sequence[int] | None = None) -> DrainTally:
        await self._refuse_writable()
        found = DrainTally(self._settings.accepted)
        async for row in self._move.moved(only):
            moved = found.moved
            found.add(row)
            self._moved += found.moved - moved
            self._off_policy += row.off_policy
            self._tell(self.progress())
        self._losses |= found.losses
        self._left = found.left
        return found

    # --- bookies and cookies --------------------------------------------------------------------------------

    async def _refuse_writable(self) -> None:
        up = await self._client.in_thread(self._store.registration.bookies)
        writable = sorted(self._move.leaving.intersection(up.writable))
        if writable:
            raise RefusedError(
                f"bookie {writable[0]} is writable, so new ledgers would be placed on it. Make it read-only "
                "or stop it first"
            )

    async def _read_cookies(self) -> None:
        for bookie in sorted(self._move.leaving):
            found = await self._client.in_thread(partial(self._store.cookies.read_cookie, bookie))
            if found is not None:
                self._cookies[bookie] = found

    async def _delete_cookies(self) -> str:
        """Delete the cookies that were there when the drain began; return why one stays, or nothing."""
        for bookie, cookie in self._cookies.items():
            await self._refuse_writable()
            delete = partial(self._store.cookies.delete_cookie, bookie, cookie.version)
            try:
                await self._client.in_thread(delete)
                self._cookie_deleted = True
            except NotFoundError:
                continue
            except RefusedError:
                return f"the cookie of bookie {bookie} was changed meanwhile, and stays"
        return ""
