"""The tables that a run writes: each is made aside, then put in its place and counted."""

from __future__ import annotations

import os

from bkctl.pipeline.out_directory import put
from bkctl.pipeline.results import WrittenTable


class KeptTables:
    """Makes tables in ``work_dir`` and puts them into ``out``; ``written`` has the finished ones by name."""

    def __init__(self, work_dir: str, out: str) -> None:
        self.work_dir = work_dir
        self.written: dict[str, WrittenTable] = {}
        self._out = out

    def fresh(self, name: str) -> str:
        """Make a folder for a table that is being written."""
        folder = os.path.join(self.work_dir, name)
        os.makedirs(folder)
        return folder

    def keep(self, name: str, making: str, role: str) -> str:
        """Put a finished table in its place, and count it."""
        folder = os.path.join(self._out, name)
        put(making, folder)
        self.written[name] = WrittenTable.of(name, role, folder)
        return folder
