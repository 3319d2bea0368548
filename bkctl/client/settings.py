"""The settings of a ledger client, with BookKeeper's keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.client.ops.read import ENTRY_SPECULATION, Speculation
from bkctl.config.server_keys.client import ClientKeys
from bkctl.net.settings import NetSettings, bounded, check_bounds

_TIMEOUT_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(ClientKeys):
    """Bounds of a client.

    ``add_timeout_ms`` and ``read_timeout_ms`` bound every single request to a bookie; a long poll's own
    time comes on top. ``metadata_threads`` is how many calls of the metadata store run at once, further
    ones wait. A ledger handle has at most ``outstanding_adds_max`` appends or
    ``outstanding_add_bytes_max`` bytes of them outstanding, and reads at most ``outstanding_reads_max``
    entries at once; whoever wants more waits (``throttle``). ``speculation`` is when a read asks the next
    bookie as well (``speculativeReadTimeout``), None never.
    ``tail_timeout_ms`` is how long a bookie holds a long poll before it says that there is nothing new.
    """

    metadata_threads: int = bounded(8, 1, 256)
    outstanding_adds_max: int = bounded(1_000, 1, 1_000_000)
    outstanding_add_bytes_max: int = bounded(32 << 20, 1, 1 << 34)
    outstanding_reads_max: int = bounded(64, 1, 1_000_000)
    speculation: Speculation | None = ENTRY_SPECULATION
    tail_timeout_ms: int = bounded(5_000, 1, _TIMEOUT_MS_MAX)
    net: NetSettings = field(default_factory=NetSettings)

    def __post_init__(self) -> None:
        check_bounds(self)
