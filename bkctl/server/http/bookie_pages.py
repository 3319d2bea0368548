"""``/api/v1/bookie``: the state of this bookie, its disks and files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from posixpath import basename
from typing import TYPE_CHECKING

from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.journal import journal_name, parse_journal_name
from bkctl.errors import RefusedError, UsageError
from bkctl.scan.directory import current
from bkctl.scan.idx_tree import IdxTree
from bkctl.server.http.replies import as_json, body_object, engine_of, require_ready, text
from bkctl.server.http.sanity import is_sane

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.client.bookkeeper import BookKeeper
    from bkctl.engine.bookie import Bookie
    from bkctl.server.http.store_threads import StoreThreads
    from bkctl.server.served_bookie import ServedBookie

_JOURNAL, _ENTRY_LOG, _INDEX = "journal", "entrylog", "index"


class BookiePages:
    """The handlers; ``client`` gives a ledger client of this bookie's cluster."""

    def __init__(
        self, service: ServedBookie, client: Callable[[], Awaitable[BookKeeper]], threads: StoreThreads
    ) -> None:
        self._service = service
        self._client = client
        self._threads = threads
        self._sanity = asyncio.Lock()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all these pages."""
        router.add_get("/api/v1/bookie/is_ready", self._is_ready)
        router.add_get("/api/v1/bookie/state", self._state)
        router.add_get("/api/v1/bookie/state/readonly", self._read_only)
        router.add_put("/api/v1/bookie/state/readonly", self._set_read_only)
        router.add_get("/api/v1/bookie/info", self._info)
        router.add_get("/api/v1/bookie/last_log_mark", self._last_log_mark)
        router.add_get("/api/v1/bookie/list_disk_file", self._list_disk_file)
        router.add_get("/api/v1/bookie/sanity", self._sanity_test)
        router.add_put("/api/v1/bookie/sanity", self._sanity_test)

    def _bookie(self) -> Bookie:
        return engine_of(self._service)

    async def _is_ready(self, _: web.Request) -> web.Response:
        require_ready(self._service)
        return text("OK")

    async def _state(self, _: web.Request) -> web.Response:
        bookie = self._service.bookie
        return as_json(
            {
                "running": self._service.ready,
                "readOnly": bookie is not None and bookie.read_only,
                "shuttingDown": self._service.shutting_down,
                "availableForHighPriorityWrites": bookie is not None and bookie.takes_high_priority_adds,
            }
        )

    async def _read_only(self, _: web.Request) -> web.Response:
        bookie = self._service.bookie
        return as_json({"readOnly": bookie is not None and bookie.read_only})

    async def _set_read_only(self, request: web.Request) -> web.Response:
        expected = '{"readOnly": true} or {"readOnly": false}'
        wanted = (await body_object(request, expected)).get("readOnly")
        if not isinstance(wanted, bool):
            raise UsageError(f"expected {expected}")
        await asyncio.to_thread(self._service.set_read_only, wanted)
        # An operator's request is answered when the cluster knows, too; a registration that fails is tried
        # again.
        await self._threads.call(self._service.register_mode)
        return await self._read_only(request)

    async def _info(self, _: web.Request) -> web.Response:
        total_bytes, free_bytes = await asyncio.to_thread(self._bookie().disk_space)
        return as_json({"freeSpace": free_bytes, "totalSpace": total_bytes})

    async def _last_log_mark(self, _: web.Request) -> web.Response:
        marks = [journal.mark for journal in self._bookie().journals]
        return as_json(
            {
                f"LastLogMark: Journal Id - {mark.journal_id}({journal_name(mark.journal_id)})": (
                    f"Pos - {mark.offset}"
                )
                for mark in marks
            }
        )

    async def _list_disk_file(self, request: web.Request) -> web.Response:
        wanted = request.query.get("file_type", "").lower()
        kinds = (wanted,) if wanted in (_JOURNAL, _ENTRY_LOG, _INDEX) else (_JOURNAL, _ENTRY_LOG, _INDEX)
        files = await asyncio.to_thread(self._files)
        return as_json({f"{kind} files": "".join(f"{name}\t" for name in files[kind]) for kind in kinds})

    def _files(self) -> dict[str, list[str]]:
        """Return names by kind, in the order of the directories; a DbLedgerStorage has no index files."""
        names = self._service.filesystem.names
        directories = self._service.config.directories
        journals = [name for path in directories.journals for name in sorted(names(current(path)))]
        logs = [name for path in directories.ledgers for name in sorted(names(current(path)))]
        return {
            _JOURNAL: [name for name in journals if parse_journal_name(name) is not None],
            _ENTRY_LOG: [name for name in logs if parse_log_name(name) is not None],
            _INDEX: self._index_files() if self._service.config.storage_kind.has_file_per_ledger else [],
        }

    def _index_files(self) -> list[str]:
        found: list[str] = []
        for path in dict.fromkeys(self._service.config.directories.index_places):
            _, files = IdxTree(self._service.filesystem, current(path)).files()
            found += sorted(basename(file) for file in files.values())
        return found

    async def _sanity_test(self, _: web.Request) -> web.Response:
        require_ready(self._service)
        if self._bookie().read_only:
            # It could only fail, and says nothing about what the bookie serves.
            return as_json({"passed": True, "readOnly": True})
        if self._sanity.locked():
            raise RefusedError("a sanity test is running; ask again when it has ended")
        async with self._sanity:
            passed = await is_sane(await self._client(), self._service.bookie_id)
        return as_json({"passed": passed, "readOnly": False})
