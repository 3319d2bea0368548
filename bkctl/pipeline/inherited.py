"""Find what a run over table sets takes over from the runs that wrote them, and from when they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bkctl.pipeline.job import Job, Snapshot
from bkctl.pipeline.jobs.catalogue import JOBS
from bkctl.pipeline.survey import INDEXES, JOURNALS, KIND_OF, LOGS
from bkctl.pipeline.table_sets import TableSet


@dataclass(frozen=True, slots=True)
class MetadataTimes:
    """When the metadata of before and of after was read; None where that is not known, or there is none."""

    before_ms: int | None
    after_ms: int | None


def inherited_guards(sets: Sequence[TableSet]) -> Iterator[str]:
    """Give the guards of the sets, each with its set; what a job always takes for granted is left out."""
    for one in sets:
        job = JOBS.get(one.job or "")
        always = set() if job is None else {*job.notes, *job.one_snapshot_notes}
        yield from (f"of {one.path}: {guard}" for guard in one.guards if guard not in always)


def inherited_unknown(sets: Sequence[TableSet], job: Job) -> Iterator[str]:
    """Give what a job cannot know because the runs that wrote the sets did not."""
    reads_index = any(KIND_OF.get(item.source) == INDEXES for item in job.inputs)
    if reads_index and any(one.unread_indexes for one in sets):
        yield "unread_indexes"
    if any(unread_files_of(one, job) for one in sets):
        yield "unread_files"
    if job.trusts_absence and any(one.logs_gone for one in sets):
        yield "logs_gone"


def unread_files_of(one: TableSet, job: Job) -> tuple[str, ...]:
    """Return the files without which tables of a set were made that a job reads."""
    if one.unread_tables is None:
        lacks = any(KIND_OF.get(item.source) in (LOGS, JOURNALS) for item in job.inputs)
    else:
        lacks = any(item.name in one.unread_tables for item in job.inputs)
    return one.unread_files if lacks else ()


def at_odds(sets: Sequence[TableSet], job: Job, times: MetadataTimes) -> Iterator[tuple[str, str]]:
    """Give what a job cannot know because of when the sets were collected, and a sentence that says so.

    Metadata of before has to be older than every set, metadata of after younger.
    """
    compares = job.trusts_absence and any(item.snapshot is Snapshot.BEFORE for item in job.inputs)
    for one in sets if compares else ():
        if times.before_ms is not None and one.started_ms is not None and times.before_ms > one.started_ms:
            yield (
                "older_than_metadata",
                f"{one.path} was collected before the metadata was read: what was written in between is in "
                "no table and may look missing; give a dump of before as --metadata and one of after as "
                "--metadata-after",
            )
    heeds_after = any(item.snapshot is Snapshot.AFTER for item in job.inputs)
    for one in sets if heeds_after else ():
        if times.after_ms is not None and one.ended_ms is not None and times.after_ms < one.ended_ms:
            yield (
                "newer_than_metadata",
                f"{one.path} was collected after the second metadata was read: ledgers made in between may "
                "look gone; give a dump of after as --metadata-after",
            )
