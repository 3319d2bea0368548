"""Let one export at a time write to a folder of tables: it has a note in ``<folder>/_exports``."""

from __future__ import annotations

from bkctl.clock import Clock
from bkctl.pipeline.locations import Location
from bkctl.pipeline.turn import RENEWAL_S, Turn

TURN_FOLDER = "_exports"


class ExportTurn(Turn):
    """The note of an export: a context manager that holds the folder for as long as the export takes."""

    def __init__(self, location: Location, clock: Clock, renewal_s: float = RENEWAL_S) -> None:
        super().__init__(location.child(TURN_FOLDER), "an export", clock, renewal_s)
