"""Four bottlenecks, each brought about on a loaded bookie, and each named by ``bkctl top --once -o json``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.slow_bookie import Load, Slow, SlowBookie

#: Looks of one interval each: the first ones may see the load begin.
LOOKS_MAX = 6
SHARED_MEMORY = Path("/dev/shm")


def look(url: str) -> dict[str, Any]:
    """The one bookie of a sample; on a machine that is too busy it may be a row with an error."""
    command = [sys.executable, "-m", "bkctl", "top", "--once", "-o", "json", "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    (bookie,) = json.loads(done.stdout)["bookies"]
    assert isinstance(bookie, dict)
    return bookie


def looks(url: str, stage: str, load: Load) -> dict[str, Any]:
    """The first look that names a stage; all that were taken are in the failure."""
    seen = []
    for _ in range(LOOKS_MAX):
        bookie = look(url)
        seen.append(bookie["bottleneck"])
        if bookie["bottleneck"]["stage"] == stage:
            return bookie
        assert load.is_running, f"the load has ended: {seen}"
    raise AssertionError(f"{stage} was not named: {seen}")


@pytest.fixture
def fast_journal() -> Iterator[Path]:
    """A directory whose syncs cost nothing, where there is one."""
    parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="bkctl-journal-", dir=parent) as folder:
        yield Path(folder)


def test_a_slow_journal_fsync(tmp_path: Path) -> None:
    with (
        SlowBookie(tmp_path, Slow("sync", ".txn", 0.03)) as bookie,
        Load("add", bookie.address, "--seconds", "60", "--connections", "2") as load,
    ):
        seen = looks(bookie.url, "journal_disk", load)
    assert seen["journal_sync_p99_ms"] >= 30
    assert seen["journals"][0]["sync_p50_ms"] >= 30
    assert seen["adds_per_s"] > 0
    assert "fsync" in seen["bottleneck"]["why"]
    assert str(tmp_path / "journal") in seen["bottleneck"]["why"]


@pytest.mark.thorough("loads a bookie for seconds; tests/unit/admin/top has the judgement")
def test_a_slow_ledger_disk(tmp_path: Path, fast_journal: Path) -> None:
    slow = (Slow("write", ".log", 0.01), Slow("sync", ".log", 0.3))
    with (
        SlowBookie(tmp_path, *slow, journal=fast_journal, dbStorage_writeCacheMaxSizeMb="8") as bookie,
        Load("add", bookie.address, "--seconds", "60", "--connections", "2") as load,
    ):
        seen = looks(bookie.url, "ledger_disk", load)
    assert seen["adds_held_per_s"] > 0 or seen["queues"][0]["length"] > 0
    assert seen["ledger_dirs"][0]["flush_busy"] >= 0.6
    assert "flush" in seen["bottleneck"]["why"]
    assert str(tmp_path / "ledgers") in seen["bottleneck"]["why"]


@pytest.mark.thorough("loads a bookie for seconds; tests/unit/admin/top has the judgement")
def test_the_processor(tmp_path: Path, fast_journal: Path) -> None:
    with (
        SlowBookie(tmp_path, journal=fast_journal, dbStorage_writeCacheMaxSizeMb="256") as bookie,
        Load("add", bookie.address, "--seconds", "60", "--connections", "4", "--size", "10") as load,
    ):
        seen = looks(bookie.url, "cpu", load)
    assert seen["cpu_cores_used"] + (seen["cpu_cores_waited"] or 0) >= 0.85
    assert "core" in seen["bottleneck"]["why"]


@pytest.mark.thorough("loads a bookie for seconds; tests/unit/admin/top has the judgement")
def test_a_read_cache_that_thrashes(tmp_path: Path, fast_journal: Path) -> None:
    """A thousand ledgers read in order at once: what is read ahead has gone when its turn comes."""
    words = ("--connections", "2", "--ledgers", "512")
    keys = {"dbStorage_writeCacheMaxSizeMb": "4", "dbStorage_readAheadCacheMaxSizeMb": "1"}
    with SlowBookie(tmp_path, journal=fast_journal, **keys) as bookie:
        with Load("add", bookie.address, "--seconds", "3", *words) as adds:
            entries = adds.report()["entries_per_ledger"]
        assert entries > 20
        with Load("read", bookie.address, "--seconds", "60", *words, "--entries", str(entries)) as load:
            seen = looks(bookie.url, "read_cache", load)
    assert seen["read_cache_hit_rate"] < 0.5
    assert seen["read_ahead_wasted_rate"] > 0.5
    assert seen["reads_per_s"] > 0
    assert "thrash" in seen["bottleneck"]["why"]
