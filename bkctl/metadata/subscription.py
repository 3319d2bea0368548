"""Subscriptions to changes of a metadata store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Subscription(Protocol):
    """Something that calls back until it is closed."""

    def close(self) -> None:
        """End the subscription: no call begins after this; a second close does nothing."""


class Subscriptions:
    """Several subscriptions that are closed as one."""

    def __init__(self, each: Sequence[Subscription]) -> None:
        self._each = each

    def close(self) -> None:
        """End all of them."""
        for subscription in self._each:
            subscription.close()
