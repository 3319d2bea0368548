"""How putting replicas back fails."""

from __future__ import annotations

from bkctl.client.errors import ClientError
from bkctl.errors import RefusedError


class LockLostError(ClientError, RefusedError):
    """The lock on the ledger is gone with the session: another worker may be at work on the ledger."""


class OpenFragmentError(ClientError, RefusedError):
    """The fragment is still written to: what is copied now would miss what comes next."""
