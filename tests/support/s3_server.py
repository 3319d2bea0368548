"""An S3 server on the loopback for tests: buckets in memory behind aiohttp, in a thread of its own."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from aiohttp import web

_TIME = "2026-01-01T00:00:00.000Z"
_HTTP_TIME = "Thu, 01 Jan 2026 00:00:00 GMT"
# Fewer than S3's thousand, so that a listing of several pages is cheap to make.
_PAGE_MAX = 100
_START_WAIT_S = 60
_LARGEST_BODY_BYTES = 64 << 20


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _xml(root: str, inside: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{root}>{inside}</{root}>'
    return web.Response(text=text, content_type="application/xml")


def _error(status: int, code: str) -> web.Response:
    answer = _xml("Error", f"<Code>{code}</Code><Message>{code}</Message>")
    answer.set_status(status)
    return answer


def _without_chunks(body: bytes) -> bytes:
    """Return the bytes of a body in the framing `aws-chunked`, whose trailer holds a checksum."""
    out, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(out)
        out.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


class S3Twin:
    """Hold buckets and answer what Arrow's file system asks of S3; signatures are not checked."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._uploads_begun = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request for a bucket or for an object in it."""
        bucket, _, key = request.path.lstrip("/").partition("/")
        body = await request.read()
        if "aws-chunked" in request.headers.get("Content-Encoding", ""):
            body = _without_chunks(body)
        if not key:
            return self._of_bucket(request, bucket, body)
        if bucket not in self.buckets:
            return _error(404, "NoSuchBucket")
        if "uploadId" in request.query or "uploads" in request.query:
            return self._of_upload(request, self.buckets[bucket], key, body)
        return self._of_object(request, self.buckets[bucket], key, body)

    def _of_bucket(self, request: web.Request, bucket: str, body: bytes) -> web.Response:
        if request.method == "PUT":
            self.buckets.setdefault(bucket, {})
            return web.Response()
        if bucket not in self.buckets:
            return _error(404, "NoSuchBucket")
        if request.method == "HEAD":
            return web.Response()
        if request.method == "POST" and "delete" in request.query:
            for element in ElementTree.fromstring(body).iter():
                if element.tag.endswith("Key"):
                    self.buckets[bucket].pop(element.text or "", None)
            return _xml("DeleteResult", "")
        if request.method == "GET" and request.query.get("list-type") == "2":
            return self._listing(request, self.buckets[bucket])
        return _error(501, "NotImplemented")

    def _listing(self, request: web.Request, objects: dict[str, bytes]) -> web.Response:
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        after = request.query.get("continuation-token", request.query.get("start-after", ""))
        room = min(_PAGE_MAX, int(request.query.get("max-keys", "1000")))
        rows: dict[str, str] = {}
        last = ""
        for key in sorted(key for key in objects if key.startswith(prefix) and key > after):
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            name = prefix + head + found if found else key
            if name not in rows and len(rows) == room:
                token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
                cut = f"<IsTruncated>true</IsTruncated>{token}<KeyCount>{len(rows)}</KeyCount>"
                return _xml("ListBucketResult", cut + "".join(rows.values()))
            last = key
            if found:
                rows[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                data = objects[key]
                rows[name] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{_TIME}</LastModified>"
                    f"<ETag>{escape(_etag(data))}</ETag><Size>{len(data)}</Size></Contents>"
                )
        whole = f"<IsTruncated>false</IsTruncated><KeyCount>{len(rows)}</KeyCount>"
        return _xml("ListBucketResult", whole + "".join(rows.values()))

    def _of_upload(
        self, request: web.Request, objects: dict[str, bytes], key: str, body: bytes
    ) -> web.Response:
        if "uploads" in request.query:
            self._uploads_begun += 1
            upload = str(self._uploads_begun)
            self._uploads[upload] = {}
            return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        upload = request.query["uploadId"]
        if upload not in self._uploads:
            return _error(404, "NoSuchUpload")
        if request.method == "PUT":
            self._uploads[upload][int(request.query["partNumber"])] = body
            return web.Response(headers={"ETag": _etag(body)})
        parts = self._uploads.pop(upload)
        if request.method == "DELETE":
            return web.Response(status=204)
        objects[key] = b"".join(parts[number] for number in sorted(parts))
        return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(_etag(objects[key]))}</ETag>")

    def _of_object(
        self, request: web.Request, objects: dict[str, bytes], key: str, body: bytes
    ) -> web.Response:
        if request.method == "PUT":
            if request.headers.get("If-None-Match") == "*" and key in objects:
                return _error(412, "PreconditionFailed")
            objects[key] = body
            return web.Response(headers={"ETag": _etag(body)})
        if request.method == "DELETE":
            objects.pop(key, None)
            return web.Response(status=204)
        if key not in objects:
            return _error(404, "NoSuchKey")
        data = objects[key]
        headers = {"ETag": _etag(data), "Last-Modified": _HTTP_TIME, "Accept-Ranges": "bytes"}
        if request.method == "GET" and (asked := request.http_range).start is not None:
            start, stop, _ = slice(asked.start, asked.stop).indices(len(data))
            if start >= len(data):
                return _error(416, "InvalidRange")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            return web.Response(status=206, body=data[start:stop], headers=headers)
        return web.Response(body=data, headers=headers)


@contextmanager
def _served(twin: S3Twin) -> Iterator[int]:
    """Serve a twin from a thread and give its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="s3-twin", daemon=True)
    thread.start()

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", twin.answer)
        runner = web.AppRunner(app, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, int(runner.addresses[0][1])

    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result(_START_WAIT_S)
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(_START_WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_WAIT_S)
        loop.close()


@contextmanager
def s3_bucket(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the parameters of URLs of a server that has an empty bucket."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    twin = S3Twin()
    twin.buckets[name] = {}
    with _served(twin) as port:
        yield f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
