"""``bkctl pipeline list``: the jobs, and what each of them needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows

if TYPE_CHECKING:
    from bkctl.pipeline.job import Job

LIST_SCHEMA: Schema = (
    Key("name", "string", "the job"),
    Key("summary", "string", "the question that it answers"),
    Key("metadata", "string", "whether it needs --metadata: needed, optional"),
    Key("options", "array of strings", "options of 'pipeline run' that it heeds"),
    Key("reads", "array of strings", "tables that it reads"),
    Key("writes", "array of strings", "tables that it writes"),
)


@takes(LIST_SCHEMA)
def list_command(output: OutputOption = None) -> None:
    """[offline] [reads] List the jobs: what each one finds out, needs, reads and writes.

    Examples:

      bkctl pipeline list

      bkctl pipeline list -o json | jq '.[].name'
    """
    from bkctl.pipeline.jobs.catalogue import JOBS
    from bkctl.pipeline.jobs.index_rebuild import REBUILD, REBUILD_TABLE

    rows = [_job_row(job) for job in JOBS.values()]
    rows.append(
        {
            **_job_row(REBUILD),
            "options": ["accept_loss", "dry_run", "yes"],
            "writes": [REBUILD_TABLE],
        }
    )
    if chosen_format(output) is Format.TABLE:
        rows = [{key: row[key] for key in ("name", "summary", "metadata")} for row in rows]
    write_rows(rows, LIST_SCHEMA, output)


def _job_row(job: Job) -> dict[str, Any]:
    from bkctl.pipeline.job import option_of

    return {
        "name": job.name,
        "summary": job.summary,
        "metadata": "needed" if job.needs_metadata else "optional",
        "options": [option_of(name) for name in job.parameters if name != "now_ms"],
        "reads": [item.name for item in job.inputs],
        "writes": [result.name for result in job.results],
    }
