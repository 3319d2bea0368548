"""The ledgers of a cluster as its metadata store has them: listing with filters, one ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bkctl.codec.pulsar_names import ledger_owner, matches_topic
from bkctl.errors import CorruptionError
from bkctl.metadata.api import LedgerManager, StoredLedger
from bkctl.types import LedgerState


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """Which ledgers are wanted; all conditions that are given have to hold.

    ``created_before_ms`` and ``created_after_ms`` are times since 1970. ``bookies`` are ids, one of which
    has to be in one of the ensembles. ``custom`` are pairs of custom metadata: a name, and its value or None
    for any. ``topic`` is one of Pulsar's, a namespace or a tenant.
    """

    states: frozenset[LedgerState] = frozenset()
    created_before_ms: int | None = None
    created_after_ms: int | None = None
    bookies: frozenset[str] = frozenset()
    custom: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None

    def accepts(self, found: StoredLedger) -> bool:
        """Return whether a ledger is wanted."""
        metadata = found.metadata
        if self.states and metadata.state not in self.states:
            return False
        created_ms = creation_ms(found)
        if self.created_before_ms is not None and created_ms >= self.created_before_ms:
            return False
        if self.created_after_ms is not None and created_ms < self.created_after_ms:
            return False
        if self.bookies and not any(self.bookies & set(segment.bookies) for segment in metadata.segments):
            return False
        if self.topic is not None:
            owner = ledger_owner(metadata.custom_metadata)
            if not matches_topic(owner.topic, self.topic):
                return False
        pairs = dict(metadata.custom_metadata)
        return all(name in pairs and (value is None or pairs[name] == value) for name, value in self.custom)


@dataclass(frozen=True, slots=True)
class UnreadableLedger:
    """A ledger whose metadata does not decode."""

    ledger: int
    error: CorruptionError


def creation_ms(found: StoredLedger) -> int:
    """Return when a ledger was made, in milliseconds since 1970.

    That is the time in its metadata, or else the time at which its node was made.
    """
    stored = found.metadata.ctime_ms
    return found.created_ms if stored is None or stored < 0 else stored


def _no_matter(count: int) -> None:
    """Ignore the number of ledgers that were read."""


def list_ledgers(
    ledgers: LedgerManager, wanted: LedgerFilter, on_read: Callable[[int], None] = _no_matter
) -> Iterator[StoredLedger | UnreadableLedger]:
    """Yield the wanted ledgers, ascending; completely, or raise what :class:`LedgerManager` raises.

    A ledger that is deleted before it is read is left out. ``on_read`` gets the number of ledgers that were
    looked at since its last call, wanted or not.
    """
    for ledger, found in ledgers.read_ledgers(ledgers.ledgers()):
        if isinstance(found, CorruptionError):
            yield UnreadableLedger(ledger, found)
        elif found is not None and wanted.accepts(found):
            yield found
        on_read(1)
