"""Runs of reads in order: more is read ahead before the client gets there, by both protocols."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from bkctl import _kernels
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.types import ResultCode
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.served_engine import ServedEngine
from tests.support.waiting import until
from tests.support.wire_client import WireClient, add_request

COUNT = 450
WINDOW = 10


@pytest.fixture(params=[Wire.V2, Wire.V3], ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param)


def test_who_reads_in_order_waits_for_the_disk_at_the_start_only(wire: Wire) -> None:
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        adds = [add_request(7, number) for number in range(COUNT)]
        version = 2 if wire is Wire.V2 else 3
        client.send([(dataclasses.replace(add, wire=wire, version=version), add.entry) for add in adds])
        client.receive_all()
        served.rig.bookie.checkpoint()
        for first in range(0, COUNT, WINDOW):
            ids = range(first, min(first + WINDOW, COUNT))
            client.send([(ReadRequest(7, entry, wire=wire, version=version), entry) for entry in ids])
            answers = {answer.context: answer.response for answer in client.receive_all()}
            for entry in ids:
                assert answers[entry].code is ResultCode.OK
                assert answers[entry].body == entry_body(7, entry)
            until(lambda: not served.server.read_stage.meter.length)
        meters = served.rig.bookie.storages[0].meters
        # The first entry by itself, the second with what is behind it, and nobody waits for the rest.
        assert meters.disk_reads == 2
        assert meters.read_ahead_entries == COUNT - 2


@pytest.mark.parametrize("directories", [2, 3])
def test_a_run_of_reads_over_several_directories_gets_each_entry(wire: Wire, directories: int) -> None:
    rig = EngineRig(small_settings(journals=1, directories=directories, write_cache_bytes=1 << 20))
    version = 2 if wire is Wire.V2 else 3
    with ServedEngine(rig) as served, WireClient(served.port, wire) as client:
        ids = [(ledger, entry) for ledger in (4, 5, 6) for entry in range(20)]
        for ledger, entry in ids:
            rig.add(ledger, entry)
        reads = rig.bookie.reads
        if _kernels.IMPL == "native":
            keys = b"".join([struct.pack(">qq", *each) for each in [(4, 3), (4, 4), (5, 0), (4, 5)]])
            # They end where those of another directory begin, and at one that is not there.
            records, count = reads.cached_records(keys, 1 << 20) or (b"", 0)
            assert (count, bodies_of(records)) == (2, [entry_body(4, 3), entry_body(4, 4)])
            assert reads.cached_records(struct.pack(">qq", 5, 20) + keys, 1 << 20) == (b"", 0)
        for from_disk in (False, True):
            if from_disk:
                rig.bookie.checkpoint()
            asked = [*ids, (5, 20), *reversed(ids)]
            client.send(
                [
                    (ReadRequest(*each, wire=wire, version=version), number)
                    for number, each in enumerate(asked)
                ]
            )
            answers = {answer.context: answer.response for answer in client.receive_all()}
            for number, each in enumerate(asked):
                if each == (5, 20):
                    assert answers[number].code is ResultCode.NO_ENTRY
                else:
                    assert answers[number].body == entry_body(*each)
