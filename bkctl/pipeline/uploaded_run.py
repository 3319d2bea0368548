"""The results of a run in an object store: written here first, then put there, the summary last.

A reader that finds no ``summary.json`` finds no run; nothing is renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bkctl.errors import RefusedError, as_storage_errors
from bkctl.pipeline.locations import Location, located
from bkctl.pipeline.out_directory import MARK_NAME, SUMMARY_NAME
from bkctl.pipeline.results import Outcome, encoded_summary

#: In the directory of a run: what goes with the run.
WORK_NAME = ".work"


@contextmanager
def claimed_url(url: str) -> Iterator[Location]:
    """Take a directory that is empty or has an earlier run's results, whose summary goes at once.

    Raises RefusedError for one that holds something else, StorageError.
    """
    place = located(url)
    names = set(place.names())
    if names and not {MARK_NAME, SUMMARY_NAME} & names:
        raise RefusedError(f"--out {url}: holds files that no run wrote; choose another directory")
    if SUMMARY_NAME in names:
        place.write(MARK_NAME, b"\n")
        place.remove_file(SUMMARY_NAME)
    try:
        yield place
    finally:
        place.child(WORK_NAME).remove()


def upload(outcome: Outcome, place: Location) -> Outcome:
    """Put a run's tables into a place, then its summary; the run as it stands there. Raises StorageError."""
    tables = []
    for table in outcome.tables:
        folder = place.child(table.name)
        folder.remove()
        for entry in sorted(os.scandir(table.path), key=lambda entry: entry.name):
            if entry.name.endswith(".parquet"):
                put_file(entry.path, folder, entry.name)
        tables.append(replace(table, path=folder.text))
    there = replace(outcome, out=place.text, tables=tuple(tables))
    place.write(MARK_NAME, b"\n")
    place.write(SUMMARY_NAME, encoded_summary(there))
    return there


def put_file(path: str, place: Location, name: str) -> None:
    """Copy a file of this machine. Raises StorageError."""
    with as_storage_errors(path), open(path, "rb") as source, place.opened(name) as stream:
        shutil.copyfileobj(source, stream, 1 << 20)
