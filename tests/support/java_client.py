"""BookKeeper's released client in a JVM, driven from Python (``tests/interop/java/LedgerClient.java``).

::

    with JavaLedgerClient() as java:
        client = java.client(metadata_uri, wire="v2")
        ledger = client.create(1, 1, 1, "CRC32C")
        ledger.add(count=10, size=100)

An error of the client raises :class:`~tests.support.java_bookkeeper.JavaError` whose text opens with its
class and code: ``BKLedgerFencedException(-101)``. Payloads are known to both sides: :func:`payload`.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

from tests.support.java_bookkeeper import JavaDriver, JavaError, require_jars

PASSWORD = b"pw"

#: Client settings of the tests: answers or errors come soon, and a slow machine is no dead bookie.
DEFAULTS = {
    "addEntryTimeoutSec": "20",
    "readEntryTimeoutSec": "20",
    "throttle": "0",
    "zkTimeout": "10000",
}


#: Asked for to hear from a bookie at all.
#: No ledger's id with one bit flipped: a damaged id gets a row, in limbo, where nothing proves whose it is.
_NO_LEDGER = 0x5A5A_5A5A_5A
_NO_SUCH_LEDGER = "BKNoSuchLedgerExistsException(-7)"

_HEADER_BYTES = 32
_DIGEST_BYTES = {"CRC32": 8, "CRC32C": 4, "MAC": 20, "DUMMY": 0}


def payload(ledger: int, entry: int, size: int) -> bytes:
    """What the driver puts into an entry."""
    seed = f"{ledger}:{entry}:".encode()
    return (seed * (size // len(seed) + 1))[:size]


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An entry as the client got it: digest checked by the client, payload by its hash."""

    entry: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Added:
    """What became of some adds: ids in order; the client's errors with their number."""

    acknowledged: list[int]
    failed: dict[str, int]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A ledger's state (``OPEN``, ``IN_RECOVERY``, ``CLOSED``), last entry, first entry -> bookies."""

    state: str
    last_entry: int
    ensembles: dict[int, list[str]]

    @property
    def bookies(self) -> set[str]:
        """Every bookie of every ensemble."""
        return set(itertools.chain.from_iterable(self.ensembles.values()))


@dataclass(frozen=True, slots=True)
class LongPollAnswer:
    """The last add confirmed after a long poll, and the entry that came with it."""

    lac: int
    entries: list[ReadEntry]


def entry_of(ledger: int, entry: int, size: int) -> ReadEntry:
    """What a read of an entry that the driver wrote must give."""
    return ReadEntry(entry, size, hashlib.sha256(payload(ledger, entry, size)).hexdigest())


def entries_of(ledger: int, entries: Iterable[int], size: int) -> list[ReadEntry]:
    """:func:`entry_of` for several."""
    return [entry_of(ledger, entry, size) for entry in entries]


class JavaLedgerClient:
    """The JVM; a context manager. Clients in it end with it."""

    def __init__(self) -> None:
        self._driver = JavaDriver(require_jars(), "org.apache.bookkeeper.client.LedgerClient")
        self._names = map(str, itertools.count())

    def __enter__(self) -> JavaLedgerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver.close()

    def client(self, metadata_uri: str, *, wire: str = "v3", **settings: object) -> JavaClient:
        """A client of a cluster; ``settings`` are keys of ``ClientConfiguration``."""
        name = self.name()
        conf = {
            **DEFAULTS,
            "metadataServiceUri": metadata_uri,
            "useV2WireProtocol": "true" if wire == "v2" else "false",
            **{key: _text(value) for key, value in settings.items()},
        }
        self.ask("client", name, *(f"{key}={value}" for key, value in conf.items()))
        return JavaClient(self, name)

    def ask(self, command: str, *arguments: object, seconds: float = 90) -> Any:
        """The answer to a command."""
        return self._driver.ask(command, *arguments, seconds=seconds)[0]["answer"]

    def start(self, command: str, *arguments: object) -> str:
        """Run a command in the background; the key for :meth:`wait`."""
        key = self.name()
        self.ask("start", key, command, *arguments)
        return key

    def wait(self, key: str) -> Any:
        """The answer to a command that was started."""
        return self.ask("await", key)

    def name(self) -> str:
        """A new name."""
        return next(self._names)


