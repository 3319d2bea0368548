"""Reading entries and LACs from caches and directories (Java: ``LedgerDescriptorImpl.readEntry``).

Which answer a missing entry gets is decided here: no such ledger, no such entry, or, for a ledger in limbo,
unknown. An error of the disk or an entry that does not decode is never one of them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence

from bkctl.codec.location import KEY_BYTES
from bkctl.engine.lac_watches import LacWatch
from bkctl.engine.ledger_descriptor import LAC_NONE
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.ledger_table import LedgerTable
from bkctl.errors import BookieError, LedgerLimboError, NoEntryError, NoLedgerError

_LEDGER = struct.Struct(">q")
_LAC = struct.Struct(">q")
_LAC_AT = 16

#: Entry id that asks for the newest entry.
LAST_ENTRY = -1


class ReadStage:
    """Reads; thread-safe. Methods that say so touch memory only, the others may wait for the disk."""

    def __init__(self, lock: threading.Lock, table: LedgerTable) -> None:
        self._lock = lock
        self._table = table

    @property
    def directories(self) -> int:
        """The number of ledger directories."""
        return len(self._table.storages)

    def directory_of(self, key: bytes) -> int:
        """Return the number of the ledger directory of a key's ledger."""
        (ledger,) = _LEDGER.unpack_from(key)
        return int(ledger) % len(self._table.storages)

    def cached(self, key: bytes) -> bytes | None:
        """Return the entry with this key (ledger id, entry id) if a cache has it. Memory only.

        The ledger is not looked at: what is in a cache is there.
        """
        (ledger,) = _LEDGER.unpack_from(key)
        return self._table.storage_of(ledger).cached(key)

    def cached_records(self, keys: bytes, bytes_max: int) -> tuple[bytes, int] | None:
        """Return the entries of the joined ``keys`` that caches have, as records, and their number.

        They end before the first one that no cache has, behind the one that brings them to ``bytes_max``, and
        where the entries of another directory begin. None says that the keys are to be looked up one by one
        (:meth:`cached`). Memory only.
        """
        storages = self._table.storages
        number = 0
        if len(storages) > 1:
            number, keys = _of_one_directory(keys, len(storages))
        found = storages[number].cached_records(keys, bytes_max)
        return None if found is None else (found[0], len(found[1]))

    def count_cached(self, key: bytes, count: int, started_s: float) -> None:
        """Count entries that :meth:`cached` gave since ``started_s`` as read; the first has this key."""
        (ledger,) = _LEDGER.unpack_from(key)
        self._table.storage_of(ledger).count_reads(count, started_s)

    def claim_next(self, key: bytes) -> bool:
        """Return whether the caller that got this entry from a cache is to call :meth:`read_next`.

        Memory only.
        """
        (ledger,) = _LEDGER.unpack_from(key)
        return self._table.storage_of(ledger).claim_next(key)

    def read_next(self, key: bytes) -> None:
        """Read entries ahead of a client that got to this one. Never raises BkctlError."""
        (ledger,) = _LEDGER.unpack_from(key)
        self._table.storage_of(ledger).read_next(ledger)

    def read(self, ledger: int, entry: int) -> bytes:
        """Return an entry, with ``LAST_ENTRY`` the newest one here.

        Raises NoLedgerError, NoEntryError, LedgerLimboError, BookieIOError.
        """
        storage = self._known(ledger)
        if entry == LAST_ENTRY:
            self._check_complete(ledger, "its newest entry is unknown")
        try:
            return storage.read(ledger, entry)
        except NoEntryError as error:
            raise self._absent(error) from None

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | BookieError]:
        """Return entries by key (no ``LAST_ENTRY``), each as bytes or as what :meth:`read` would raise."""
        answers: list[bytes | BookieError] = [_UNANSWERED] * len(keys)
        by_directory: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            (ledger,) = _LEDGER.unpack_from(key)
            try:
                self._known(ledger)
            except NoLedgerError as error:
                answers[index] = error
            else:
                by_directory.setdefault(ledger % len(self._table.storages), []).append(index)
        for number, indices in by_directory.items():
            found = self._table.storages[number].read_many([keys[index] for index in indices])
            for index, answer in zip(indices, found, strict=True):
                answers[index] = self._absent(answer) if isinstance(answer, NoEntryError) else answer
        return answers

    def read_records(self, keys: bytes, bytes_max: int) -> tuple[bytes, int] | None:
        """Return the entries of the joined ``keys`` as records, and their number; no object is made for each.

        The records end where the entries of another directory begin, before the first entry that cannot be
        read with the others, and behind the one that brings what caches have of them to ``bytes_max``. None
        says that :meth:`read_many` is to be called. It also reads what is left, and says what is wrong.
        """
        storages = self._table.storages
        number = 0
        if len(storages) > 1:
            number, keys = _of_one_directory(keys, len(storages))
        ledgers = storages[number].ledgers
        for each in {keys[at : at + _LEDGER.size] for at in range(0, len(keys), KEY_BYTES)}:
            (ledger,) = _LEDGER.unpack(each)
            if ledgers.get(ledger) is None:
                return None
        return storages[number].read_records(keys, bytes_max)

    def entries(self, ledger: int) -> Iterator[int]:
        """Return the ids of the ledger's entries here, ascending.

        Raises NoLedgerError, LedgerLimboError, BookieIOError.

        Of a ledger in limbo the list would claim that others do not exist, so it is not given.
        """
        storage = self._known(ledger)
        self._check_complete(ledger, "entries may be missing")
        return storage.entries(ledger)

    def known_lac(self, ledger: int) -> int | None:
        """Return the ledger's last add confirmed if memory knows it, else None. Memory only."""
        with self._lock:
            descriptor = self._table.get(ledger)
            if descriptor is None or not descriptor.lac_complete or self._table.is_limbo(ledger):
                return None
            return descriptor.lac

    def last_add_confirmed(self, ledger: int) -> int:
        """Return the highest LAC that this bookie has seen: of entries and explicit ones; -1 without any.

        Raises NoLedgerError, LedgerLimboError when entries may be missing, BookieIOError.
        """
        self._known(ledger)
        self._check_complete(ledger, "its last add confirmed is unknown")
        lac = self.known_lac(ledger)
        if lac is not None:
            return lac
        stored = self._stored_lac(ledger)
        with self._lock:
            descriptor = self._table.get(ledger)
            if descriptor is None:
                raise NoLedgerError(f"ledger {ledger} is not known here", ledger=ledger)
            if not descriptor.lac_complete:
                # Else it is of a ledger that was deleted and made again since, or knows as much.
                descriptor.raise_lac(stored)
                descriptor.lac_complete = True
            return descriptor.lac

    def explicit_lac(self, ledger: int) -> bytes | None:
        """Return the blob of the last explicit LAC, or None. Memory only. Raises NoLedgerError."""
        row = self._known(ledger).ledgers.get(ledger)
        return None if row is None else row.explicit_lac

    def is_known(self, ledger: int) -> bool:
        """Return whether the bookie knows the ledger. Memory only."""
        return self._table.storage_of(ledger).ledgers.get(ledger) is not None

    def watch(self, ledger: int, previous: int, notify: Callable[[int, int | None], None]) -> LacWatch | None:
        """Call ``notify`` once when the LAC passes ``previous``; return None when it already has.

        The caller should have asked for the LAC before (:meth:`last_add_confirmed`). Memory only. Raises
        NoLedgerError.
        """
        with self._lock:
            descriptor = self._table.get(ledger)
            if descriptor is None:
                raise NoLedgerError(f"ledger {ledger} is not known here", ledger=ledger)
            if descriptor.lac > previous:
                return None
            watch = LacWatch(previous, notify)
            descriptor.watch(watch)
            return watch

    def unwatch(self, ledger: int, watch: LacWatch) -> bool:
        """End a wait; False when its ``notify`` was, or is being, called."""
        with self._lock:
            descriptor = self._table.get(ledger)
            return descriptor is not None and descriptor.unwatch(watch)

    def _known(self, ledger: int) -> LedgerStorage:
        storage = self._table.storage_of(ledger)
        if storage.ledgers.get(ledger) is None:
            raise NoLedgerError(f"ledger {ledger} is not known here", ledger=ledger)
        return storage

    def _check_complete(self, ledger: int, consequence: str) -> None:
        if self._table.is_limbo(ledger):
            raise LedgerLimboError(f"ledger {ledger} is in limbo: {consequence}", ledger=ledger)

    def _absent(self, error: NoEntryError) -> BookieError:
        """Return the error to report for an entry that is not here."""
        if not self._table.is_limbo(error.ledger):
            return error
        return LedgerLimboError(
            f"ledger {error.ledger}, entry {error.entry}: unknown, the ledger may have lost entries here",
            ledger=error.ledger,
            entry=error.entry,
        )

    def _stored_lac(self, ledger: int) -> int:
        """Return the LAC field of the newest entry."""
        try:
            body = self.read(ledger, LAST_ENTRY)
        except NoEntryError:
            return LAC_NONE
        (lac,) = _LAC.unpack_from(body, _LAC_AT)
        return int(lac)


def _of_one_directory(keys: bytes, directories: int) -> tuple[int, bytes]:
    """Return the directory of the first of some joined keys, and those in front that belong there as well."""
    ledger, first = b"", 0
    for at in range(0, len(keys), KEY_BYTES):
        if keys.startswith(ledger, at) and ledger:
            continue
        ledger = keys[at : at + _LEDGER.size]
        (number,) = _LEDGER.unpack(ledger)
        if at and number % directories != first:
            return first, keys[:at]
        first = number % directories
    return first, keys


_UNANSWERED = NoEntryError("not asked")
