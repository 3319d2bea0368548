"""Find which entry logs a rebuild reads: those of one space of log ids."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bkctl.codec.entrylog import log_name, parse_compacted_name
from bkctl.errors import RefusedError, UsageError
from bkctl.scan.directory import LogFile, inspect_directory
from bkctl.vfs import FileSystem


def find_logs(fs: FileSystem, directories: Sequence[str]) -> list[LogFile]:
    """Find the logs of one space of ids, in order of ids.

    ``.compacting`` files are unfinished and never count. A ``.compacted`` file is finished, but the index
    still points to the log it was made from, which is there until the index is updated: it does not count
    either, and a bookie finishes it later. Raises UsageError when an id is there twice, RefusedError when a
    ``.compacted`` file may hold the only copy of entries.
    """
    logs: dict[int, LogFile] = {}
    for directory in directories:
        here = inspect_directory(fs, directory)
        for log in here.logs:
            if log.compaction:
                continue
            if log.log_id in logs:
                raise UsageError(f"{log.path}: log {log.log_id} is also {logs[log.log_id].path}")
            logs[log.log_id] = log
        _check_compacted(here.logs)
    return [logs[log_id] for log_id in sorted(logs)]


def _check_compacted(logs: Sequence[LogFile]) -> None:
    ids = {log.log_id for log in logs if not log.compaction}
    for log in logs:
        named = parse_compacted_name(os.path.basename(log.path))
        if named is None or not ids.isdisjoint(named):
            continue
        target, source = map(log_name, named)
        raise RefusedError(
            f"{log.path}: neither {target} nor {source}, from which it was made, exists, so it may "
            f"hold the only copy of its entries. Link it as {target}, then rebuild"
        )
