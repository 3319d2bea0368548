"""The reservations of a run: what its results do not prove, and why."""

from __future__ import annotations


class Reservations:
    """Gathers reservations while a run goes on.

    ``guards`` are sentences for people, each once. ``unknown`` are the words by which a job says which of its
    findings depend on what could not be seen.
    """

    def __init__(self) -> None:
        self.guards: list[str] = []
        self.unknown: list[str] = []

    def guard(self, text: str) -> None:
        """Add a sentence."""
        if text not in self.guards:
            self.guards.append(text)
