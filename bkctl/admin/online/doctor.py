"""The doctor's questions to a live bookie, ours or Java's, through its HTTP admin and the metadata store.

What only our bookies tell (queues, flushes, held deletions) comes from ``/api/v1/bkctl/snapshot``; of a Java
bookie the state, the room and the compactions can be asked. Answers are of one moment; counters count since
the bookie started.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import join
from typing import TypeVar
from urllib.parse import urlsplit

from bkctl.admin.offline.doctor.examination import ClusterFacts
from bkctl.admin.offline.doctor.finding import Finding, Severity, bkctl_line
from bkctl.admin.online import bookie_gc, http_json
from bkctl.admin.online.bookie_status import LiveStatus, ask_status_beside
from bkctl.admin.online.cookies import read_stored
from bkctl.admin.online.http_address import http_urls, registered_infos
from bkctl.admin.online.http_json import number, object_of, objects_of, text_of
from bkctl.clock import Clock
from bkctl.codec.entrylog import log_name
from bkctl.config.server_keys.disks import USAGE_THRESHOLD, USAGE_WARN_THRESHOLD
from bkctl.errors import ConnectionFailedError, CorruptionError, NotFoundError, RefusedError
from bkctl.metadata.api import MetadataStore

_Answer = TypeVar("_Answer")

_FULL_SHARE = 0.8
#: A collection that copies little takes minutes; one that hangs never ends.
_PASS_TIME_MS_MAX = 6 * 3_600_000


@dataclass(frozen=True, slots=True)
class LiveBookie:
    """What was asked of a bookie. ``snapshot`` is empty on a Java bookie.

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


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """One question, by name."""

    name: str
    summary: str
    run: Callable[[LiveBookie], Iterator[Finding]]


def cluster_facts(metadata: MetadataStore, bookie: str | None, ids: Sequence[str]) -> ClusterFacts:
    """What the store says of a bookie with one of these ids; what keeps it from answering is in ``error``."""
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
    """The bookie that has registered this HTTP address, None when none has.

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
    """Of a name, which may be another one than was registered; none where it does not resolve."""
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
    """Ask everything. ``find_cluster`` is given the bookie's id; None of a Java bookie, which tells none.

    Raises ConnectionFailedError, UsageError.
    """
    url = http_json.base(url)
    unanswered: list[str] = []
    snapshot = object_of(_told(lambda: http_json.call("GET", url, http_json.SNAPSHOT), unanswered))
    status = ask_status_beside(url, snapshot)
    suspended = _told(lambda: bookie_gc.suspended(url), unanswered)
    collectors = _told(lambda: bookie_gc.collectors(url), unanswered) or ()
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
    """The answer; None from a bookie without such a page, as Java's has none of ours, and for a refusal."""
    try:
        return ask()
    except http_json.NoSuchPathError:
        return None
    except RefusedError as error:
        unanswered.append(str(error))
        return None


def _state(bookie: LiveBookie) -> Iterator[Finding]:
    status = bookie.status
    following = bkctl_line("bookie", "status", "--url", bookie.url)
    failure = bookie.snapshot.get("failure")
    if isinstance(failure, str) and failure:
        found = f"the bookie has failed: {failure}"
        yield Finding("state", Severity.ERROR, found, "a bookie without a failure", following)
    if status.shutting_down:
        yield Finding(
            "state", Severity.WARNING, "the bookie is shutting down", "a bookie that stays", following
        )
    elif not status.running:
        found = "the bookie does not serve: it is still starting, or has failed"
        yield Finding("state", Severity.ERROR, found, "a bookie that serves", following)
    for refusal in bookie.unanswered if status.running else ():  # before it serves there is nothing to tell
        found = f"it could not be asked everything: {refusal}"
        yield Finding("state", Severity.WARNING, found, "answers to every question", following)


def _read_only(bookie: LiveBookie) -> Iterator[Finding]:
    if not bookie.status.read_only:
        return
    full = [disk for disk in objects_of(bookie.snapshot.get("disks")) if disk.get("full") is True]
    why = (
        f"the disks of {', '.join(str(disk.get('directory')) for disk in full)} are full"
        if full
        else ("by hand, by forceReadOnlyBookie, or because of full disks")
    )
    following = bkctl_line("bookie", "gc", "--url", bookie.url)
    if not full:
        following = bkctl_line("bookie", "status", "--url", bookie.url)
    yield Finding(
        "read_only",
        Severity.WARNING,
        f"the bookie is read-only: {why}"
        + ("" if bookie.status.high_priority_writes else "; it takes no recovery's writes either"),
        "a bookie that takes adds",
        following,
    )


