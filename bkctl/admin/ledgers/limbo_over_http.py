"""Taking ledgers out of limbo on a running bookie of ours, through its HTTP admin.

A Java bookie has no such page: it leaves limbo by its own data integrity check, or stopped, with
``bkctl index limbo --clear``. Until then nothing is lost: it answers what it has, and "unknown" for the rest.
"""

from __future__ import annotations

from bkctl.admin import http_json
from bkctl.codec.bookie_service_info import decode_bookie_service_info
from bkctl.errors import RefusedError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.http_address import http_urls

_PAGE = "/api/v1/bkctl/ledger/limbo"
#: The bookie looks through its index for the ledger.
_TIMEOUT_S = 600.0


class LimboOverHttp:
    """Knows where the bookies of a cluster have their HTTP admins; ``named`` are URLs that were given."""

    def __init__(self, store: MetadataStore, named: dict[str, str] | None = None) -> None:
        self._store = store
        self._named = named or {}
        self._known: dict[str, str] = {}

    def leave(self, bookie: str, ledger: int) -> None:
        """Take a ledger out of limbo on a bookie. Raises RefusedError, ConnectionFailedError."""
        url = self._url(bookie, ledger)
        path = f"{_PAGE}?ledger_id={ledger}"
        try:
            http_json.call("DELETE", url, path, timeout_s=_TIMEOUT_S)
        except http_json.NoSuchPathError as error:
            raise RefusedError(
                f"{bookie} is a Java bookie, whose limbo flag can only be cleared while it is stopped: "
                f"bkctl index limbo {ledger} PATH --clear"
            ) from error

    def _url(self, bookie: str, ledger: int) -> str:
        if bookie in self._named:
            return http_json.base(self._named[bookie])
        if bookie not in self._known:
            self._known[bookie] = self._registered(bookie, ledger)
        http_json.require_named_host(self._known[bookie])
        return self._known[bookie]

    def _registered(self, bookie: str, ledger: int) -> str:
        registration = self._store.registration.registration(bookie)
        urls = (
            []
            if registration is None
            else http_urls(bookie, decode_bookie_service_info(registration.service_info))
        )
        if not urls:
            raise RefusedError(
                f"{bookie} has no HTTP admin (httpServerEnabled), which would clear the limbo flag. Stop the "
                f"bookie, run 'bkctl index limbo {ledger} PATH --clear', and start the bookie"
            )
        return urls[0]
