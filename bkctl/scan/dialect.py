"""The differences between journals and entry logs, for the one walk over both (``scan.records``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bkctl.codec.journal import BLOB_AT, RecordKind
from bkctl.scan.damage import Damage
from bkctl.scan.steady_file import SteadyFile


@dataclass(frozen=True, slots=True)
class MarkedRecord:
    """A record that is not an entry. ``kind`` None: a ledgers-map batch or filler of an entry log."""

    offset: int
    framed_bytes: int
    kind: RecordKind | None
    ledger: int
    entry: int
    body: bytes

    @property
    def end(self) -> int:
        """Return the offset at which the next record starts."""
        return self.offset + self.framed_bytes

    @property
    def blob(self) -> bytes:
        """Return the content of a master-key record (the key) or of an explicit-LAC record (its bytes)."""
        return self.body[BLOB_AT:]

    @property
    def is_filler(self) -> bool:
        """Whether it is filler of an entry log, into which any wrong size may lead."""
        return self.kind is None and not self.body


class Dialect(Protocol):
    """The differences between journals and entry logs."""

    def marked(self, file: SteadyFile, offset: int) -> MarkedRecord | Damage | None:
        """Return the record at ``offset`` if it is one that is not an entry.

        Damage when its inside is wrong.
        """

    def reserved(self, file: SteadyFile, size: int, ledger: int, entry: int, offset: int) -> int | None:
        """Return the end of a record whose reserved ids prove it."""

    def filler_before(self, file: SteadyFile, start: int, end: int) -> int:
        """Return the start of filler that ends at ``end``; ``end`` without filler, never before ``start``."""

    def torn(self, head: bytes, room: int) -> bool:
        """Return whether ``head`` begins a record that has more than ``room`` bytes."""
