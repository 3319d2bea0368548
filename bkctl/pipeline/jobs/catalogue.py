"""The jobs by name."""

from __future__ import annotations

import difflib

from bkctl.errors import UsageError
from bkctl.pipeline.job import REBUILD_NAME, Job
from bkctl.pipeline.jobs.garbage import GARBAGE
from bkctl.pipeline.jobs.index_audit import INDEX_AUDIT
from bkctl.pipeline.jobs.inventory import INVENTORY
from bkctl.pipeline.jobs.journal_forensics import JOURNAL_FORENSICS
from bkctl.pipeline.jobs.orphans import ORPHANS
from bkctl.pipeline.jobs.replica_compare import REPLICA_COMPARE
from bkctl.pipeline.jobs.replication_audit import REPLICATION_AUDIT
from bkctl.pipeline.jobs.stats import STATS
from bkctl.pipeline.jobs.verify import VERIFY

#: Those that are one SQL text; ``REBUILD_NAME`` is another kind of work.
JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        INVENTORY,
        VERIFY,
        GARBAGE,
        INDEX_AUDIT,
        REPLICATION_AUDIT,
        REPLICA_COMPARE,
        ORPHANS,
        JOURNAL_FORENSICS,
        STATS,
    )
}


def job_named(name: str) -> Job:
    """Return the job of a name. Raises UsageError that says which there are."""
    found = JOBS.get(name)
    if found is None:
        names = [*JOBS, REBUILD_NAME]
        close = difflib.get_close_matches(name, names)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
        raise UsageError(f"no job {name!r}: {hint}")
    return found
