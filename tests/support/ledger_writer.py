"""A ledger's writer as a process of its own, which can be paused and killed; told what to do over its stdin.

::

    with LedgerWriterProcess(metadata_uri) as writer:
        writer.append(5)
        writer.wait_acknowledged(4)
        writer.kill()

The ledger has an ensemble and a write quorum of three and an ack quorum of two; its entries are
:func:`tests.support.java_client.payload` of :data:`ENTRY_BYTES`.
"""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import NotEnoughBookiesError
from bkctl.client.ledger_handle import LedgerHandle
from bkctl.client.settings import ClientSettings
from bkctl.errors import BkctlError
from tests.support.java_client import PASSWORD, payload
from tests.support.java_cluster import SETTINGS

ENTRY_BYTES = 100
_WAIT_S = 60
_REPOSITORY = Path(__file__).resolve().parents[2]


class LedgerWriterProcess:
    """The process, from this side; a context manager that kills it."""

    def __init__(self, metadata_uri: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ledger_writer", metadata_uri],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.sent = 0
        #: Entries in the order they were acknowledged.
        self.acknowledged: list[int] = []
        #: Entries that failed, and with which error.
        self.failed: dict[int, str] = {}
        self.ledger = -1
        try:
            self._hear_until(lambda: self.ledger >= 0, "its ledger")
        except BaseException:
            self.kill()
            raise

    def append(self, count: int = 1) -> None:
        """Have so many further entries sent; waits for no acknowledgement."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write("append\n" * count)
        stdin.flush()
        until = self.sent + count
        self._hear_until(lambda: self.sent + len(self.failed) >= until, f"{count} entries to be sent")

    def wait_acknowledged(self, entry: int) -> None:
        """Until an entry is acknowledged."""
        self._hear_until(lambda: entry in self.acknowledged, f"entry {entry} to be acknowledged")

    def wait_failed(self, entry: int) -> str:
        """Until an entry has failed; the name of its error."""
        self._hear_until(lambda: entry in self.failed, f"entry {entry} to fail")
        return self.failed[entry]

    def pause(self) -> None:
        """It does nothing any more until :meth:`resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; what it said before is known afterwards."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        while not self._lines.empty():
            if line := self._lines.get():
                self._heard(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _hear_until(self, known: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _WAIT_S
        while not known():
            left_s = until - time.monotonic()
            try:
                line = self._lines.get(timeout=max(left_s, 0.001))
            except queue.Empty:
                raise AssertionError(f"waited {_WAIT_S} s for {what}") from None
            assert line, f"waited for {what}, and the writer has ended: {self._process.wait()}"
            self._heard(line)

    def _heard(self, line: str) -> None:
        word, number, *more = line.split()
        match word:
            case "ledger":
                self.ledger = int(number)
            case "sent":
                self.sent += 1
            case "acknowledged":
                self.acknowledged.append(int(number))
            case "failed":
                self.failed[int(number)] = more[0]
            case _:
                raise AssertionError(f"the writer said {line!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()


def _say(*words: object) -> None:
    print(*words, flush=True)


def _ended(entry: int, future: asyncio.Future[int]) -> None:
    if future.cancelled():
        return
    error = future.exception()
    if error is None:
        _say("acknowledged", entry)
    else:
        _say("failed", entry, type(error).__name__)


async def _created(client: BookKeeper) -> LedgerHandle:
    """A new ledger; a bookie that was stopped for long registers again first."""
    while True:
        try:
            return await client.create(3, 3, 2, password=PASSWORD)
        except NotEnoughBookiesError:
            await asyncio.sleep(0.1)


async def write(uri: str) -> None:
    """Write an entry for each line of stdin."""
    # Patience: a bookie that does not answer is replaced by nobody here.
    settings = ClientSettings(add_timeout_ms=600_000)
    async with await BookKeeper.connect(uri, settings, metadata=SETTINGS) as client:
        ledger = await _created(client)
        _say("ledger", ledger.ledger)
        entry = 0
        while await asyncio.to_thread(sys.stdin.readline):
            try:
                future = await ledger.submit(payload(ledger.ledger, entry, ENTRY_BYTES))
            except BkctlError as error:
                _say("failed", entry, type(error).__name__)
            else:
                future.add_done_callback(partial(_ended, entry))
                _say("sent", entry)
            entry += 1


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
