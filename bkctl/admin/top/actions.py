"""The orders that an operator gives a bookie from the screen: its HTTP admin logs and obeys them."""

from __future__ import annotations

from enum import Enum

from bkctl.admin import http_json
from bkctl.admin.gc import over_http
from bkctl.errors import RefusedError

_READ_ONLY_PAGE = "/api/v1/bookie/state/readonly"


class Action(Enum):
    """An order to a bookie; the value says in words what is done."""

    COLLECT = "collect garbage"
    COMPACT = "compact entry logs"
    READ_ONLY = "refuse adds (read-only)"
    WRITABLE = "take adds again (writable)"


def carry_out(action: Action, url: str | None) -> None:
    """Give a bookie the order; it answers before a collection has ended.

    Blocks. Raises RefusedError where it has no HTTP admin or says no, ConnectionFailedError.
    """
    if url is None:
        raise RefusedError("no HTTP admin of it is known")
    url = http_json.base(url)
    http_json.require_named_host(url)
    if action is Action.COLLECT:
        over_http.trigger(url, major=False, minor=False)
    elif action is Action.COMPACT:
        over_http.trigger(url, major=True, minor=True)
    else:
        http_json.call("PUT", url, _READ_ONLY_PAGE, {"readOnly": action is Action.READ_ONLY})
