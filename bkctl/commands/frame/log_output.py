"""The log on stderr of the commands that run in the foreground until a signal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated

import typer

from bkctl.commands.frame.contexts import take_context
from bkctl.errors import UsageError

LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="text|json",
        help="Format of the log on stderr. Default: text on a terminal, otherwise json.",
    ),
]

#: The commands that write a log.
_LOGGING = (["bookie", "start"], ["autorecovery", "start"])
_OPTION = "--log-format"


def logging_to_stderr(log_format: str | None) -> AbstractContextManager[None]:
    """Send the log to stderr from now on, and let the error that ends the command be its last line.

    Raises typer's error for a format that there is not.
    """
    from bkctl.server.life.log_lines import log_to_stderr

    if log_format not in (None, "text", "json"):
        raise typer.BadParameter(f"expected text or json, found {log_format!r}", param_hint=_OPTION)
    json_lines = _is_json(log_format)
    log_to_stderr(json_lines=json_lines, verbose=False)
    return _ends_in_the_log() if json_lines else nullcontext()


def only_json_lines(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """Let stderr carry nothing but JSON while a command line runs whose log is JSON.

    Also what is said before its log begins: of an option that is typed wrongly, for one.
    """
    try:
        words = take_context(list(arguments))[1]
    except UsageError:
        return nullcontext()
    words = [word for word in words if word not in ("--debug", "--quiet")]
    if words[:2] not in _LOGGING or not _is_json(_given_format(words)):
        return nullcontext()
    from bkctl.server.life.foreign_lines import foreign_lines
    from bkctl.server.life.log_lines import JsonLines

    return foreign_lines(JsonLines().format)


def _given_format(words: Sequence[str]) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == _OPTION:
            return following
        if word.startswith(f"{_OPTION}="):
            return word.partition("=")[2]
    return None


def _is_json(log_format: str | None) -> bool:
    return log_format == "json" or (log_format != "text" and not sys.stderr.isatty())


@contextmanager
def _ends_in_the_log() -> Iterator[None]:
    """Log the error that ends the command as a line of the log, and say nothing else of it on stderr.

    A program that reads the log gets nothing but lines of JSON, and each error once.
    """
    from bkctl.server.life.log_lines import log_end_by_error

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        raise typer.Exit(log_end_by_error(error)) from None
