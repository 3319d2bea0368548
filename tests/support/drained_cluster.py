"""A cluster in memory whose bookies take copies, for drains that are killed between two steps of metadata.

Every write of a ledger's metadata is checked: no entry has fewer good copies on named bookies than before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

from bkctl.client.adherence import Adheres
from bkctl.client.bookie_choice import RegisteredChoice
from bkctl.client.distribution import Distribution, segment_of
from bkctl.client.machine import (
    Answered,
    BookiesAre,
    CancelTimer,
    ChooseBookies,
    Event,
    Finished,
    Instruction,
    Machine,
    MetadataFailed,
    MetadataIs,
    ReadMetadata,
    Send,
    SetTimer,
    TimerFired,
    WriteMetadata,
)
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry
from bkctl.clock import Clock, SystemClock
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError
from bkctl.metadata.api import StoredLedger
from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.tree import ANY_VERSION
from bkctl.protocol.messages import AddRequest
from bkctl.replication.bookie_drain import BookieDrain, DrainResult, DrainSettings
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.ledger_move import MoveSettings
from bkctl.types import ResultCode
from tests.support.fake_bookies import FakeBookies

_Value = TypeVar("_Value")

QUICK = DrainSettings(wait_ms=0, poll_ms=1, settle_ms=0)
ROOT = "/ledgers"


class Killed(BaseException):
    """What ends a process at once: no handler of errors holds it up."""


class DyingTree(MemoryTree):
    """A tree whose process dies at the ``dies_at``-th write, from 1; ``after`` it was made, or before."""

    def __init__(
        self,
        cluster: MemoryCluster,
        dies_at: int | None = None,
        *,
        after: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(cluster, clock)
        self.writes = 0
        self._dies_at = dies_at
        self._after = after
        self._dead = False

    def _written(self, write: Callable[[], _Value]) -> _Value:
        if self._dead:
            raise Killed
        self.writes += 1
        self._dead = self.writes == self._dies_at
        if self._dead and not self._after:
            raise Killed
        value = write()
        if self._dead:
            raise Killed
        return value

    def create(self, *args: Any, **how: Any) -> str:
        return self._written(lambda: super(DyingTree, self).create(*args, **how))

    def set(self, path: str, data: bytes, version: int) -> int:
        return self._written(lambda: super(DyingTree, self).set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._written(lambda: super(DyingTree, self).delete(path, version))


class TwinClient(FakeBookies):
    """Bookies, and the client that runs machines over them and over a store."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Any = None
        self.random = Random(1)
        #: Bookies that take no entry, and what is done before each add.
        self.refusing: set[str] = set()
        self.before_add: Callable[[str], None] = lambda bookie: None
        #: What is done before each write of a ledger's metadata.
        self.before_write: Callable[[int], None] = lambda ledger: None

    async def run(self, machine: Machine) -> object:
        waiting: list[Instruction] = machine.start()
        timers: list[SetTimer] = []
        while waiting or timers:
            instruction = waiting.pop(0) if waiting else timers.pop(0)
            if isinstance(instruction, Finished):
                if instruction.error is not None:
                    raise instruction.error
                return instruction.value
            if isinstance(instruction, CancelTimer):
                timers = [one for one in timers if one.token != instruction.token]
            elif isinstance(instruction, SetTimer) and instruction not in timers and waiting:
                timers.append(instruction)
            else:
                await asyncio.sleep(0)
                waiting += machine.on_event(self._event(instruction))
        raise AssertionError("the machine waits for nothing")

    def _event(self, instruction: Instruction) -> Event:
        match instruction:
            case Send():
                return self._added(instruction) or self._answer(instruction)
            case SetTimer(token):
                return TimerFired(token)
            case ChooseBookies(token):
                choice = RegisteredChoice(self.store.registration, random=self.random)
                return BookiesAre(token, choice.choose(instruction))
            case ReadMetadata(token, ledger):
                found = self.store.ledgers.read_ledger(ledger)
                return MetadataIs(token, found.metadata, found.version)
            case WriteMetadata(token, ledger, metadata, version):
                return self._write(token, ledger, metadata, version)
        raise AssertionError(instruction)

    def _added(self, send: Send) -> Event | None:
        request = send.request
        if not isinstance(request, AddRequest) or send.bookie in self.silent:
            return None
        self.before_add(send.bookie)
        if send.bookie in self.silent:
            return self._answer(send)
        if send.bookie in self.refusing:
            return Answered(send.token, request.answer(ResultCode.READ_ONLY))
        self.entries[send.bookie, request.ledger, request.entry] = bytes(request.body)
        return Answered(send.token, request.answer(ResultCode.OK))

    def _write(self, token: int, ledger: int, metadata: LedgerMetadata, version: int) -> Event:
        self.before_write(ledger)
        before = self.store.ledgers.read_ledger(ledger).metadata
        try:
            found = self.store.ledgers.update_ledger(ledger, metadata, version)
        except BkctlError as error:
            return MetadataFailed(token, error)
        for entry in range(before.last_entry + 1):
            had, has = self.good(ledger, before, entry), self.good(ledger, metadata, entry)
            assert len(has) >= len(had), f"ledger {ledger}, entry {entry}: {had} became {has}"
        return MetadataIs(token, metadata, found)

    def good(self, ledger: int, metadata: LedgerMetadata, entry: int) -> set[str]:
        """The bookies that metadata name for an entry and that have it, proved by the digest."""
        access = LedgerAccess.of(ledger, metadata)
        bookies = segment_of(metadata, entry).bookies
        found = set()
        for index in Distribution.of(metadata).write_set(entry):
            body = self.entries.get((bookies[index], ledger, entry))
            if body is not None and isinstance(access.checked(body, entry, bookies[index]), LedgerEntry):
                found.add(bookies[index])
        return found

    async def in_thread(self, call: Callable[[], _Value]) -> _Value:
        await asyncio.sleep(0)
        return call()

    async def read_metadata(self, ledger: int) -> StoredLedger:
        return self.store.ledgers.read_ledger(ledger)  # type: ignore[no-any-return]

    def slow_bookies(self) -> frozenset[str]:
        return frozenset()


