"""Garbage collection of a running bookie, through its HTTP admin; works on Java bookies too.

Java answers flags as the words ``"true"`` and ``"false"``. The facts of a pass come from ``gc_details`` on a
Java bookie, and from ``/api/v1/bkctl/gc`` on ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bkctl.admin import http_json
from bkctl.admin.http_json import number, object_of, objects_of, text_of, truth
from bkctl.errors import RefusedError

POLL_INTERVAL_S = 0.2
_GC = "/api/v1/bookie/gc"

#: Called with what the bookie is doing, in words, whenever that has changed.
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LogOutcome:
    """The outcome for one log; ``action`` is ``deleted``, ``compacted``, ``set_aside`` or ``left``."""

    log_id: int
    action: str
    reason: str
    file_bytes: int
    live_bytes: int
    copied_bytes: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class DirectoryGc:
    """One ledger directory after a pass. Fields from ``deleted_ledgers`` on are None if Java has no value.

    ``compaction`` is ``minor``, ``major``, or None without one; ``reason`` says why there was one or none.
    ``stopped_by`` is the reason why ledgers were not deleted, or why the pass did not come to its end.
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
    http_json.call("PUT", http_json.base(url), _GC, {"forceMajor": major, "forceMinor": minor})


def suspend(url: str, *, major: bool, minor: bool) -> None:
    """Suspend major or minor compactions, or both, until :func:`resume` or the bookie's next start."""
    flags = {name: True for name, flag in (("suspendMajor", major), ("suspendMinor", minor)) if flag}
    http_json.call("PUT", http_json.base(url), f"{_GC}/suspend_compaction", flags)


def resume(url: str, *, major: bool, minor: bool) -> None:
    """Let suspended major or minor compactions, or both, run again."""
    flags = {name: True for name, flag in (("resumeMajor", major), ("resumeMinor", minor)) if flag}
    http_json.call("PUT", http_json.base(url), f"{_GC}/resume_compaction", flags)


def suspended(url: str) -> tuple[bool, bool]:
    """Ask whether (major, minor) compactions are suspended."""
    values = object_of(http_json.call("GET", http_json.base(url), f"{_GC}/suspend_compaction"))
    return truth(values.get("isMajorGcSuspended")), truth(values.get("isMinorGcSuspended"))


def confirm_deletions(url: str) -> int:
    """Let a bookie of ours delete the ledgers it has held back; return how many these are.

    Raises RefusedError on Java's.
    """
    try:
        answer = http_json.call("PUT", http_json.base(url), "/api/v1/bkctl/gc/confirm_deletions")
    except http_json.NoSuchPathError as error:
        raise RefusedError(f"{url}: a Java bookie holds no deletions back") from error
    return number(object_of(answer).get("confirmed"))


def wait(
    url: str, timeout_s: float | None, report: Report, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Wait until no pass that was asked for is running; False when the time is over before."""
    url = http_json.base(url)
    started_s = time.monotonic()
    said = ""
    while truth(object_of(http_json.call("GET", url, _GC)).get("is_in_force_gc")):
        doing = _doing(collectors(url) or [])
        if doing != said:
            said = doing
            report(doing)
        if timeout_s is not None and time.monotonic() - started_s >= timeout_s:
            return False
        sleep(POLL_INTERVAL_S)
    return True


def details(url: str) -> list[DirectoryGc]:
    """Ask a bookie what the last pass did, one value for each ledger directory."""
    url = http_json.base(url)
    ours = collectors(url)
    if ours is not None:
        return [_from_ours(values) for values in ours]
    answer = http_json.call("GET", url, "/api/v1/bookie/gc_details")
    rows = answer if isinstance(answer, list) else [answer]
    return [_from_java(object_of(each)) for each in rows]


def collectors(url: str) -> list[dict[str, object]] | None:
    """Ask one of our bookies what its collectors say of themselves; None from a Java bookie.

    Raises ConnectionFailedError, RefusedError.
    """
    try:
        answer = http_json.call("GET", url, "/api/v1/bkctl/gc")
    except http_json.NoSuchPathError:
        return None
    return objects_of(answer) if isinstance(answer, list) else None


def _doing(directories: list[dict[str, object]]) -> str:
    phrases = []
    for values in directories:
        log_id = values.get("log_id")
        log = "" if log_id is None else f" {number(log_id):x}.log"
        phrases.append(f"{values.get('directory')}: {values.get('phase')}{log}")
    return "; ".join(phrases) or "collecting"


def _from_java(values: dict[str, object]) -> DirectoryGc:
    return DirectoryGc(
        directory=None,
        collecting=truth(values.get("forceCompacting")),
        major_compactions=number(values.get("majorCompactionCounter")),
        minor_compactions=number(values.get("minorCompactionCounter")),
        last_major_ms=number(values.get("lastMajorCompactionTime")),
        last_minor_ms=number(values.get("lastMinorCompactionTime")),
    )


def _from_ours(values: dict[str, object]) -> DirectoryGc:
    last = object_of(values.get("last_pass"))
    started_ms = number(last.get("started_ms"))
    outcomes = objects_of(values.get("results"))
    logs = tuple(_outcome(each) for each in outcomes if number(each.get("finished_ms")) >= started_ms)
    stopped_by = last.get("failure") or last.get("listing_failed")
    return DirectoryGc(
        directory=str(values.get("directory")),
        collecting=truth(values.get("in_force")),
        major_compactions=number(values.get("major_compactions")),
        minor_compactions=number(values.get("minor_compactions")),
        last_major_ms=number(values.get("last_major_ms")),
        last_minor_ms=number(values.get("last_minor_ms")),
        deleted_ledgers=number(last.get("deleted_ledgers")),
        held_deletions=number(values.get("held_deletions")),
        deleted_logs=number(last.get("deleted_logs")),
        compacted_logs=number(last.get("compacted_logs")),
        copied_bytes=number(last.get("copied_bytes")),
        freed_bytes=number(last.get("freed_bytes")),
        compaction=text_of(last.get("compaction")),
        reason=text_of(last.get("compaction_reason")),
        stopped_by=text_of(stopped_by),
        set_aside=tuple(_outcome(each) for each in objects_of(values.get("set_aside"))),
        logs=logs if last else (),
    )


def _outcome(values: dict[str, object]) -> LogOutcome:
    return LogOutcome(
        number(values.get("log_id")),
        text_of(values.get("action")) or "set_aside",
        text_of(values.get("reason")) or "",
        number(values.get("file_bytes")),
        number(values.get("live_bytes")),
        number(values.get("copied_bytes")),
        number(values.get("freed_bytes")),
    )
