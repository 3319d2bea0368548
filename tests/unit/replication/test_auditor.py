"""The auditor over a metadata store in memory, by a time that the test moves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.errors import ConnectionFailedError, RefusedError
from bkctl.metadata.api import NoClusterError, RegisteredBookies
from bkctl.replication.auditor import Auditor
from bkctl.replication.auditor_status import Counter, Measure
from bkctl.replication.bookie_audits import FOLLOW_UP_S
from bkctl.replication.lost_bookies import LostBookies
from bkctl.replication.maintenance import begin_maintenance, end_maintenance
from bkctl.types import LedgerState
from tests.support.audited_cluster import AuditedCluster, RunningAuditor, audited_cluster, ledger_metadata
from tests.support.manual_time import eventually

A, B, C, D = (f"bookie-{letter}:3181" for letter in "abcd")
DELAY_S = 30
DELAYED = AuditorSettings(lost_bookie_recovery_delay_s=DELAY_S)


class HeldLook:
    """The auditor's next question which bookies are up: its answer is there, and stands still for a time."""

    def __init__(self, running: RunningAuditor, patch: pytest.MonkeyPatch) -> None:
        self.stands = threading.Event()
        self.goes_on = threading.Event()
        self.is_over = threading.Event()
        bookies = running.store.registration.bookies

        def held() -> RegisteredBookies:
            found = bookies()
            # Watches look in threads of the store.
            if threading.current_thread().name.startswith("auditor-metadata"):
                self.stands.set()
                assert self.goes_on.wait(20)
                self.is_over.set()
            return found

        patch.setattr(running.store.registration, "bookies", held)


def test_the_ledgers_of_a_lost_bookie_are_marked() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C)) as (cluster, running):
            ledgers = cluster.store.ledgers
            ledgers.create_ledger(1, ledger_metadata((A, B)))
            ledgers.create_ledger(2, ledger_metadata((B, C)))
            ledgers.create_ledger(3, ledger_metadata((B, C), (A, C), state=LedgerState.OPEN))
            cluster.go(A)
            await running.audited(2)
            assert cluster.marks() == {1: (A,), 3: (A,)}
            mark = cluster.store.underreplication.mark_of(1)
            assert mark is not None
            assert mark.marked_ms == running.time.time_ms()
            status = running.auditor.status()
            assert (status.marked, status.gone, status.bookie) == (2, frozenset(), "auditor-1:3181")
            assert status.summaries[Measure.UNDER_REPLICATED_LEDGERS].total == 2
            assert status.summaries[Measure.UNDER_REPLICATED_BYTES].total == 1_000
            assert cluster.store.underreplication.auditor() == "auditor-1:3181"

    asyncio.run(scenario())


def test_marks_have_no_time_where_the_configuration_wants_none() -> None:
    async def scenario() -> None:
        settings = AuditorSettings(store_mark_time=False)
        async with audited_cluster((A, B), settings) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await running.audited(2)
            mark = cluster.store.underreplication.mark_of(1)
            assert mark is not None
            assert mark.marked_ms is None

    asyncio.run(scenario())


def test_what_the_first_auditor_leaves_for_others_to_find() -> None:
    async def scenario() -> None:
        async with audited_cluster((A,), DELAYED) as (cluster, _):
            names = cluster.store._tree.children(f"{cluster.store.root}/underreplication")
            assert names is not None
            assert set(names) == {"LAYOUT", "ledgers", "locks", "auditorelection", "lostBookieRecoveryDelay"}
            assert cluster.store.underreplication.lost_bookie_recovery_delay_s() == DELAY_S

    asyncio.run(scenario())


def test_a_rolling_restart_within_the_delay_marks_nothing() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C), DELAYED) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B, C)))
            status = running.auditor.status
            for number, bookie in enumerate((A, B, C), 1):
                cluster.go(bookie)
                await eventually(lambda bookie=bookie: status().gone == {bookie})
                assert status().audit_in_s == DELAY_S
                await running.time.pass_by(DELAY_S - 1)
                cluster.come(bookie)
                await eventually(lambda: not status().gone)
                await running.time.pass_by(10)
                assert status().counters[Counter.DELAYED_AUDITS_CANCELLED] == number
            assert running.audits == 1
            assert cluster.marks() == {}

    asyncio.run(scenario())


