"""The auditor's checks that read from bookies, over a metadata store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from bkctl.codec.underreplication import CheckKind
from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import StoredLedger
from bkctl.replication.auditor_status import Counter, Gauge, Measure
from bkctl.replication.bookie_audits import FOLLOW_UP_S
from bkctl.replication.lost_bookies import LostBookies
from bkctl.types import LedgerState
from tests.support.audited_cluster import AuditedCluster, RunningAuditor, audited_cluster, ledger_metadata
from tests.support.fake_bookies import FakeBookies
from tests.support.manual_time import eventually

A, B, C, D = (f"bookie-{letter}:3181" for letter in "abcd")
INTERVAL_S = 1_000
#: How long an auditor waits for the next check before it looks at the time stamp again.
TIME_STAMP_S = 60
SETTINGS = AuditorSettings(
    lost_bookie_recovery_delay_s=600, ledger_check_interval_s=INTERVAL_S, verification_percentage=100
)
Scenario = Callable[[AuditedCluster, RunningAuditor, FakeBookies], Awaitable[None]]


def checks(running: RunningAuditor, measure: Measure = Measure.LEDGER_CHECK_TIME) -> int:
    return running.auditor.status().summaries[measure].count


def play(scenario: Scenario, settings: AuditorSettings = SETTINGS) -> None:
    """Play a scenario behind the first check, of a cluster without ledgers."""

    async def run() -> None:
        bookies = FakeBookies()
        async with audited_cluster((A, B, C), settings, client=bookies) as (cluster, running):
            # It is counted first, and recorded then: with a clock that was moved by then the next is far.
            kind = CheckKind.ALL_LEDGERS if settings.ledger_check_interval_s else CheckKind.REPLICAS
            await eventually(lambda: cluster.store.underreplication.checked_at(kind) is not None)
            await running.time.until_somebody_waits(TIME_STAMP_S)
            await scenario(cluster, running, bookies)

    asyncio.run(run())


def create(cluster: AuditedCluster, bookies: FakeBookies, ledger: int, *ensembles: tuple[str, ...]) -> None:
    metadata = ledger_metadata(*ensembles)
    cluster.store.ledgers.create_ledger(ledger, metadata)
    bookies.fill(ledger, metadata)


async def behind_the_follow_up(running: RunningAuditor) -> None:
    """Wait until no audit of bookies reads ledgers at the time of the next check."""
    await running.time.until_somebody_waits(FOLLOW_UP_S)
    await running.time.pass_by(FOLLOW_UP_S)
    await running.audited(2)


async def next_check(running: RunningAuditor, number: int = 2) -> None:
    await running.time.pass_by(INTERVAL_S)
    await eventually(lambda: checks(running) == number)


def test_a_good_ledger_is_not_marked_and_the_check_is_recorded() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B), (B, C))
        await next_check(running)
        assert cluster.marks() == {}
        # It is counted first, and recorded then.
        recorded = cluster.store.underreplication
        await eventually(lambda: recorded.checked_at(CheckKind.ALL_LEDGERS) == running.time.time_ms())
        status = running.auditor.status()
        assert status.counters[Counter.LEDGERS_CHECKED] == 1
        assert status.summaries[Measure.FRAGMENTS_PER_LEDGER].total == 2
        assert status.summaries[Measure.BOOKIES_PER_LEDGER].total == 3

    play(scenario)


def test_entries_that_are_missing_or_damaged_are_found() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        for ledger in (1, 2, 3):
            create(cluster, bookies, ledger, (A, B), (B, C))
        bookies.lose(A, 1, [3])
        bookies.damage(C, 2, 15)
        await next_check(running)
        assert cluster.marks() == {1: (A,), 2: (C,)}

    play(scenario)


def test_an_open_ledger_is_checked_as_far_as_it_is_confirmed() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        for ledger in (1, 2, 3):
            metadata = ledger_metadata((A, B), (B, C), state=LedgerState.OPEN)
            cluster.store.ledgers.create_ledger(ledger, metadata)
            bookies.fill(ledger, metadata, last_entry=14)
        bookies.lose(B, 1, [12])
        bookies.lose(C, 2, [14])  # written, and not confirmed
        await next_check(running)
        assert cluster.marks() == {1: (B,)}

    play(scenario)


def test_a_bookie_that_restarts_during_the_check_costs_no_mark() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        create(cluster, bookies, 2, (B, C))
        bookies.lose(B, 2, [0])
        bookies.silent.add(A)
        await running.time.pass_by(INTERVAL_S)
        await eventually(lambda: cluster.marks() == {2: (B,)})
        bookies.silent.clear()
        await running.time.until_somebody_waits(SETTINGS.doubt_s)
        await running.time.pass_by(SETTINGS.doubt_s)
        await eventually(lambda: checks(running) == 2)
        assert cluster.marks() == {2: (B,)}

    play(scenario)


def test_who_still_does_not_answer_after_a_while_is_marked() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.silent.add(A)
        await running.time.pass_by(INTERVAL_S)
        await eventually(lambda: running.auditor.status().counters[Counter.LEDGERS_CHECKED] == 1)
        assert cluster.marks() == {}
        await running.time.until_somebody_waits(SETTINGS.doubt_s)
        await running.time.pass_by(SETTINGS.doubt_s)
        await eventually(lambda: cluster.marks() == {1: (A,)})

    play(scenario)


def test_a_bookie_that_never_answers_is_not_asked_for_every_ledger() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        for ledger in range(300):
            create(cluster, bookies, ledger, (A, B))
        bookies.silent.add(A)
        await running.time.pass_by(INTERVAL_S)
        await eventually(lambda: running.auditor.status().counters[Counter.LEDGERS_CHECKED] == 300)
        # Sixteen ledgers in a row, and the four that are under way by then, with four reads each.
        assert bookies.asked[A] <= (16 + 4) * 4
        await running.time.until_somebody_waits(SETTINGS.doubt_s)
        await running.time.pass_by(SETTINGS.doubt_s)
        await eventually(lambda: checks(running) == 2)
        assert set(cluster.marks()) == set(range(300))

    play(scenario, replace(SETTINGS, reads_max=16))


def test_a_bookie_that_goes_during_the_check_is_left_to_its_delay() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.silent.add(A)
        await running.time.pass_by(INTERVAL_S)
        await eventually(lambda: running.auditor.status().counters[Counter.LEDGERS_CHECKED] == 1)
        cluster.go(A)
        await eventually(lambda: running.auditor.status().gone == {A})
        await running.time.until_somebody_waits(SETTINGS.doubt_s)
        await running.time.pass_by(SETTINGS.doubt_s)
        await eventually(lambda: checks(running) == 2)
        assert cluster.marks() == {}
        await running.time.pass_by(600)
        await eventually(lambda: cluster.marks() == {1: (A,)})

    play(scenario)


def test_a_bookie_that_went_unseen_before_the_check_is_left_to_its_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        create(cluster, bookies, 2, (B, D))  # nobody has ever seen it
        with monkeypatch.context() as patch:
            # The watch over bookies hears late of what the check reads.
            patch.setattr(LostBookies, "bookies_are", lambda *_: False)
            cluster.go(A)
            await running.time.pass_by(INTERVAL_S)
            await running.time.until_somebody_waits(SETTINGS.doubt_s)
            assert cluster.marks() == {2: (D,)}
            await running.time.pass_by(SETTINGS.doubt_s)
            await eventually(lambda: checks(running) == 2)
            assert cluster.marks() == {2: (D,)}
        await running.time.pass_by(1)

    play(scenario)


def test_a_bookie_that_is_back_at_the_second_look_is_checked_all_the_same() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.lose(A, 1, [3])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LostBookies, "bookies_are", lambda *_: False)
            cluster.go(A)
            await running.time.pass_by(INTERVAL_S)
            await running.time.until_somebody_waits(SETTINGS.doubt_s)
            cluster.come(A)
            assert cluster.marks() == {}
            await running.time.pass_by(SETTINGS.doubt_s)
            await eventually(lambda: cluster.marks() == {1: (A,)})

    play(scenario)


def test_who_does_not_answer_the_second_look_alone_is_not_marked() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.silent.add(A)
        await running.time.pass_by(INTERVAL_S)
        await running.time.until_somebody_waits(SETTINGS.doubt_s)
        # As in a rolling restart: one is back, and the next one starts again.
        bookies.silent.remove(A)
        bookies.silent.add(B)
        await running.time.pass_by(SETTINGS.doubt_s)
        await eventually(lambda: checks(running) == 2)
        assert cluster.marks() == {}

    play(scenario)


def test_while_a_lost_bookie_is_waited_for_no_check_begins() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        await running.time.pass_by(INTERVAL_S - 100)
        await running.time.until_somebody_waits(TIME_STAMP_S)
        cluster.go(A)
        await eventually(lambda: running.auditor.status().gone == {A})
        await running.time.pass_by(100)
        await eventually(lambda: running.auditor.status().counters[Counter.CHECKS_SKIPPED])
        await running.time.until_somebody_waits(TIME_STAMP_S)
        assert (checks(running), cluster.marks()) == (1, {})
        cluster.come(A)
        await eventually(lambda: not running.auditor.status().gone)
        await running.time.pass_by(100)
        await eventually(lambda: checks(running) == 2)
        assert cluster.marks() == {}

    play(scenario)


def test_a_ledger_that_is_deleted_or_repaired_meanwhile_is_not_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        for ledger in (1, 2):
            create(cluster, bookies, ledger, (A, B))
            bookies.lose(A, ledger, [0])
        await behind_the_follow_up(running)
        read = running.store.ledgers.read_ledgers

        def reading(ledgers: object) -> object:
            rows = list(read(ledgers))  # type: ignore[arg-type]
            first, second = (row for _, row in rows if isinstance(row, StoredLedger))
            cluster.store.ledgers.delete_ledger(1, first.version)
            repaired = replace(
                second.metadata,
                segments=tuple(replace(each, bookies=(C, B)) for each in second.metadata.segments),
            )
            cluster.store.ledgers.update_ledger(2, repaired, second.version)
            return iter(rows)

        with monkeypatch.context() as patch:
            patch.setattr(running.store.ledgers, "read_ledgers", reading)
            await next_check(running)
        assert cluster.marks() == {}

    play(scenario)


def test_a_check_that_is_broken_off_is_not_recorded_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        create(cluster, bookies, 2, (A, B))
        bookies.lose(A, 1, [0])
        await behind_the_follow_up(running)
        before_ms = cluster.store.underreplication.checked_at(CheckKind.ALL_LEDGERS)
        read = running.store.ledgers.read_ledgers

        def breaking(ledgers: object) -> object:
            yield next(iter(read(ledgers)))  # type: ignore[call-overload]
            raise ConnectionFailedError("the store went away")

        with monkeypatch.context() as patch:
            patch.setattr(running.store.ledgers, "read_ledgers", breaking)
            await running.time.pass_by(INTERVAL_S)
            await eventually(lambda: "went away" in running.auditor.status().last_error)
        assert cluster.store.underreplication.checked_at(CheckKind.ALL_LEDGERS) == before_ms
        assert running.auditor.status().summaries[Measure.LEDGER_CHECK_TIME].failed_count == 1
        await running.time.until_somebody_waits(SETTINGS.retry_interval_s)
        await running.time.pass_by(SETTINGS.retry_interval_s)
        await eventually(lambda: checks(running) == 2)
        assert cluster.marks() == {1: (A,)}

    play(scenario)


def test_while_disabled_a_check_waits() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.lose(A, 1, [0])
        cluster.store.underreplication.set_enabled(False)
        await eventually(lambda: not running.auditor.status().is_enabled)
        await running.time.pass_by(INTERVAL_S)
        await running.time.pass_by(INTERVAL_S)
        assert (checks(running), cluster.marks()) == (1, {})
        cluster.store.underreplication.set_enabled(True)
        await eventually(lambda: cluster.marks() == {1: (A,)})

    play(scenario)


def test_a_time_stamp_that_is_set_back_asks_for_a_check() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.lose(A, 1, [0])
        cluster.store.underreplication.set_checked_at(CheckKind.ALL_LEDGERS, 0)
        await running.time.pass_by(60)
        await eventually(lambda: cluster.marks() == {1: (A,)})

    play(scenario)


def test_a_time_stamp_of_the_future_does_not_end_the_checks() -> None:
    """That of an auditor whose clock was a year ahead."""

    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, B))
        bookies.lose(A, 1, [0])
        underreplication = cluster.store.underreplication
        ahead_ms = running.time.time_ms() + 365 * 86_400_000
        await eventually(lambda: underreplication.checked_at(CheckKind.ALL_LEDGERS) is not None)
        underreplication.set_checked_at(CheckKind.ALL_LEDGERS, ahead_ms)
        # It looks at the time stamp every minute, and waits for an interval since it has seen this one.
        for _ in range(300):
            await running.time.pass_by(60)
            await asyncio.sleep(0.01)
            if cluster.marks():
                break
        assert cluster.marks() == {1: (A,)}
        await eventually(lambda: underreplication.checked_at(CheckKind.ALL_LEDGERS) != ahead_ms)

    play(scenario)


def test_metadata_that_no_client_can_use_end_nothing() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        unusable = replace(ledger_metadata((A, B)), ensemble_size=3, write_quorum=3)
        cluster.store.ledgers.create_ledger(1, unusable)
        create(cluster, bookies, 2, (A, B))
        bookies.lose(A, 2, [0])
        await next_check(running)
        assert cluster.marks() == {2: (A,)}

    play(scenario)


def test_without_a_stored_digest_only_who_is_up_is_checked() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        old = replace(ledger_metadata((A, B)), digest_type=None, password=None, metadata_version=1)
        cluster.store.ledgers.create_ledger(1, old)
        old = replace(ledger_metadata((A, D)), digest_type=None, password=None, metadata_version=1)
        cluster.store.ledgers.create_ledger(2, old)
        await next_check(running)
        assert cluster.marks() == {2: (D,)}
        assert bookies.asked == {}

    play(scenario)


REPLICAS = AuditorSettings(ledger_check_interval_s=0, replicas_check_interval_s=INTERVAL_S)


def test_ledgers_are_counted_by_the_entry_that_is_worst_off() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        for ledger in range(6):
            metadata = replace(ledger_metadata((A, B, C)), ack_quorum=2)
            cluster.store.ledgers.create_ledger(ledger, metadata)
            bookies.fill(ledger, metadata)
        for bookie in (A, B, C):
            bookies.lose(bookie, 1, [4])
        for bookie in (A, C):
            bookies.lose(bookie, 2, [9])
        bookies.damage(B, 3, 0)
        bookies.lose(A, 4, [1])
        bookies.lose(B, 4, [2])
        await running.time.pass_by(INTERVAL_S)
        await eventually(lambda: checks(running, Measure.REPLICAS_CHECK_TIME) == 2)
        gauges = running.auditor.status().gauges
        assert (
            gauges[Gauge.NO_REPLICA],
            gauges[Gauge.BELOW_ACK_QUORUM],
            gauges[Gauge.BELOW_WRITE_QUORUM],
        ) == (1, 1, 2)
        assert cluster.marks() == {}
        recorded = cluster.store.underreplication
        await eventually(lambda: recorded.checked_at(CheckKind.REPLICAS) == running.time.time_ms())

    play(scenario, REPLICAS)


def test_replicas_of_bookies_that_are_gone_do_not_count() -> None:
    async def scenario(cluster: AuditedCluster, running: RunningAuditor, bookies: FakeBookies) -> None:
        create(cluster, bookies, 1, (A, D))
        create(cluster, bookies, 2, (D, D))
        await running.time.pass_by(INTERVAL_S)
        await eventually(lambda: checks(running, Measure.REPLICAS_CHECK_TIME) == 2)
        gauges = running.auditor.status().gauges
        assert (gauges[Gauge.NO_REPLICA], gauges[Gauge.BELOW_ACK_QUORUM]) == (1, 1)

    play(scenario, REPLICAS)
