"""Rebuilds killed at random moments. BKCTL_SOAK=50 kills fifty times instead of five."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.kvstore.rocksdb import open_read_only
from tests.support.java_bookkeeper import copy_directory
from tests.support.manifest import index_rows

pytestmark = [pytest.mark.corpora, pytest.mark.slow, pytest.mark.timeout(0)]

KILLS = int(os.environ.get("BKCTL_SOAK") or 5)
STOLEN = ("locations", "ledgers")


def command(folder: Path) -> list[str]:
    run = ["index", "rebuild", str(folder), "--yes", "--jobs", "2", "--memory", "1M", "--drop-old", "--all"]
    return [sys.executable, "-m", "bkctl", *run]


def quiet(current: Path) -> None:
    """Wait until workers of a killed run are gone: the system ends them with their parent."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        users = [
            link
            for link in Path("/proc").glob("[0-9]*/fd/*")
            if os.path.islink(link) and _target(link).startswith(str(current))
        ]
        if not users:
            return
        time.sleep(0.05)


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


@pytest.mark.parametrize("corpus", ["db", "sorted"])
def test_a_kill_leaves_the_old_or_the_new_index_and_a_rerun_ends(
    corpora: Callable[[str], Path], tmp_path: Path, corpus: str
) -> None:
    source = copy_directory(corpora(corpus) / "clean/bookie1", tmp_path / "source")
    right = list(index_rows(source / "ledgers/current"))
    if corpus == "db":
        # The old index is another one than the right one: one row of it is missing.
        from bkctl.codec.location import encode_key
        from bkctl.kvstore.base import Delete
        from bkctl.kvstore.profile import LOCATIONS_PROFILE
        from bkctl.kvstore.rocksdb_store import open_store

        with open_store(str(source / "ledgers/current/locations"), LOCATIONS_PROFILE, create=False) as store:
            store.write([Delete(encode_key(*right[0][:2]))], sync=True)
        old = right[1:]
    else:
        old = right
    seed = int.from_bytes(os.urandom(4), "big")
    rng = random.Random(seed)
    print(f"seed {seed}")
    span = measured(source, tmp_path)
    for number in range(KILLS):
        folder = copy_directory(source, tmp_path / f"run{number}")
        current = folder / "ledgers/current"
        process = subprocess.Popen(
            command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        delay = rng.uniform(0.2, 1.1) * span
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        quiet(current)
        assert list(index_rows(current)) in (old, right), (seed, number, delay)
        if corpus == "db":
            for name in STOLEN:
                store = open_read_only(str(current / name))
                assert sum(1 for _ in store.iterate()) > 0
                store.close()
        done = subprocess.run(command(folder), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (seed, number, delay, done.stderr)
        assert list(index_rows(current)) == right, (seed, number, delay)
        assert not list(current.glob("*bkctl-rebuild*")), (seed, number, delay)
        shutil.rmtree(folder)


def measured(source: Path, tmp_path: Path) -> float:
    """How long a rebuild takes that nobody kills."""
    folder = copy_directory(source, tmp_path / "measured")
    start = time.monotonic()
    done = subprocess.run(command(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - start
