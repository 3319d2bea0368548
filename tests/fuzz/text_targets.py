"""Targets: configurations, options, URIs, scrapes, samples, and what HTTP brings in both directions."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from functools import cache
from typing import Any
from unittest import mock
from urllib.request import Request as UrlRequest

from aiohttp import http_exceptions, http_parser, web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from bkctl.admin import bookie_status, http_json
from bkctl.admin.gc import logs_over_http, over_http
from bkctl.admin.top.bkctl_bookie import bkctl_sample, log_states
from bkctl.admin.top.counters import Object
from bkctl.admin.top.discovery import target_of_url
from bkctl.admin.top.java_bookie import java_sample
from bkctl.admin.top.sample import BookieSample, ClusterSample
from bkctl.admin.top.sample_json import decode_sample, encode_sample
from bkctl.admin.top.scrape import parse_scrape
from bkctl.codec.bookie_service_info import BookieServiceInfo, Endpoint
from bkctl.codec.losses import KIND, decode_losses, encode_losses
from bkctl.codec.quarantine_manifest import decode_manifest, encode_manifest
from bkctl.codec.repair_record import decode_repair_record, encode_repair_record
from bkctl.commands.frame.durations import parse_duration_ms, parse_duration_or_seconds_ms
from bkctl.commands.frame.ledger_options import parse_ledger_id
from bkctl.commands.frame.options import parse_entry_range, parse_journal_id, parse_log_id
from bkctl.config.byte_size import parse_byte_size
from bkctl.config.loader import load
from bkctl.config.properties import load_properties, split_list
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError, NotFoundError, UsageError
from bkctl.metadata.http_address import http_urls, is_loopback
from bkctl.metadata.uri import parse_metadata_uri
from bkctl.pipeline.sets.choice import parse_time
from bkctl.pipeline.sets.manifest import decode_manifest as decode_set_manifest
from bkctl.pipeline.tables.options import parse_flag, parse_log_ids, parse_options, parse_ranges, parse_size
from bkctl.server.http import audit_line, replies
from bkctl.server.http.admin import HttpAdmin
from bkctl.server.http.guard import Guard
from bkctl.spark.answers import decode_answer
from bkctl.spark.stream import StreamOptions
from tests.fuzz.target import Target, check_message, decodes, json_seeds, one_of, seeds_of

_TOKEN = "0123456789abcdef"
_READS = ("GET", "HEAD", "OPTIONS")
_GUARDED = ("/api/v1/ledger/read", "/api/v1/bookie/sanity")


def losses(data: bytes) -> None:
    """A list of losses comes back from its own encoding; anything else is corrupt."""
    decodes(data, decode_losses, encode_losses)


def quarantine_manifest(data: bytes) -> None:
    """A manifest of a log in quarantine comes back from its own encoding; anything else is corrupt."""
    decodes(data, decode_manifest, encode_manifest)


_MANIFEST = {
    "kind": "bkctl quarantine",
    "version": 1,
    "log_id": 28,
    "bytes": 1073741824,
    "reason": "bad sectors",
    "time_ms": 1795411200000,
    "salvaged": True,
    "salvaged_to": 31,
}


def repair_record(data: bytes) -> None:
    """A record of a repair comes back from its own encoding; anything else is corrupt."""
    decodes(data, decode_repair_record, encode_repair_record)


_REPAIR = {
    "kind": "bkctl repair",
    "version": 1,
    "number": "20261123T051500Z",
    "made_by": "lastmark set",
    "state": "done",
    "time_ms": 1795411200000,
    "detail": "",
    "directories": [".", "../../j/current"],
    "changes": [
        {"what": "file", "path": "lastMark", "kept": "bkctl-repairs/20261123T051500Z/0"},
        {"what": "file", "path": "1f.log", "kept": None},
        {"what": "moved", "path": "1c.log", "to": "bkctl-quarantine/1c.log"},
        {"what": "database", "path": "ledgers", "kept": "bkctl-repairs/20261123T051500Z/1"},
        {"what": "directory", "path": "bkctl-quarantine"},
    ],
    "before": {".": {"lastMark": "16 8f434346648f6b96", "1c.log": "4711"}},
    "after": {".": {"1f.log": "12"}},
}


def set_manifest(data: bytes) -> None:
    """A manifest is whole or corrupt, also one whose checksum is right."""
    with suppress(ValueError, RecursionError):
        body = json.loads(data)
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        checksum = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        data = f'{{"manifest":{text},"sha256":"{checksum}"}}'.encode("utf-8", "surrogatepass")
    with suppress(CorruptionError):
        assert decode_set_manifest(data, "manifest.json").format == 1
    with suppress(ValueError):
        assert isinstance(parse_time(data[:40].decode("latin-1")), int)


def _manifest_seeds() -> list[bytes]:
    part = {"name": "runs/part-1.parquet", "rows": 1, "bytes": 2}
    file = {"kind": "entry_log", "dir": "/d", "id": 1, "path": "/d/1.log", "bytes": 9, "mtime_ms": 1}
    file |= {"head": 1, "tail": 2, "state": "read", "read_ms": 3, "sealed": True, "whole": True}
    names = ("bookie", "set_id", "host", "version", "kernel", "digest_known", "verdict")
    body: dict[str, object] = dict.fromkeys(names, "x")
    body |= {"format": 1, "instance_id": None, "cookie": None, "base": None, "parameters": {}}
    body |= {"started_ms": 1, "ended_ms": 2, "logs_gone": 0, "not_read": {}, "last_marks": []}
    body |= {"dirs": ["/d"], "guards": [], "unread_indexes": [], "bookies": []}
    body |= {"tables": {"runs": [part]}, "files": [file]}
    return [json.dumps(body).encode(), b"2026-11-23T04:00:00Z", b"1700000000000"]


_LOSSES = {
    "kind": KIND,
    "version": 1,
    "bookie": "bookie:3181",
    "made_by": "lastmark set",
    "losses": [
        {"ledger": 1, "entries": [[0, 4], [6, 6]], "maybe_more": False, "cause": "damage"},
        {"ledger": 7, "entries": [], "maybe_more": True, "cause": ""},
    ],
}


def properties(data: bytes) -> None:
    """A configuration file is read, or refused with its file and line; includes end."""
    main, _, included = data.partition(b"\0")
    files = {"/c/bk_server.conf": main, "/c/other.conf": included}

    def read(path: str) -> bytes:
        if path not in files:
            raise NotFoundError(f"{path}: no such file")
        return files[path]

    try:
        found = load_properties("/c/bk_server.conf", {"HOME": "/h"}, read)
    except (UsageError, NotFoundError) as error:
        check_message(error, "/c/")
        return
    assert all(setting.path in files and setting.line > 0 for setting in found.settings)
    with suppress(UsageError, NotFoundError):
        config, notices = load("/c/bk_server.conf", {}, {"HOME": "/h"}, working_directory="/w", read=read)
        assert config.identity.port >= 0
        assert all(notice.text for notice in notices)


_CONFIGURATION = b"""\
# a comment
journalDirectories=/j1,/j2
ledgerDirectories = /l1\\,x, \\
   /l2
