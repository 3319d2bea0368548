"""Progress of the commands about many ledgers: a bar on a terminal's stderr, counted in ledgers."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.server.life.embedded import LocalCluster

LEDGERS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, tmp_path_factory.mktemp("progress")) as running:
        yield running


async def leave_open(uri: str) -> None:
    async with await BookKeeper.connect(uri) as client:
        for _ in range(LEDGERS):
            ledger = await client.create(3, 2, 2)
            await ledger.append(b"one")
            ledger.abandon()


def seen_on_the_terminal(uri: str, out: Path, *words: str) -> str:
    """What a command writes to stderr, a terminal; its rows go to a file. Its bar appears at once."""
    program = (
        "from bkctl.commands.frame import progress; progress.QUIET_S = 0\n"
        "from bkctl.cli import main; raise SystemExit(main())"
    )
    ours, theirs = pty.openpty()
    with out.open("wb") as rows:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdin=subprocess.DEVNULL,
            stdout=rows,
            stderr=theirs,
            env={**os.environ, "BKCTL_METADATA_URI": uri, "TERM": "xterm", "COLUMNS": "120"},
        )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, seen
    return seen.decode(errors="replace")


def test_ledgers_are_counted(cluster: LocalCluster, tmp_path: Path) -> None:
    asyncio.run(leave_open(cluster.metadata_uri))
    out = tmp_path / "rows"
    seen = seen_on_the_terminal(cluster.metadata_uri, out, "ledger", "list")
    assert "listing" in seen
    assert "ledgers" in seen
    assert len(out.read_bytes().splitlines()) == LEDGERS
    seen = seen_on_the_terminal(cluster.metadata_uri, out, "ledger", "recover", "--all-open", "--yes")
    assert "recovered" in seen
    assert f"{LEDGERS}/{LEDGERS}" in seen
    assert "ledgers" in seen.rsplit("recovered", 1)[1]
    # The bar is taken away at the end: nothing of it is left on the last line.
    assert seen.rstrip().endswith(("\x1b[2K", "\x1b[?25h", "\x1b[1A\x1b[2K"))
