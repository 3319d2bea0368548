"""``bkctl explain``: what does this number mean, or this word?"""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_one, write_rows

app = noun_app()

SCHEMA: Schema = (
    Key(
        "place",
        "string",
        "client, wire_v2, wire_v3, bookie, bookie_exit (of the bookie's process), or word (no code)",
    ),
    Key("code", "int or null", "the number; null of a word"),
    Key("name", "string", "BookKeeper's name for it, or the word"),
    Key("meaning", "string", "what happened"),
    Key("next", "string", "what to do"),
)
_KEYS_OF_WORD: Schema = tuple(key for key in SCHEMA if key.key != "code")


# A negative number is an argument here, not an option.
@app.command(context_settings={"ignore_unknown_options": True})
@takes(SCHEMA)
def explain_command(
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE|WORD...]",
            help="Numbers, names or words. Default: all codes. 'words' lists all words.",
            autocompletion=value_completion.codes,
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Say what an error code or a word of BookKeeper means, and what to do.

    The command takes numbers and names as they appear in clients, bookies, protocol captures and exit codes.
    If a number means several things in different places, all of them are listed. It also takes words of this
    program and of BookKeeper's documentation, such as limbo, fence, LAC and last mark; 'bkctl explain words'
    lists them. Exit code 6 for a code or a word that does not exist.

    Examples:

      bkctl explain -101

      bkctl explain EFENCED

      bkctl explain BKNoSuchEntryException

      bkctl explain limbo

      bkctl explain -o json
    """
    from bkctl.admin.explanations.meaning import every_code
    from bkctl.admin.explanations.search import explain_all

    found = explain_all(codes or ())
    if found and chosen_format(output) is Format.TABLE:
        for meaning in found:
            keys = SCHEMA if meaning.code is not None else _KEYS_OF_WORD
            write_one({key.key: getattr(meaning, key.key) for key in keys}, keys, Format.TABLE)
        return
    write_rows(found or every_code(), SCHEMA, output)
