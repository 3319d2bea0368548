"""Comparing the replicas of a ledger: each entry is read from each of its bookies alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import TooFewAnswersError
from bkctl.client.ops.ledger_access import require_quorum_fields
from bkctl.errors import UsageError
from bkctl.replication.in_place_repair import InPlaceSettings
from bkctl.replication.ledger_look import read_lac
from bkctl.replication.replica_reads import EntryReplicas
from bkctl.replication.replica_survey import Entries, ReplicaSurvey, placed
from bkctl.replication.steps import ClientSteps


class ReplicaComparison:
    """The comparison of one ledger. An open one is compared as far as it is confirmed."""

    def __init__(self, client: BookKeeper, ledger: int, password: bytes | None = None) -> None:
        self._client = client
        self._steps = ClientSteps(client)
        self._ledger = ledger
        self._settings = InPlaceSettings(password=password)

    async def replicas(self, entries: Entries | None = None) -> AsyncIterator[list[EntryReplicas]]:
        """Yield the replicas of the entries, both ends included, some at a time.

        Raises NoSuchLedgerError, AccessDeniedError, UsageError for a range beyond the ledger's end, and
        TooFewAnswersError where nobody knows the end of one that is not closed.
        """
        stored = await self._steps.stored(self._ledger)
        metadata = stored.metadata
        require_quorum_fields(metadata, self._ledger)
        access = self._settings.access(self._ledger, metadata)
        end = await read_lac(access, metadata, self._steps)
        if end is None:
            raise TooFewAnswersError(
                "it is not closed, and too few of its bookies say how far it is confirmed",
                ledger=self._ledger,
            )
        if entries is not None and entries[1] > end:
            told = "it is empty" if end < 0 else f"it ends at entry {end}"
            raise UsageError(
                f"--entry {entries[0]}-{entries[1]}: ledger {self._ledger} has no such entries: {told}"
            )
        registered = await self._steps.registered()
        survey = ReplicaSurvey(access, self._steps, registered.everyone)
        async for window in survey.windows(placed(metadata, end, entries)):
            yield list(window)
