"""The bookie as a process: identity, directories, network, stages, life cycle.

``from bkctl.server import EmbeddedBookie, LocalCluster``: bookies inside another program. They are loaded
when they are asked for, because commands use single modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster

__all__ = ["EmbeddedBookie", "LocalCluster"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bkctl.server.life import embedded

    return getattr(embedded, name)