metadataServiceUri: zk+hierarchical://a:2181;b:2181/ledgers
bookiePort=3181
advertisedAddress=${env:HOME}
journalMaxSizeMB=0x10
diskUsageThreshold=0.9
include = other.conf
\0zkTimeout=5000
allowLoopback=true
bookieId=b\\u00e9${zkTimeout:-x}
"""


def metadata_uri(data: bytes) -> None:
    """A URI has its parts, or is refused; the one that is made of old keys is one."""
    text = data.decode("utf-8", "surrogateescape")
    with suppress(UsageError):
        found = parse_metadata_uri(text)
        assert found.text == text
        assert found.servers or found.driver != "zk"
        assert found.driver == "embedded" or found.root.startswith("/")


def _numbers(text: str) -> None:
    durations = (parse_duration_ms, parse_duration_or_seconds_ms)
    for parse in (parse_byte_size, *durations, parse_ledger_id, parse_log_id, parse_journal_id):
        with suppress(ValueError):
            assert parse(text) >= 0
    with suppress(ValueError):
        first, last = parse_entry_range(text)
        assert 0 <= first <= last


def _table_options(text: str) -> None:
    with suppress(UsageError):
        assert all(0 <= first <= last for first, last in parse_ranges("ledgers", text))
    with suppress(UsageError):
        assert all(isinstance(number, int) for number in parse_log_ids(text))
    with suppress(UsageError):
        assert parse_size("splitBytes", text) >= 0
    with suppress(UsageError):
        assert parse_flag("onlyBad", text) in (True, False)
    given = dict(line.partition("=")[::2] for line in text.split("\n"))
    with suppress(UsageError):
        parse_options(given)
    with suppress(UsageError):
        StreamOptions.parse(given)


def _lists(text: str) -> None:
    for once in split_list(text):
        assert len(split_list(once)) >= 1
    is_loopback(text)
    with suppress(UsageError):
        target_of_url(text)
    http_urls("a:3181", BookieServiceInfo((Endpoint("h", 80, text, "http"),)))


_OPTIONS = [_numbers, _table_options, _lists]


def option_texts(data: bytes) -> None:
    """Numbers, sizes, times, ranges and lists as people write them."""
    one_of(data, [lambda rest, each=each: each(rest.decode("utf-8", "surrogateescape")) for each in _OPTIONS])  # type: ignore[misc]


_OPTION_SEEDS = [
    [b"256M", b"1.5h", b"0x1c", b"1c.log", b"7-12", b"2 GiB", b"9" * 25],
    [b"7,10-19", b"28,0x1c,1c.log", b'ledgers=7\nonly_bad=true\nsplitBytes=1m\nwithoutIndexes=["/a"]'],
    [b"a\\,b, c\\\\", b"http://[::1]:8080/metrics", b"127.0.0.1"],
]


def scrape(data: bytes) -> None:
    """What a bookie's /metrics says makes a sample, or is no Prometheus text."""
    first, _, second = data.partition(b"\0")
    scrapes = []
    for part in (first, second or first):
        try:
            scrapes.append(parse_scrape(part.decode("utf-8", "replace"), "http://b"))
        except CorruptionError as error:
            check_message(error)
            return
    found = java_sample(*scrapes, 2.0, bookie="b", url="http://b", answered_at_ms=1)
    _shown(found)


