"""Garbage collection of a running bookie, through its HTTP admin; works on Java bookies too.

Java answers flags as the words ``"true"`` and ``"false"``. What is known of a pass comes from ``gc_details``
on a Java bookie, and from ``/api/v1/bkctl/gc`` on ours.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from bkctl.errors import ConnectionFailedError, RefusedError, UsageError

TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.2
_ANSWER_BYTES_MAX = 64 << 20
_GC = "/api/v1/bookie/gc"

#: Called with what the bookie is doing, in words, whenever that has changed.
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LogOutcome:
    """What became of one log; ``action`` is ``deleted``, ``compacted``, ``set_aside`` or ``left``."""

    log_id: int
    action: str
    reason: str
    file_bytes: int
    live_bytes: int
    copied_bytes: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class DirectoryGc:
    """One ledger directory after a pass. From ``deleted_ledgers`` on None where Java does not tell.

    ``compaction`` is ``minor``, ``major``, or None without one; ``reason`` says why there was one or none.
    ``stopped_by`` is what kept ledgers from being deleted, or the pass from its end.
    """

    directory: str | None
    collecting: bool
    major_compactions: int
    minor_compactions: int
    last_major_ms: int
    last_minor_ms: int
    deleted_ledgers: int | None = None
    held_deletions: int | None = None
    deleted_logs: int | None = None
    compacted_logs: int | None = None
    copied_bytes: int | None = None
    freed_bytes: int | None = None
    compaction: str | None = None
    reason: str | None = None
    stopped_by: str | None = None
    set_aside: tuple[LogOutcome, ...] = ()
    logs: tuple[LogOutcome, ...] = ()


def trigger(url: str, *, major: bool, minor: bool) -> None:
    """Ask for a collection now, and for these compactions. Raises ConnectionFailedError, RefusedError."""
    _call("PUT", _base(url), _GC, {"forceMajor": major, "forceMinor": minor})


def suspend(url: str, *, major: bool, minor: bool) -> None:
    """Let these compactions rest until :func:`resume`, or until the bookie is started again."""
    flags = {name: True for name, flag in (("suspendMajor", major), ("suspendMinor", minor)) if flag}
    _call("PUT", _base(url), f"{_GC}/suspend_compaction", flags)


def resume(url: str, *, major: bool, minor: bool) -> None:
    """Let them run again."""
    flags = {name: True for name, flag in (("resumeMajor", major), ("resumeMinor", minor)) if flag}
    _call("PUT", _base(url), f"{_GC}/resume_compaction", flags)


def suspended(url: str) -> tuple[bool, bool]:
    """Whether (major, minor) compactions are suspended."""
    values = _object(_call("GET", _base(url), f"{_GC}/suspend_compaction"))
    return _truth(values.get("isMajorGcSuspended")), _truth(values.get("isMinorGcSuspended"))


def confirm_deletions(url: str) -> int:
    """Let a bookie of ours delete the ledgers it has held back; how many. Raises RefusedError on Java's."""
    try:
        answer = _call("PUT", _base(url), "/api/v1/bkctl/gc/confirm_deletions")
    except _NoSuchPathError as error:
        raise RefusedError(f"{url}: a Java bookie holds no deletions back") from error
    return _number(_object(answer).get("confirmed"))


