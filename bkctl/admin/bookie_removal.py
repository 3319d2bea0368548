"""Taking bookies out of ledgers, and out of the cluster, from a command: the blocking form of the moves.

The decisions and the copies are those of :mod:`bkctl.replication` (``bookie_move``, ``bookie_drain``). This
module has the event loop, the client, and the bookie's switch, which its HTTP admin has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bkctl.admin import http_json
from bkctl.client.bookie_choice import ChoiceAmong, PolicyChoice, RegisteredChoice
from bkctl.client.bookies import ask_disk_space
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.settings import ClientSettings
from bkctl.codec.bookie_service_info import decode_bookie_service_info
from bkctl.errors import ConnectionFailedError, NotFoundError, RefusedError, UsageError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.http_address import http_urls
from bkctl.replication.bookie_drain import BookieDrain, DrainProgress, DrainResult, DrainSettings
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.drain_plan import DrainPlan, drain_plan
from bkctl.replication.ledger_move import MoveSettings
from bkctl.replication.moved_ledger import MovedLedger

_READ_ONLY_PAGE = "/api/v1/bookie/state/readonly"

#: How long a bookie may take to be registered again.
_REGISTERED_WITHIN_S = 60.0
_LOOK_AGAIN_S = 0.2

#: How long a bookie is asked for its room.
_ROOM_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class RemovalSettings:
    """The way in which bookies are taken out. ``targets`` None: whoever the placement policy chooses."""

    client: ClientSettings = field(default_factory=ClientSettings)
    move: MoveSettings = field(default_factory=MoveSettings)
    rate_bytes_per_s: int | None = None
    at_once: int = 4
    targets: Sequence[str] | None = None


class BookieRemoval:
    """Bookies that are to leave ledgers; a context manager that owns an event loop and a client.

    Raises UsageError for targets that leave themselves, RefusedError for one that is not writable.
    """

    def __init__(
        self,
        store: MetadataStore,
        leaving: Sequence[str],
        settings: RemovalSettings | None = None,
        choice: PolicyChoice | None = None,
    ) -> None:
        self.leaving = tuple(dict.fromkeys(leaving))
        self._store = store
        self._settings = settings or RemovalSettings()
        self._policy = choice
        self._targets = self._checked_targets()
        self._runner = asyncio.Runner()

    def _checked_targets(self) -> tuple[str, ...]:
        writable = set(self._store.registration.bookies().writable)
        wanted = self._settings.targets
        if wanted is None:
            return tuple(sorted(writable.difference(self.leaving)))
        for bookie in wanted:
            if bookie in self.leaving:
                raise UsageError(f"bookie {bookie} cannot take its own replicas")
            if bookie not in writable:
                raise RefusedError(f"bookie {bookie} is not up and writable: it can take no replicas")
        return tuple(dict.fromkeys(wanted))

    def __enter__(self) -> Self:
        self._runner.__enter__()
        self._client = self._runner.run(self._new_client())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._client.close())
        finally:
            self._runner.close()

    async def _new_client(self) -> BookKeeper:
        choice = self._policy or RegisteredChoice(self._store.registration)
        if self._settings.targets is None:
            return BookKeeper(self._store, self._settings.client, choice=choice)
        among = ChoiceAmong(choice.choose, self._store.registration, self._targets)
        return BookKeeper(self._store, self._settings.client, choice=among)

    def _move(self) -> BookieMove:
        return BookieMove(
            self._store,
            self._client,
            self.leaving,
            self._settings.move,
            rate_bytes_per_s=self._settings.rate_bytes_per_s,
            at_once=self._settings.at_once,
            adheres=None if self._policy is None else self._policy.adheres,
        )

    def refuse_unknown(self) -> None:
        """Raise NotFoundError for a bookie that has neither a cookie nor a registration, nor any ledger."""
        known = {*self._store.cookies.cookie_bookies(), *self._store.registration.bookies().everyone}
        strangers = [bookie for bookie in self.leaving if bookie not in known]
        if strangers and not self._is_named(strangers):
            raise NotFoundError(
                f"bookie {strangers[0]} has no cookie, is not up, and no ledger names it; "
                "'bkctl bookies list' shows the ids of bookies"
            )

    def _is_named(self, bookies: Collection[str]) -> bool:
        move = BookieMove(self._store, self._client, bookies)

        async def named() -> bool:
            async for group in move.groups():
                if group:
                    return True
            return False

        return self._runner.run(named())

    @property
    def accepted(self) -> Container[int]:
        """Ledgers whose loss is accepted."""
        return self._settings.move.accepted

    # --- recover --------------------------------------------------------------------------------------------

    def moved(self, only: Sequence[int] | None = None, *, rehearse: bool = False) -> Iterator[MovedLedger]:
        """Move the ledgers, or find out what that would be; yield each as soon as it is done."""
        rows = self._move().moved(only, rehearse=rehearse)
        try:
            while (row := self._runner.run(_next_of(rows))) is not None:
                yield row
        finally:
            self._runner.run(rows.aclose())

    # --- drain ----------------------------------------------------------------------------------------------

    def plan(self) -> DrainPlan:
        """Return what is to be moved, where to, and what is in the way."""
        net = self._settings.client.net
        room = ask_disk_space(self._store, self._targets, _ROOM_WITHIN_S, net)
        registered = self._store.registration.bookies()
        return self._runner.run(drain_plan(self._move(), registered, room, self._settings.move.accepted))

    def drain(
        self, settings: DrainSettings, bytes_total: int, tell: Callable[[DrainProgress], None]
    ) -> DrainResult:
        """Move everything and delete the cookie; see :class:`BookieDrain`."""

        async def run() -> DrainResult:
            drain = BookieDrain(
                self._store, self._client, self._move(), settings, bytes_total=bytes_total, tell=tell
            )
            return await drain.run()

        return self._runner.run(run())


async def _next_of(rows: AsyncGenerator[MovedLedger]) -> MovedLedger | None:
    return await anext(rows, None)


def make_read_only(store: MetadataStore, bookie: str, url: str | None) -> bool:
    """Make a bookie that is writable read-only by its HTTP admin, and wait until it is registered so.

    Return whether it was writable. Raises RefusedError where it has no HTTP admin that is known, or
    ConnectionFailedError where that does not answer.
    """
    if bookie not in store.registration.bookies().writable:
        return False
    http_json.call("PUT", url or _registered_url(store, bookie), _READ_ONLY_PAGE, {"readOnly": True})
    give_up_s = time.monotonic() + _REGISTERED_WITHIN_S
    while bookie in store.registration.bookies().writable:
        if time.monotonic() >= give_up_s:
            raise ConnectionFailedError(f"bookie {bookie} took the order but is still registered as writable")
        time.sleep(_LOOK_AGAIN_S)
    return True


def _registered_url(store: MetadataStore, bookie: str) -> str:
    registration = store.registration.registration(bookie)
    info = None if registration is None else decode_bookie_service_info(registration.service_info)
    urls = [] if info is None else http_urls(bookie, info)
    if not urls:
        raise RefusedError(
            f"bookie {bookie} is writable, but has registered no HTTP admin. Give --url, or make the bookie "
            "read-only or stop it yourself"
        )
    http_json.require_named_host(urls[0])
    return urls[0]
