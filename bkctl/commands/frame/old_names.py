"""Names that options had before: they keep working, and neither help nor completion shows them.

An option that was renamed is declared with all its names, the new one first, ``typer.Option("--duration",
"--seconds")``; the old one is listed here. :func:`hide_old_names` leaves it to the parser alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

#: Old names, and the name that took their place.
OLD_NAMES = {
    "--metadata-uri": "--metadata",
    "--ledger-metadata": "--metadata",
    "--seconds": "--duration",
    "--watch": "--look",
}


def as_typed(message: str, words: Iterable[str]) -> str:
    """Return a message in which an option has its old name where the line has that, and not the new one.

    Only the name of an option that the message is about, at its beginning or between quotes, is replaced:
    what is advised has the new name.
    """
    typed = {word.partition("=")[0] for word in words}
    for old, new in OLD_NAMES.items():
        if old in typed and new not in typed:
            message = re.sub(rf"(\A|'){re.escape(new)}(?![\w-])", rf"\g<1>{old}", message)
    return message


def hide_old_names(command: Any) -> None:
    """Take old names out of the help of a command and of the commands below it."""
    for parameter in command.params:
        given = parameter.opts
        shown = [name for name in given if OLD_NAMES.get(name) not in given]
        if len(shown) < len(given):
            parameter.opts = shown
            parameter.add_to_parser = partial(_add_all, parameter, given)
    for below in getattr(command, "commands", {}).values():
        hide_old_names(below)


def _add_all(parameter: Any, names: list[str], parser: Any, context: Any) -> None:
    """Give the parser all names of an option, the old ones too."""
    shown, parameter.opts = parameter.opts, names
    try:
        type(parameter).add_to_parser(parameter, parser, context)
    finally:
        parameter.opts = shown
