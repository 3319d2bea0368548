"""Python's cyclic collector: frozen after a start in a process of a bookie's own, and given nothing to do."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.config.loader import load
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.server.life import cyclic_collector, foreground
from bkctl.server.life.embedded import EmbeddedBookie
from tests.support.any_disk import ANY_DISK
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import WireClient


@pytest.fixture(autouse=True)
def the_process_stays_as_it_is() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    thresholds = gc.get_threshold()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    gc.set_threshold(*thresholds)


def cycles() -> Counter[str]:
    """Types of objects that only the cyclic collector can free; they are freed."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def use_and_leave(served: ServedEngine, wire: Wire, poll: ReadRequest | None, clients: int) -> None:
    for _ in range(clients):
        with WireClient(served.port, wire) as client:
            client.add(5, 1)
            client.send([(ReadRequest(5, entry % 3), None) for entry in range(20)])
            client.receive_all()
            if poll is not None:
                client.send([(poll, None)])
                if poll.timeout_ms == 1:
                    client.receive_all()
            client.close()
    served.until_idle()


def poll_of(timeout_ms: int) -> ReadRequest:
    return ReadRequest(5, -1, piggyback=True, previous_lac=1 << 40, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("wire", "poll"), [(Wire.V2, None), (Wire.V3, None), (Wire.V3, poll_of(600_000)), (Wire.V3, poll_of(1))]
)
def test_a_client_that_goes_leaves_no_cycle(wire: Wire, poll: ReadRequest | None) -> None:
    """What a collection found alive is frozen: a cycle that it is part of later would stay for ever."""
    with ServedEngine() as served:
        served.rig.add(5, 0)
        use_and_leave(served, wire, poll, 2)
        gc.collect()
        gc.disable()
        try:
            use_and_leave(served, wire, poll, 10)
            found = cycles()
        finally:
            gc.enable()
    assert {name: count for name, count in found.items() if count >= 10} == {}


def test_a_bookie_of_its_own_process_is_frozen_when_it_serves(tmp_path: Path) -> None:
    keys = {"bookiePort": "0", "allowEphemeralPorts": "true", "httpServerPort": "0", **ANY_DISK}
    config = load(None, keys, {}, working_directory=str(tmp_path))[0]
    frozen: list[int] = []

    def started(_: object) -> None:
        frozen.append(gc.get_freeze_count())
        frozen.append(len(gc.get_objects()))
        os.kill(os.getpid(), signal.SIGTERM)

    before = gc.get_threshold()
    assert foreground.serve(config, accept_loss=False, started=started) is signal.SIGTERM
    assert frozen[0] > 10_000
    assert frozen[1] < frozen[0] / 10, "a collection has little to go through"
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_a_full_collection_finds_alive_is_frozen() -> None:
    before = gc.get_freeze_count()
    with cyclic_collector.short_pauses():
        kept = [[number] for number in range(5000)]
        gc.collect()
        assert gc.get_freeze_count() >= before + len(kept)
        counted = gc.get_freeze_count()
        kept.clear()
        assert gc.get_freeze_count() <= counted - 5000, "reference counts free what is frozen"
        doomed: list[object] = []
        doomed.append(doomed)
        del doomed
        cyclic_collector.freeze()
        assert gc.collect() == 0
    assert gc.get_freeze_count() == 0


def test_a_bookie_in_another_program_leaves_the_collector_to_its_host(tmp_path: Path) -> None:
    before = gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()
    with EmbeddedBookie(tmp_path):
        assert gc.get_threshold() == before[0]
        assert gc.get_freeze_count() == before[2]
        assert cyclic_collector._freeze_survivors not in gc.callbacks