class _LongAgo(SystemClock):
    def time_ms(self) -> int:
        return super().time_ms() - 3_600_000


class DrainedCluster:
    """Bookies ``leaving`` and ``others``, registered long ago; ledgers are put there with :meth:`ledger`."""

    def __init__(self, others: Iterable[str], leaving: str = "out") -> None:
        self.shared = MemoryCluster()
        self.leaving = leaving
        self.client = TwinClient()
        self._trees: list[MemoryTree] = []
        self.tree, self.store = self.session(clock=_LongAgo())
        self.store.layout.initialise_cluster()
        for bookie in (leaving, *others):
            self.store.cookies.create_cookie(bookie, b"cookie")
        for bookie in others:
            self.come(bookie)
        self.come(leaving, read_only=True)

    def session(
        self, dies_at: int | None = None, *, after: bool = False, clock: Clock | None = None
    ) -> tuple[DyingTree, TreeMetadataStore]:
        """A process's own view of the metadata; ``clock`` is that of the nodes it makes."""
        tree = DyingTree(self.shared, dies_at, after=after, clock=clock)
        self._trees.append(tree)
        return tree, TreeMetadataStore("memory://drained", tree, ROOT, None, SystemClock())

    def come(self, bookie: str, *, read_only: bool = False) -> None:
        """A bookie is up."""
        folder = "available/readonly" if read_only else "available"
        self.tree.create_with_parents(f"{ROOT}/{folder}/{bookie}", b"", below=ROOT)

    def go(self, bookie: str, *, read_only: bool = False) -> None:
        """A bookie is gone."""
        self.tree.delete(f"{ROOT}/available/{'readonly/' if read_only else ''}{bookie}")

    def ledger(self, ledger: int, metadata: LedgerMetadata, last_entry: int | None = None) -> None:
        """Store a ledger, with all of its replicas."""
        self.store.ledgers.create_ledger(ledger, metadata)
        self.client.fill(ledger, metadata, last_entry)

    def metadata(self, ledger: int) -> LedgerMetadata:
        """A ledger's metadata as they are now."""
        return self.store.ledgers.read_ledger(ledger).metadata

    def missing(self, ledger: int) -> list[tuple[int, int]]:
        """Entries with the number of good copies, where that is less than the write quorum."""
        metadata = self.metadata(ledger)
        copies = [
            (entry, len(self.client.good(ledger, metadata, entry)))
            for entry in range(metadata.last_entry + 1)
        ]
        return [(entry, count) for entry, count in copies if count < metadata.write_quorum]

    def drain(
        self,
        store: TreeMetadataStore | None = None,
        settings: DrainSettings = QUICK,
        move: MoveSettings | None = None,
        adheres: Adheres | None = None,
    ) -> DrainResult:
        """Run a drain to its end."""
        chosen = store or self.store
        self.client.store = chosen
        client: Any = self.client

        async def run() -> DrainResult:
            work = BookieMove(
                chosen, client, [self.leaving], move, adheres=adheres, random=Random(2), host="drain"
            )
            return await BookieDrain(chosen, client, work, settings).run()

        return asyncio.run(run())

    def close(self) -> None:
        """End all sessions."""
        for tree in self._trees:
            tree.close()
