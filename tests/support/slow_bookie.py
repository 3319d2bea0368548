"""A bookie as a process whose disk is as slow as a test wants it to be.

Run as a program (``python -m tests.support.slow_bookie FAULTS KEYS``, both JSON) it is the bookie. It prints
its ports as a line of JSON once it serves, and stops when its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.any_disk import ANY_DISK

REPOSITORY = Path(__file__).resolve().parents[2]
_START_S = 60.0
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Slow:
    """Every ``operation`` (``sync``, ``write``, ``read``) on files whose names end so takes longer."""

    operation: str
    suffix: str
    seconds: float


class SlowBookie:
    """The process; a context manager. ``journal`` None has the journal below ``directory``."""

    def __init__(self, directory: Path, *slow: Slow, journal: Path | None = None, **keys: str) -> None:
        faults = [[each.operation, each.suffix, each.seconds] for each in slow]
        keys = {
            "bookieId": "slow",
            "journalDirectories": str(journal or directory / "journal"),
            "ledgerDirectories": str(directory / "ledgers"),
            "metadataServiceUri": f"embedded://{directory}/metadata.db",
            "bookiePort": "0",
            "allowEphemeralPorts": "true",
            "httpServerEnabled": "true",
            "httpServerPort": "0",
            **ANY_DISK,
            **keys,
        }
        self.log = directory / "log"
        command = [sys.executable, "-m", "tests.support.slow_bookie"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, json.dumps(faults), json.dumps(keys)],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        row = self._first_line()
        self.address = f"127.0.0.1:{row['port']}"
        self.url = f"http://127.0.0.1:{row['http_port']}"

    def _first_line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        late = threading.Timer(_START_S, self._process.kill)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
            late.join()
        if not line:
            self._end()
        assert line, f"the bookie has not started:\n{self.log.read_text()[-3000:]}"
        row = json.loads(line)
        assert isinstance(row, dict)
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Flushing through a slow disk is not what is looked at.
        self._process.kill()
        self._process.wait(_STOP_S)
        self._process.stdin.close()
        self._process.stdout.close()


class Load:
    """``bkctl bench`` in a process of its own while a test looks; a context manager."""

    def __init__(self, verb: str, address: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bkctl", "bench", verb, address, "--warmup", "0", "-o", "json", *words],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def report(self, seconds: float = 120) -> dict[str, Any]:
        """What it says at its end."""
        stdout, stderr = self._process.communicate(timeout=seconds)
        assert stdout, stderr
        report = json.loads(stdout)
        assert isinstance(report, dict)
        return report

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self._process.kill()
        self._process.communicate(timeout=_STOP_S)


async def _serve(faults: list[tuple[Any, str, float]], keys: Mapping[str, str]) -> None:
    from bkctl.config.loader import load
    from bkctl.server.life.bookie_service import BookieService
    from bkctl.vfs import PosixFileSystem
    from bkctl.vfs.faulty import FaultRule, FaultyFileSystem

    config, _ = load(None, dict(keys), {})
    service = BookieService(config)
    rules = [
        FaultRule(operation, path=suffix, latency_s=seconds, error_number=None)
        for operation, suffix, seconds in faults
    ]
    service.filesystem = FaultyFileSystem(PosixFileSystem(), rules)
    report = await service.start()
    sys.stdout.write(json.dumps({"port": report.port, "http_port": report.http_port}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await service.stop()


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1]), json.loads(sys.argv[2])))
