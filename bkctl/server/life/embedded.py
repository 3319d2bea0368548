"""Bookies inside another program: for tests, and for small programs that want their own storage.

::

    with LocalCluster(bookies=3) as cluster:
        print(cluster.metadata_uri, [bookie.bookie_id for bookie in cluster.bookies])
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from bkctl.config.bookie import BookieConfig
from bkctl.config.loader import load
from bkctl.engine.engine_thread import EngineThread
from bkctl.errors import BkctlError, StorageError, UsageError
from bkctl.server.life.bookie_service import BookieService, StartReport
from bkctl.server.life.event_loop import new_event_loop

_log = logging.getLogger(__name__)

#: Starting and stopping take well under a second; a replay of full journals takes longer.
START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 120.0

_ANY_DISK = {"diskUsageThreshold": "0.999", "diskUsageWarnThreshold": "0.999"}


class EmbeddedBookie:
    """A bookie on an event loop of its own thread; a context manager, or :meth:`start` and :meth:`stop`.

    ``config`` None makes one below ``directory``: journal and ledgers there, metadata in a file there unless
    ``metadata_uri`` names another store, ports chosen by the system. The disk is the other program's too:
    how full it is matters from 99.9 % on. ``overrides`` are BookKeeper's keys.
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
        self._stopping: asyncio.Event | None = None
        self._stop_error: BkctlError | None = None
        self._thread: EngineThread | None = None

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
        """Start the bookie and wait until it serves. Raises what stands in the way; nothing is left then.

        A bookie that was stopped may be started again; its port stays what it was.
        """
        if self._thread is not None:
            raise UsageError("the bookie runs already")
        self.report = self.failure = self._stop_error = None
        started: Future[StartReport] = Future()
        thread = EngineThread("embedded-bookie", partial(self._run, started), self._note_failure)
        thread.start()
        self._thread = thread
        try:
            self.report = started.result(START_TIMEOUT_S)
        except BaseException:
            self._end()
            raise
        return self.report

    def stop(self) -> None:
        """Flush and stop the bookie; a second call does nothing. Raises StorageError when a flush failed."""
        self._end()
        error, self._stop_error = self._stop_error, None
        if error is not None:
            raise error

    def _end(self) -> None:
        """Have the thread stop the bookie, and wait for it."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive:
            raise StorageError(f"the bookie has not stopped within {STOP_TIMEOUT_S:g} s")

    def _run(self, started: Future[StartReport]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            try:
                runner.run(self._live(started))
            except BkctlError as error:
                self._stop_error = error

    async def _live(self, started: Future[StartReport]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.service = BookieService(
            self.config, accept_loss=self._accept_loss, on_failure=self._note_failure
        )
        try:
            report = await self.service.start()
        except BaseException as error:  # noqa: BLE001 - top of a thread: the caller's thread raises it
            started.set_exception(error)
            return
        started.set_result(report)
        await self._stopping.wait()
        await self.service.stop()

    def _note_failure(self, error: BkctlError) -> None:
        self.failure = error

    def _started(self) -> StartReport:
        if self.report is None:
            raise UsageError("the bookie has not started")
        return self.report

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
        self._remove_directory: Callable[[], object] = lambda: None
        if directory is None:
            directory = tempfile.mkdtemp(prefix="bkctl-cluster-")
            # Also when the cluster is dropped without a stop.
            self._remove_directory = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.directory = Path(directory)
        self.metadata_uri = metadata_uri or f"embedded://{self.directory.absolute()}/metadata.db"
        self.bookies = [
            EmbeddedBookie(
                self.directory / f"bookie{number}", metadata_uri=self.metadata_uri, overrides=overrides
            )
            for number in range(bookies)
        ]

    def start(self) -> None:
        """Start all bookies. Raises what stands in the way; nothing is left then."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove_directory)
            for bookie in self.bookies:
                bookie.start()
                stack.callback(bookie.stop)
            stack.pop_all()

    def stop(self) -> None:
        """Stop all bookies; a temporary directory is removed. A second call does nothing."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove_directory)
            for bookie in self.bookies:
                stack.callback(bookie.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


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
    if _ANY_DISK.keys().isdisjoint(overrides):
        keys |= _ANY_DISK
    home.mkdir(parents=True, exist_ok=True)
    config, notices = load(None, {**keys, **overrides}, {}, working_directory=str(home))
    for notice in notices:
        _log.log(logging.WARNING if notice.warning else logging.INFO, "%s", notice)
    return config
