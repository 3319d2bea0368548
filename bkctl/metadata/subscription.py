"""A subscription to changes of a metadata store."""

from __future__ import annotations

from typing import Protocol


class Subscription(Protocol):
    """Something that calls back until it is closed."""

    def close(self) -> None:
        """End the subscription: no call begins after this; a second close does nothing."""
