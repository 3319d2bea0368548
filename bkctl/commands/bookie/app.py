"""``bkctl bookie``: a bookie's life: init, start, status, format."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.bookie import check_conf, convert, gc, rebuild
from bkctl.commands.frame.bookie_options import (
    ConfigurationOptions,
    MemoryOption,
    bookie_config,
    log_notice,
    running_bookie_url,
)
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.log_output import LogFormatOption, logging_to_stderr
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, UrlOption, noun_app
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_one, write_rows
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.kvstore.lock_holder import LockHolder
    from bkctl.server.life.bookie_service import StartReport

app = noun_app(
    """One bookie: make, start, check, convert and empty it; replace a lost disk.

    A bookie runs in the foreground of 'bkctl bookie start', by hand or as a service. SIGTERM stops it.
    """
)

START_SCHEMA: Schema = (
    Key("bookie", "string", "id under which the bookie is registered"),
    Key("port", "int", "port that clients connect to"),
    Key("http_port", "int or null", "port of the HTTP admin, null without one"),
    Key(
        "metrics_port", "int or null", "port of the metrics alone (prometheusStatsHttpPort), null without one"
    ),
    Key("new", "bool", "whether the bookie was made by this start"),
    Key("unclean", "bool", "whether the last run ended without a flush"),
    Key("journals", "int", "journals that were replayed"),
    Key("entries", "int", "entries that were replayed"),
    Key("damages", "int", "damaged places that were accepted, each with a line on stderr"),
    Key("missing_journals", "int", "gaps between journals, or to the last mark, that were accepted"),
    Key("lost_indexes", "int", "ledger directories whose index was lost, which was accepted"),
    Key(
        "limbo_ledgers",
        "int",
        "ledgers that this start put in limbo because of an accepted loss; those that were in it before are "
        "not counted (bkctl index ledgers shows all, of a stopped bookie)",
    ),
    Key("seconds", "number", "how long the replay took"),
)

INIT_SCHEMA: Schema = (
    Key("bookie", "string", "id of the bookie"),
    Key("instance_id", "string or null", "instance id of the cluster"),
    Key("dirs", "array", "directories that have a cookie now"),
)

FORMAT_SCHEMA: Schema = (
    Key("dir", "string", "directory that was emptied, or would be"),
    Key("entries", "int", "files and directories in its 'current'"),
    Key("bytes", "int", "bytes in all files below"),
)

STATUS_SCHEMA: Schema = (
    Key("url", "string", "HTTP admin that was asked"),
    Key("bookie", "string or null", "id of the bookie; null when it is not one of ours"),
    Key("running", "bool", "whether it serves"),
    Key("read_only", "bool", "whether it refuses writes"),
    Key("shutting_down", "bool", "whether it is leaving"),
    Key("high_priority_writes", "bool", "whether it takes recovery writes"),
    Key("free_bytes", "int or null", "free bytes of its ledger directories' disks"),
    Key("total_bytes", "int or null", "all bytes of them"),
    Key(
        "pid",
        "int or null",
        "id of its process; null where that is not seen from here: of another machine, container or user",
    ),
)


@app.command("start")
@takes(START_SCHEMA, one=True)
def start_command(
    *,
    configuration: ConfigurationOptions,
    memory: MemoryOption = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Start in spite of damaged or missing journals or a lost index; every ledger that may have "
            "lost entries is put into limbo.",
        ),
    ] = False,
    log_format: LogFormatOption = None,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Start a bookie here, in the foreground.

    Prints one row when the bookie serves; the log goes to stderr. Without --conf, data and metadata are in
    ./bkctl-data, and the bookie listens on the loopback only.

    To stop the bookie, send it SIGTERM (exit code 0) or press Ctrl-C (130): the bookie flushes, then ends. A
    second signal ends it at once; then the next start replays the journal.

    A start that could hide a loss is refused with exit code 4: directories without their cookie or of another
    bookie, a damaged or missing journal, an index that is gone, empty or damaged. Exit code 5: the metadata
    store does not answer. 7: a disk failed. 'bkctl doctor --conf FILE' says why, and what to do.

    Examples:

      bkctl bookie start

      bkctl bookie start --conf /etc/bookkeeper/bk_server.conf

      bkctl bookie start -X bookiePort=3182 --metadata zk://localhost:2181/ledgers
    """
    from bkctl.server.life.foreground import serve

    def started(report: StartReport) -> None:
        write_one(_started_row(report), START_SCHEMA, output)
        sys.stdout.flush()

    with logging_to_stderr(log_format):
        config = bookie_config(configuration, memory, tell=log_notice)
        ended_by = serve(config, accept_loss=accept_loss, started=started)
    if ended_by is signal.SIGINT:
        raise typer.Exit(130)


def _started_row(report: StartReport) -> dict[str, object]:
    recovery = report.recovery
    return {
        "bookie": report.bookie,
        "port": report.port,
        "http_port": report.http_port,
        "metrics_port": report.metrics_port,
        "new": report.new,
        "unclean": report.unclean,
        "journals": recovery.journals,
        "entries": recovery.entries,
        "damages": recovery.damage_count,
        "missing_journals": recovery.missing_journals,
        "lost_indexes": recovery.lost_indexes,
        "limbo_ledgers": recovery.limbo_ledgers,
        "seconds": round(recovery.seconds, 3),
    }


