"""Autorecovery in one process: a candidate for the auditor's office, and a replication worker.

Both stand on one session with the metadata store, which is theirs alone: beside a bookie the session of its
registration is another one. When one of them fails for good, the other is stopped, too.

Source: ``org.apache.bookkeeper.replication.AutoRecoveryMain``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from bkctl.client.adherence import Adheres
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.driver import BookieChoice
from bkctl.client.settings import ClientSettings
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.metadata.api import MetadataStore
from bkctl.replication.auditor import Auditor
from bkctl.replication.auditor_status import AuditorStatus
from bkctl.replication.misplaced import Mends
from bkctl.replication.settings import WorkerSettings
from bkctl.replication.worker import ReplicationWorker
from bkctl.replication.worker_status import WorkerStatus


@dataclass(frozen=True, slots=True)
class AutoRecoverySettings:
    """Settings of the auditor, the worker, and the client of both."""

    auditor: AuditorSettings = field(default_factory=AuditorSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    client: ClientSettings = field(default_factory=ClientSettings)


class AutoRecovery:
    """Runs the auditor and the worker on the running event loop. ``store`` stays open at the end.

    ``bookie`` is the name that others read in the auditor's vote, ``choice`` chooses the bookies that get
    copies, ``adheres`` is the placement policy that the auditor checks, ``mends`` finds new bookies for
    replicas that break it, where the auditor is to have that repaired.
    """

    def __init__(
        self,
        store: MetadataStore,
        bookie: str,
        settings: AutoRecoverySettings | None = None,
        *,
        choice: BookieChoice | None = None,
        adheres: Adheres | None = None,
        mends: Mends | None = None,
    ) -> None:
        settings = settings or AutoRecoverySettings()
        worker = settings.worker
        if settings.auditor.repair_placement:
            worker = replace(worker, repair=replace(worker.repair, mends=mends))
        self.choice = choice
        self._client = BookKeeper(store, settings.client, choice=choice)
        self._auditor = Auditor(store, bookie, settings.auditor, client=self._client, adheres=adheres)
        self._worker = ReplicationWorker(store, self._client, worker)

    async def run(self) -> None:
        """Run the auditor and the worker until :meth:`stop`.

        Raises RefusedError in a cluster where ours may not work, NoClusterError.
        """
        parts = (self._auditor, self._worker)
        tasks = [asyncio.create_task(part.run()) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.stop()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await self._client.close()
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def stop(self) -> None:
        """Withdraw the vote, give all locks back, and end :meth:`run`."""
        await asyncio.gather(self._auditor.stop(), self._worker.stop())

    def auditor_status(self) -> AuditorStatus:
        """Return what the auditor is at; called from the event loop."""
        return self._auditor.status()

    def worker_status(self) -> WorkerStatus:
        """Return what the worker has done and is at; called from the event loop."""
        return self._worker.status()
