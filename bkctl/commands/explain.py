"""``bkctl explain``: what does this number mean?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_one, write_rows

if TYPE_CHECKING:
    from bkctl.admin.error_codes import ErrorCode

app = noun_app()

SCHEMA: Schema = (
    Key("place", "string", "client, wire_v2, wire_v3, bookie, or bookie_exit (of the bookie's process)"),
    Key("code", "int", "the number"),
    Key("name", "string", "BookKeeper's name for it"),
    Key("meaning", "string", "what happened"),
    Key("next", "string", "what to do"),
)


# A negative number is an argument here, not an option.
@app.command(context_settings={"ignore_unknown_options": True})
@takes(SCHEMA)
def explain_command(
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE...]",
            help="Numbers or names. Without: all of them.",
            autocompletion=value_completion.codes,
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Say what a BookKeeper error code means, and what to do.

    Takes numbers and names as clients, bookies, protocol captures and exit codes show them. One number can
    mean several things in different places; all of them are listed. Exit code 6 for a code that does not
    exist.

    Examples:

      bkctl explain -101

      bkctl explain EFENCED

      bkctl explain BKNoSuchEntryException

      bkctl explain -o json
    """
    from bkctl.admin.error_codes import every_code, explain

    found: list[ErrorCode] = []
    for code in codes or ():
        found += [meaning for meaning in explain(code) if meaning not in found]
    if found and chosen_format(output) is Format.TABLE:
        for meaning in found:
            write_one(meaning, SCHEMA, Format.TABLE)
        return
    write_rows(found or every_code(), SCHEMA, output)
