"""A cluster in memory whose bookies are names that come and go, with auditors on it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from random import Random

from bkctl.client.adherence import Adheres
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.metadata.memory import MemoryTree
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.auditor import Auditor
from bkctl.replication.auditor_status import Measure
from bkctl.replication.ledger_check import MachineRunner
from bkctl.types import DigestType, LedgerState
from tests.support.manual_time import ManualTime, eventually


def ledger_metadata(*ensembles: Sequence[str], state: LedgerState = LedgerState.CLOSED) -> LedgerMetadata:
    """A ledger with a segment of ten entries for each of the ensembles."""
    size = len(ensembles[0])
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=size,
        ensemble_size=size,
        ack_quorum=size,
        length=1_000 if state is LedgerState.CLOSED else 0,
        last_entry=10 * len(ensembles) - 1 if state is LedgerState.CLOSED else -1,
        state=state,
        segments=tuple(Segment(10 * at, tuple(bookies)) for at, bookies in enumerate(ensembles)),
        digest_type=DigestType.CRC32C,
        password=b"",
    )


class AuditedCluster:
    """One cluster, the bookies of it, and the store of whoever looks from outside."""

    def __init__(self, bookies: Iterable[str]) -> None:
        self.uri = f"memory://{uuid.uuid4().hex}"
        self.stores: list[TreeMetadataStore] = []
        self.store = self.open()
        self.store.layout.initialise_cluster()
        for bookie in bookies:
            self.store.cookies.create_cookie(bookie, b"")
            self.come(bookie)

    def open(self) -> TreeMetadataStore:
        """A store with a session of its own."""
        store = open_metadata_store(self.uri)
        assert isinstance(store, TreeMetadataStore)
        self.stores.append(store)
        return store

    def come(self, bookie: str) -> None:
        """A bookie is up."""
        self.store._tree.create(f"{self.store.root}/available/{bookie}", b"")

    def go(self, bookie: str) -> None:
        """A bookie is gone."""
        self.store._tree.delete(f"{self.store.root}/available/{bookie}")

    def marks(self) -> dict[int, tuple[str, ...]]:
        """The ledgers that are marked, with the bookies."""
        return {ledger: mark.replicas for ledger, mark in self.store.underreplication.marked_ledgers()}

    def votes(self) -> list[str]:
        """The votes of all candidates, that of the auditor among them."""
        return self.store._tree.children(f"{self.store.root}/underreplication/auditorelection") or []

    def close(self) -> None:
        """End all sessions."""
        for store in self.stores:
            store.close()


class RunningAuditor:
    """An auditor that runs in the background of a test, by a time of its own."""

    def __init__(
        self,
        cluster: AuditedCluster,
        name: str,
        settings: AuditorSettings,
        client: MachineRunner | None = None,
        adheres: Adheres | None = None,
    ) -> None:
        self.store = cluster.open()
        self.time = ManualTime()
        self.auditor = Auditor(
            self.store,
            name,
            settings,
            client=client,
            adheres=adheres,
            random=Random(1),
            clock=self.time,
            wait=self.time.wait,
        )
        self.task = asyncio.create_task(self.auditor.run())

    @property
    def audits(self) -> int:
        """How many audits of bookies it has ended well."""
        return self.auditor.status().summaries[Measure.BOOKIE_CHECK_TIME].count

    async def elected(self) -> None:
        """Wait until it is in office."""
        await eventually(lambda: self.auditor.status().is_elected)

    async def audited(self, audits: int) -> None:
        """Wait until it has made so many audits, and is at rest."""
        await eventually(lambda: self.audits >= audits and not self.auditor.status().running)

    def lose_session(self) -> None:
        """End its session behind its back, and give it a new one, as a server does with a stopped process."""
        tree = self.store._tree
        assert isinstance(tree, MemoryTree)
        tree.lose_session()
        tree.restore_session()

    async def stop(self) -> None:
        """Stop it; what it failed with is raised."""
        await self.auditor.stop()
        await self.task


@contextlib.asynccontextmanager
async def audited_cluster(
    bookies: Iterable[str],
    settings: AuditorSettings | None = None,
    client: MachineRunner | None = None,
    adheres: Adheres | None = None,
) -> AsyncIterator[tuple[AuditedCluster, RunningAuditor]]:
    """A cluster and an auditor that is elected and has made its first check."""
    cluster = AuditedCluster(bookies)
    running = RunningAuditor(cluster, "auditor-1:3181", settings or AuditorSettings(), client, adheres)
    try:
        await running.elected()
        await running.audited(1)
        yield cluster, running
        await running.stop()
    finally:
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)
        cluster.close()
