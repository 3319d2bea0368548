"""``bkctl inspect``: what is this file or directory?"""

from __future__ import annotations

from typing import Any

import typer

from bkctl.admin.inspection import Inspection, inspect, refuse_unknown
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathArgument, noun_app
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.vfs import PosixFileSystem

app = noun_app()

SCHEMA: Schema = (
    Key("path", "string", "the file, or the directory of a database"),
    Key("kind", "string", "entry_log, journal, index_file, cookie, last_mark, locations, ..."),
    Key("bytes", "int or null", "length, of all files of a database"),
    Key("facts", "object", "what its header or content says; keys depend on the kind"),
    Key("problem", "string or null", "why it cannot be what it should be"),
)


@app.command()
@takes(SCHEMA)
def inspect_command(path: PathArgument, output: OutputOption = None) -> None:
    """[offline] [reads] Identify a BookKeeper file or directory and summarise what it holds.

    The command knows entry logs, journals, index files and databases, cookies, marks, status files, ledger
    metadata and metadata dumps. It reads only headers and small files; the 'verify' commands check
    everything. Exit code 1 when a file is not what its name or place says.

    Examples:

      bkctl inspect /data/bookie

      bkctl inspect /data/bookie/ledgers/current/1c.log -o json
    """
    found = list(inspect(PosixFileSystem(), path))
    refuse_unknown(found)
    table = chosen_format(output) is Format.TABLE
    write_rows((_row(inspection, table) for inspection in found), SCHEMA, output, folds=False)
    if any(inspection.problem for inspection in found):
        raise typer.Exit(1)


def _row(inspection: Inspection, table: bool) -> dict[str, Any]:
    facts: Any = inspection.facts
    if table:
        facts = [f"{key} {_phrase(value)}" for key, value in facts.items() if value is not None]
    row = {
        "path": inspection.path,
        "kind": inspection.kind.value,
        "bytes": inspection.bytes,
        "facts": facts,
        "problem": inspection.problem,
    }
    if table and inspection.problem is None:
        del row["problem"]
    return row


def _phrase(value: Any) -> str:
    return " ".join(str(part) for part in value) if isinstance(value, list) else str(value)
