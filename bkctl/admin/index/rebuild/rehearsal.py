"""Show what a rebuild would find in the logs, for ``--dry-run``: nothing is written anywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from bkctl.admin.index.rebuild.log_scan import scan_log
from bkctl.admin.index.rebuild.log_set import LogSet
from bkctl.admin.index.rebuild.log_task import LogTask
from bkctl.admin.index.rebuild.old_places import OldIndex
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rebuild.state import WorkDirectory
from bkctl.scan.directory import LogFile


def rehearsed_logs(logs: Sequence[LogFile], old: OldIndex, options: RebuildOptions) -> LogSet:
    """Read the logs as a rebuild would read them. Runs go to a temporary directory, one log at a time.

    Raises StorageError.
    """
    found = LogSet(logs, WorkDirectory(""), options.digest)
    with options.phase("reading entry logs", sum(log.size_bytes for log in logs)) as advance:
        for log in logs:
            with tempfile.TemporaryDirectory(prefix="bkctl-rebuild-") as scratch:
                WorkDirectory(scratch).prepare("logs")
                task = LogTask(log, scratch, options.rows_max, options.digest, options.digesters, old=old)
                found.take_again(scan_log(task, advance))
    return found