def _queues(bookie: LiveBookie) -> Iterator[Finding]:
    following = bkctl_line("top", "--url", bookie.url)
    for queue in objects_of(bookie.snapshot.get("queues")):
        name, length, bound = queue.get("name"), number(queue.get("length")), number(queue.get("bound"))
        if bound and length >= bound * _FULL_SHARE:
            yield Finding(
                "queues",
                Severity.WARNING,
                f"the {name} queue holds {length} of {bound} {queue.get('unit')}",
                f"less than {_FULL_SHARE:.0%} of its bound",
                following,
            )
        if rejected := number(queue.get("rejected")):
            yield Finding(
                "queues",
                Severity.WARNING,
                f"the {name} stage has rejected {rejected} since the bookie started: clients were told to "
                "come back, and may have changed their ensembles",
                "no rejected requests",
                following,
                count=rejected,
            )


def _flushes(bookie: LiveBookie) -> Iterator[Finding]:
    following = bkctl_line("doctor", "--url", bookie.url, "--only", "disks,flushes")
    for storage in objects_of(bookie.snapshot.get("storages")):
        if failures := number(storage.get("flush_failures")):
            yield Finding(
                "flushes",
                Severity.ERROR,
                f"{failures} flushes have failed: the write cache does not drain, journals are not trimmed",
                "no failed flush",
                following,
                dir=str(storage.get("directory")),
                count=failures,
            )
    checkpoint = object_of(bookie.snapshot.get("checkpoint"))
    if failed := number(checkpoint.get("failed")):
        yield Finding(
            "flushes",
            Severity.ERROR,
            f"{failed} checkpoints have failed: the last mark stays, journals are not trimmed",
            "no failed checkpoint",
            following,
            count=failed,
        )


def _gc(bookie: LiveBookie) -> Iterator[Finding]:
    if bookie.suspended is not None and any(bookie.suspended):
        kinds = [word for word, is_so in zip(("major", "minor"), bookie.suspended, strict=True) if is_so]
        yield Finding(
            "gc",
            Severity.WARNING,
            f"{' and '.join(kinds)} compactions are suspended: disks keep growing",
            "compactions that run",
            bkctl_line("bookie", "compact", "--resume", "--url", bookie.url),
        )
    yield from _passes(bookie)
    following = bkctl_line("bookie", "gc", "--url", bookie.url)
    for collector in objects_of(bookie.snapshot.get("gc")):
        for severity, key, found, expected, words in _GC_COUNTERS:
            if count := number(collector.get(key)):
                yield Finding(
                    "gc",
                    severity,
                    found.format(count),
                    expected,
                    " ".join([following, *words]),
                    dir=str(collector.get("directory")),
                    count=count,
                )


def _passes(bookie: LiveBookie) -> Iterator[Finding]:
    """Logs that were set aside, one by one; what stopped the last pass; one that does not end."""
    following = bkctl_line("bookie", "gc", "--url", bookie.url)
    for collector in bookie.collectors:
        directory = str(collector.get("directory"))
        for aside in objects_of(collector.get("set_aside")):
            log_id = number(aside.get("log_id"))
            path = join(directory, log_name(log_id))
            yield Finding(
                "gc",
                Severity.ERROR,
                f"a damaged entry log was set aside, what is in it is not collected: {aside.get('reason')}",
                "entry logs that can be read",
                bkctl_line("entrylog", "verify", path),
                dir=directory,
                path=path,
                log_id=log_id,
            )
        last = object_of(collector.get("last_pass"))
        stopped_by = text_of(last.get("failure")) or text_of(last.get("listing_failed"))
        if stopped_by is not None:
            found = f"the last collection was stopped: {stopped_by}"
            yield Finding(
                "gc", Severity.WARNING, found, "collections that end well", following, dir=directory
            )
        started_ms = number(last.get("started_ms"))
        if started_ms and last.get("ended_ms") is None and bookie.now_ms - started_ms > _PASS_TIME_MS_MAX:
            yield Finding(
                "gc",
                Severity.WARNING,
                f"a collection has been {collector.get('phase')} for "
                f"{(bookie.now_ms - started_ms) // 3_600_000} hours",
                "a collection that ends",
                bkctl_line("top", "--url", bookie.url),
                dir=directory,
            )


