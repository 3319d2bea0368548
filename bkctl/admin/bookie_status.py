"""Report how a running bookie is, by its HTTP admin; this works on Java bookies too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bkctl.admin import http_json
from bkctl.admin.http_json import object_of
from bkctl.errors import ConnectionFailedError, RefusedError

_ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """The answers of ``/api/v1/bookie/state`` and ``info``; ``bookie`` only where it is one of ours."""

    url: str
    bookie: str | None
    running: bool
    read_only: bool
    shutting_down: bool
    high_priority_writes: bool
    free_bytes: int | None
    total_bytes: int | None


def ask_status(url: str) -> LiveStatus:
    """Ask a bookie for its status.

    Raises ConnectionFailedError when nothing answers, or something that is no bookie; UsageError for what is
    no HTTP address.
    """
    url = http_json.base(url)
    return ask_status_beside(url, _get(url, http_json.SNAPSHOT, optional=True))


def ask_status_beside(url: str, snapshot: Mapping[str, object]) -> LiveStatus:
    """Ask for the status of a bookie whose snapshot is known already, empty on a Java bookie."""
    state = _get(url, "/api/v1/bookie/state")
    info = _get(url, "/api/v1/bookie/info", optional=True)
    if "running" not in state:
        raise ConnectionFailedError(f"{url}: answers, but not as a bookie's HTTP admin")
    bookie = snapshot.get("bookie")
    return LiveStatus(
        url,
        bookie if isinstance(bookie, str) else None,
        state.get("running") is True,
        state.get("readOnly") is True,
        state.get("shuttingDown") is True,
        state.get("availableForHighPriorityWrites") is True,
        _number(info.get("freeSpace")),
        _number(info.get("totalSpace")),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _get(url: str, path: str, *, optional: bool = False) -> dict[str, object]:
    """Get the JSON object at a path; with ``optional`` an error status gives an empty one."""
    try:
        content = http_json.call("GET", url, path, answer_bytes_max=_ANSWER_BYTES_MAX)
    except RefusedError as error:
        if optional:
            return {}
        raise ConnectionFailedError(str(error)) from error
    if isinstance(content, str):
        raise ConnectionFailedError(f"{url}{path}: answers, but not as a bookie's HTTP admin")
    return object_of(content)
