"""``/api/v1/config/server_config``: what was set, and the few keys that a running bookie takes again.

Java takes any key and lets nearly all of them be without effect; here a key that needs a restart is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bkctl.config.server_keys import SERVER_KEYS
from bkctl.errors import RefusedError, UsageError
from bkctl.server.http.replies import as_json, body_object, engine_of, text

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.server.served_bookie import ServedBookie

_WHERE = "request"


class ConfigPages:
    """The handlers. Changed values are forgotten at a restart, as in Java."""

    def __init__(self, service: ServedBookie) -> None:
        self._service = service
        self._changed: dict[str, str | None] = {}
        self._changeable: dict[str, Callable[[int], None]] = {"flushInterval": self._set_flush_interval}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of the configuration's pages."""
        router.add_get("/api/v1/config/server_config", self._given)
        router.add_put("/api/v1/config/server_config", self._change)

    async def _given(self, _: web.Request) -> web.Response:
        return as_json({**self._service.config.given, **self._changed})

    async def _change(self, request: web.Request) -> web.Response:
        values = await body_object(request, 'keys and their values: {"flushInterval": "30000"}')
        parsed = {name: self._parsed(name, value) for name, value in values.items()}
        for name, number in parsed.items():
            self._changeable[name](number)
            self._changed[name] = str(values[name])
        return text("Success set server config.")

    def _parsed(self, name: str, value: object) -> int:
        """Parse a key's new value. Raises UsageError, and RefusedError for a key that needs a restart."""
        key = SERVER_KEYS.get(name)
        if key is None:
            raise UsageError(f"{name[:100]!r} is not a known key")
        if name not in self._changeable:
            raise RefusedError(
                f"{name} takes effect at a start: change the configuration and restart the bookie; only "
                f"{', '.join(self._changeable)} can be changed while it runs"
            )
        number = key.parse([str(value)], _WHERE) if isinstance(value, str | int) else None
        if not isinstance(number, int) or isinstance(value, bool):
            raise UsageError(f"{name}: expected {key.allowed}")
        return number

    def _set_flush_interval(self, interval_ms: int) -> None:
        engine_of(self._service).checkpointer.set_interval(interval_ms)