class JavaClient:
    """One ``org.apache.bookkeeper.client.BookKeeper``."""

    def __init__(self, java: JavaLedgerClient, name: str) -> None:
        self.java = java
        self.name = name

    def close(self) -> None:
        """Close it with its connections.

        4.17.3 trips over itself when an answer comes in during the close: a request that was just completed,
        and recycled, is failed once more. Nothing that was asked before depends on it.
        """
        try:
            self.java.ask("close-client", self.name)
        except JavaError as error:
            if 'because "this.perChannelBookieClient" is null' not in str(error):
                raise

    def known_bookies(self) -> set[str]:
        """The bookies that it would choose for a new ledger."""
        return set(self.java.ask("known", self.name))

    def create(
        self,
        ensemble: int,
        write_quorum: int,
        ack_quorum: int,
        digest: str = "CRC32C",
        *options: str,
        password: bytes = PASSWORD,
    ) -> JavaLedger:
        """A new ledger; ``deferred``, ``adv`` (ids of entries are chosen) or ``ledger=ID`` (its id too)."""
        handle = self.java.name()
        quorums = (ensemble, write_quorum, ack_quorum)
        ledger = self.java.ask("create", handle, self.name, *quorums, digest, password.hex(), *options)
        return JavaLedger(self, handle, int(ledger))

    def open(
        self, ledger: int, digest: str = "CRC32C", *, recovery: bool = False, password: bytes = PASSWORD
    ) -> JavaLedger:
        """An existing ledger."""
        handle = self.java.name()
        lac, length, closed = self.java.ask(
            "open", handle, self.name, ledger, digest, password.hex(), recovery
        )
        return JavaLedger(self, handle, ledger, lac, length, closed)

    def delete(self, ledger: int) -> None:
        """Delete a ledger's metadata."""
        self.java.ask("delete", self.name, ledger)

    def metadata(self, ledger: int) -> Metadata:
        """What the metadata store says of a ledger."""
        found = self.java.ask("metadata", self.name, ledger)
        ensembles = {int(first): bookies for first, bookies in found["ensembles"].items()}
        return Metadata(found["state"], found["last_entry"], ensembles)

    def replicas(
        self, bookie: str, ledger: int, first: int, last: int, *, digest: str | None = None
    ) -> list[str]:
        """For each entry the SHA-256 of what one bookie has, past any digest check, or ``BK…(-13)``.

        With ``digest`` that of the payload alone.
        """
        skip = 0 if digest is None else _HEADER_BYTES + _DIGEST_BYTES[digest]
        return cast("list[str]", self.java.ask("replica", self.name, bookie, ledger, first, last, skip))

    def late_add(self, bookie: str, ledger: int, entry: int, password: bytes = PASSWORD) -> str:
        """What one bookie says to an add by a writer that has the key: ``BK…(-101)`` when fenced. v3 only."""
        return cast("str", self.java.ask("late-add", self.name, bookie, ledger, entry, password.hex()))

    def wait_for(self, bookie: str, seconds: float = 20) -> None:
        """Until a bookie that was started (again) is known and answers."""
        until = time.monotonic() + seconds
        while True:
            known = bookie in self.known_bookies()
            answer = self.replicas(bookie, _NO_LEDGER, 0, 0)[0] if known else "not known"
            if answer == _NO_SUCH_LEDGER:
                return
            assert time.monotonic() < until, f"{bookie} does not answer the client: {answer}"
            time.sleep(0.05)

    def disk_space(self) -> dict[str, list[int]]:
        """Free and total bytes of every bookie."""
        return cast("dict[str, list[int]]", self.java.ask("info", self.name))

    def held(self, bookie: str, ledger: int, bound: int) -> tuple[list[int], int]:
        """The entries below ``bound`` that a bookie says it has, and how many it has in all."""
        entries, total = self.java.ask("held", self.name, bookie, ledger, bound)
        return entries, total


@dataclass(slots=True)
class JavaLedger:
    """One handle. ``lac``, ``length`` and ``closed`` are what an open found."""

    client: JavaClient
    handle: str
    id: int
    lac: int = -1
    length: int = 0
    closed: bool = False

    def add(self, count: int = 1, size: int = 100) -> Added:
        """Entries in order, as many outstanding as possible."""
        return _added(self._ask("add", count, size))

    def start_add(self, count: int, size: int) -> str:
        """:meth:`add` in the background, for :meth:`wait_added`."""
        return self.client.java.start("add", self.handle, count, size)

    def wait_added(self, key: str) -> Added:
        """What became of adds in the background."""
        return _added(self.client.java.wait(key))

    def add_at(self, entries: Sequence[int], size: int = 100) -> Added:
        """Entries with chosen ids, sent in the order given."""
        return _added(self._ask("add-at", size, *entries))

    def force(self) -> None:
        """Make deferred adds durable."""
        self._ask("force")

    def read(self, first: int, last: int) -> list[ReadEntry]:
        """Entries up to the last add confirmed."""
        return _entries(self._ask("read", first, last))

    def read_unconfirmed(self, first: int, last: int) -> list[ReadEntry]:
        """Entries, confirmed or not."""
        return _entries(self._ask("read-unconfirmed", first, last))

    def batch_read(self, first: int, count_max: int, bytes_max: int) -> list[ReadEntry]:
        """As many entries as a batch holds."""
        return _entries(self._ask("batch-read", first, count_max, bytes_max))

    def start_long_poll(self, entry: int, timeout_ms: int) -> str:
        """Wait in the background for the LAC to reach ``entry``; for :meth:`wait_long_poll`."""
        return self.client.java.start("long-poll", self.handle, entry, timeout_ms)

    def wait_long_poll(self, key: str) -> LongPollAnswer:
        """What a long poll gave."""
        lac, entries = self.client.java.wait(key)
        return LongPollAnswer(lac, _entries(entries))

    def last_add_confirmed(self, way: str = "handle") -> int:
        """By the ``handle`` alone, ``read`` from the bookies, ``try`` (one bookie) or ``explicit``."""
        return int(self._ask("lac", way))

    def close(self) -> None:
        """Close the handle, and the ledger when it was written through it."""
        self._ask("close")

    def _ask(self, command: str, *arguments: object) -> Any:
        return self.client.java.ask(command, self.handle, *arguments)


def _added(answer: dict[str, Any]) -> Added:
    return Added(answer["acknowledged"], answer["failed"])


def _entries(rows: list[list[Any]]) -> list[ReadEntry]:
    return [ReadEntry(*row) for row in rows]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