_GC_COUNTERS: tuple[tuple[Severity, str, str, str, tuple[str, ...]], ...] = (
    (
        Severity.WARNING,
        "held_deletions",
        "the deletion of {} ledgers is held back, because they are so many: are they really deleted, or is "
        "the metadata store another one?",
        "no deletion that waits for a confirmation",
        ("--confirm-deletions",),
    ),
    (
        Severity.WARNING,
        "failed_passes",
        "{} passes of the collection ended with an error",
        "passes that end well",
        (),
    ),
    (
        Severity.WARNING,
        "listing_failures",
        "the cluster's ledgers could not be listed {} times: nothing was deleted then",
        "a metadata store that lists the ledgers",
        (),
    ),
    (Severity.WARNING, "compaction_failures", "{} compactions failed", "compactions that end well", ()),
)


def _disks(bookie: LiveBookie) -> Iterator[Finding]:
    following = bkctl_line("bookie", "gc", "--url", bookie.url)
    for disk in objects_of(bookie.snapshot.get("disks")):
        total, free = number(disk.get("total_bytes")), number(disk.get("free_bytes"))
        usage = 1 - free / total if total else 0.0
        if disk.get("full") is True or usage > USAGE_WARN_THRESHOLD:
            yield Finding(
                "disks",
                Severity.ERROR if disk.get("full") is True else Severity.WARNING,
                f"{usage:.1%} of the disk are in use, {free >> 20} MiB are free"
                + ("; the bookie counts it as full" if disk.get("full") is True else ""),
                f"at most {USAGE_WARN_THRESHOLD:.0%}",
                following,
                dir=str(disk.get("directory")),
            )
    status = bookie.status
    if bookie.snapshot.get("disks") is None and status.total_bytes and status.free_bytes is not None:
        usage = 1 - status.free_bytes / status.total_bytes
        if usage > USAGE_WARN_THRESHOLD:
            yield Finding(
                "disks",
                Severity.ERROR if usage > USAGE_THRESHOLD else Severity.WARNING,
                f"{usage:.1%} of the ledger disks are in use, {status.free_bytes >> 20} MiB are free",
                f"at most {USAGE_WARN_THRESHOLD:.0%}",
                following,
            )


def _registration(bookie: LiveBookie) -> Iterator[Finding]:
    cluster = bookie.cluster
    if cluster is None:
        return
    following = bkctl_line("bookies", "list", "--all", *bookie.command_options)
    if cluster.error is not None or not cluster.exists:
        found = cluster.error or f"{cluster.uri}: there is no cluster"
        yield Finding("registration", Severity.ERROR, found, f"an answer of {cluster.uri}", following)
        return
    if cluster.bookie is None:
        yield Finding(
            "registration",
            Severity.WARNING,
            f"no bookie in {cluster.uri} has registered the HTTP address {bookie.url}: its session is lost, "
            "it is known by another address, or that is another cluster",
            "a registration with this address",
            following,
        )
        return
    if cluster.mode is None:
        yield Finding(
            "registration",
            Severity.ERROR,
            f"bookie {cluster.bookie} answers and is not registered in {cluster.uri}: no client "
            "chooses it. Its session is lost, or that is another cluster",
            "a registration while the bookie runs",
            following,
        )
    elif (cluster.mode == "ro") != bookie.status.read_only:
        yield Finding(
            "registration",
            Severity.WARNING,
            f"registered as {cluster.mode}, while the bookie says that it is "
            + ("read-only" if bookie.status.read_only else "writable"),
            "the mode in which the bookie is",
            following,
        )
    if not cluster.stored:
        yield Finding(
            "registration",
            Severity.ERROR,
            f"{cluster.uri} has no cookie of bookie {cluster.bookie}: it will not start again",
            "a cookie in the metadata store",
            bkctl_line("cookie", "get", *bookie.command_options),
        )


LIVE_CHECKS: tuple[LiveCheck, ...] = (
    LiveCheck("state", "it serves and has not failed", _state),
    LiveCheck("read_only", "it takes adds", _read_only),
    LiveCheck("queues", "no stage is full or rejects", _queues),
    LiveCheck("flushes", "write caches and checkpoints reach the disk", _flushes),
    LiveCheck("gc", "collection runs, nothing is held back or set aside", _gc),
    LiveCheck("disks", "room on its disks", _disks),
    LiveCheck("registration", "the metadata store knows it as it is", _registration),
)


def run_live_checks(bookie: LiveBookie, names: frozenset[str]) -> Iterator[Finding]:
    """The findings of the named checks."""
    for check in LIVE_CHECKS:
        if check.name in names:
            yield from check.run(bookie)
