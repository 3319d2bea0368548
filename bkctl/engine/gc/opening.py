"""Opens the collectors of a bookie: one for each ledger directory, with the rows of earlier passes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from bkctl.clock import Clock
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.ports import LedgerDirectory
from bkctl.engine.ledger_storage import LedgerStorage, LogKeeper
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import OpenStore
from bkctl.errors import BkctlError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.scan.directory import current
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)


def open_collectors(
    settings: BookieSettings,
    storages: Sequence[LedgerStorage],
    cluster: LedgerDirectory,
    *,
    filesystem: WritableFileSystem,
    clock: Clock,
    open_store: OpenStore,
    delete_ledger: Callable[[int], bool],
    adds: Callable[[], int],
    opened: contextlib.ExitStack,
) -> list[Collector]:
    """Make the collectors over the storages; ``opened`` gets what to close when a later part fails.

    ``adds`` counts the adds that the bookie has taken so far.
    """
    collectors: list[Collector] = []
    keepers = [keeper for storage in storages for keeper in storage.collected]
    for number, keeper in enumerate(keepers):
        # Java gives all directories the same place, and does not start with two of them.
        place = None if len(keepers) == 1 else str(number)
        rows = _log_metadata_rows(settings, keeper, place, filesystem, open_store)
        if rows is not None:
            opened.callback(rows.close)
        collectors.append(
            Collector(
                keeper,
                cluster,
                filesystem=filesystem,
                clock=clock,
                settings=replace(settings.gc, scratch_directories=_other_directories(settings, keeper)),
                delete_ledger=delete_ledger,
                scarce_usage=settings.disks.usage_warn,
                rows=rows,
                adds=adds,
            )
        )
    return collectors


def _other_directories(settings: BookieSettings, keeper: LogKeeper) -> tuple[str, ...]:
    """Return where a directory's logs are compacted when its own disk has no room for a copy."""
    given = settings.gc.scratch_directories
    others = [path for path in settings.ledger_directories if current(path) != keeper.directory]
    return given + tuple(others)


def _log_metadata_rows(
    settings: BookieSettings,
    keeper: LogKeeper,
    name: str | None,
    filesystem: WritableFileSystem,
    open_store: OpenStore,
) -> KeyValueStore | None:
    """Open the ``metadata-cache`` of a directory, if it is wanted and can be opened.

    Below a configured path it is in a directory ``name``, None where it is the only one.
    """
    gc = settings.gc
    if not gc.metadata_cache or not keeper.index_place.kind.has_metadata_cache:
        return None
    place = keeper.directory
    if gc.metadata_cache_path is not None:
        place = gc.metadata_cache_path if name is None else f"{gc.metadata_cache_path}/{name}"
    try:
        filesystem.make_directories(place)
        return open_store(f"{place}/metadata-cache", LEDGERS_PROFILE)
    except BkctlError as error:
        _log.warning("entry logs are read again at every start: %s", error)
        return None
