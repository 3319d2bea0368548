"""Writes the audit line of a request: who asked for what from where, and what came of it.

Every change and every refusal of the HTTP admin is one line with the fields ``peer`` (address), ``token``
(whether the request carried the bookie's token), ``method``, ``path`` (with its query, percent-encoded) and
``status``. Changes carry ``event`` ``admin_change`` and are never held back; refusals have the limit of other
repeated lines, so that a guesser does not fill the disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger(__name__)

_PATH_CHARACTERS_MAX = 300


def log_change(request: web.Request, status: int, *, token: bool) -> None:
    """Log a request that was let through to something guarded, and the status of its answer."""
    fields = _fields(request, status, token)
    _log.info(
        "HTTP: %s %s of %s: status %d",
        fields["method"],
        fields["path"],
        fields["peer"],
        status,
        extra={"event": "admin_change", **fields},
    )


def log_refusal(request: web.Request, status: int) -> None:
    """Log a request that was refused."""
    fields = _fields(request, status, token=False)
    _log.warning(
        "HTTP: refused %s %s of %s: status %d",
        fields["method"],
        fields["path"],
        fields["peer"],
        status,
        extra=fields,
    )


def _fields(request: web.Request, status: int, token: bool) -> dict[str, object]:
    # The raw path and query are percent-encoded: no control character of a client reaches the log.
    path = request.rel_url.raw_path_qs
    if len(path) > _PATH_CHARACTERS_MAX:
        path = path[:_PATH_CHARACTERS_MAX] + "..."
    return {
        "peer": request.remote or "unknown",
        "token": token,
        "method": request.method[:20],
        "path": path,
        "status": status,
    }
