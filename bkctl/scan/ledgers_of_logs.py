"""Name the ledgers that the newest entry logs of a directory hold, without reading the logs."""

from __future__ import annotations

from collections.abc import Iterable

from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import FileSystem

#: Logs that are asked of one directory: enough to know whose disk it is.
_LOGS_MAX = 16


def ledgers_of_logs(filesystem: FileSystem, logs: Iterable[LogFile], logs_max: int = _LOGS_MAX) -> set[int]:
    """Return ledgers that the newest logs hold: all of a ledgers map, else those of the first records.

    A log that cannot be read says nothing.
    """
    newest = sorted((log for log in logs if not log.compaction), key=lambda log: log.log_id)[-logs_max:]
    found: set[int] = set()
    for log in newest:
        try:
            with EntryLogScan(filesystem, log.path) as scan:
                if scan.head.ledgers_map is not None:
                    found.update(scan.head.ledgers_map)
                else:
                    found.update(next((batch.ledgers for batch in scan.batches()), ()))
        except (CorruptionError, NotFoundError, StorageError):
            continue
    return found
