"""``bkctl ledger recover --all-open`` is interrupted, and run again: what is done is not done twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from bkctl.types import LedgerState
from tests.support.grades import one_kept
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

LEDGERS = 60
BOUND_S = 60


async def leave_open(uri: str) -> list[int]:
    """Ids of ledgers with two entries whose writer is gone."""
    async with await BookKeeper.connect(uri) as client:
        ledgers = []
        for _ in range(LEDGERS):
            ledger = await client.create(3, 2, 2)
            await ledger.append(b"one")
            await ledger.append(b"two")
            ledger.abandon()
            ledgers.append(ledger.ledger)
        return ledgers


def states(uri: str, ledgers: list[int]) -> list[LedgerState]:
    with open_metadata_store(uri) as store:
        return [store.ledgers.read_ledger(ledger).metadata.state for ledger in ledgers]


@pytest.mark.parametrize("number", one_kept("a kill says less", signal.SIGKILL, signal.SIGINT))
def test_the_second_run_does_the_rest(run_cli: Run, tmp_path: Path, number: signal.Signals) -> None:
    with LocalCluster(3, tmp_path) as cluster:
        uri = cluster.metadata_uri
        ledgers = asyncio.run(leave_open(uri))
        command = [sys.executable, "-m", "bkctl", "ledger", "recover", "--all-open", "--yes"]
        process = subprocess.Popen(
            [*command, "--concurrency", "1", "-o", "ndjson"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BKCTL_METADATA_URI": uri, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=BOUND_S)
        if number is signal.SIGINT:
            assert (process.returncode, stderr) == (130, "bkctl: interrupted\n")
        told = {first["ledger"], *(json.loads(line)["ledger"] for line in stdout.splitlines())}
        closed = {
            ledger
            for ledger, state in zip(ledgers, states(uri, ledgers), strict=True)
            if state is LedgerState.CLOSED
        }
        # What was told is true; what was going on may have been finished untold.
        assert told <= closed
        assert len(closed) < LEDGERS

        again = run_cli("ledger", "recover", "--all-open", "--yes", env={"BKCTL_METADATA_URI": uri})
        rows = from_ndjson(again.stdout)
        assert again.exit_code == 0
        assert {row["ledger"] for row in rows} == set(ledgers) - closed
        assert {(row["state"], row["last_entry"]) for row in rows} == {("CLOSED", 1)}
        assert set(states(uri, ledgers)) == {LedgerState.CLOSED}
