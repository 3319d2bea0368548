"""The work of autorecovery as ``bkctl top`` gets it from a metadata store."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from bkctl.admin.top import autorecovery as module
from bkctl.admin.top.autorecovery import AutorecoveryWatch
from bkctl.admin.top.live import LiveBookies
from bkctl.admin.top.sample import AutorecoveryState, RecoveryWorker
from bkctl.admin.top.sample_json import decode_sample, encode_sample
from bkctl.codec.maintenance import Maintenance
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.manual_clock import ManualClock


def new_store() -> MetadataStore:
    store = open_metadata_store(f"memory://{uuid.uuid4().hex}")
    store.layout.initialise_cluster()
    store.underreplication.prepare()
    return store


def test_marks_locks_and_the_rate_at_which_marks_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MARKS_MAX", 5)
    clock = ManualClock()
    with new_store() as store:
        known, watch = store.underreplication, AutorecoveryWatch(store, clock)
        assert watch.look() == AutorecoveryState(enabled=True, ledgers=0)
        for ledger in range(5):
            known.mark(ledger, ["a:3181"], 1)
        taken = [known.acquire_ledger(ledger, host=host) for ledger, host in enumerate(("w1", "w2", "w2"))]
        clock.advance(2)
        state = watch.look()
        assert (state.ledgers, state.more_ledgers, state.ledgers_done_per_s) == (5, False, 0.0)
        assert state.workers == (RecoveryWorker(host="w2", ledgers=2), RecoveryWorker(host="w1", ledgers=1))
        for one in taken:
            assert one is not None
            assert known.finish(one)
        known.mark(9, ["a:3181"], 1)
        known.set_enabled(False)
        clock.advance(2)
        state = watch.look()
        assert (state.enabled, state.ledgers, state.ledgers_done_per_s) == (False, 3, 1.5)
        assert state.maintenance is None
        known.begin_maintenance(Maintenance("ops@here", "", 1, True, None, None))
        assert watch.look().maintenance == "ops@here"
        for ledger in range(10, 20):
            known.mark(ledger, ["a:3181"], 1)
        clock.advance(2)
        state = watch.look()
        assert (state.ledgers, state.more_ledgers, state.ledgers_done_per_s) == (5, True, None)


def test_it_is_in_the_sample_and_its_failure_hides_no_bookie() -> None:
    async def scenario() -> None:
        state = AutorecoveryState(
            enabled=True, auditor="a", ledgers=3, workers=(RecoveryWorker(host="w", ledgers=1),)
        )
        outcomes: list[AutorecoveryState | Exception] = [state, ConnectionFailedError("away")]

        def look() -> AutorecoveryState:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        clock = ManualClock()
        source = LiveBookies("test", (), list, autorecovery=look, clock=clock)
        try:
            sample = await source.sample()
            assert sample.autorecovery == state
            assert decode_sample(encode_sample(sample)) == sample
            clock.advance(60)
            sample = await source.sample()
            assert (sample.autorecovery, sample.discovery_error) == (None, None)
        finally:
            await source.close()

    asyncio.run(scenario())
