"""``/api/v1/bookie``, as far as it is about the other bookies of the cluster."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING

from bkctl.client.bookies import DiskSpace, KnownBookie, ask_disk_space, list_bookies
from bkctl.metadata.api import MetadataStore, RegistrationMode
from bkctl.server.http.replies import as_json, flag, metadata_of, text

if TYPE_CHECKING:
    from aiohttp import web

    from bkctl.server.http.store_threads import StoreThreads
    from bkctl.server.served_bookie import ServedBookie

_ASK_TIMEOUT_S = 5.0
_UNITS = ("", "KB", "MB", "GB", "TB")


class ClusterPages:
    """The handlers."""

    def __init__(self, service: ServedBookie, threads: StoreThreads) -> None:
        self._service = service
        self._threads = threads

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all these pages."""
        router.add_get("/api/v1/bookie/list_bookies", self._list)
        router.add_get("/api/v1/bookie/list_bookie_info", self._room)
        router.add_get("/api/v1/bookie/cluster_info", self._cluster)

    async def _list(self, request: web.Request) -> web.Response:
        read_only = request.query.get("type") == "ro"
        wanted = RegistrationMode.READ_ONLY if read_only else RegistrationMode.WRITABLE
        bookies = await self._threads.call(list_bookies, metadata_of(self._service))
        hosts = flag(request, "print_hostnames")
        return as_json(
            {bookie.bookie: _host(bookie) if hosts else None for bookie in bookies if bookie.mode is wanted}
        )

    async def _room(self, _: web.Request) -> web.Response:
        store = metadata_of(self._service)
        registered = await self._threads.call(store.registration.bookies)
        rooms = await self._threads.call(ask_disk_space, store, registered.everyone, _ASK_TIMEOUT_S)
        known = [room for room in rooms if room.error is None]
        if not known:
            return text("No bookie has told its room: " + "; ".join(str(room.error) for room in rooms), 503)
        values = {room.bookie: f": {_room_text(room)}," for room in known}
        values |= {room.bookie: f": {{Error: {room.error}}}," for room in rooms if room.error is not None}
        total_bytes = sum(room.total_bytes or 0 for room in known)
        free_bytes = sum(room.free_bytes or 0 for room in known)
        values["ClusterInfo: "] = _room_text(DiskSpace("", free_bytes, total_bytes))
        return as_json(values)

    async def _cluster(self, _: web.Request) -> web.Response:
        return as_json(await self._threads.call(cluster_values, metadata_of(self._service)))


def cluster_values(store: MetadataStore) -> dict[str, object]:
    """Return the cluster in numbers, as Java's ``clusterinfo``."""
    modes = [bookie.mode for bookie in list_bookies(store)]
    auditor = store.underreplication.auditor()
    return {
        "auditorElected": auditor is not None,
        "auditorId": auditor or "",
        "clusterUnderReplicated": next(store.underreplication.marked_ledgers(), None) is not None,
        "ledgerReplicationEnabled": store.underreplication.enabled(),
        "totalBookiesCount": len(modes),
        "writableBookiesCount": modes.count(RegistrationMode.WRITABLE),
        "readonlyBookiesCount": modes.count(RegistrationMode.READ_ONLY),
        "unavailableBookiesCount": modes.count(None),
    }


def _host(bookie: KnownBookie) -> str | None:
    """Return the address for clients; None when the bookie has not registered one."""
    return next((endpoint.host for endpoint in bookie.endpoints if endpoint.id == "bookie"), None)


def _room_text(room: DiskSpace) -> str:
    return f"{{Free: {_readable(room.free_bytes or 0)}, Total: {_readable(room.total_bytes or 0)}}}"


def _readable(size_bytes: int) -> str:
    """Return a text such as ``61493288960(61.493GB)``: three digits, cut off."""
    size, unit = Decimal(size_bytes), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    if not unit:
        return str(size_bytes)
    digits = size.quantize(Decimal("0.001"), rounding=ROUND_DOWN)
    return f"{size_bytes}({digits.normalize():f}{_UNITS[unit]})"
