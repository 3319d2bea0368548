"""The bookie of this process, as far as its HTTP pages and its metrics need it."""

from __future__ import annotations

from typing import Protocol

from bkctl.config.bookie import BookieConfig
from bkctl.engine.bookie import Bookie
from bkctl.metadata.api import MetadataStore
from bkctl.replication.service import AutoRecovery
from bkctl.server.wire.bookie_server import BookieServer
from bkctl.vfs import FileSystem


class ServedBookie(Protocol):
    """The view of a bookie at any time of its life: a part that is not up yet is None."""

    @property
    def config(self) -> BookieConfig:
        """Return what it was started with."""

    @property
    def bookie(self) -> Bookie | None:
        """Return the engine."""

    @property
    def server(self) -> BookieServer | None:
        """Return the port with its connections."""

    @property
    def metadata(self) -> MetadataStore | None:
        """Return the cluster's metadata."""

    @property
    def autorecovery(self) -> AutoRecovery | None:
        """Return the autorecovery beside it; None where none runs now."""

    @property
    def bookie_id(self) -> str:
        """Return the id that clients know it by; empty before the port is bound."""

    @property
    def filesystem(self) -> FileSystem:
        """Return where its directories are."""

    @property
    def ready(self) -> bool:
        """Return whether clients are served."""

    @property
    def registered(self) -> bool:
        """Return whether the cluster knows it: not while its session is lost."""

    @property
    def shutting_down(self) -> bool:
        """Return whether its stop has begun."""

    def set_read_only(self, read_only: bool) -> None:
        """Turn the bookie read-only by hand, or let its disks decide again; waits for its disks only.

        Raises RefusedError where that is not allowed, or the bookie has not started yet.
        """

    def register_mode(self) -> None:
        """Register a mode that has changed; waits for the metadata store."""
