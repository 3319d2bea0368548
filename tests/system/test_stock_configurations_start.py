"""The configuration files that BookKeeper and Pulsar ship start a bookie as they are."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.demo_client import DemoClient, body_of
from tests.support.bookie_command import BookieCommand
from tests.support.exposition_text import scrape
from tests.support.stock_configurations import STOCK_CONFIGURATIONS, stock_ids

LEDGER, SIZE = 5, 300


@pytest.mark.parametrize("path", STOCK_CONFIGURATIONS, ids=stock_ids)
def test_a_shipped_file_starts_a_bookie_that_takes_adds(path: Path, tmp_path: Path) -> None:
    """Only addresses and directories are set, as on every machine."""
    places = {
        "journalDirectories": str(tmp_path / "journal"),
        "ledgerDirectories": str(tmp_path / "ledgers"),
        "metadataServiceUri": f"embedded://{tmp_path}/metadata.db",
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "prometheusStatsHttpPort": "0",
    }
    with BookieCommand(tmp_path, "--conf", str(path), **places) as bookie:
        assert scrape(bookie.row["metrics_port"]).value("bookie_SERVER_STATUS") == 1
        with DemoClient(bookie.port) as client:
            assert client.add(LEDGER, range(10), size_bytes=SIZE).done == list(range(10))
            assert client.read(LEDGER, range(10)).bodies == {
                number: body_of(LEDGER, number, SIZE) for number in range(10)
            }
        assert bookie.end(signal.SIGTERM) == 0
    assert not [line for line in bookie.log if line["level"] in ("error", "critical")]