def _shown(sample: BookieSample) -> None:
    """A sample can be recorded, and comes back from its record."""
    recorded = ClusterSample(taken_at_ms=1, interval_s=2.0, bookies=(sample,))
    assert decode_sample(encode_sample(recorded)) == recorded


_SCRAPE = b"""\
# TYPE bookie_WRITE_BYTES counter
bookie_WRITE_BYTES 5
bookie_SERVER_STATUS 1
bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.99"} 1.5
bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"} 7
bookie_write_cache_size{ledgerDir="/l"} 9
bookie_journal_JOURNAL_SYNC_count{journalIndex="0"} 4
process_start_time_seconds 1.5e9
"""


def samples(data: bytes) -> None:
    """A line of a recording is a sample that comes back from its own encoding, or a ValueError says why."""
    try:
        found = decode_sample(data)
    except ValueError as error:
        check_message(error)
        return
    assert decode_sample(encode_sample(found)) == found


def _json_objects(data: bytes) -> list[Object]:
    found = []
    for part in data.split(b"\0")[:2]:
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            value = {}
        found.append(value if isinstance(value, dict) else {"storages": value, "gc": value, "logs": value})
    return found if len(found) == 2 else found * 2


def snapshots(data: bytes) -> None:
    """Two snapshots of a bookie, whatever JSON they are, make a sample that can be recorded."""
    before, now = _json_objects(data)
    _shown(bkctl_sample(None, now, url="http://b", answered_at_ms=1))
    _shown(bkctl_sample(before, now, url="http://b", answered_at_ms=1))
    log_states([now], "/l")


