"""Entries of the index that a replay at the next start repairs: one note for each ledger."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.index.check.finding import Finding, Kind, about_ledger


class PendingReplay:
    """Makes one note for each ledger of which a replay repairs something; ledgers come in order."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ledger: int | None = None
        self._counts: dict[str, int] = {}

    def add(self, ledger: int, what: str) -> Iterator[Finding]:
        """Count one entry; yield the note about the ledger before it when the ledger changes."""
        if ledger != self._ledger:
            yield from self.close()
            self._ledger = ledger
        self._counts[what] = self._counts.get(what, 0) + 1

    def close(self) -> Iterator[Finding]:
        """Yield the note about the last ledger."""
        if self._ledger is not None:
            listed = ", ".join(f"{count} with {what}" for what, count in sorted(self._counts.items()))
            detail = (
                f"entries: {listed}; all are in the journal past the last mark and come at the next start"
            )
            yield about_ledger(Kind.PENDING_REPLAY, self._directory, self._ledger, detail)
        self._ledger = None
        self._counts = {}
