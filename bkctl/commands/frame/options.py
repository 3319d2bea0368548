"""Options and arguments that several commands share, and the parsers of their values."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from bkctl.commands.frame.output import Format, Schema, write_schema
from bkctl.commands.frame.targets import DEFAULT_DATA, default_paths
from bkctl.config.secret_file import read_secret
from bkctl.errors import NotFoundError, StorageError, UsageError

#: One URL, or several.
Url = TypeVar("Url", str | None, list[str] | None)

#: No password is as long as that; /dev/zero is.
_PASSWORD_BYTES_MAX = 1 << 16

PASSWORD_FILE_VARIABLE = "BKCTL_LEDGER_PASSWORD_FILE"  # noqa: S105 - as below
PASSWORD_VARIABLE = "BKCTL_LEDGER_PASSWORD"  # noqa: S105 - the variable's name, not a password


def noun_app(text: str = "") -> typer.Typer:
    """Make the typer app of a noun: plain help, no tracebacks of its own.

    The noun's module exposes the app as ``app``. ``text`` opens the noun's own page of help, behind the
    safety class that ``NOUNS`` has; a noun without verbs has the page of its command.
    """
    return typer.Typer(
        help=text,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


# Eager, so that --schema finds it whatever their order on the line.
OutputOption = Annotated[
    Format | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        is_eager=True,
        help="Format of the output: table, wide (a table of all columns), json, ndjson or csv. Default: "
        "table on a terminal; in a pipe ndjson, json for one row.",
    ),
]


def schema_option(schema: Schema) -> Any:
    """Make the option ``--schema``, which prints the keys of this command's rows and does nothing else."""

    def show(ctx: typer.Context, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            write_schema(schema, ctx.params.get("output"))
            raise typer.Exit

    return typer.Option("--schema", help="Print the keys of the rows and exit.", callback=show)


_PATHS = "A file, a 'current' directory, a ledger or journal directory, or a folder that holds several. "
_DEFAULT_PATH = f"Default: {DEFAULT_DATA}."

PathsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[PATH...]",
        show_default=False,
        default_factory=default_paths,
        help=_PATHS + _DEFAULT_PATH,
    ),
]

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="[PATH]",
        show_default=False,
        default_factory=lambda: default_paths()[0],
        help=_PATHS + _DEFAULT_PATH,
    ),
]


#: The environment's variable with the address of a bookie's HTTP admin.
URL_VARIABLE = "BKCTL_URL"

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar=URL_VARIABLE,
        help="HTTP admin of a running bookie, bkctl's or Java's: http://bookie-3:8080.",
    ),
]


def url_unless(url: Url, context: typer.Context, *, given: object) -> Url | None:
    """Return the URL, but not that of the environment where the line names something else to look at."""
    source = context.get_parameter_source("url")
    from_environment = source is not None and source.name == "ENVIRONMENT"
    return None if given and from_environment else url


@dataclass(frozen=True, slots=True)
class PasswordOptions:
    """The password of ledgers: in one of three options, or in the environment."""

    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="TEXT",
            help="Ledger password; other users of this machine can see it in ps.",
        ),
    ] = field(default=None, repr=False)
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="File with the ledger password (mode 0600); one newline at its end is dropped.",
        ),
    ] = None
    password_hex: Annotated[
        str | None,
        typer.Option("--password-hex", metavar="HEX", help="Ledger password as hexadecimal digits."),
    ] = field(default=None, repr=False)

    def read(self) -> bytes | None:
        """Return the ledger password that the options or the environment give, or None."""
        given = (self.password, self.password_file, self.password_hex)
        if sum(each is not None for each in given) > 1:
            raise UsageError("give only one of --password, --password-file and --password-hex")
        if self.password_hex is not None:
            try:
                return bytes.fromhex(self.password_hex)
            except ValueError:
                raise UsageError("--password-hex: not hexadecimal digits, two for each byte") from None
        if self.password_file is not None:
            content = _password_of(self.password_file)
            return content.removesuffix(b"\n").removesuffix(b"\r")
        text = os.environ.get(PASSWORD_VARIABLE) if self.password is None else self.password
        if text is None and (path := os.environ.get(PASSWORD_FILE_VARIABLE)):
            return _password_of(path).removesuffix(b"\n").removesuffix(b"\r")
        return None if text is None else os.fsencode(text)


def _password_of(path: str) -> bytes:
    if not os.path.lexists(path):
        raise NotFoundError(f"{path}: no such file (--password-file)")
    if os.path.isdir(path):
        raise StorageError(f"{path}: {os.strerror(errno.EISDIR)} (--password-file)", path=path)
    return read_secret(path, f"{path} (--password-file)", _PASSWORD_BYTES_MAX)


def file_content(path: str, option: str) -> bytes:
    """Read what the file of an option holds. Raises NotFoundError and StorageError, which name both."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file ({option})") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror} ({option})", path=path) from error


def parse_log_id(text: str) -> int:
    """Parse the id of an entry log, of which ``28``, ``0x1c`` and ``1c.log`` are one. Raises ValueError."""
    return _file_id(text, ".log", 2**31)


def parse_journal_id(text: str) -> int:
    """Parse the id of a journal, of which ``28``, ``0x1c`` and ``1c.txn`` are one. Raises ValueError."""
    return _file_id(text, ".txn", 2**63)


def _file_id(text: str, suffix: str, bound: int) -> int:
    name = text.lower()
    match = re.fullmatch(rf"(?:.*/)?([0-9a-f]+){re.escape(suffix)}|0x([0-9a-f]+)", name)
    if match is not None:
        number = int(match[1] or match[2], 16)
    elif re.fullmatch(r"[0-9]+", name):
        number = int(name)
    else:
        hexadecimal = f" (hexadecimal is written 0x{name})" if re.fullmatch(r"[0-9a-f]+", name) else ""
        raise ValueError(f"{text!r} is none of 28, 0x1c, 1c{suffix}{hexadecimal}.")
    if number >= bound:
        raise ValueError(f"{text!r} is beyond the largest id, {bound - 1}.")
    return number


class EntryRange(NamedTuple):
    """Entries of a ledger, both ends included."""

    first: int
    last: int


def parse_entry_range(text: str) -> EntryRange:
    """Parse ``7`` or ``7-12``, both ends included. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is neither 7 nor 7-12.")
    first = int(match[1])
    last = int(match[2]) if match[2] is not None else first
    if last < first:
        raise ValueError(f"{text!r} ends before it begins.")
    return EntryRange(first, last)


LogOption = Annotated[
    int | None,
    typer.Option("--log", metavar="ID", parser=parse_log_id, help="Only this entry log: 28, 0x1c or 1c.log."),
]

JournalOption = Annotated[
    int | None,
    typer.Option(
        "--journal", metavar="ID", parser=parse_journal_id, help="Only this journal: 28, 0x1c or 1c.txn."
    ),
]

JournalDirOption = Annotated[
    str | None,
    typer.Option(
        "--journal-dir",
        metavar="DIR",
        help="Change this one of several journal directories.",
    ),
]

LedgerOption = Annotated[int | None, typer.Option("--ledger", metavar="N", help="Only this ledger.")]

EntryOption = Annotated[
    EntryRange | None,
    typer.Option(
        "--entry", metavar="A[-B]", parser=parse_entry_range, help="Only these entries, both ends included."
    ),
]