_SNAPSHOT = {
    "bookie": "b",
    "ready": True,
    "adds": {"done": 5, "refused": {"IO_ERROR": 1}, "latency": {"p99_ms": 1.5}, "in_progress": {"length": 1}},
    "storages": [{"directory": "/l", "put_bytes": 9, "write_cache": [{"bytes": 5, "bound": 9}]}],
    "journals": [{"directory": "/j", "syncs": 4, "bytes_written": 9, "mark": {"journal_id": 1, "offset": 2}}],
    "gc": [{"directory": "/l", "deleted_bytes": 1, "compacted_bytes": 2, "progress": 0.5}],
    "disks": [{"directory": "/l", "total_bytes": 10, "free_bytes": 4}],
    "process": {"monotonic_s": 1, "cpu_s": 0.5, "rss_bytes": 5},
    "queues": [{"name": "write", "length": 1, "waited": {"count": 2}}],
}


def _snapshot_seeds() -> list[bytes]:
    later = json.loads(json.dumps(_SNAPSHOT))
    later["process"].update(monotonic_s=3, cpu_s=1.0)
    first, second = json.dumps(_SNAPSHOT).encode(), json.dumps(later).encode()
    return [
        *(first + b"\0" + variant for variant in json_seeds(later)),
        *(variant + b"\0" + second for variant in json_seeds(_SNAPSHOT)),
    ]


class _Opener:
    """Answers every request with the next of some contents; the last one over and over."""

    def __init__(self, contents: list[bytes]) -> None:
        self._contents = contents

    def open(self, request: UrlRequest, timeout: float) -> io.BytesIO:
        assert timeout > 0
        content = self._contents.pop(0) if len(self._contents) > 1 else self._contents[0]
        if content[:1] == b"!":
            status = 404 if content[1:2] == b"4" else 500
            raise urllib.error.HTTPError(request.full_url, status, "no", Message(), io.BytesIO(content[1:]))
        return io.BytesIO(content)


_QUESTIONS: list[Callable[[str], object]] = [
    logs_over_http.ask_logs,
    logs_over_http.ask_java,
    over_http.details,
    over_http.suspended,
    over_http.confirm_deletions,
    bookie_status.ask_status,
    lambda url: over_http.wait(url, 0.0, lambda _: None, lambda _: None),
    lambda url: [each.candidates() for each in logs_over_http.ask_logs(url) or []],
    lambda url: [each.is_scarce for each in logs_over_http.ask_logs(url) or []],
]


def http_answers(data: bytes) -> None:
    """Whatever a bookie's HTTP admin answers, a command says something, or that it cannot be."""
    if not data:
        return
    with mock.patch.object(http_json, "_OPENER", _Opener(data[1:].split(b"\0"))), suppress(BkctlError):
        _QUESTIONS[data[0] % len(_QUESTIONS)]("http://127.0.0.1:8080")


def _answer_seeds() -> list[bytes]:
    logs = [
        {
            "directory": "/l",
            "disk_bytes": 10,
            "free_bytes": 5,
            "logs": [{"log_id": 3, "total_bytes": 9, "live_bytes": 4, "ledgers": [[7, 4]], "held": True}],
        }
    ]
    java = {"majorCompactionCounter": 3, "lastMajorCompactionTime": 1600000000000, "forceCompacting": False}
    ours = [{"directory": "/l", "last_pass": {"started_ms": 1}, "results": [{"log_id": 5, "finished_ms": 2}]}]
    state = {"running": True, "readOnly": False, "freeSpace": 5, "totalSpace": 9}
    suspended = {"isMajorGcSuspended": "true", "isMinorGcSuspended": "false"}
    files = {"entrylog files": "0.log 1.log"}
    texts = [json.dumps(each).encode() for each in (logs, java, ours, state, suspended, files)]
    front = b"\1" + texts[4] + b"\0" + texts[5] + b"\0!4no\0"
    return [
        *(each + variant for variant in json_seeds(logs) for each in (b"\0", b"\7", b"\x08")),
        *(front + variant for variant in json_seeds(java)),
        *(b"\2" + variant for variant in json_seeds(ours)),
        *(b"\3" + variant for variant in json_seeds(suspended)),
        *(b"\4" + variant for variant in json_seeds({"confirmed": 5})),
        *(b"\5" + variant + b"\0" + texts[3] for variant in json_seeds(state)),
        *(b"\5" + texts[3] + b"\0" + variant for variant in json_seeds(state)),
        b"\0" + texts[0],
        b"\1" + b"\0".join((texts[4], texts[5], b"!4no", texts[1])),
        b"\2" + texts[2],
        b"\3" + texts[4],
        b"\4" + b'{"confirmed": 5}',
        b"\5" + b"\0".join((texts[3], texts[3])),
        b"\6" + b"\0".join((b'{"is_in_force_gc": "true"}', texts[2])),
        b"\7" + texts[0],
        b"\x08" + texts[0],
    ]


