"""Check a live bookie, ours or Java's, by what ``live_bookie`` has asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from bkctl.admin.doctor.check import URL, Check
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.doctor.live_bookie import LiveBookie
from bkctl.admin.http_json import number, object_of, objects_of, text_of
from bkctl.admin.logs.file_steps import of_damaged_log
from bkctl.admin.next_step import ended_by, not_ended
from bkctl.codec.entrylog import log_name
from bkctl.config.server_keys.disks import USAGE_THRESHOLD, USAGE_WARN_THRESHOLD
from bkctl.reporting import counted

_FULL_SHARE = 0.8
_STATE = "the bookie's log says why; stop it, examine it ('bkctl doctor --conf FILE') and start it again"
_FULL = (
    "the command collects deleted ledgers, and compacts. Live data needs a larger disk or more bookies. The "
    "bookie becomes writable by itself when there is room"
)
_SLOW = "the command shows which stage is slow; the count stays until the bookie is started again"
_FLUSHES = (
    "make room, or replace the disk; the bookie's log says which is needed. The count stays until the bookie "
    "is started again"
)
_STOPPED = "the command collects once more, and shows what stops the collection"
_UNREGISTERED = (
    "a bookie registers again by itself when the metadata store answers. If it does not, stop it and start "
    "it again"
)
_COUNTERS = {
    Kind.HELD_DELETIONS: "make sure that the metadata store is the right one and the ledgers are deleted; "
    "then the command lets them go",
    Kind.FAILED_COLLECTIONS: (
        "the command collects once more; the count stays until the bookie is started again"
    ),
    Kind.FAILED_LISTINGS: "bring the metadata store back; the count stays until the bookie is started again",
    Kind.FAILED_COMPACTIONS: (
        "the command collects once more; the count stays until the bookie is started again"
    ),
}
#: A collection that copies little takes minutes; one that hangs never ends.
_PASS_TIME_MS_MAX = 6 * 3_600_000


def _state(bookie: LiveBookie) -> Iterator[Finding]:
    status = bookie.status
    following = not_ended(_STATE, "bookie", "status", "--url", bookie.url)
    failure = bookie.snapshot.get("failure")
    if isinstance(failure, str) and failure:
        found = f"the bookie has failed: {failure}"
        yield Finding(
            "state", Kind.BOOKIE_FAILED, Severity.ERROR, found, "a bookie without a failure", following
        )
    if status.shutting_down:
        yield Finding(
            "state",
            Kind.SHUTTING_DOWN,
            Severity.WARNING,
            "the bookie is shutting down",
            "a bookie that stays",
            following,
        )
    elif not status.running:
        found = "the bookie does not serve: it is still starting, or has failed"
        yield Finding("state", Kind.NOT_SERVING, Severity.ERROR, found, "a bookie that serves", following)
    for refusal in bookie.unanswered if status.running else ():  # before it serves there is nothing to report
        found = f"it could not be asked everything: {refusal}"
        yield Finding("state", Kind.NOT_TOLD, Severity.WARNING, found, "answers to every question", following)


def _read_only(bookie: LiveBookie) -> Iterator[Finding]:
    if not bookie.status.read_only:
        return
    full = [disk for disk in objects_of(bookie.snapshot.get("disks")) if disk.get("full") is True]
    why = (
        f"the disks of {', '.join(str(disk.get('directory')) for disk in full)} are full"
        if full
        else ("by hand, by forceReadOnlyBookie, or because of full disks")
    )
    following = not_ended(_FULL, "bookie", "gc", "--url", bookie.url)
    if not full:
        instead = "who made it read-only by hand or by its configuration makes it writable again the same way"
        following = not_ended(instead, "bookie", "status", "--url", bookie.url)
    yield Finding(
        "read_only",
        Kind.READ_ONLY,
        Severity.WARNING,
        f"the bookie is read-only: {why}"
        + ("" if bookie.status.high_priority_writes else "; it takes no recovery's writes either"),
        "a bookie that takes adds",
        following,
    )


def _queues(bookie: LiveBookie) -> Iterator[Finding]:
    following = not_ended(_SLOW, "top", "--url", bookie.url)
    for queue in objects_of(bookie.snapshot.get("queues")):
        name, length, bound = queue.get("name"), number(queue.get("length")), number(queue.get("bound"))
        if bound and length >= bound * _FULL_SHARE:
            yield Finding(
                "queues",
                Kind.FULL_QUEUE,
                Severity.WARNING,
                f"the {name} queue holds {length} of {bound} {queue.get('unit')}",
                f"less than {_FULL_SHARE:.0%} of its bound",
                following,
            )
        if rejected := number(queue.get("rejected")):
            yield Finding(
                "queues",
                Kind.REJECTED_REQUESTS,
                Severity.WARNING,
                f"the {name} stage has rejected {counted(rejected, 'request')} since the bookie started: "
                "clients had to try again, and may have changed their ensembles",
                "no rejected requests",
                following,
                count=rejected,
            )


def _flushes(bookie: LiveBookie) -> Iterator[Finding]:
    following = not_ended(_FLUSHES, "doctor", "--url", bookie.url, "--only", "disks,flushes")
    for storage in objects_of(bookie.snapshot.get("storages")):
        if failures := number(storage.get("flush_failures")):
            yield Finding(
                "flushes",
                Kind.FAILED_FLUSHES,
                Severity.ERROR,
                f"{counted(failures, 'flush', 'flushes')} failed: the write cache stays full, and "
                "journals are not trimmed",
                "no failed flush",
                following,
                dir=str(storage.get("directory")),
                count=failures,
            )
    checkpoint = object_of(bookie.snapshot.get("checkpoint"))
    if failed := number(checkpoint.get("failed")):
        yield Finding(
            "flushes",
            Kind.FAILED_CHECKPOINTS,
            Severity.ERROR,
            f"{counted(failed, 'checkpoint')} failed: the last mark stays, and journals are not trimmed",
            "no failed checkpoint",
            following,
            count=failed,
        )


def _gc(bookie: LiveBookie) -> Iterator[Finding]:
    if bookie.suspended is not None and any(bookie.suspended):
        kinds = [word for word, is_so in zip(("major", "minor"), bookie.suspended, strict=True) if is_so]
        yield Finding(
            "gc",
            Kind.SUSPENDED_COMPACTION,
            Severity.WARNING,
            f"{' and '.join(kinds)} compactions are suspended: disks keep growing",
            "compactions that run",
            ended_by(("bookie", "compact", "--resume", "--url", bookie.url)),
        )
    yield from _passes(bookie)
    for collector in objects_of(bookie.snapshot.get("gc")):
        for kind, key, noun, found, expected, words in _GC_COUNTERS:
            if count := number(collector.get(key)):
                yield Finding(
                    "gc",
                    kind,
                    Severity.WARNING,
                    found.format(counted(count, *noun)),
                    expected,
                    not_ended(_COUNTERS[kind], "bookie", "gc", "--url", bookie.url, *words),
                    dir=str(collector.get("directory")),
                    count=count,
                )


def _passes(bookie: LiveBookie) -> Iterator[Finding]:
    """Report each quarantined log, the failure that stopped the last pass, and a pass that does not end."""
    following = not_ended(_STOPPED, "bookie", "gc", "--url", bookie.url)
    for collector in bookie.collectors:
        directory = str(collector.get("directory"))
        for aside in objects_of(collector.get("set_aside")):
            log_id = number(aside.get("log_id"))
            path = join(directory, log_name(log_id))
            yield Finding(
                "gc",
                Kind.LOG_SET_ASIDE,
                Severity.ERROR,
                f"a damaged entry log was set aside, so its garbage is not collected: {aside.get('reason')}",
                "entry logs that can be read",
                of_damaged_log(path),
                dir=directory,
                path=path,
                log_id=log_id,
            )
        last = object_of(collector.get("last_pass"))
        stopped_by = text_of(last.get("failure")) or text_of(last.get("listing_failed"))
        if stopped_by is not None:
            found = f"the last collection was stopped: {stopped_by}"
            yield Finding(
                "gc",
                Kind.STOPPED_COLLECTION,
                Severity.WARNING,
                found,
                "collections that end well",
                following,
                dir=directory,
            )
        started_ms = number(last.get("started_ms"))
        if started_ms and last.get("ended_ms") is None and bookie.now_ms - started_ms > _PASS_TIME_MS_MAX:
            yield Finding(
                "gc",
                Kind.ENDLESS_COLLECTION,
                Severity.WARNING,
                f"a collection has been {collector.get('phase')} for "
                f"{counted((bookie.now_ms - started_ms) // 3_600_000, 'hour')}",
                "a collection that ends",
                not_ended(_SLOW, "top", "--url", bookie.url),
                dir=directory,
            )


_GC_COUNTERS: tuple[tuple[Kind, str, tuple[str, ...], str, str, tuple[str, ...]], ...] = (
    (
        Kind.HELD_DELETIONS,
        "held_deletions",
        ("ledger",),
        "the deletion of {} is held back: confirm that they were really deleted, or check the metadata store",
        "no deletion that waits for a confirmation",
        ("--confirm-deletions",),
    ),
    (
        Kind.FAILED_COLLECTIONS,
        "failed_passes",
        ("pass", "passes"),
        "{} of the collection ended with an error",
        "passes that end well",
        (),
    ),
    (
        Kind.FAILED_LISTINGS,
        "listing_failures",
        ("time",),
        "the cluster's ledgers could not be listed {}: nothing was deleted then",
        "a metadata store that lists the ledgers",
        (),
    ),
    (
        Kind.FAILED_COMPACTIONS,
        "compaction_failures",
        ("compaction",),
        "{} failed",
        "compactions that end well",
        (),
    ),
)


def _disks(bookie: LiveBookie) -> Iterator[Finding]:
    following = not_ended(_FULL, "bookie", "gc", "--url", bookie.url)
    for disk in objects_of(bookie.snapshot.get("disks")):
        total, free = number(disk.get("total_bytes")), number(disk.get("free_bytes"))
        usage = 1 - free / total if total else 0.0
        if disk.get("full") is True or usage > USAGE_WARN_THRESHOLD:
            yield Finding(
                "disks",
                Kind.FULL_DISK,
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
                Kind.FULL_DISK,
                Severity.ERROR if usage > USAGE_THRESHOLD else Severity.WARNING,
                f"{usage:.1%} of the ledger disks are in use, {status.free_bytes >> 20} MiB are free",
                f"at most {USAGE_WARN_THRESHOLD:.0%}",
                following,
            )


def _registration(bookie: LiveBookie) -> Iterator[Finding]:
    cluster = bookie.cluster
    if cluster is None:
        return
    listing = ("bookies", "list", "--all", *bookie.command_options)
    following = not_ended(_UNREGISTERED, *listing)
    if cluster.error is not None or not cluster.exists:
        found = cluster.error or f"{cluster.uri}: there is no cluster"
        kind = Kind.NO_ANSWER if cluster.error else Kind.NO_CLUSTER
        step = not_ended("bring the metadata store back, or correct its URI", *listing)
        yield Finding("registration", kind, Severity.ERROR, found, f"an answer of {cluster.uri}", step)
        return
    if cluster.bookie is None:
        yield Finding(
            "registration",
            Kind.UNKNOWN_ADDRESS,
            Severity.WARNING,
            f"no bookie in {cluster.uri} has registered the HTTP address {bookie.url}: its session is lost, "
            "or it registered another address, or this is another cluster",
            "a registration with this address",
            following,
        )
        return
    if cluster.mode is None:
        yield Finding(
            "registration",
            Kind.NOT_REGISTERED,
            Severity.ERROR,
            f"bookie {cluster.bookie} answers, but is not registered in {cluster.uri}, so no client chooses "
            "it. Its session is lost, or this is another cluster",
            "a registration while the bookie runs",
            following,
        )
    elif (cluster.mode == "ro") != bookie.status.read_only:
        yield Finding(
            "registration",
            Kind.OTHER_MODE,
            Severity.WARNING,
            f"registered as {cluster.mode}, while the bookie says that it is "
            + ("read-only" if bookie.status.read_only else "writable"),
            "the mode in which the bookie is",
            following,
        )
    if not cluster.stored:
        yield Finding(
            "registration",
            Kind.COOKIE_NOT_STORED,
            Severity.ERROR,
            f"{cluster.uri} has no cookie of bookie {cluster.bookie}: it will not start again",
            "a cookie in the metadata store",
            not_ended(
                "where its directories are, 'bkctl doctor --conf FILE' names the command that stores their "
                "cookie",
                "cookie",
                "get",
                *bookie.command_options,
            ),
        )


LIVE_CHECKS: tuple[Check[LiveBookie], ...] = (
    Check("state", URL, "it serves and has not failed", _state),
    Check("read_only", URL, "it takes adds", _read_only),
    Check("queues", URL, "no stage is full or rejects", _queues),
    Check("flushes", URL, "write caches and checkpoints reach the disk", _flushes),
    Check("gc", URL, "collection runs, nothing is held back or set aside", _gc),
    Check("disks", URL, "room on its disks", _disks),
    Check("registration", URL, "the metadata store knows it as it is", _registration),
)


def run_live_checks(bookie: LiveBookie, names: frozenset[str]) -> Iterator[Finding]:
    """Yield the findings of the named checks."""
    for check in LIVE_CHECKS:
        if check.name in names and check.run is not None:
            yield from check.run(bookie)