def test_one_that_stays_away_is_lost_after_the_delay() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B), DELAYED) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await eventually(lambda: running.auditor.status().gone == {A})
            assert cluster.marks() == {}
            await running.time.pass_by(DELAY_S)
            await running.audited(2)
            assert cluster.marks() == {1: (A,)}
            assert running.auditor.status().counters[Counter.AUDITS_DELAYED] == 1

    asyncio.run(scenario())


async def marked_by_the_follow_up(cluster: AuditedCluster, running: RunningAuditor, audits: int) -> None:
    """A recovery names the lost bookie now: the audit of this number marks it, and is the last one."""
    ledgers = cluster.store.ledgers
    version = ledgers.read_ledger(1).version
    ledgers.update_ledger(1, ledger_metadata((B, C), (B, A)), version)
    await running.time.until_somebody_waits(FOLLOW_UP_S)
    await running.time.pass_by(FOLLOW_UP_S)
    await running.audited(audits)
    assert cluster.marks() == {1: (A,)}
    await running.time.pass_by(10 * FOLLOW_UP_S)
    await asyncio.sleep(0.05)
    assert running.audits == audits


def test_a_lost_bookie_that_a_recovery_names_behind_the_audit_is_marked() -> None:
    """The recovery has chosen it while it was up, and names it when it closes the ledger."""

    async def scenario() -> None:
        settings = AuditorSettings(bookie_check_interval_s=0)
        async with audited_cluster((A, B, C), settings) as (cluster, running):
            metadata = ledger_metadata((B, C), state=LedgerState.IN_RECOVERY)
            cluster.store.ledgers.create_ledger(1, metadata)
            cluster.go(A)
            await running.audited(2)
            assert cluster.marks() == {}
            await marked_by_the_follow_up(cluster, running, 3)

    asyncio.run(scenario())


def test_one_that_went_before_the_auditor_came_and_has_no_cookie_is_marked() -> None:
    """Nothing shows that there ever was one, until a recovery or a copy names it."""

    async def scenario() -> None:
        settings = AuditorSettings(bookie_check_interval_s=0)
        async with audited_cluster((B, C), settings) as (cluster, running):
            metadata = ledger_metadata((B, C), state=LedgerState.IN_RECOVERY)
            cluster.store.ledgers.create_ledger(1, metadata)
            await marked_by_the_follow_up(cluster, running, 2)

    asyncio.run(scenario())


def test_an_audit_that_somebody_asks_for_does_not_take_the_place_of_the_one_behind_a_loss() -> None:
    async def scenario() -> None:
        settings = AuditorSettings(bookie_check_interval_s=0)
        async with audited_cluster((A, B, C), settings) as (cluster, running):
            metadata = ledger_metadata((B, C), state=LedgerState.IN_RECOVERY)
            cluster.store.ledgers.create_ledger(1, metadata)
            cluster.go(A)
            await running.audited(2)
            cluster.store.underreplication.set_lost_bookie_recovery_delay(0)
            await running.audited(3)
            await marked_by_the_follow_up(cluster, running, 4)

    asyncio.run(scenario())


def test_two_are_lost_at_once() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C), DELAYED) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await eventually(lambda: running.auditor.status().gone == {A})
            cluster.go(B)
            await running.audited(2)
            assert cluster.marks() == {1: (A, B)}

    asyncio.run(scenario())


def test_a_bookie_that_was_gone_before_the_election_is_found() -> None:
    async def scenario() -> None:
        cluster = AuditedCluster((A, B))
        cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
        cluster.go(A)
        running = RunningAuditor(cluster, "auditor", DELAYED)
        await running.elected()
        await eventually(lambda: running.auditor.status().audit_in_s == DELAY_S)
        assert (running.audits, cluster.marks()) == (0, {})
        await running.time.pass_by(DELAY_S)
        await running.audited(1)
        assert cluster.marks() == {1: (A,)}
        await running.stop()
        cluster.close()

    asyncio.run(scenario())


def test_writing_the_same_delay_again_is_how_an_audit_is_asked_for() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B), DELAYED) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await eventually(lambda: running.auditor.status().gone == {A})
            cluster.store.underreplication.set_lost_bookie_recovery_delay(DELAY_S)
            await running.audited(2)
            assert cluster.marks() == {1: (A,)}

    asyncio.run(scenario())


