"""The place that a pass of a collector has reached, for those who watch it."""

from __future__ import annotations


class Progress:
    """The phase of a pass, the share of it that is done, and the log that it works on.

    Written by the collector's thread, read by any.
    """

    def __init__(self) -> None:
        self.phase = "idle"
        self.share: float | None = None
        self.log_id: int | None = None

    def enter(self, phase: str) -> None:
        """Begin a phase, of which nothing is done yet."""
        self.phase, self.share, self.log_id = phase, None, None
