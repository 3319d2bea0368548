"""The bookie's port over an engine on twins, in this process: no metadata, no cookies, faults at will."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType

from bkctl.clock import SystemClock
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.server.life.event_loop import new_event_loop
from bkctl.server.wire.bookie_server import BookieServer, bind
from tests.support.engine_rig import EngineRig
from tests.support.waiting import WAIT_S, until


class ServedEngine:
    """Serves a rig's bookie, which it starts if need be, on a port of loopback; a context manager."""

    def __init__(
        self,
        rig: EngineRig | None = None,
        settings: NetworkSettings | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.rig = rig or EngineRig()
        self.settings = settings or NetworkSettings()
        self.loop = loop or new_event_loop()
        self.loop_errors: list[str] = []
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="served-engine", daemon=True)
        self.server: BookieServer

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(lambda _, context: self.loop_errors.append(str(context)))
        self.loop.run_forever()

    async def _start(self) -> None:
        self.server = BookieServer(self.rig.bookie, self.settings, SystemClock())
        bound = bind("127.0.0.1", 0)
        self.port = bound.getsockname()[1]
        await self.server.start(bound)

    def __enter__(self) -> ServedEngine:
        if not self.rig.bookie.served:
            self.rig.start()
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(WAIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_server()
        self.rig.bookie.abort()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        assert not self.loop_errors, self.loop_errors

    def stop_server(self) -> None:
        """Take the port down."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(WAIT_S)

    def until(self, what: Callable[[], bool], saying: str) -> None:
        """Wait for what the server's threads bring about."""
        until(what, saying)

    def until_idle(self) -> None:
        """Nothing may be left of anybody: no connection, wait, request or add."""
        server = self.server
        self.until(lambda: server.connections == 0, f"{server.connections} connections are left")
        for meter in (
            server.adds.meter,
            server.read_stage.meter,
            server.high_priority_stage.meter,
            server.long_polls.meter,
        ):
            self.until(lambda meter=meter: meter.length == 0, f"{meter.length} in {meter.name}")  # type: ignore[misc]
        assert not server.long_polls._waits
        assert not server._tasks
