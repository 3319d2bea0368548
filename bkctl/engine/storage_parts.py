"""The parts that a storage is opened with, and the choice that a package with a storage offers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bkctl.clock import Clock
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.settings import BookieSettings
from bkctl.errors import BkctlError, CorruptionError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.vfs import WritableFileSystem

#: Opens, or makes, the key-value store in a directory.
OpenStore = Callable[[str, StoreProfile], KeyValueStore]


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The parts that the engine shares with its storages: ``lock`` is its lock, ``on_failure`` stops it."""

    settings: BookieSettings
    filesystem: WritableFileSystem
    clock: Clock
    lock: threading.Lock
    open_store: OpenStore
    on_failure: Callable[[BkctlError], None]


#: Opens the storages of a bookie, in the order in which ledgers are given to them. After an error none of
#: them stays open.
OpenStorages = Callable[[StorageParts], list[LedgerStorage]]


class PlacedLedgers(Protocol):
    """The ledgers that the cluster places on this bookie. Methods may raise BkctlError when it is silent."""

    def is_kept(self, ledger: int) -> bool:
        """Return whether a ledger is one of them; True where its metadata cannot be read."""

    def all_kept(self) -> Iterator[int]:
        """Yield all of them."""


class RefuseGone(Protocol):
    """Refuse a start, or note the loss that it accepts, while nothing was made in the place of an index."""

    def __call__(
        self,
        filesystem: WritableFileSystem,
        settings: BookieSettings,
        cluster: PlacedLedgers,
        *,
        accept_loss: bool,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """How a bookie is started with one storage.

    ``refuse_gone`` raises RefusedError where an index is gone that held something; it is asked before
    ``open``, which makes what is missing. With ``accept_loss`` it notes such a loss instead.
    ``refusal`` gives the refusal of a start over an index that ``open`` could not read, or the error itself
    for anything else.
    """

    open: OpenStorages
    refuse_gone: RefuseGone
    refusal: Callable[[BookieSettings, CorruptionError], BkctlError]
