"""``/api/v1/ledger``: the ledgers of the cluster, through the metadata store and a ledger client."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from bkctl.client.bookkeeper import BookKeeper
from bkctl.codec.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from bkctl.errors import CorruptionError, UsageError
from bkctl.metadata.api import MetadataStore, StoredLedger
from bkctl.metadata.ledger_filter import creation_ms
from bkctl.server.http.replies import (
    as_json,
    flag,
    json_bytes,
    ledger_id,
    metadata_of,
    number,
    number_or,
    text_of,
)
from bkctl.types import LedgerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aiohttp import web

    from bkctl.client.ops.ledger_access import LedgerEntry
    from bkctl.server.http.guard import Guard
    from bkctl.server.http.store_threads import StoreThreads
    from bkctl.server.served_bookie import ServedBookie

#: Ledgers of one page, and of an answer without pages.
LEDGERS_PER_PAGE = 100
LEDGERS_MAX = 100_000
#: The last page that there can be, as Java has it.
PAGE_MAX = (1 << 31) - 1
#: Ledgers with their metadata, of an answer without pages.
METADATA_MAX = 5_000
#: Entries of one page, as Java's, and bytes of payload in one answer.
ENTRIES_PER_PAGE = 1000
ENTRIES_MAX = 50_000
PAYLOAD_BYTES_MAX = 32 << 20
#: Bytes of payload that are written as JSON in one turn of the event loop.
_PIECE_BYTES = 64 << 10
#: How long a stop waits for calls of the metadata store.
CLOSE_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class LedgerPages:
    """The handlers, and the ledger client that they share; it is made when it is first needed."""

    def __init__(self, service: ServedBookie, guard: Guard, threads: StoreThreads) -> None:
        self._service = service
        self._guard = guard
        self._threads = threads
        self._client: BookKeeper | None = None
        #: Answers with entries are large.
        self._one_at_a_time = asyncio.Lock()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all these pages."""
        router.add_get("/api/v1/ledger/list", self._list)
        router.add_get("/api/v1/ledger/metadata", self._metadata)
        router.add_get("/api/v1/ledger/read", self._read)
        router.add_delete("/api/v1/ledger/delete", self._delete)

    async def client(self) -> BookKeeper:
        """Return a ledger client. Raises NotStartedError."""
        if self._client is None:
            self._client = BookKeeper(metadata_of(self._service))
        return self._client

    async def close(self) -> None:
        """End the client; a second call does nothing."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            await asyncio.wait_for(client.close(), CLOSE_TIMEOUT_S)
        except TimeoutError:
            # A call of the metadata store that hangs ends by its own timeout.
            _log.warning("the HTTP admin's ledger client does not end; going on without it")

    async def _list(self, request: web.Request) -> web.Response:
        store = metadata_of(self._service)
        page = number(request, "page")
        if page is not None and not 1 <= page <= PAGE_MAX:
            raise UsageError(f"page: expected a number from 1 to {PAGE_MAX}, found {page}")
        if not flag(request, "print_metadata"):
            ids = await self._threads.call(_some_ids, store, page, LEDGERS_MAX)
            return as_json({str(ledger): None for ledger in ids})
        decode, show = flag(request, "decode_meta"), self._guard.has_token(request)
        ids = await self._threads.call(_some_ids, store, page, METADATA_MAX)
        return as_json(await self._threads.call(lambda: dict(_shown(store, ids, decode=decode, secret=show))))

    async def _metadata(self, request: web.Request) -> web.Response:
        ledger = ledger_id(request)
        stored = await self._threads.call(metadata_of(self._service).ledgers.read_ledger, ledger)
        return as_json({str(ledger): metadata_values(stored, secret=self._guard.has_token(request))})

    async def _read(self, request: web.Request) -> web.Response:
        ledger = ledger_id(request)
        first = number_or(request, "start_entry_id", 0)
        last = number_or(request, "end_entry_id", -1)
        page = number_or(request, "page", -1)
        if first < 0 or (last != -1 and first > last):
            raise UsageError(f"start_entry_id: {first} and end_entry_id: {last} conflict")
        values: dict[str, str] = {}
        if page > 0:
            start = (page - 1) * ENTRIES_PER_PAGE
            end = start + ENTRIES_PER_PAGE - 1
            first, last = max(first, start), end if last == -1 else min(last, end)
            values["Entries for page: "] = str(page)
        reader = await (await self.client()).open_without_recovery(ledger)
        confirmed = reader.last_add_confirmed
        last = confirmed if last == -1 else min(last, confirmed)
        if last - first >= ENTRIES_MAX:
            raise UsageError(f"more than {ENTRIES_MAX} entries: ask for pages, or for fewer")
        async with self._one_at_a_time:
            return json_bytes(await _body(values, reader.entries(first, last)))

    async def _delete(self, request: web.Request) -> web.Response:
        ledger = ledger_id(request)
        await (await self.client()).delete(ledger)
        return as_json(f"Deleted ledger: {ledger}")


async def _body(values: dict[str, str], entries: AsyncIterator[LedgerEntry]) -> bytearray:
    """Return the JSON object of ``values`` and the payloads of the entries.

    It is written in pieces, and the event loop goes on between them: one call for all of it would keep the
    bookie from every other request. Raises UsageError for too many bytes.
    """
    body = bytearray(json.dumps(values).encode("ascii").removesuffix(b"}"))
    separator = ", " if values else ""
    size_bytes = since_bytes = 0
    async for entry in entries:
        size_bytes += len(entry.payload)
        if size_bytes > PAYLOAD_BYTES_MAX:
            raise UsageError(f"more than {PAYLOAD_BYTES_MAX} bytes up to entry {entry.entry}: ask for fewer")
        body += f'{separator}"{entry.entry}": "'.encode("ascii")
        separator = ", "
        for first in range(0, len(entry.payload), _PIECE_BYTES):
            # Each byte is a sign of its own, so that pieces are what the whole would be.
            piece = entry.payload[first : first + _PIECE_BYTES].decode("ascii", "replace")
            body += json.dumps(piece)[1:-1].encode("ascii")
            since_bytes += len(piece)
            if since_bytes >= _PIECE_BYTES:
                since_bytes = 0
                await asyncio.sleep(0)
        body += b'"'
    body += b"}"
    return body


def metadata_values(stored: StoredLedger, *, secret: bool) -> dict[str, object]:
    """Return a ledger's metadata in Java's form; without ``secret`` the password is null."""
    metadata = stored.metadata
    closed = metadata.state is LedgerState.CLOSED
    digest = metadata.digest_type
    password = metadata.password if secret else None
    return {
        "ledgerId": stored.ledger,
        "metadataFormatVersion": metadata.metadata_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.value,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry,
        "ctime": creation_ms(stored),
        "digestType": None if digest is None else digest.value.upper(),
        "password": None if password is None else b64encode(password).decode("ascii"),
        "customMetadata": {
            name: b64encode(value).decode("ascii") for name, value in metadata.custom_metadata
        },
        "closed": closed,
        "allEnsembles": {
            str(segment.first_entry): [{"id": bookie} for bookie in segment.bookies]
            for segment in metadata.segments
        },
        "ctoken": metadata.c_token or 0,
    }


def _some_ids(store: MetadataStore, page: int | None, count_max: int) -> list[int]:
    """Return the ids of a page, or all. Raises UsageError when these are too many."""
    ledgers: Iterator[int] = iter(store.ledgers.ledgers())
    if page is not None:
        first = (page - 1) * LEDGERS_PER_PAGE
        return list(islice(ledgers, first, first + LEDGERS_PER_PAGE))
    ids = list(islice(ledgers, count_max + 1))
    if len(ids) > count_max:
        raise UsageError(
            f"more than {count_max} ledgers: ask for page=1 and so on, or use `bkctl ledger list`"
        )
    return ids


def _shown(
    store: MetadataStore, ids: list[int], *, decode: bool, secret: bool
) -> Iterator[tuple[str, object]]:
    for ledger, stored in store.ledgers.read_ledgers(ids):
        if stored is None:
            continue  # deleted in between
        if isinstance(stored, CorruptionError):
            yield str(ledger), str(stored)
        elif decode:
            yield str(ledger), metadata_values(stored, secret=secret)
        else:
            yield str(ledger), text_of(_raw(stored.metadata, secret=secret))


def _raw(metadata: LedgerMetadata, *, secret: bool) -> bytes:
    """Return the stored bytes; without ``secret`` those of the same ledger with an empty password."""
    if not secret and metadata.password:
        metadata = replace(metadata, password=b"")
    return encode_ledger_metadata(metadata)
