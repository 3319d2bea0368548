"""How a running bookie is, by its HTTP admin; works on Java bookies too."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass

from bkctl.errors import ConnectionFailedError, UsageError

TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """What ``/api/v1/bookie/state`` and ``info`` say; ``bookie`` only where it is one of ours."""

    url: str
    bookie: str | None
    running: bool
    read_only: bool
    shutting_down: bool
    high_priority_writes: bool
    free_bytes: int | None
    total_bytes: int | None


def ask_status(url: str) -> LiveStatus:
    """Ask. Raises ConnectionFailedError when nothing answers, or something that is no bookie."""
    url = url.rstrip("/")
    state = _get(url, "/api/v1/bookie/state")
    info = _get(url, "/api/v1/bookie/info", optional=True)
    snapshot = _get(url, "/api/v1/bkctl/snapshot", optional=True)
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
    """The JSON object at a path; with ``optional`` an error status gives an empty one."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: expected http://host:port")
    try:
        with urllib.request.urlopen(url + path, timeout=TIMEOUT_S) as answer:  # noqa: S310 - checked above
            content = json.loads(answer.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        error.close()
        if optional:
            return {}
        raise ConnectionFailedError(f"{url}{path}: HTTP status {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        raise ConnectionFailedError(f"{url}: no answer from a bookie's HTTP admin: {error}") from error
    return content if isinstance(content, dict) else {}
