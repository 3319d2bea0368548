"""``bkctl repair log``: the repairs on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.repairs.repair_records import DamagedRecord, FoundRepair

LOG_SCHEMA: Schema = (
    Key("number", "string", "the repair's name, which begins with its time, UTC"),
    Key("made_by", "string", "the command that made it; empty of a damaged one"),
    Key("detail", "string", "what it was about"),
    Key(
        "state",
        "string",
        "done; keeping or begun (it was killed); undoing or undone (its undo was killed); damaged (its "
        "record cannot be read)",
    ),
    Key("time_ms", "int", "when it began, ms since 1970; behind every earlier one; 0 of a damaged one"),
    Key("dir", "string", "the directory that has the record"),
    Key("changes", "int", "files and databases that it changed; 0 of a damaged one"),
    Key("why_not", "string or null", "why it cannot be undone now, or what to undo first; null where it can"),
)


@takes(LOG_SCHEMA)
def log_command(paths: PathsArgument, output: OutputOption = None) -> None:
    """[offline] [reads] List the recorded repairs of a bookie's directories, the oldest first.

    The last repair can be undone as long as nothing else has changed its directories; otherwise 'why_not'
    says what has changed them. If there are several repairs, undo the last one first, with one 'bkctl repair
    undo' for each. A record that cannot be read is at the end of the list, in the state 'damaged'; as long as
    it is there, no further repair is made.

    Examples:

      bkctl repair log /data/bookie
    """
    from bkctl.admin.repairs.repair_chain import reasons_against
    from bkctl.admin.repairs.repair_records import read_records
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    places = [each.path for each in directories(filesystem, paths)]
    records = read_records(filesystem, places)
    reasons = reasons_against(filesystem, records.found)
    rows = [_row(repair, reason) for repair, reason in zip(records.found, reasons, strict=True)]
    rows += map(_damaged_row, records.damaged)
    looked_in = counted(len(places), "directory", "directories")
    write_rows(rows, LOG_SCHEMA, output, clean=lambda: f"repairs on record in {looked_in}, nothing found")


def _row(repair: FoundRepair, reason: str | None) -> dict[str, Any]:
    record = repair.record
    return {
        "number": record.number,
        "made_by": record.made_by,
        "detail": record.detail,
        "state": record.state.value,
        "time_ms": record.time_ms,
        "dir": repair.home,
        "changes": len(record.changes),
        "why_not": reason,
    }


def _damaged_row(damaged: DamagedRecord) -> dict[str, Any]:
    return {
        "number": damaged.number,
        "made_by": "",
        "detail": "",
        "state": "damaged",
        "time_ms": 0,
        "dir": damaged.home,
        "changes": 0,
        "why_not": str(damaged),
    }
