"""The auditor's check of placement, over a metadata store in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from bkctl.client.adherence import Adherence
from bkctl.codec.underreplication import CheckKind, UnderreplicatedMark
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.replication.auditor_status import Gauge, Measure
from bkctl.types import LedgerState
from tests.support.audited_cluster import RunningAuditor, audited_cluster, ledger_metadata
from tests.support.manual_time import eventually

A, B, C = (f"bookie-{letter}:3181" for letter in "abc")
INTERVAL_S = 1_000
GRACE_S = 100
SETTINGS = AuditorSettings(placement_check_interval_s=INTERVAL_S, recovery_grace_period_s=GRACE_S)


def adheres(ensemble: Sequence[str], write_quorum: int) -> Adherence:
    """A and B stand in one rack, B and C not far enough from each other. Asking may take long."""
    assert write_quorum == 2
    assert threading.current_thread() is not threading.main_thread()
    return {(A, B): Adherence.FAIL, (B, C): Adherence.SOFT}.get(tuple(ensemble), Adherence.STRICT)


async def checked(running: RunningAuditor, number: int) -> None:
    """Wait until so many checks were made; the time is stored behind the count, and must not move before."""
    await eventually(lambda: running.auditor.status().summaries[Measure.PLACEMENT_CHECK_TIME].count == number)
    now_ms = running.time.time_ms()
    await eventually(lambda: running.store.underreplication.checked_at(CheckKind.PLACEMENT) == now_ms)


def test_ledgers_are_counted_by_their_worst_segment_and_old_marks_as_well() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C), SETTINGS, adheres=adheres) as (cluster, running):
            await checked(running, 1)
            ledgers = [((A, C),), ((A, C), (B, C)), ((B, C), (A, B)), ((A, B),)]
            for ledger, ensembles in enumerate(ledgers):
                cluster.store.ledgers.create_ledger(ledger, ledger_metadata(*ensembles))
            cluster.store.ledgers.create_ledger(9, ledger_metadata((A, B), state=LedgerState.OPEN))
            now_ms = running.time.time_ms() + INTERVAL_S * 1000
            for ledger, marked_ms in ((1, now_ms - GRACE_S * 1000 - 1), (2, now_ms), (3, None)):
                cluster.store.underreplication.mark(ledger, [A], marked_ms)
            await running.time.pass_by(INTERVAL_S)
            await checked(running, 2)
            gauges = running.auditor.status().gauges
            assert gauges[Gauge.NOT_ADHERING] == 2
            assert gauges[Gauge.SOFTLY_ADHERING] == 1
            assert gauges[Gauge.GRACE_PERIOD_ELAPSED] == 1
            assert set(cluster.marks()) == {1, 2, 3}

    asyncio.run(scenario())


def test_where_it_is_to_be_repaired_the_ledger_is_marked_without_a_bookie() -> None:
    async def scenario() -> None:
        settings = AuditorSettings(placement_check_interval_s=INTERVAL_S, repair_placement=True)
        async with audited_cluster((A, B, C), settings, adheres=adheres) as (cluster, running):
            await checked(running, 1)
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.store.ledgers.create_ledger(2, ledger_metadata((B, C)))
            await running.time.pass_by(INTERVAL_S)
            await checked(running, 2)
            mark = UnderreplicatedMark((), running.time.time_ms())
            assert list(cluster.store.underreplication.marked_ledgers()) == [(1, mark)]

    asyncio.run(scenario())