def test_while_autorecovery_is_disabled_nobody_is_taken_for_lost() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B), DELAYED) as (cluster, running):
            status = running.auditor.status
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await eventually(lambda: status().gone == {A})
            cluster.store.underreplication.set_enabled(False)
            await eventually(lambda: not status().is_enabled)
            await running.time.pass_by(DELAY_S * 10)
            cluster.store.underreplication.set_enabled(True)
            # Its time away starts over: who disabled autorecovery may have it down on purpose.
            await eventually(lambda: status().is_enabled and status().audit_in_s == DELAY_S)
            assert (running.audits, cluster.marks()) == (1, {})
            await running.time.pass_by(DELAY_S)
            await running.audited(2)
            assert cluster.marks() == {1: (A,)}

    asyncio.run(scenario())


@pytest.mark.parametrize("is_on_again_first", [False, True])
def test_a_switch_while_the_bookies_are_looked_up_counts(
    monkeypatch: pytest.MonkeyPatch, is_on_again_first: bool
) -> None:
    """The delay has passed when the answer of a slow store comes, but autorecovery was off in between."""

    async def scenario() -> None:
        async with audited_cluster((A, B), DELAYED) as (cluster, running):
            status = running.auditor.status
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await eventually(lambda: status().gone == {A})
            held = HeldLook(running, monkeypatch)
            running.auditor._wake.set()
            await eventually(held.stands.is_set)
            cluster.store.underreplication.set_enabled(False)
            await eventually(lambda: not status().is_enabled)
            await running.time.pass_by(DELAY_S * 10)
            if is_on_again_first:
                cluster.store.underreplication.set_enabled(True)
                await eventually(lambda: status().is_enabled)
            held.goes_on.set()
            await eventually(held.is_over.is_set)
            cluster.store.underreplication.set_enabled(True)
            await eventually(lambda: status().is_enabled and status().audit_in_s == DELAY_S)
            assert (running.audits, cluster.marks()) == (1, {})
            await running.time.pass_by(DELAY_S)
            await running.audited(2)
            assert cluster.marks() == {1: (A,)}

    asyncio.run(scenario())


def test_who_is_back_before_the_watch_has_looked_is_not_gone() -> None:
    """The auditor saw it gone by a look of its own, for another reason."""

    async def scenario() -> None:
        async with audited_cluster((A, B), DELAYED) as (cluster, running):
            notices = running.store._tree._notices
            known, stands, goes_on = threading.Event(), threading.Event(), threading.Event()
            notices.post("known", known.set)
            await eventually(known.is_set)

            def hold() -> None:
                stands.set()
                assert goes_on.wait(20)

            notices.post("held", hold)
            await eventually(stands.is_set)
            cluster.go(A)
            running.auditor._wake.set()
            await eventually(lambda: running.auditor.status().gone == {A})
            cluster.come(A)
            goes_on.set()
            await eventually(lambda: not running.auditor.status().gone)

    asyncio.run(scenario())


def test_a_maintenance_that_is_left_on_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B), DELAYED) as (cluster, running):
            begin_maintenance(cluster.store.underreplication, "ops@here", "", 1_000, 3_600)
            await eventually(lambda: not running.auditor.status().is_enabled)
            assert "a maintenance of ops@here" in caplog.text
            # So does the next auditor.
            caplog.clear()
            running.lose_session()
            await eventually(lambda: "a maintenance of ops@here" in caplog.text)
            await running.elected()
            end_maintenance(cluster.store.underreplication)
            await eventually(lambda: running.auditor.status().is_enabled)

    asyncio.run(scenario())


def test_bookies_are_checked_from_time_to_time() -> None:
    """A bookie without a cookie that nobody ever saw is missed by nobody, but ledgers name it."""

    async def scenario() -> None:
        async with audited_cluster((A, B), AuditorSettings(bookie_check_interval_s=100)) as (
            cluster,
            running,
        ):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, D)))
            await running.time.pass_by(99)
            assert running.audits == 1
            await running.time.pass_by(1)
            await running.audited(2)
            assert cluster.marks() == {1: (D,)}

    asyncio.run(scenario())


def test_metadata_that_do_not_decode_do_not_end_an_audit() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B)) as (cluster, running):
            for ledger in (1, 2):
                cluster.store.ledgers.create_ledger(ledger, ledger_metadata((A, B)))
            path = f"{cluster.store.root}/00/0000/L0001"
            cluster.store._tree.set(path, b"garbage", 0)
            cluster.go(A)
            await running.audited(2)
            assert cluster.marks() == {2: (A,)}
            assert running.auditor.status().undecodable == 1

    asyncio.run(scenario())