def wait(
    url: str, timeout_s: float | None, report: Report, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Until no pass that was asked for is running; False when the time is over before."""
    url = _base(url)
    started_s = time.monotonic()
    said = ""
    while _truth(_object(_call("GET", url, _GC)).get("is_in_force_gc")):
        doing = _doing(_ours(url) or [])
        if doing != said:
            said = doing
            report(doing)
        if timeout_s is not None and time.monotonic() - started_s >= timeout_s:
            return False
        sleep(POLL_INTERVAL_S)
    return True


def details(url: str) -> list[DirectoryGc]:
    """What the last pass did, one value for each ledger directory."""
    url = _base(url)
    ours = _ours(url)
    if ours is not None:
        return [_from_ours(values) for values in ours]
    answer = _call("GET", url, "/api/v1/bookie/gc_details")
    rows = answer if isinstance(answer, list) else [answer]
    return [_from_java(_object(each)) for each in rows]


class _NoSuchPathError(RefusedError):
    """HTTP 404."""


def _ours(url: str) -> list[dict[str, object]] | None:
    """The answer of one of our bookies; None from a Java bookie."""
    try:
        answer = _call("GET", url, "/api/v1/bkctl/gc")
    except _NoSuchPathError:
        return None
    return [_object(each) for each in answer] if isinstance(answer, list) else None


def _doing(directories: list[dict[str, object]]) -> str:
    phrases = []
    for values in directories:
        log_id = values.get("log_id")
        log = "" if log_id is None else f" {_number(log_id):x}.log"
        phrases.append(f"{values.get('directory')}: {values.get('phase')}{log}")
    return "; ".join(phrases) or "collecting"


def _from_java(values: dict[str, object]) -> DirectoryGc:
    return DirectoryGc(
        directory=None,
        collecting=_truth(values.get("forceCompacting")),
        major_compactions=_number(values.get("majorCompactionCounter")),
        minor_compactions=_number(values.get("minorCompactionCounter")),
        last_major_ms=_number(values.get("lastMajorCompactionTime")),
        last_minor_ms=_number(values.get("lastMinorCompactionTime")),
    )


def _from_ours(values: dict[str, object]) -> DirectoryGc:
    last = _object(values.get("last_pass"))
    started_ms = _number(last.get("started_ms"))
    results = values.get("results")
    outcomes = [_object(each) for each in results] if isinstance(results, list) else []
    logs = tuple(_outcome(each) for each in outcomes if _number(each.get("finished_ms")) >= started_ms)
    aside = values.get("set_aside")
    stopped_by = last.get("failure") or last.get("listing_failed")
    return DirectoryGc(
        directory=str(values.get("directory")),
        collecting=_truth(values.get("in_force")),
        major_compactions=_number(values.get("major_compactions")),
        minor_compactions=_number(values.get("minor_compactions")),
        last_major_ms=_number(values.get("last_major_ms")),
        last_minor_ms=_number(values.get("last_minor_ms")),
        deleted_ledgers=_number(last.get("deleted_ledgers")),
        held_deletions=_number(values.get("held_deletions")),
        deleted_logs=_number(last.get("deleted_logs")),
        compacted_logs=_number(last.get("compacted_logs")),
        copied_bytes=_number(last.get("copied_bytes")),
        freed_bytes=_number(last.get("freed_bytes")),
        compaction=_text(last.get("compaction")),
        reason=_text(last.get("compaction_reason")),
        stopped_by=_text(stopped_by),
        set_aside=tuple(_outcome(_object(each)) for each in (aside if isinstance(aside, list) else [])),
        logs=logs if last else (),
    )


def _outcome(values: dict[str, object]) -> LogOutcome:
    return LogOutcome(
        _number(values.get("log_id")),
        _text(values.get("action")) or "set_aside",
        _text(values.get("reason")) or "",
        _number(values.get("file_bytes")),
        _number(values.get("live_bytes")),
        _number(values.get("copied_bytes")),
        _number(values.get("freed_bytes")),
    )


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _truth(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _base(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: expected http://host:port")
    return url.rstrip("/")


def _call(method: str, url: str, path: str, body: dict[str, bool] | None = None) -> object:
    """The JSON of an answer, or its text. Raises ConnectionFailedError, RefusedError for an error status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method)  # noqa: S310 - checked by _base
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - checked by _base
            content = answer.read(_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(1000).decode("utf-8", "replace").strip()
        kind = _NoSuchPathError if error.code == 404 else RefusedError
        raise kind(f"{method} {url}{path}: HTTP status {error.code}: {text}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionFailedError(f"{url}: no answer from a bookie's HTTP admin: {error}") from error
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")
