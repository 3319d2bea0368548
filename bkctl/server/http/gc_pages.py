"""Garbage collection over HTTP: Java's paths and JSON forms, and reports that Java does not have.

====================================== ====== ===========================================================
path                                   method answer
====================================== ====== ===========================================================
/api/v1/bookie/gc                      GET    ``{"is_in_force_gc": "false"}``
/api/v1/bookie/gc                      PUT    collects now; with ``{"forceMajor": bool, "forceMinor":
                                              bool}`` compacts as given, suspended or not; a kind that
                                              is not named runs unless it is suspended
/api/v1/bookie/gc_details              GET    a list, one object for each ledger directory
/api/v1/bookie/gc/suspend_compaction   GET    ``{"isMajorGcSuspended": "false", "isMinorGcSuspended": ..}``
/api/v1/bookie/gc/suspend_compaction   PUT    ``{"suspendMajor": bool, "suspendMinor": bool}``
/api/v1/bookie/gc/resume_compaction    PUT    ``{"resumeMajor": bool, "resumeMinor": bool}``
/api/v1/bkctl/gc                       GET    phase, last pass, damaged logs, a result for each log
/api/v1/bkctl/gc/logs                  GET    what is alive in each log, and why it stays or goes
/api/v1/bkctl/gc/confirm_deletions     PUT    lets the next pass delete what the last one held back
====================================== ====== ===========================================================

Source: ``TriggerGCService``, ``GCDetailsService``, ``SuspendCompactionService``, ``ResumeCompactionService``
in ``org.apache.bookkeeper.server.http.service``.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.policy import Kind, Request
from bkctl.engine.gc.reports import CollectorStatus
from bkctl.errors import UsageError
from bkctl.server.http.replies import NotStartedError, as_json, body_object, engine_of, json_text, text
from bkctl.server.http.request_body import body_of

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.server.served_bookie import ServedBookie


class GcAdmin:
    """The handlers; they set or read what the collectors' threads use, and read logs beside the loop."""

    def __init__(self, service: ServedBookie) -> None:
        self._service = service

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of the table above."""
        router.add_get("/api/v1/bookie/gc", self._in_force)
        router.add_put("/api/v1/bookie/gc", self._trigger)
        router.add_get("/api/v1/bookie/gc_details", self._details)
        router.add_get("/api/v1/bookie/gc/suspend_compaction", self._suspended)
        router.add_put("/api/v1/bookie/gc/suspend_compaction", self._suspend)
        router.add_put("/api/v1/bookie/gc/resume_compaction", self._resume)
        router.add_get("/api/v1/bkctl/gc", self._status)
        router.add_get("/api/v1/bkctl/gc/logs", self._logs)
        router.add_put("/api/v1/bkctl/gc/confirm_deletions", self._confirm)

    @property
    def _collectors(self) -> list[Collector]:
        """Raises NotStartedError."""
        collectors = engine_of(self._service).collectors
        if not collectors:
            raise NotStartedError
        return collectors

    async def _in_force(self, _: web.Request) -> web.Response:
        return as_json({"is_in_force_gc": _word(any(each.in_force for each in self._collectors))})

    async def _trigger(self, request: web.Request) -> web.Response:
        collectors = self._collectors
        flags = await _flags(request, "forceMajor", "forceMinor")
        major, minor = flags.get("forceMajor"), flags.get("forceMinor")
        wanted = Request(major=major is not False, minor=minor is not False, overrides=True in (major, minor))
        for collector in collectors:
            collector.request(wanted)
        return text(f"Triggered GC on BookieServer: {self._service.bookie_id}")

    async def _details(self, _: web.Request) -> web.Response:
        return as_json([_java_details(each.status()) for each in self._collectors])

    async def _suspended(self, _: web.Request) -> web.Response:
        statuses = [each.status() for each in self._collectors]
        return as_json(
            {
                "isMajorGcSuspended": _word(any(each.major_suspended for each in statuses)),
                "isMinorGcSuspended": _word(any(each.minor_suspended for each in statuses)),
            }
        )

    async def _suspend(self, request: web.Request) -> web.Response:
        collectors = self._collectors
        kinds = await _kinds(request, "suspendMajor", "suspendMinor")
        for collector in collectors:
            collector.suspend(kinds)
        return text(f"Suspended {_named(kinds)} compaction on BookieServer: {self._service.bookie_id}")

    async def _resume(self, request: web.Request) -> web.Response:
        collectors = self._collectors
        kinds = await _kinds(request, "resumeMajor", "resumeMinor")
        for collector in collectors:
            collector.resume(kinds)
        return text(f"Resumed {_named(kinds)} compaction on BookieServer: {self._service.bookie_id}")

    async def _status(self, _: web.Request) -> web.Response:
        return as_json([status_values(each.status()) for each in self._collectors])

    async def _logs(self, _: web.Request) -> web.Response:
        # Ledgers maps of logs that no pass has seen yet are read from the disk.
        return json_text(await asyncio.to_thread(_logs_json, self._collectors))

    async def _confirm(self, _: web.Request) -> web.Response:
        collectors = self._collectors
        confirmed = sum(each.confirm_deletions() for each in collectors)
        for collector in collectors:
            collector.request(Request())
        return as_json({"confirmed": confirmed})


def status_values(status: CollectorStatus) -> dict[str, object]:
    """Return a collector's status as plain values for JSON."""
    values: dict[str, object] = asdict(status)
    values["set_aside"] = [
        {"log_id": log_id, "reason": reason} for log_id, reason in sorted(status.set_aside.items())
    ]
    last = status.last_pass
    if last is not None:
        kind = None if last.compaction is None else last.compaction.value
        values["last_pass"] = asdict(last) | {"compaction": kind}
    return values


def _logs_json(collectors: list[Collector]) -> str:
    return json.dumps([asdict(each.explain()) for each in collectors])


def _java_details(status: CollectorStatus) -> dict[str, object]:
    return {
        "forceCompacting": status.in_force,
        "majorCompacting": status.major_compacting,
        "minorCompacting": status.minor_compacting,
        "lastMajorCompactionTime": status.last_major_ms,
        "lastMinorCompactionTime": status.last_minor_ms,
        "lastEntryLocationCompactionTime": 0,
        "majorCompactionCounter": status.major_compactions,
        "minorCompactionCounter": status.minor_compactions,
        "entryLocationCompactionCounter": 0,
    }


async def _flags(request: web.Request, *names: str) -> dict[str, bool]:
    """Read the booleans among ``names`` of a body that may be missing. Raises UsageError."""
    if not (await body_of(request)).strip():
        return {}
    expected = " and ".join(f'"{name}": true or false' for name in names)
    values = await body_object(request, f"a JSON object with {expected}")
    found: dict[str, bool] = {}
    for name in names:
        value = values.get(name)
        if isinstance(value, bool):
            found[name] = value
        elif value is not None:
            raise UsageError(f"expected {expected}")
    return found


async def _kinds(request: web.Request, major: str, minor: str) -> list[Kind]:
    flags = await _flags(request, major, minor)
    kinds = [kind for kind, name in ((Kind.MAJOR, major), (Kind.MINOR, minor)) if flags.get(name)]
    if not kinds:
        raise UsageError(f'expected a body with "{major}": true, "{minor}": true, or both')
    return kinds


def _named(kinds: list[Kind]) -> str:
    return " and ".join(kind.value for kind in kinds)


def _word(truth: bool) -> str:
    return "true" if truth else "false"
