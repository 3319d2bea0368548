"""The outcome of a job: as one row, and for people with counts in words and rows of what was found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bkctl.commands.frame.human_values import human, is_share
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_one, write_rows

if TYPE_CHECKING:
    from bkctl.pipeline.job import Job, ResultTable
    from bkctl.pipeline.results import Outcome

#: Rows of a table of findings that a terminal shows.
_ROWS_SHOWN = 20

RUN_SCHEMA: Schema = (
    Key("job", "string", "the job"),
    Key("verdict", "string", "clean, found, unexamined (a part could not be judged)"),
    Key("exit_code", "int", "0, 1, 3"),
    Key("found", "array of strings", "counts that decided the verdict"),
    Key("counts", "object", "the row of table summary"),
    Key("guards", "array of strings", "what was taken for granted, or was not given"),
    Key("engine", "string", "local or spark"),
    Key("seconds", "number", "how long it took"),
    Key("started_ms", "int", "when it began, milliseconds since 1970"),
    Key("out", "string", "directory of the tables and of summary.json"),
    Key("paths", "array of strings", "what was read"),
    Key("metadata", "string or null", "metadata of before the files were read"),
    Key("metadata_after", "string or null", "metadata of after; null when only read once"),
    Key("parameters", "object", "the options in effect"),
    Key("tables", "array", "of {name, role (input, result), path, rows, bytes}"),
    Key("unread_indexes", "array of strings", "directories whose index could not be read"),
    Key(
        "unread_files", "array of strings", "logs, journals and last marks not read, or not whole, or damaged"
    ),
    Key("unread_tables", "array of strings", "input tables that may lack rows for want of these"),
    Key("logs_gone", "int", "entry logs that went away while files were read"),
    Key("version", "string", "version of bkctl"),
)


def show(job: Job, outcome: Outcome, output: Format | None) -> None:
    """Show the outcome; on a terminal with its counts in words and the first rows of what was found."""
    values = outcome.as_row()
    row = {key.key: values[key.key] for key in RUN_SCHEMA}
    if chosen_format(output, one=True) is not Format.TABLE:
        write_one(row, RUN_SCHEMA, output)
        return
    head = {key: row[key] for key in ("job", "verdict", "engine", "seconds", "out")}
    write_one(head, RUN_SCHEMA, Format.TABLE)
    _show_counts(job, outcome)
    for result in job.results:
        if result.shown and outcome.table(result.name).rows:
            _show_rows(result, outcome)
    for guard in outcome.guards:
        sys.stderr.write(f"bkctl: note: {guard}\n")
    if outcome.found_of(job) and job.advice:
        sys.stderr.write(f"bkctl: next: {job.advice}\n")


def _show_counts(job: Job, outcome: Outcome) -> None:
    from bkctl.pipeline.results import for_people

    counts = [
        {
            "count": column.name,
            # The key of this column does not say that a value is a share.
            "value": human(column.name, value) if is_share(column.name) else for_people(value),
            "meaning": column.meaning,
        }
        for column in job.result("summary").columns
        for value in (outcome.counts[column.name],)
    ]
    names = (Key("count", "string", ""), Key("value", "number", ""), Key("meaning", "string", ""))
    sys.stdout.write("\n")
    write_rows(counts, names, Format.TABLE)


def _show_rows(result: ResultTable, outcome: Outcome) -> None:
    """Show the first rows of a table of findings."""
    from bkctl.pipeline.results import first_rows, for_people

    total = outcome.table(result.name).rows
    cut = f", the first {_ROWS_SHOWN}" if total > _ROWS_SHOWN else ""
    sys.stdout.write(f"\n{result.name}: {result.summary} ({total}{cut})\n")
    columns = tuple(Key(column.name, column.type, column.meaning) for column in result.columns)
    rows = [
        {name: value if is_share(name) else for_people(value) for name, value in row.items()}
        for row in first_rows(outcome, result, result.order, _ROWS_SHOWN)
    ]
    write_rows(rows, columns, Format.TABLE)
