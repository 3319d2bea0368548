"""A live bookie's answers through its HTTP admin, and those of the metadata store, for the doctor.

Queues, flushes and held deletions, which only our bookies report, come from ``/api/v1/bkctl/snapshot``; a
Java bookie can be asked for its state, its room and its compactions. Answers are of one moment; counters
count since the bookie started.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from bkctl.admin import http_json
from bkctl.admin.bookie_status import LiveStatus, ask_status_beside
from bkctl.admin.doctor.examination import ClusterFacts
from bkctl.admin.gc import over_http
from bkctl.admin.http_json import object_of
from bkctl.clock import Clock
from bkctl.directories.stored_cookies import read_stored
from bkctl.errors import ConnectionFailedError, CorruptionError, NotFoundError, RefusedError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.http_address import http_urls, registered_infos

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class LiveBookie:
    """The answers of a live bookie. ``snapshot`` is empty on a Java bookie.

    ``suspended``: (major, minor) compactions; None where they cannot be asked. ``collectors`` is empty on a
    Java bookie. ``now_ms`` is when it was asked, since 1970. ``cluster`` None: not asked. ``unanswered``
    says of pages that are there and were refused why they were.
    """

    url: str
    status: LiveStatus
    snapshot: Mapping[str, object]
    suspended: tuple[bool, bool] | None
    collectors: Sequence[Mapping[str, object]]
    now_ms: int
    cluster: ClusterFacts | None
    command_options: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()


def cluster_facts(metadata: MetadataStore, bookie: str | None, ids: Sequence[str]) -> ClusterFacts:
    """Ask the store about a bookie with one of these ids; what keeps it from answering is in ``error``."""
    try:
        if not metadata.layout.cluster_exists():
            return ClusterFacts(metadata.uri, bookie, exists=False)
        stored = tuple(read_stored(metadata.cookies, ids))
        modes = [metadata.registration.registration(one) for one in ids]
        mode = next((found.mode.value for found in modes if found is not None), None)
        return ClusterFacts(metadata.uri, bookie, True, metadata.layout.instance_id(), stored, mode)
    except (ConnectionFailedError, CorruptionError, RefusedError, NotFoundError) as error:
        return ClusterFacts(metadata.uri, bookie, error=str(error))


def registered_at(metadata: MetadataStore, url: str) -> str | None:
    """Find the bookie that has registered this HTTP address, None when none has.

    Raises the store's errors, and CorruptionError when a registration that cannot be read may be it.
    """
    asked = urlsplit(url)
    addresses = _addresses(asked.hostname)
    damaged: CorruptionError | None = None
    for bookie, info in registered_infos(metadata):
        if isinstance(info, CorruptionError):
            damaged = damaged or info
            continue
        for known in map(urlsplit, http_urls(bookie, info)):
            if known.port == asked.port and (
                known.hostname == asked.hostname or addresses & _addresses(known.hostname)
            ):
                return bookie
    if damaged is not None:
        raise damaged
    return None


def _addresses(host: str | None) -> set[str]:
    """Find the addresses of a name, which may be another one than was registered.

    There are none where the name does not resolve.
    """
    try:
        found = socket.getaddrinfo(host or "", None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(each[4][0]) for each in found}


def ask_bookie(
    url: str,
    find_cluster: Callable[[str | None], ClusterFacts] | None,
    clock: Clock,
    command_options: tuple[str, ...] = (),
) -> LiveBookie:
    """Ask a bookie everything. ``find_cluster`` gets its id, or None for a Java bookie, which reports none.

    Raises ConnectionFailedError, UsageError.
    """
    url = http_json.base(url)
    unanswered: list[str] = []
    snapshot = object_of(_told(lambda: http_json.call("GET", url, http_json.SNAPSHOT), unanswered))
    status = ask_status_beside(url, snapshot)
    suspended = _told(lambda: over_http.suspended(url), unanswered)
    collectors = _told(lambda: over_http.collectors(url), unanswered) or ()
    cluster = None if find_cluster is None else find_cluster(status.bookie)
    return LiveBookie(
        status.url,
        status,
        snapshot,
        suspended,
        collectors,
        clock.time_ms(),
        cluster,
        command_options,
        tuple(unanswered),
    )


def _told(ask: Callable[[], _Answer], unanswered: list[str]) -> _Answer | None:
    """Get the answer; None for a refusal, and from a bookie without such a page, as Java's has none."""
    try:
        return ask()
    except http_json.NoSuchPathError:
        return None
    except RefusedError as error:
        unanswered.append(str(error))
        return None
