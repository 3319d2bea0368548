"""Answers, and what requests say: parameters and JSON bodies."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from bkctl.errors import (
    BkctlError,
    ConnectionFailedError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from bkctl.server.http.request_body import body_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from bkctl.engine.bookie import Bookie
    from bkctl.metadata.api import MetadataStore
    from bkctl.server.served_bookie import ServedBookie

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Java reads these as true; everything else is false.
_TRUE = "true"
#: All of it, or a ledger of another id would be meant; Python reads spaces, ``_`` and other digits too.
_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,19}")

_STATUSES: tuple[tuple[type[BkctlError], int], ...] = (
    (UsageError, 400),
    (NotFoundError, 404),
    (RefusedError, 409),
    (ConnectionFailedError, 503),
)


#: The code of a surrogate, whole or without its end, in UTF-8, which has none: one sign in Java's texts, and
#: as many as there are bytes in Python's. Its first byte stands nowhere but at the beginning of a sign.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_UNREADABLE = "\ufffd".encode()


def text_of(data: bytes) -> str:
    """Return bytes as Java shows them, ``new String(data, UTF_8)``, with a sign for what is no UTF-8."""
    return _SURROGATE.sub(_UNREADABLE, data).decode("utf-8", "replace")


class NotStartedError(BkctlError):
    """The part of the bookie that is asked for does not run yet, or not any more."""

    def __init__(self) -> None:
        super().__init__("Bookie is not fully started yet")


def metadata_of(service: ServedBookie) -> MetadataStore:
    """Return the cluster's metadata. Raises NotStartedError unless the bookie serves."""
    require_ready(service)
    assert service.metadata is not None, "a bookie that serves has a metadata store"
    return service.metadata


def engine_of(service: ServedBookie) -> Bookie:
    """Return the bookie's engine. Raises NotStartedError before there is one."""
    if service.bookie is None:
        raise NotStartedError
    return service.bookie


def require_ready(service: ServedBookie) -> None:
    """Raise NotStartedError unless the bookie serves."""
    if not service.ready:
        raise NotStartedError


def text(content: str, status: int = 200) -> web.Response:
    """Reply with a text."""
    from aiohttp import web

    return web.Response(text=content, status=status)


def scrape(content: str) -> web.Response:
    """Reply with a scrape in Prometheus' text format."""
    from aiohttp import web

    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=content.encode("utf-8"), headers=headers)


def as_json(content: object) -> web.Response:
    """Reply with a JSON value."""
    from aiohttp import web

    return web.json_response(content)


def json_text(content: str) -> web.Response:
    """Reply with a JSON value that is encoded already."""
    from aiohttp import web

    return web.Response(text=content, content_type="application/json")


def json_bytes(content: bytes | bytearray) -> web.Response:
    """Reply with a JSON value that is encoded to bytes already."""
    from aiohttp import web

    return web.Response(body=content, content_type="application/json", charset="utf-8")


def failure(error: BkctlError) -> web.Response:
    """Reply to an error with its text and a status by its kind."""
    if isinstance(error, NotStartedError):
        return text(str(error), 503)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return text(f"ERROR parameters: {error}" if status == 400 else str(error), status)
    return text(str(error), 500)


def number(request: web.Request, name: str) -> int | None:
    """Return a whole number among the parameters, None when it is missing. Raises UsageError."""
    given = request.query.get(name)
    if given is None:
        return None
    if _WHOLE_NUMBER.fullmatch(given) is None:
        raise UsageError(f"{name}: expected a whole number of at most 19 digits, found {given[:40]!r}")
    return int(given)


def number_or(request: web.Request, name: str, default: int) -> int:
    """Return a whole number among the parameters, or a default. Raises UsageError."""
    found = number(request, name)
    return default if found is None else found


def ledger_id(request: web.Request) -> int:
    """Return the parameter ``ledger_id``. Raises UsageError."""
    ledger = number(request, "ledger_id")
    if ledger is None:
        raise UsageError("ledger_id is missing: say ledger_id=ID")
    if not 0 <= ledger < 1 << 63:
        raise UsageError(f"ledger_id: expected 0 to 2^63-1, found {ledger}")
    return ledger


def flag(request: web.Request, name: str) -> bool:
    """Return whether a parameter says true."""
    return request.query.get(name, "").lower() == _TRUE


async def body_object(request: web.Request, expected: str) -> dict[str, object]:
    """Read the JSON object in a body; ``expected`` says what should be there. Raises UsageError."""
    content = await body_of(request)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"expected {expected}") from None
    if not isinstance(values, dict):
        raise UsageError(f"expected {expected}")
    return values
