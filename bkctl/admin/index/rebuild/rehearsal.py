"""Show what a rebuild would find in the logs, for ``--dry-run``: nothing is written anywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from bkctl.admin.index.rebuild.log_set import LogSet, read_each
from bkctl.admin.index.rebuild.log_task import LogTask
from bkctl.admin.index.rebuild.old_places import OldIndex
from bkctl.admin.index.rebuild.options import RebuildOptions
from bkctl.admin.index.rebuild.state import LogManifest, WorkDirectory
from bkctl.scan.directory import LogFile
from bkctl.workers import Workers


def rehearsed_logs(logs: Sequence[LogFile], old: OldIndex, options: RebuildOptions) -> LogSet:
    """Read the logs as a rebuild would read them. Runs go to a temporary directory, one log at a time.

    Raises StorageError.
    """
    found = LogSet(logs, WorkDirectory(""), options.digest)
    with tempfile.TemporaryDirectory(prefix="bkctl-rebuild-") as scratch:
        work = WorkDirectory(scratch)
        work.prepare("logs")

        def take(manifest: LogManifest) -> None:
            found.take_again(manifest)
            work.discard("logs")
            work.prepare("logs")

        tasks = [LogTask(log, scratch, options.rows_max, options.digest, options.digesters) for log in logs]
        read_each("reading entry logs", tasks, take, old, work, options, Workers(1))
    return found
