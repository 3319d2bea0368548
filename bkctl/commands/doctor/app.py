"""``bkctl doctor``: every check on a bookie's directories, or on a live bookie."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from bkctl.commands.doctor.examined import ExaminationOptions, everything
from bkctl.commands.doctor.report import Report, block
from bkctl.commands.frame import value_completion
from bkctl.commands.frame.bookie_options import MemoryOption
from bkctl.commands.frame.metadata_options import DumpOrConfigurationOptions, OldDumpOption, dump_and_store
from bkctl.commands.frame.next_steps import NEXT_KEYS
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, UrlOption, noun_app, url_unless
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.commands.frame.targets import default_paths
from bkctl.commands.frame.view_options import current_view
from bkctl.errors import UsageError

app = noun_app()

SCHEMA: Schema = (
    Key(
        "bookie",
        "string or null",
        "the bookie's id; without one its first directory or URL; or the configuration",
    ),
    Key("check", "string", "name of the check, as --list-checks shows it"),
    Key("kind", "string", "what is wrong, in a word; of the check index a kind of 'index check'"),
    Key("severity", "string", "error, warning, unchecked or note"),
    Key("dir", "string or null", "directory of the bookie"),
    Key("path", "string or null", "file or database"),
    Key("ledger", "int or null", "ledger id"),
    Key("log_id", "int or null", "entry log, decimal"),
    Key("journal_id", "int or null", "journal, decimal"),
    Key("offset", "int or null", "offset in the file"),
    Key("count", "int", "how many alike this row stands for"),
    Key("found", "string", "what was found"),
    Key("expected", "string", "what was expected"),
    *NEXT_KEYS,
    Key(
        "steps",
        "array of objects",
        "do, command (string or null): what instead says, as a list where that is long; else empty",
    ),
)

CHECKS_SCHEMA: Schema = (
    Key("check", "string", "name of the check"),
    Key("needs", "string", "files (PATH or --conf), configuration (--conf), metadata, or url"),
    Key("long", "bool", "whether it reads whole files"),
    Key("summary", "string", "the subject of the check"),
)


def _list_checks(ctx: typer.Context, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from bkctl.admin.doctor.check import Check
    from bkctl.admin.doctor.doctor import CHECKS
    from bkctl.admin.doctor.live import LIVE_CHECKS

    checks: tuple[Check[Any], ...] = (*CHECKS, *LIVE_CHECKS)
    rows: list[dict[str, Any]] = [
        {"check": check.name, "needs": check.needs, "long": check.long, "summary": check.summary}
        for check in checks
    ]
    write_rows(rows, CHECKS_SCHEMA, ctx.params.get("output"))
    raise typer.Exit


@dataclass(frozen=True, slots=True)
class _CheckOptions:
    """Which checks are made."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="CHECK[,...]",
            help="Make only these checks.",
            autocompletion=value_completion.checks,
        ),
    ] = None
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            metavar="CHECK[,...]",
            help="Leave out these checks.",
            autocompletion=value_completion.checks,
        ),
    ] = None


@app.command("doctor")
@takes(SCHEMA)
def doctor_command(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            show_default=False,
            help="Directories of a bookie, or a folder that holds those of several.",
        ),
    ] = None,
    *,
    configuration: DumpOrConfigurationOptions,
    url: UrlOption = None,
    ledger_metadata: OldDumpOption = None,
    memory: MemoryOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Check the digest of every entry in the logs.")
    ] = False,
    checks: _CheckOptions,
    notes: Annotated[bool, typer.Option("--notes", help="Also show notes, which need no action.")] = False,
    list_checks: Annotated[
        bool, typer.Option("--list-checks", help="List the checks and exit.", callback=_list_checks)
    ] = False,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Examine a bookie's directories, or a live bookie; say what to do.

    With --conf the command examines everything: the configuration, the cookies against it and the metadata
    store, directories and disks, marks, journals, entry logs and the index. With PATH it examines the files
    alone. With --url it asks the live bookie; --metadata adds what the metadata store knows about it. The
    command writes nothing and takes no lock.

    Every finding names the next command; with --columns, findings are rows of a table. Digests of entries in
    journals are always checked. Digests of entries in logs are checked with --deep, which also looks for the
    entries of closed ledgers that the metadata place here. --metadata gives the digest types.

    Exit code 0, and nothing on stdout, when nothing was found; 1 when there are errors or warnings; 3, even
    if there are errors or warnings, too, when the digests of some entries could not be checked, or when
    entries are missing that only a dump places here.

    Examples:

      bkctl doctor --conf /etc/bookkeeper/bk_server.conf --deep

      bkctl doctor /data/bookie --skip index,journals

      bkctl doctor --url http://bookie-3:8080 --metadata zk://host:2181/ledgers -o json
    """
    url = url_unless(url, context, given=paths or configuration.conf)
    ledger_metadata, uri = dump_and_store(configuration.metadata_uri, ledger_metadata)
    configuration = replace(configuration, metadata_uri=uri)
    if configuration.override and configuration.conf is None:
        raise UsageError("-X goes with --conf")
    if not paths and configuration.conf is None and url is None:
        paths = default_paths(", or --conf, or --url")
        uri = configuration.metadata_uri or _default_metadata(paths[0])
        configuration = replace(configuration, metadata_uri=uri)
    options = ExaminationOptions(
        configuration, memory, deep, ledger_metadata, _chosen(checks.only, checks.skip)
    )
    report = Report()
    rows = report.watch(everything(paths or [], url, options, report), notes=notes)
    view = current_view()
    if chosen_format(output) is Format.TABLE and view.columns is None:
        for row in view.rows(rows):
            sys.stdout.write(block(row))
    else:
        write_rows(rows, SCHEMA, output)
    report.close(notes=notes)


def _default_metadata(data: str) -> str | None:
    """Return the embedded metadata of a bookie without a configuration, when it has made some."""
    from bkctl.config.loader import METADATA_FILE

    path = os.path.abspath(os.path.join(data, METADATA_FILE))
    return f"embedded://{path}" if os.path.exists(path) else None


def _chosen(only: list[str] | None, skip: list[str] | None) -> frozenset[str]:
    from bkctl.admin.doctor.doctor import CHECKS
    from bkctl.admin.doctor.live import LIVE_CHECKS

    known = [check.name for check in CHECKS] + [check.name for check in LIVE_CHECKS]

    def named(words: list[str] | None, option: str) -> frozenset[str]:
        names = [name.strip() for word in words or () for name in word.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{option} {name}: no such check; there are {', '.join(dict.fromkeys(known))}"
                )
        return frozenset(names)

    chosen = named(only, "--only") or frozenset(known)
    return chosen - named(skip, "--skip")
