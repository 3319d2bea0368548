"""The bookies of a cluster: which are registered, how much room they have, whether they answer.

Source: ``org.apache.bookkeeper.tools.cli.commands.bookies.ListBookiesCommand``, ``InfoCommand``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from bkctl.client.addresses import AddressBook, look_up
from bkctl.clock import SystemClock
from bkctl.codec.bookie_service_info import Endpoint, decode_bookie_service_info
from bkctl.errors import BkctlError, CorruptionError
from bkctl.metadata.api import MetadataStore, RegistrationMode
from bkctl.net.pool import BookiePool
from bkctl.net.settings import NetSettings
from bkctl.protocol.messages import BookieInfoRequest, BookieInfoResponse, ReadRequest, Wire
from bkctl.types import ResultCode

#: Bookies asked at once.
AT_ONCE = 32

#: No ledger has this id, so that asking for its entry shows that a bookie answers, and nothing else.
_NO_LEDGER = 2**63 - 1

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class KnownBookie:
    """A bookie; ``mode`` None: it has a cookie and is not registered. ``endpoints`` as it registered them."""

    bookie: str
    mode: RegistrationMode | None
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes over all ledger directories of a bookie, or why they are not known."""

    bookie: str
    free_bytes: int | None = None
    total_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer of a bookie to a probe; a time is None without an answer, and ``error`` says why."""

    bookie: str
    address: str | None = None
    v3_ms: float | None = None
    v2_ms: float | None = None
    error: str | None = None


def list_bookies(store: MetadataStore) -> list[KnownBookie]:
    """Return the registered bookies, and those that are down and only have a cookie; ascending by id."""
    registered = store.registration.bookies()
    with_cookie = store.cookies.cookie_bookies()
    modes: dict[str, RegistrationMode | None] = dict.fromkeys(with_cookie)
    modes.update(dict.fromkeys(registered.writable, RegistrationMode.WRITABLE))
    modes.update(dict.fromkeys(registered.read_only, RegistrationMode.READ_ONLY))
    found: list[KnownBookie] = []
    for bookie, mode in sorted(modes.items()):
        row = KnownBookie(bookie, mode)
        registration = None if mode is None else store.registration.registration(bookie)
        if registration is not None:
            try:
                info = decode_bookie_service_info(registration.service_info)
            except CorruptionError as error:
                raise error.located(f"registration of bookie {bookie}") from None
            row = KnownBookie(bookie, registration.mode, info.endpoints)
        elif bookie not in with_cookie:
            continue  # it went in between
        found.append(row)
    return found


def registered_ids(store: MetadataStore) -> list[str]:
    """Return the ids of all bookies that are up, ascending."""
    return list(store.registration.bookies().everyone)


def ask_disk_space(
    store: MetadataStore, bookies: Iterable[str], timeout_s: float, net: NetSettings | None = None
) -> list[DiskSpace]:
    """Ask each bookie (GET_BOOKIE_INFO, v3 only); one silent for ``timeout_s`` gets an error."""

    async def ask(pool: BookiePool, bookie: str) -> DiskSpace:
        request = BookieInfoRequest(total=True, free=True)
        try:
            answer = await pool.request(bookie, request, timeout_s)
        except BkctlError as error:
            return DiskSpace(bookie, error=str(error))
        if not isinstance(answer, BookieInfoResponse) or answer.code is not ResultCode.OK:
            code = getattr(answer, "code", None)
            told = code.value if isinstance(code, ResultCode) else "another question's answer"
            return DiskSpace(bookie, error=f"bookie {bookie}: {told}")
        return DiskSpace(bookie, answer.free_bytes, answer.total_bytes)

    return _ask_all(store, list(bookies), net, Wire.V3, ask)


def probe_bookies(
    store: MetadataStore, bookies: Iterable[str], timeout_s: float, net: NetSettings | None = None
) -> list[Probe]:
    """Ask each bookie for an entry that cannot be, over both versions of the protocol.

    The times hold the making of the connection.
    """

    async def ask(pool: BookiePool, bookie: str) -> tuple[float | None, str | None]:
        clock = SystemClock()
        began_s = clock.monotonic()
        try:
            await pool.request(bookie, ReadRequest(_NO_LEDGER, 0), timeout_s)
        except BkctlError as error:
            return None, str(error)
        return (clock.monotonic() - began_s) * 1000, None

    ids = list(bookies)
    v3 = _ask_all(store, ids, net, Wire.V3, ask)
    v2 = _ask_all(store, ids, net, Wire.V2, ask)
    return [
        Probe(bookie, _address(store, bookie), v3_ms, v2_ms, v3_error or v2_error)
        for bookie, (v3_ms, v3_error), (v2_ms, v2_error) in zip(ids, v3, v2, strict=True)
    ]


def _address(store: MetadataStore, bookie: str) -> str | None:
    """Return the address for clients; None when it is unknown, which is then the error of its row as well."""
    try:
        host, port = look_up(store.registration, bookie)
    except BkctlError:
        return None
    return f"{host}:{port}"


def _ask_all(
    store: MetadataStore,
    bookies: list[str],
    net: NetSettings | None,
    wire: Wire,
    ask: Callable[[BookiePool, str], Awaitable[_Row]],
) -> list[_Row]:
    async def run() -> list[_Row]:
        addresses = AddressBook(store.registration)
        pool = BookiePool(addresses.resolve, replace(net or NetSettings(), wire=wire))
        room = asyncio.Semaphore(AT_ONCE)

        async def one(bookie: str) -> _Row:
            async with room:
                return await ask(pool, bookie)

        try:
            return await asyncio.gather(*map(one, bookies))
        finally:
            await pool.close()
            addresses.close()

    return asyncio.run(run())