def test_an_audit_that_the_store_breaks_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B)) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            with monkeypatch.context() as patch:

                def fail(*_: object) -> None:
                    raise ConnectionFailedError("away")

                patch.setattr(running.store.ledgers, "read_ledgers", fail)
                cluster.go(A)
                await eventually(lambda: "away" in running.auditor.status().last_error)
                await running.time.until_somebody_waits(1)
            await running.time.pass_by(1)
            await running.audited(2)
            assert cluster.marks() == {1: (A,)}
            assert running.auditor.status().summaries[Measure.BOOKIE_CHECK_TIME].failed_count >= 1

    asyncio.run(scenario())


class HeldUp:
    """A listing of ledgers that stands still, as in a process that is stopped, until it is let go."""

    def __init__(self, running: RunningAuditor, patch: pytest.MonkeyPatch) -> None:
        self.stands = threading.Event()
        self.goes_on = threading.Event()
        listing = running.store.ledgers.ledgers

        def held() -> Iterator[int]:
            self.stands.set()
            assert self.goes_on.wait(20)
            yield from listing()

        patch.setattr(running.store.ledgers, "ledgers", held)


def test_who_goes_while_another_ones_ledgers_are_marked_has_its_delay_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C), DELAYED) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            held = HeldUp(running, monkeypatch)
            cluster.go(A)
            await eventually(lambda: running.auditor.status().gone == {A})
            await running.time.pass_by(DELAY_S)
            await eventually(held.stands.is_set)
            cluster.go(B)
            await eventually(lambda: running.auditor.status().gone == {B})
            await running.time.pass_by(DELAY_S - 1)
            assert running.auditor.status().audit_in_s == 1
            held.goes_on.set()
            await running.audited(2)
            assert cluster.marks() == {1: (A,)}
            await running.time.pass_by(1)
            await running.audited(3)
            assert cluster.marks() == {1: (A, B)}

    asyncio.run(scenario())


def test_who_goes_unseen_while_ledgers_are_read_is_not_marked_by_this_audit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C), DELAYED) as (cluster, running):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            cluster.go(A)
            await eventually(lambda: running.auditor.status().gone == {A})
            with monkeypatch.context() as patch:
                # The watch over bookies has not heard of B when the audit of A begins.
                patch.setattr(LostBookies, "bookies_are", lambda *_: False)
                cluster.go(B)
                await running.time.pass_by(DELAY_S)
                await running.audited(2)
            assert cluster.marks() == {1: (A,)}

    asyncio.run(scenario())


