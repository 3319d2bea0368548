"""The last act of a conversion: all names change, the way back is noted, and the work directories go.

::

    cookies away -> names moved -> record for ``repair undo`` -> cookies back -> work directories removed

A kill leaves what the next run ends or takes back as long as a cookie is away. Behind that the conversion is
complete, and its record says how to undo it; what is left of the work directories stands in nobody's way.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from bkctl.admin.conversion import switch
from bkctl.admin.conversion.bookie_places import BookiePlaces
from bkctl.admin.conversion.way_back import forget_way_back, note_way_back
from bkctl.clock import Clock
from bkctl.codec.repair_record import State
from bkctl.errors import RefusedError
from bkctl.vfs.base import WritableFileSystem


def change_names(
    fs: WritableFileSystem,
    places: BookiePlaces,
    plans: Mapping[str, switch.DirectoryPlan],
    clock: Clock,
    before: State | None,
) -> None:
    """Change all names; may be called again after a kill.

    ``before`` is what the directories held in front of the conversion; the way back is noted where that is
    known. Where it cannot be noted because of a record that cannot be read, which can only be removed when
    all cookies are back, the names are changed all the same, and RefusedError is raised then. Raises
    StorageError; the next run goes on.
    """
    refusals: list[RefusedError] = []

    def note() -> None:
        if before is None:
            return
        try:
            note_way_back(fs, clock, before, places.locked, plans)
        except RefusedError as error:
            refusals.append(error)

    switch.carry_out(fs, plans, note=note)
    switch.discard(places.every)
    if refusals:
        raise refusals[0]


def change_back(
    fs: WritableFileSystem, places: BookiePlaces, plans: Mapping[str, switch.DirectoryPlan]
) -> None:
    """Take a change that was cut off back, its record first; may be called again. Raises StorageError."""
    with suppress(RefusedError):  # of a record that cannot be read; one that stays can never be undone
        forget_way_back(fs, places.locked, plans)
    switch.carry_out(fs, plans, back=True)
    switch.discard(places.every)
