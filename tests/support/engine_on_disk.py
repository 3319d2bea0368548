"""A bookie's engine on real files, with its indexes in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bkctl.clock import SystemClock
from bkctl.engine.bookie import Bookie
from bkctl.vfs import PosixFileSystem
from tests.support.engine_rig import EngineRig, small_settings


class EngineOnDisk(EngineRig):
    """An engine below ``path``. Its entries are read by the kernels' calls, which need descriptors."""

    def __init__(self, path: Path, *, directories: int = 1, read_cache_bytes: int = 1 << 20) -> None:
        super().__init__()
        settings = small_settings(directories=directories)
        self.settings = replace(
            settings,
            journal_directories=(str(path / "journal"),),
            ledger_directories=tuple(str(path / f"ledgers{number}") for number in range(directories)),
            storage=replace(settings.storage, read_cache_bytes_max=read_cache_bytes),
        )
        for directory in (*self.settings.journal_directories, *self.settings.ledger_directories):
            Path(directory, "current").mkdir(parents=True)
        self.bookie = Bookie(
            self.settings,
            filesystem=PosixFileSystem(),
            clock=SystemClock(),
            open_store=self._open,
            on_failure=self._note_failure,
            on_read_only=self.modes.append,
        )
