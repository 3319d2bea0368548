"""``bkctl lastmark``: from where a bookie would replay its journals."""

from __future__ import annotations

from posixpath import basename

from bkctl.admin.cookies.in_directories import counting_mark, find_marks
from bkctl.admin.logs.mark_doubts import doubt, journals_near
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument, noun_app
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.vfs import PosixFileSystem

app = noun_app("[offline] [reads] The last marks of a bookie: everything journaled before is in its logs.")

SCHEMA: Schema = (
    Key("path", "string", "the lastMark file"),
    Key("journal_id", "int or null", "journal, null when the file cannot be read"),
    Key("journal", "string or null", "its file name"),
    Key("offset", "int or null", "offset in that journal"),
    Key("counts", "bool", "whether replay starts here: the highest mark of all ledger directories"),
    Key("error", "string or null", "why the file does not count"),
    Key("doubt", "string or null", "why the mark can hardly be right, by the journals that are there"),
)


@app.callback()
def noun() -> None:
    """[offline] [reads] The last marks of a bookie: everything journaled before is in its logs."""


@app.command("show")
@takes(SCHEMA)
def show_command(paths: PathsArgument, output: OutputOption = None) -> None:
    """[offline] [reads] Show every lastMark file, and which of them counts.

    A bookie writes its marks into all ledger directories and replays from the highest. Sixteen bytes of
    anything read as a mark: where journals are found one that fits none of them is doubted.

    Examples:

      bkctl lastmark show /data/bookie
    """
    filesystem = PosixFileSystem()
    marks = find_marks(filesystem, paths)
    journals = journals_near(filesystem, paths, marks)
    best = counting_mark(marks)
    rows = (
        {
            "path": mark.path,
            "journal_id": mark.journal_id,
            "journal": mark.journal,
            "offset": mark.offset,
            "counts": mark.error is None and best[basename(mark.path)].place == mark.place,
            "error": mark.error,
            "doubt": doubt(mark, journals),
        }
        for mark in marks
    )
    write_rows(rows, SCHEMA, output)
