"""Autorecovery that is killed again and again while it copies; then its files, as they lie on the disks.

``BKCTL_SOAK`` is how often it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.metadata.autorecovery_api import Underreplication
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.autorecovery_processes import our_autorecovery
from tests.support.replicas import assert_whole, replicas_of
from tests.support.waiting import WAIT_S

KILLS = int(os.environ.get("BKCTL_SOAK") or 2)
LEDGERS = 6
ENTRIES = 24
ENTRY = bytes(range(256)) * 16
#: So slow that there is something to do until it has been killed so often.
BYTES_PER_S = LEDGERS * ENTRIES * len(ENTRY) // (2 * KILLS + 2)

pytestmark = pytest.mark.timeout(280)


class Written:
    """Ledgers, and the good copies that were counted last."""

    def __init__(self, client: BookKeeper) -> None:
        self.client = client
        self.payloads: dict[int, list[bytes]] = {}
        self._copies: Counter[tuple[int, int]] = Counter()

    async def write(self) -> None:
        for _ in range(LEDGERS):
            async with await self.client.create(3, 2, 2) as handle:
                payloads = [b"%d-%d" % (handle.ledger, entry) + ENTRY for entry in range(ENTRIES)]
                for payload in payloads:
                    await handle.append(payload)
            self.payloads[handle.ledger] = payloads

    async def places(self) -> Counter[str]:
        """Return in how many ledgers each bookie has a place."""
        found: Counter[str] = Counter()
        for ledger in self.payloads:
            for segment in (await self.client.read_metadata(ledger)).metadata.segments:
                found.update(segment.bookies)
        return found

    async def count(self, *, falls: bool = False) -> int:
        """Good copies where metadata name them; no entry has fewer than when they were counted last."""
        found: Counter[tuple[int, int]] = Counter()
        for ledger, payloads in self.payloads.items():
            for one in await replicas_of(self.client, ledger):
                found[ledger, one.entry] += one.payload == payloads[one.entry]
        fewer = [key for key, had in self._copies.items() if found[key] < had]
        assert falls or not fewer, f"fewer good copies than before: {fewer[:5]}"
        self._copies = found
        return found.total()


async def until(condition: object, process: subprocess.Popen[bytes], folder: Path) -> None:
    assert callable(condition)
    until_s = time.monotonic() + 3 * WAIT_S
    while not condition():
        log = (folder / "autorecovery.log").read_text()[-2_000:]
        assert process.poll() is None, log
        assert time.monotonic() < until_s, log
        await asyncio.sleep(0.02)


async def lose_a_bookie_and_kill(cluster: LocalCluster, folder: Path) -> str:
    """The bookie that was lost; every ledger has all of its copies again."""
    uri = cluster.metadata_uri
    store = await asyncio.to_thread(open_metadata_store, uri, MetadataSettings(watch_poll_ms=20))
    try:
        async with BookKeeper(store) as client:
            written, known = Written(client), store.underreplication
            await written.write()
            whole = await written.count()
            # Of 18 places in the ensembles of six ledgers one of the four bookies has five or more.
            places = await written.places()
            lost = max(cluster.bookies, key=lambda bookie: places[bookie.bookie_id])
            await asyncio.to_thread(lost.stop)
            before = await written.count(falls=True)
            assert before < whole, "the bookie had nothing"
            for number in range(KILLS + 1):
                last = number == KILLS
                with our_autorecovery(folder, uri, 1 << 30 if last else BYTES_PER_S) as process:
                    if last:
                        await until(lambda: not held(known), process, folder)
                    else:
                        await until(known.locks, process, folder)
                        await asyncio.sleep(0.7)
                assert await written.count() >= before
            for ledger, payloads in written.payloads.items():
                stored = await assert_whole(client, ledger, payloads)
                assert all(lost.bookie_id not in segment.bookies for segment in stored.segments)
            return lost.bookie_id
    finally:
        await asyncio.to_thread(store.close)


def held(known: Underreplication) -> bool:
    """Whether a ledger is marked."""
    return next(known.marked_ledgers(), None) is not None


@pytest.mark.thorough("copies slowly; tests/sim/test_replication_simulation.py kills workers")
def test_killed_while_it_copies_nothing_is_lost_and_the_files_are_whole(tmp_path: Path) -> None:
    with LocalCluster(4, tmp_path / "cluster") as cluster:
        lost = asyncio.run(lose_a_bookie_and_kill(cluster, tmp_path))
        uri = cluster.metadata_uri
        folders = [
            cluster.directory / f"bookie{number}"
            for number, bookie in enumerate(cluster.bookies)
            if bookie.bookie_id != lost
        ]
    # Every bookie is stopped: what counts now are their files, without those of the one that was lost.
    command = [sys.executable, "-m", "bkctl", "pipeline", "run", "replication-audit", *map(str, folders)]
    command += ["--metadata", uri, "--bookies-gone", lost, "--out", str(tmp_path / "audit"), "-o", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "clean"
