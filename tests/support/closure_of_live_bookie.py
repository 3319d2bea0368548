"""A live bookie in every kind of trouble that the doctor tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkctl.admin.bookie_status import LiveStatus
from bkctl.admin.doctor.examination import ClusterFacts
from bkctl.admin.doctor.finding import Kind
from bkctl.admin.doctor.live_bookie import LiveBookie
from bkctl.codec.cookie import Cookie
from bkctl.directories.cookie_rules import StoredCookie

_STATUS = LiveStatus(
    url="http://127.0.0.1:1",
    bookie="b:1",
    running=True,
    read_only=False,
    shutting_down=False,
    high_priority_writes=True,
    free_bytes=80,
    total_bytes=100,
)
_CLUSTER = ClusterFacts(
    "zk://h/ledgers", "b:1", True, "i", (StoredCookie("b:1", Cookie(5, "b:1", "/j", "1\t/l", "i"), 0),), "rw"
)
_BOOKIE = LiveBookie("http://127.0.0.1:1", _STATUS, {}, (False, False), (), 10**12, _CLUSTER)


def _snapshot(**keys: object) -> LiveBookie:
    return replace(_BOOKIE, snapshot=keys)


def _status(**keys: object) -> LiveBookie:
    return replace(_BOOKIE, status=replace(_STATUS, **keys))  # type: ignore[arg-type]


def _cluster(**keys: object) -> LiveBookie:
    return replace(_BOOKIE, cluster=replace(_CLUSTER, **keys))  # type: ignore[arg-type]


def _gc(**keys: object) -> LiveBookie:
    return _snapshot(gc=[{"directory": "/l/current", **keys}])


def _collector(**keys: object) -> LiveBookie:
    return replace(_BOOKIE, collectors=({"directory": "/l/current", **keys},))


_FULL = {"directory": "/l/current", "total_bytes": 100, "free_bytes": 1, "full": True}

LIVE: Mapping[Kind, LiveBookie] = {
    Kind.BOOKIE_FAILED: _snapshot(failure="sync failed"),
    Kind.SHUTTING_DOWN: _status(shutting_down=True),
    Kind.NOT_SERVING: _status(running=False),
    Kind.NOT_TOLD: replace(_BOOKIE, unanswered=("no",)),
    Kind.READ_ONLY: _status(read_only=True),
    Kind.FULL_QUEUE: _snapshot(queues=[{"name": "journal", "unit": "entries", "length": 9, "bound": 10}]),
    Kind.REJECTED_REQUESTS: _snapshot(queues=[{"name": "write", "unit": "entries", "rejected": 7}]),
    Kind.FAILED_FLUSHES: _snapshot(storages=[{"directory": "/l/current", "flush_failures": 3}]),
    Kind.FAILED_CHECKPOINTS: _snapshot(checkpoint={"failed": 2}),
    Kind.SUSPENDED_COMPACTION: replace(_BOOKIE, suspended=(True, False)),
    Kind.LOG_SET_ASIDE: _collector(set_aside=[{"log_id": 7, "reason": "damage"}]),
    Kind.STOPPED_COLLECTION: _collector(last_pass={"failure": "no answer"}),
    Kind.ENDLESS_COLLECTION: _collector(last_pass={"started_ms": 1}, phase="compacting"),
    Kind.HELD_DELETIONS: _gc(held_deletions=40),
    Kind.FAILED_COLLECTIONS: _gc(failed_passes=4),
    Kind.FAILED_LISTINGS: _gc(listing_failures=4),
    Kind.FAILED_COMPACTIONS: _gc(compaction_failures=4),
    Kind.FULL_DISK: _snapshot(disks=[_FULL]),
    Kind.NO_ANSWER: _cluster(error="no answer"),
    Kind.NO_CLUSTER: _cluster(exists=False),
    Kind.UNKNOWN_ADDRESS: _cluster(bookie=None),
    Kind.NOT_REGISTERED: _cluster(mode=None),
    Kind.OTHER_MODE: _cluster(mode="ro"),
    Kind.COOKIE_NOT_STORED: _cluster(stored=()),
}