def test_an_auditor_that_was_stopped_past_its_session_marks_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when it has not heard of it: it is about to mark when another one is the auditor."""

    async def scenario() -> None:
        async with audited_cluster((A, B)) as (cluster, first):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            second = RunningAuditor(cluster, "auditor-2", AuditorSettings())
            await eventually(lambda: len(cluster.votes()) == 2)
            marked_by: list[str] = []
            for name, running in (("first", first), ("second", second)):
                mark = running.store.underreplication.mark

                def noted(*arguments: object, guard: str, name: str = name, mark: object = mark) -> object:
                    assert callable(mark)
                    grew = mark(*arguments, guard=guard)
                    marked_by.append(name)
                    return grew

                monkeypatch.setattr(running.store.underreplication, "mark", noted)
            held = HeldUp(first, monkeypatch)
            # It does not hear that its vote is gone before it wants to mark.
            monkeypatch.setattr(first.auditor, "_over", asyncio.Event())
            monkeypatch.setattr(first.auditor, "_vote_lost", lambda: None)
            monkeypatch.setattr(first.auditor._election, "_lost", lambda: None)
            cluster.go(A)
            await eventually(held.stands.is_set)
            first.lose_session()
            await second.audited(1)
            assert second.auditor.status().is_elected
            held.goes_on.set()
            await eventually(lambda: not first.auditor.status().is_elected)
            assert "vote" in first.auditor.status().last_error
            assert marked_by == ["second"]
            await second.stop()
            await first.elected()  # it has stood again

    asyncio.run(scenario())


def test_who_loses_its_session_steps_down_at_once_and_the_next_one_takes_over() -> None:
    async def scenario() -> None:
        async with audited_cluster((A, B, C)) as (cluster, first):
            cluster.store.ledgers.create_ledger(1, ledger_metadata((A, B)))
            second = RunningAuditor(cluster, "auditor-2", AuditorSettings())
            await eventually(lambda: len(cluster.votes()) == 2)
            first.lose_session()
            await second.elected()
            await eventually(lambda: not first.auditor.status().is_elected)
            cluster.go(A)
            await eventually(lambda: cluster.marks() == {1: (A,)})
            assert first.auditor.status().marked == 0
            await second.stop()
            await first.elected()

    asyncio.run(scenario())


def test_a_million_ledgers_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read ahead of what is done with is one group."""

    async def scenario() -> None:
        async with audited_cluster((A, B)) as (cluster, running):
            cluster.store.ledgers.create_ledger(0, ledger_metadata((A, B)))
            row = (0, cluster.store.ledgers.read_ledger(0))
            given = marked = ahead = 0

            def rows(_: object) -> Iterator[object]:
                nonlocal given, ahead
                for _ in range(3_000):
                    given += 1
                    ahead = max(ahead, given - marked)
                    yield row

            def mark(*_: object, **__: object) -> bool:
                nonlocal marked
                marked += 1
                return True

            monkeypatch.setattr(running.store.ledgers, "read_ledgers", rows)
            monkeypatch.setattr(running.store.underreplication, "mark", mark)
            cluster.go(A)
            await running.audited(2)
            assert (given, marked, ahead) == (3_000, 3_000, 256)

    asyncio.run(scenario())


def test_a_cluster_of_pulsars_own_election_is_refused() -> None:
    async def scenario() -> None:
        cluster = AuditedCluster((A,))
        cluster.store._tree.create_with_parents(
            f"{cluster.store.root}/underreplication/leader", b"{}", below=cluster.store.root
        )
        with pytest.raises(RefusedError, match="Pulsar"):
            await Auditor(cluster.store, "auditor").run()
        cluster.close()

    asyncio.run(scenario())


def test_without_a_cluster_there_is_nothing_to_audit() -> None:
    async def scenario() -> None:
        cluster = AuditedCluster(())
        cluster.store._tree.delete(f"{cluster.store.root}/LAYOUT")
        store = cluster.open()
        shared = cluster.store._tree
        for name in ("available/readonly", "available", "INSTANCEID", ""):
            path = f"{cluster.store.root}/{name}".rstrip("/")
            for below in shared.children(path) or ():
                shared.delete(f"{path}/{below}")
            shared.delete(path)
        with pytest.raises(NoClusterError):
            await Auditor(store, "auditor").run()
        cluster.close()

    asyncio.run(scenario())


def test_an_auditor_that_never_ran_can_be_stopped() -> None:
    async def scenario() -> None:
        cluster = AuditedCluster((A,))
        auditor = Auditor(cluster.store, "auditor")
        await auditor.stop()
        assert not auditor.status().is_elected
        await auditor.run()  # it is over at once
        assert cluster.store.underreplication.auditor() is None
        cluster.close()

    asyncio.run(scenario())


def test_a_candidate_that_waits_is_stopped_and_leaves_no_vote() -> None:
    async def scenario() -> None:
        async with audited_cluster((A,)) as (cluster, _):
            second = RunningAuditor(cluster, "auditor-2", AuditorSettings())
            await eventually(lambda: len(cluster.votes()) == 2)
            await second.stop()
            assert cluster.votes() == ["V_0000000000"]

    asyncio.run(scenario())


def test_an_auditor_whose_vote_cannot_be_withdrawn_has_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        cluster = AuditedCluster((A,))
        auditor = Auditor(cluster.store, "auditor")

        resign = auditor._election.resign

        def fail_at_the_end_of_the_run() -> None:
            if threading.current_thread().name.startswith("auditor-metadata"):
                raise RuntimeError("can't start new thread")
            resign()

        running = asyncio.create_task(auditor.run())
        await eventually(lambda: auditor.status().is_elected)
        monkeypatch.setattr(auditor._election, "resign", fail_at_the_end_of_the_run)
        async with asyncio.timeout(20):
            await auditor.stop()
        with pytest.raises(RuntimeError):
            await running
        cluster.close()

    asyncio.run(scenario())