@cache
def _router() -> web.UrlDispatcher:
    """Return the routes of the HTTP admin; their handlers are not called."""
    service = mock.MagicMock()
    service.config.http.host = "127.0.0.1"
    router = web.UrlDispatcher()
    HttpAdmin(service, mock.Mock())._add_routes(router)
    return router


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def http_request(data: bytes) -> None:
    """Bytes on the HTTP port: without the token nothing reaches what changes things or shows entries."""
    loop = _loop()
    protocol = mock.Mock(_reading_paused=False)
    parser = http_parser.HttpRequestParser(protocol, loop, 2**16, max_line_size=8190, max_field_size=8190)
    try:
        messages, _, _ = parser.feed_data(data)
    except (http_exceptions.HttpProcessingError, http_exceptions.BadHttpMessage):
        return
    for message, _ in messages:
        try:
            request = make_mocked_request(
                message.method, str(message.url), headers=CIMultiDict(message.headers), loop=loop
            )
        except ValueError:  # the mock's, for a URL that the server's own request does not parse again
            continue
        _examine(request, loop)


def _examine(request: web.Request, loop: asyncio.AbstractEventLoop) -> None:
    resolved = loop.run_until_complete(_router().resolve(request))
    is_route = resolved.http_exception is None
    changes = is_route and (request.method not in _READS or request.path in _GUARDED)
    for guard in (Guard(None, "0.0.0.0"), Guard(_TOKEN, "0.0.0.0"), Guard(_TOKEN, "127.0.0.1")):
        refused = guard.refusal(request)
        if (
            changes
            and request.path != "/heartbeat"
            and _TOKEN not in request.headers.get("Authorization", "")
        ):
            assert refused is not None, (request.method, request.path)
        if refused is not None:
            assert refused.status in (401, 403, 405)
            line = audit_line._fields(request, refused.status, token=False)
            assert str(line["path"]).isprintable()
    local = Guard(None, "127.0.0.1").refusal(request)
    host = request.headers.get("Host", "")
    if request.path != "/heartbeat" and host and "evil.example" in host:
        assert local is not None
    for name in ("ledger_id", "page", "start_entry_id"):
        with suppress(UsageError):
            found = replies.number(request, name)
            assert found is None or abs(found) < 10**19
    with suppress(UsageError):
        assert 0 <= replies.ledger_id(request) < 1 << 63
    replies.flag(request, "print_metadata")


def http_body(data: bytes) -> None:
    """The body of a request is a JSON object, or the request is wrong."""
    request: Any = mock.Mock()

    async def read() -> bytes:
        return data

    request.read = read
    for encoding in ("", "gzip", "deflate"):
        request.headers = {"Content-Encoding": encoding}
        with suppress(UsageError):
            found = _loop().run_until_complete(replies.body_object(request, "an object"))
            assert isinstance(found, dict)
    with suppress(ConnectionFailedError):
        from bkctl.admin.top.live import _json

        _json(data, "http://b")


def spark_answers(data: bytes) -> None:
    """What Spark gives for a task's answer is a value of ours, or no answer of a task."""
    with suppress(ConnectionFailedError):
        _, done = decode_answer(data.decode("utf-8", "surrogateescape"))
        assert isinstance(done, int)


