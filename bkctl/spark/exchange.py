"""Tables on their way between the driver and the executors of a cluster, which share no disk of theirs.

A run whose ``--out`` is a URL keeps its tables on the driver's machine until they are put there. Until then
the tables that Spark's tasks read, and those that they write, go through a directory in ``--out``.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence

from bkctl.errors import as_storage_errors
from bkctl.pipeline.locations import Location, is_url, local_path
from bkctl.pipeline.results import parquet_files
from bkctl.pipeline.uploaded_run import put_file

_COPY_BYTES = 1 << 20


class Exchange:
    """A directory that driver and executors reach alike. Every method raises StorageError."""

    def __init__(self, place: Location) -> None:
        self._place = place
        self._there: dict[str, str] = {}

    def fresh(self) -> Location:
        """Return a directory of the exchange that nobody has used."""
        return self._place.child(secrets.token_hex(8))

    def given(self, folders: Sequence[str]) -> list[str]:
        """Return folders of tables as executors reach them: those of this machine are copied, once."""
        return [folder if is_url(folder) else self._copied(folder) for folder in folders]

    def _copied(self, folder: str) -> str:
        if folder not in self._there:
            target = self.fresh()
            for path in parquet_files(local_path(folder)):
                put_file(path, target, os.path.basename(path))
            self._there[folder] = target.text
        return self._there[folder]

    def fetch(self, source: Location, folder: str) -> None:
        """Copy what tasks have written to a folder of this machine, and remove it from the exchange."""
        for name in source.names():
            if not name.endswith(".parquet"):
                continue
            path = os.path.join(folder, name)
            with as_storage_errors(path), source.opened_to_read(name) as stream, open(path, "xb") as copy:
                shutil.copyfileobj(stream, copy, _COPY_BYTES)
        source.remove()

    def close(self) -> None:
        """Remove the directory."""
        self._there.clear()
        self._place.remove()
