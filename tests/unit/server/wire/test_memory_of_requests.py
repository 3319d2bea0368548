"""Requests whose bytes would stay in memory are refused, and leave none there."""

from __future__ import annotations

from pathlib import Path

from bkctl.protocol.messages import AddRequest, ReadLacRequest, ReadRequest, Wire, WriteLacRequest
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.types import ResultCode
from tests.demo_client import MASTER_KEY, body_of
from tests.support.wire_client import WireClient

MIB = 1 << 20


def test_large_keys_and_lacs_are_neither_kept_nor_journaled(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        client = WireClient(bookie.port, Wire.V3)
        try:
            for ledger in range(1, 5):
                key = bytes([ledger]) * (4 * MIB)
                add = AddRequest(ledger, 0, key, body_of(ledger, 0, 100))
                fence = ReadRequest(ledger, 0, key, fence=True)
                lac = WriteLacRequest(ledger, 0, MASTER_KEY, ledger.to_bytes(8, "big") + bytes(4 * MIB))
                for request in (add, fence, lac):
                    assert client.ask(request).code is ResultCode.BAD_REQUEST
                assert client.ask(ReadLacRequest(ledger)).code is ResultCode.NO_ENTRY
        finally:
            client.close()
        journals = [path.read_bytes() for path in tmp_path.rglob("*.txn")]
        assert journals
        assert not [ledger for ledger in range(1, 5) for each in journals if bytes([ledger]) * 64 in each]