_ANSWERS = [
    [{"kind": "Run", "fields": {"path": "x", "rows": 1, "checksum": 5}}, 7],
    [{"error": "CorruptionError", "message": "m", "facts": {"offset": 5}}, 7],
    [{"tuple": [{"bytes": "00ff"}, None]}, 7],
]


def _request_seeds() -> list[bytes]:
    head = b" HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
    return [
        b"GET /api/v1/ledger/list?print_metadata=true&page=1" + head + b"\r\n",
        b"GET /api/v1/ledger/read?ledger_id=7&start_entry_id=0" + head + b"Authorization: Bearer x\r\n\r\n",
        b"PUT /api/v1/bookie/gc" + head + b"Content-Length: 2\r\n\r\n{}",
        b"DELETE /api/v1/ledger/delete?ledger_id=7 HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://e\r\n\r\n",
        b"PUT /api/v1/bookie/state/readonly"
        + head
        + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET //api/v1/bookie/sanity HTTP/1.0\r\nSec-Fetch-Site: cross-site\r\n\r\n",
        b"GET /heartbeat" + head + b"\r\n" + b"GET /metrics" + head + b"X-Forwarded-For: 1.2.3.4\r\n\r\n",
    ]


TARGETS = [
    Target("quarantine-manifest", quarantine_manifest, lambda: json_seeds(_MANIFEST), (b'"salvaged": ',)),
    Target("repair-record", repair_record, lambda: json_seeds(_REPAIR), (b'"state": "', b'"kept": null')),
    Target("losses", losses, lambda: json_seeds(_LOSSES), (b'"maybe_more": ', b'"entries": ')),
    Target(
        "properties",
        properties,
        lambda: [_CONFIGURATION],
        (b"include=other.conf", b"${", b"\\u", b"\\\n", b"metadataServiceUri=", b"env:"),
        bytes_per_byte=2000,
        weight=2,
    ),
    Target(
        "metadata-uri",
        metadata_uri,
        lambda: [
            b"zk+hierarchical://a:2181;b:2181/ledgers",
            b"metadata-store:zk:a:2181,b:2181/chroot",
            b"embedded:///a/b.db",
            b"memory://name",
            b"a:2181,b:2181 /ledgers org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
        ],
        (b"metadata-store:", b"zk+", b"://", b"[::1]"),
        bytes_max=300,
    ),
    Target("option-texts", option_texts, lambda: seeds_of(_OPTION_SEEDS), bytes_max=400),
    Target(
        "scrape",
        scrape,
        lambda: [_SCRAPE, _SCRAPE + b"\0" + _SCRAPE.replace(b" 5", b" 50")],
        (b'quantile="',),
    ),
    Target(
        "samples",
        samples,
        lambda: [
            encode_sample(
                ClusterSample(
                    taken_at_ms=1,
                    interval_s=2.0,
                    bookies=(bkctl_sample(None, _SNAPSHOT, url="http://b", answered_at_ms=1),),
                )
            ).encode()
        ],
        bytes_per_byte=2000,
    ),
    Target("snapshots", snapshots, _snapshot_seeds, (b"1e999", b"[{", b"null"), bytes_per_byte=2000),
    Target("http-answers", http_answers, _answer_seeds, (b"1e999", b"[{", b"null", b"!4")),
    Target(
        "http-request",
        http_request,
        _request_seeds,
        (b"/api/v1/", b"Host: ", b"Origin: ", b"Authorization: Bearer ", b"%2f", b"Content-Length: "),
        bytes_per_byte=2000,
        weight=2,
    ),
    Target(
        "spark-answers",
        spark_answers,
        lambda: [b"[1, Infinity]", b"[" * 100_000, *(seed for each in _ANSWERS for seed in json_seeds(each))],
        (b"Infinity", b"NaN", b'{"tuple": ['),
    ),
    Target(
        "set-manifest", set_manifest, _manifest_seeds, (b'"format":1', b"[]", b"null"), bytes_per_byte=4000
    ),
    Target("http-body", http_body, lambda: [b'{"flushInterval": "5"}', b"[[[[", b"5", b"[" * 100_000]),
]
