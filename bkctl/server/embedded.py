"""Bookies inside another program: for tests, and for small programs that want their own storage.

::

    with LocalCluster(bookies=3) as cluster:
        print(cluster.metadata_uri, [bookie.bookie_id for bookie in cluster.bookies])
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bkctl.config.bookie import BookieConfig
from bkctl.config.loader import load
from bkctl.errors import BkctlError, UsageError
from bkctl.server.bookie_service import BookieService, StartReport
from bkctl.server.event_loop import new_event_loop

#: Starting and stopping take well under a second; a replay of full journals takes longer.
START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 120.0


class EmbeddedBookie:
    """A bookie on an event loop of its own thread; a context manager, or :meth:`start` and :meth:`stop`.

    ``config`` None makes one below ``directory``: journal and ledgers there, metadata in a file there unless
    ``metadata_uri`` names another store, ports chosen by the system. ``overrides`` are BookKeeper's keys.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        config: BookieConfig | None = None,
        metadata_uri: str | None = None,
        overrides: Mapping[str, str] | None = None,
        accept_loss: bool = False,
    ) -> None:
        if (directory is None) == (config is None):
            raise UsageError("an embedded bookie needs either a directory or a configuration")
        self.config = config or _config_below(Path(str(directory)), metadata_uri, overrides or {})
        self.service: BookieService | None = None
        self.report: StartReport | None = None
        self.failure: BkctlError | None = None
        self._accept_loss = accept_loss
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bookie_id(self) -> str:
        """The id under which it is registered."""
        return self._started().bookie

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._started().port

    @property
    def http_port(self) -> int | None:
        """The HTTP admin's port, None without one."""
        return self._started().http_port

    def start(self) -> StartReport:
        """Start and wait until it serves. Raises what stands in the way."""
        if self._thread is not None:
            raise UsageError("the bookie runs already")
        loop = new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=_run, args=(loop,), name="embedded-bookie", daemon=True)
        self._thread.start()
        future = asyncio.run_coroutine_threadsafe(self._start(), loop)
        try:
            self.report = future.result(START_TIMEOUT_S)
        except BaseException:
            self._end_loop()
            raise
        return self.report

    def stop(self) -> None:
        """Flush and leave; a second call does nothing. Raises StorageError when something was not flushed."""
        if self._thread is None or self.service is None or self._loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self.service.stop(), self._loop).result(STOP_TIMEOUT_S)
        finally:
            self._end_loop()

    async def _start(self) -> StartReport:
        self.service = BookieService(
            self.config, accept_loss=self._accept_loss, on_failure=self._note_failure
        )
        return await self.service.start()

    def _note_failure(self, error: BkctlError) -> None:
        self.failure = error

    def _started(self) -> StartReport:
        if self.report is None:
            raise UsageError("the bookie has not started")
        return self.report

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class LocalCluster:
    """Bookies of this process on loopback, with one metadata store; a context manager.

    Without ``directory`` everything lives in a temporary one that goes with the cluster.
    """

    def __init__(
        self,
        bookies: int = 3,
        directory: str | Path | None = None,
        *,
        metadata_uri: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        if bookies < 1:
            raise UsageError(f"a cluster of {bookies} bookies: at least 1")
        self._temporary = directory is None
        self.directory = (
            Path(tempfile.mkdtemp(prefix="bkctl-cluster-")) if directory is None else Path(directory)
        )
        self.metadata_uri = metadata_uri or f"embedded://{self.directory.absolute()}/metadata.db"
        self.bookies = [
            EmbeddedBookie(
                self.directory / f"bookie{number}", metadata_uri=self.metadata_uri, overrides=overrides
            )
            for number in range(bookies)
        ]

    def start(self) -> None:
        """Start all bookies. Raises what stands in the way; none is left running then."""
        with contextlib.ExitStack() as stack:
            for bookie in self.bookies:
                bookie.start()
                stack.callback(bookie.stop)
            stack.pop_all()

    def stop(self) -> None:
        """Stop all bookies; a temporary directory is removed."""
        with contextlib.ExitStack() as stack:
            if self._temporary:
                stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            for bookie in self.bookies:
                stack.callback(bookie.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _config_below(directory: Path, metadata_uri: str | None, overrides: Mapping[str, str]) -> BookieConfig:
    home = directory.absolute()
    keys = {
        "journalDirectories": str(home / "journal"),
        "ledgerDirectories": str(home / "ledgers"),
        "metadataServiceUri": metadata_uri or f"embedded://{home}/metadata.db",
        "bookiePort": "0",
        "allowEphemeralPorts": "true",
        "httpServerEnabled": "true",
        "httpServerPort": "0",
    }
    home.mkdir(parents=True, exist_ok=True)
    config, _ = load(None, {**keys, **overrides}, {}, working_directory=str(home))
    return config
