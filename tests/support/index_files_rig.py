"""A whole engine over index files."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from bkctl.engine.settings import BookieSettings
from bkctl.storage_kinds import INTERLEAVED_LEDGER_STORAGE
from bkctl.vfs.faulty import CrashPointReached
from tests.support.engine_model import PowerRig
from tests.support.engine_rig import small_settings


class IndexFilesRig(PowerRig):
    """A :class:`PowerRig` with small pages and few open files, so that little work goes over the bounds."""

    def __init__(self, settings: BookieSettings | None = None, **options: Any) -> None:
        settings = settings or small_settings()
        storage = replace(
            settings.storage,
            storage_class=INTERLEAVED_LEDGER_STORAGE,
            index_page_bytes=64,
            index_files_open_max=2,
            index_pages_max=3,
        )
        # One thread, so that equal runs have equal persistence points.
        entry_log = replace(settings.entry_log, force_threads=1)
        super().__init__(replace(settings, storage=storage, entry_log=entry_log), **options)

    def after_power_cut(self, chance: random.Random | None, crash_after: int | None = None) -> IndexFilesRig:
        self.system.crash_now()
        self.bookie.abort()
        memory = self.memory.crash(chance)
        try:
            return IndexFilesRig(self.settings, memory=memory, crash_after=crash_after)
        except CrashPointReached:
            # The power went off again while the files were opened, which removes what is half written.
            return IndexFilesRig(self.settings, memory=memory.crash(chance))

    def reopen(self) -> IndexFilesRig:
        return IndexFilesRig(self.settings, memory=self.memory)
