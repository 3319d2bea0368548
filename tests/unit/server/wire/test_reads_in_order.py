"""Runs of reads in order: more is read ahead before the client gets there, by both protocols."""

from __future__ import annotations

import dataclasses

import pytest

from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.types import ResultCode
from tests.support.engine_rig import entry_body
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
