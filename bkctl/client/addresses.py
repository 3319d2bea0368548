"""Where bookies can be reached: what they registered, else their id.

Source: ``org.apache.bookkeeper.client.DefaultBookieAddressResolver``.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from bkctl.codec.bookie_service_info import bookie_address, decode_bookie_service_info
from bkctl.errors import ConnectionFailedError, CorruptionError, NotFoundError, UsageError
from bkctl.metadata.api import RegistrationManager


class AddressBook:
    """Looks a bookie up each time a connection to it is made; nothing is remembered.

    The store is asked in one of ``threads``.
    """

    def __init__(self, registration: RegistrationManager, threads: Executor) -> None:
        self._registration = registration
        self._threads = threads

    async def resolve(self, bookie: str) -> tuple[str, int]:
        """Host and port. Raises NotFoundError when nothing tells them."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, look_up, self._registration, bookie)


def look_up(registration: RegistrationManager, bookie: str) -> tuple[str, int]:
    """Host and port for clients. Raises NotFoundError when nothing tells them.

    While the store is away an id of the form ``host:port`` is taken as it is, so that a broken metadata store
    does not stop reads.
    """
    info, why = None, "is not registered"
    try:
        found = registration.registration(bookie)
        if found is not None:
            info, why = decode_bookie_service_info(found.service_info), "registered no address for clients"
    except (ConnectionFailedError, CorruptionError, NotFoundError, UsageError) as error:
        why = f"could not be looked up: {error}"
    address = bookie_address(bookie, info)
    if address is None:
        raise NotFoundError(f"{why}, and its id is no host:port")
    return address