@app.command("init")
@takes(INIT_SCHEMA, one=True)
def init_command(*, configuration: ConfigurationOptions, output: OutputOption = None) -> None:
    """[online] [writes] Make a new bookie: its directories, and its cookie there and in the metadata store.

    'bkctl bookie start' does the same for a bookie that is new everywhere. Refuses when the bookie exists
    already.

    Examples:

      bkctl bookie init --conf /etc/bookkeeper/bk_server.conf
    """
    from bkctl.server.life.new_bookie import initialise

    made = initialise(bookie_config(configuration))
    row = {"bookie": made.bookie, "instance_id": made.instance_id, "dirs": list(made.directories)}
    write_one(row, INIT_SCHEMA, output)


@app.command("format")
@takes(FORMAT_SCHEMA)
def format_command(
    *,
    configuration: ConfigurationOptions,
    delete_cookie: Annotated[
        bool,
        typer.Option("--delete-cookie", help="Also remove the bookie's cookie from the metadata store."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Empty a stopped bookie's directories: every entry on it is gone.

    While the cookie is still in the metadata store, a start is refused, because a bookie that lost its data
    must not be taken for one that has them. With --delete-cookie, the next start makes a new bookie.

    Examples:

      bkctl bookie format --conf bk_server.conf --dry-run

      bkctl bookie format --conf bk_server.conf --delete-cookie --yes
    """
    from bkctl.server.life.new_bookie import format_directories, to_be_formatted

    config = bookie_config(configuration)
    found = to_be_formatted(config)
    if not found:
        typer.echo("bkctl: none of the bookie's directories is there", err=True)
    if (found or delete_cookie) and not dry_run:
        total = sum(directory.bytes for directory in found)
        cookie = " and the bookie's cookie in the metadata store" if delete_cookie else ""
        directories = counted(len(found), "directory", "directories")
        ask(f"remove {counted(total, 'byte')} in {directories}{cookie} for good", yes=yes)
        found = format_directories(config, delete_cookie=delete_cookie)
    rows = ({"dir": one.directory, "entries": one.entries, "bytes": one.bytes} for one in found)
    write_rows(rows, FORMAT_SCHEMA, output)
    if dry_run:
        _tell_user_of(one.directory for one in found)


def _tell_user_of(directories: Iterable[str]) -> None:
    """Say who uses the first of some directories that is in use: without --dry-run it is refused."""
    from bkctl.directories.holders import holders
    from bkctl.scan.directory import current

    for path in map(current, directories):
        for holder in holders(path)[:1]:
            typer.echo(
                f"bkctl: {path}: in use by {holder}; while it is, nothing is removed (exit code 4)", err=True
            )
            return


@app.command("status")
@takes(STATUS_SCHEMA, one=True, watch=True)
def status_command(
    url: UrlOption = None,
    *,
    configuration: ConfigurationOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Show a running bookie's status. Exit code 5 when none answers.

    Without --url, the command asks the HTTP admin that the bookie of this configuration has registered.

    On the bookie's machine, the command also finds its process, by the port on which it listens or by the
    lock of its databases. SIGTERM stops this process: it flushes, then ends.

    Examples:

      bkctl bookie status

      bkctl bookie status --url http://127.0.0.1:8080
    """
    from bkctl.admin.bookie_status import ask_status
    from bkctl.server.life.running_process import process_at

    in_use_by = None if url is not None else _process_of(configuration)
    try:
        asked = running_bookie_url(url, configuration)
        status = ask_status(asked)
    except ConnectionFailedError as error:
        if in_use_by is None:
            raise
        text = f"{error}; the directories are in use by {in_use_by}"
        raise ConnectionFailedError(f"{text}: {_how_to_stop(in_use_by)}") from error
    process = process_at(asked) or in_use_by
    write_one({**asdict(status), "pid": process and process.pid}, STATUS_SCHEMA, output)
    if chosen_format(output, one=True) is Format.TABLE:
        typer.echo(f"bkctl: to stop it: {_how_to_stop(process)}", err=True)


def _process_of(configuration: ConfigurationOptions) -> LockHolder | None:
    """Return the process that uses the directories of a configuration, None where none is seen."""
    from bkctl.server.life.running_process import process_in

    try:
        directories = bookie_config(configuration, tell=lambda _: None).directories
    except BkctlError:  # who needs the configuration says what is wrong with it
        return None
    return process_in(directories)


def _how_to_stop(process: LockHolder | None) -> str:
    if process is None or process.pid is None:
        return "send its process SIGTERM, where it runs; it flushes, then ends"
    return f"kill {process.pid} (SIGTERM; it flushes, then ends), or by the service manager that started it"


check_conf.register(app)
gc.register(app)
convert.register(app)
rebuild.register(app)
