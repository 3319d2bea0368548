"""Find the addresses of bookies: as they registered, else as they were last known, else their id.

Source: ``org.apache.bookkeeper.client.DefaultBookieAddressResolver``, ``ZKRegistrationClient``.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from bkctl.codec.bookie_service_info import bookie_address, decode_bookie_service_info
from bkctl.errors import ConnectionFailedError, CorruptionError, NotFoundError, UsageError
from bkctl.metadata.api import RegistrationManager

#: How long a connection that is being made waits for the metadata store.
PATIENCE_S = 1.0

#: Look-ups at once. A store that is away keeps each of them for as long as its operations may take.
_THREADS = 4

#: Last known addresses that are kept; the oldest goes first.
_KNOWN_MAX = 10_000


class AddressBook:
    """Looks a bookie up each time a connection to it is made. Belongs to the event loop it is used in.

    A store that does not answer within ``patience_s``, or is away, does not stop connections: then the last
    known address counts, without one an id of the form ``host:port``. An answer of the store always counts.
    The look-ups have threads of their own, so that those which wait for the store keep no write of metadata
    waiting; there is one at a time for a bookie, and the address it finds is kept also when it comes late.
    """

    def __init__(self, registration: RegistrationManager, patience_s: float = PATIENCE_S) -> None:
        self._registration = registration
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bookkeeper-addresses")
        self._known: dict[str, tuple[str, int]] = {}
        self._asked: dict[str, asyncio.Future[tuple[str, int]]] = {}

    async def resolve(self, bookie: str) -> tuple[str, int]:
        """Return host and port. Raises NotFoundError when neither the store nor the id contains them."""
        asked = self._asked.get(bookie)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = loop.run_in_executor(self._threads, _registered, self._registration, bookie)
            self._asked[bookie] = asked
            asked.add_done_callback(lambda found: self._answered(bookie, found))
        await asyncio.wait([asked], timeout=self._patience_s)
        if not asked.done():
            return self._without_the_store(bookie, f"no answer within {self._patience_s:g} s")
        try:
            return asked.result()
        except ConnectionFailedError as error:
            return self._without_the_store(bookie, str(error))

    def close(self) -> None:
        """Begin no further look-up; one that waits for the store runs to its end, without a result."""
        for asked in list(self._asked.values()):
            asked.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answered(self, bookie: str, found: asyncio.Future[tuple[str, int]]) -> None:
        del self._asked[bookie]
        if found.cancelled() or found.exception() is not None:
            return
        self._known.pop(bookie, None)
        self._known[bookie] = found.result()
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _without_the_store(self, bookie: str, why: str) -> tuple[str, int]:
        address = self._known.get(bookie) or bookie_address(bookie, None)
        if address is None:
            raise _nothing_tells(f"could not be looked up: {why}")
        return address


def look_up(registration: RegistrationManager, bookie: str) -> tuple[str, int]:
    """Return host and port for clients, from the store or else from the id.

    Raises NotFoundError when neither contains them. Waits for the store as long as its operations may take.
    """
    try:
        return _registered(registration, bookie)
    except ConnectionFailedError as error:
        address = bookie_address(bookie, None)
        if address is None:
            raise _nothing_tells(f"could not be looked up: {error}") from None
        return address


def _registered(registration: RegistrationManager, bookie: str) -> tuple[str, int]:
    """Return what a bookie registered, else its id. Raises NotFoundError, ConnectionFailedError."""
    info, why = None, "is not registered"
    try:
        found = registration.registration(bookie)
        if found is not None:
            info, why = decode_bookie_service_info(found.service_info), "registered no address for clients"
    except (CorruptionError, NotFoundError, UsageError) as error:
        why = f"could not be looked up: {error}"
    address = bookie_address(bookie, info)
    if address is None:
        raise _nothing_tells(why)
    return address


def _nothing_tells(why: str) -> NotFoundError:
    return NotFoundError(f"{why}, and its id is no host:port")
