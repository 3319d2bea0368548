"""The results of a run in an object store: written here first, then put there, the summary last.

A reader that finds no ``summary.json`` finds no run; nothing is renamed. One run at a time writes there: its
note is in ``.runs``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bkctl.clock import Clock
from bkctl.errors import RefusedError, as_storage_errors
from bkctl.pipeline.locations import Location, located
from bkctl.pipeline.out_directory import MARK_NAME, SUMMARY_NAME
from bkctl.pipeline.results import Outcome, encoded_summary
from bkctl.pipeline.turn import Turn

#: In the directory of a run: what goes with the run.
WORK_NAME = ".work"
TURN_FOLDER = ".runs"


@contextmanager
def claimed_url(url: str, clock: Clock) -> Iterator[UploadedRun]:
    """Take a directory that is empty or has an earlier run's results, whose summary goes at once.

    Raises RefusedError for one that holds something else, or to which another run writes, StorageError.
    """
    place = located(url)
    work = place.child(WORK_NAME)
    names = set(place.names()) - {WORK_NAME, TURN_FOLDER}
    if names and not {MARK_NAME, SUMMARY_NAME} & names:
        raise RefusedError(f"--out {url}: holds files that no run wrote; choose another directory")
    with Turn(place.child(TURN_FOLDER), "a run", clock) as turn:
        work.remove()  # of a run that was killed
        if place.holds(SUMMARY_NAME):
            place.write(MARK_NAME, b"\n")
            place.remove_file(SUMMARY_NAME)
        try:
            yield UploadedRun(place, turn)
        finally:
            if turn.is_held:  # else it may be that of the next run
                work.remove()


@dataclass(frozen=True, slots=True)
class UploadedRun:
    """The directory of a run in an object store, and the note that keeps others from it."""

    place: Location
    turn: Turn

    def upload(self, outcome: Outcome) -> Outcome:
        """Put a run's tables there, then its summary; the run as it stands there. Raises StorageError."""
        tables = []
        for table in outcome.tables:
            self.turn.check()
            folder = self.place.child(table.name)
            folder.remove()
            for entry in sorted(os.scandir(table.path), key=lambda entry: entry.name):
                if entry.name.endswith(".parquet"):
                    put_file(entry.path, folder, entry.name)
            tables.append(replace(table, path=folder.text))
        there = replace(outcome, out=self.place.text, tables=tuple(tables))
        self.turn.check()
        self.place.write(MARK_NAME, b"\n")
        self.place.write(SUMMARY_NAME, encoded_summary(there))
        return there


def put_file(path: str, place: Location, name: str) -> None:
    """Copy a file of this machine. Raises StorageError."""
    with as_storage_errors(path), open(path, "rb") as source, place.opened(name) as stream:
        shutil.copyfileobj(source, stream, 1 << 20)
