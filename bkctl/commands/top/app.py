"""``bkctl top``: bookies live, on a screen or as data."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.contexts import THEME_VARIABLE, changing_cluster, protected_context
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import URL_VARIABLE, OutputOption, noun_app, url_unless
from bkctl.commands.frame.output import Format, chosen_format, write_one, write_rows
from bkctl.commands.frame.view_options import current_view
from bkctl.commands.top.keys import ROW_SCHEMA, SAMPLE_SCHEMA
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.extras import need

if TYPE_CHECKING:
    from bkctl.admin.top.sample import BookieSample, ClusterSample
    from bkctl.admin.top.source import SampleSource
    from bkctl.tui.orders import Orders

app = noun_app()

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000


UrlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar=URL_VARIABLE,
        help="HTTP admin of a bookie, or Prometheus port of a Java bookie; may be repeated.",
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Prometheus port of bookies that registered no HTTP server, or a server without metrics.",
    ),
]
IntervalOption = Annotated[
    int,
    typer.Option(
        "--interval", metavar="TIME", parser=parse_duration_ms, help="Time between two samples, such as 5s."
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Print one sample, without a screen, and exit.")]
RecordOption = Annotated[
    str | None,
    typer.Option("--record", metavar="FILE", help="Append every sample to a file, as one line of JSON."),
]
RecordMaxOption = Annotated[
    int,
    typer.Option(
        "--record-max",
        metavar="SIZE",
        parser=parse_byte_size,
        help="Size of the file at which recording stops; the screen continues.",
    ),
]
ReplayOption = Annotated[
    str | None, typer.Option("--replay", metavar="FILE", help="Show a recording instead of live bookies.")
]
NoColorOption = Annotated[bool, typer.Option("--no-color", help="Use no colours, like with NO_COLOR.")]
WriteOption = Annotated[
    bool,
    typer.Option(
        "--write",
        help="Allow the keys that collect, compact and switch read-only; each asks for a name first.",
    ),
]
ThemeOption = Annotated[
    str | None,
    typer.Option(
        "--theme",
        metavar="NAME",
        envvar=THEME_VARIABLE,
        help="Colours of the screen: nord, dracula, textual-light, ... Default: those of the terminal.",
        autocompletion=value_completion.themes,
    ),
]
AsciiOption = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")]


@app.command()
@takes(SAMPLE_SCHEMA, one=True, rows=ROW_SCHEMA)
def top_command(
    ctx: typer.Context,
    url: UrlOption = None,
    *,
    cluster: ClusterOptions,
    metrics_port: MetricsPortOption = None,
    interval: IntervalOption = "1s",  # type: ignore[assignment]
    once: OnceOption = False,
    record: RecordOption = None,
    record_max: RecordMaxOption = "1G",  # type: ignore[assignment]
    replay: ReplayOption = None,
    no_color: NoColorOption = False,
    theme: ThemeOption = None,
    ascii_only: AsciiOption = False,
    write: WriteOption = False,
    output: OutputOption = None,
) -> None:
    """[online] [reads] [writes] Watch bookies live: every queue, cache, disk, and what holds each one back.

    The command asks the bookies at the URLs, or all bookies in the metadata store, bkctl's and Java's. A
    bookie with a cookie that is not registered is shown as down.

    With --once the command prints one sample: one object with -o json, the same on one line with -o ndjson,
    one row for each bookie as a table or CSV. -o ndjson without --once prints a sample every interval; with
    --replay it prints every sample of the recording. Exit code with --once: 3 when some bookies do not
    answer, 5 when none does.

    --columns, --sort, --limit and --no-headers need --once and a table or CSV. The keys are bookie, mode,
    adds_per_s, reads_per_s, add_p99_ms, read_p99_ms, journal_sync_p99_ms, write_cache_fullness,
    read_cache_hit_rate, disk_fullness, bottleneck and why.

    Examples:

      bkctl top --metadata zk://localhost:2181/ledgers

      bkctl top --url http://bookie-1:8080 --url http://bookie-2:8000 --interval 5s

      bkctl top --once -o json

      bkctl top --once -o table --columns bookie,disk_fullness --sort=-disk_fullness

      bkctl top --record incident.ndjson

      bkctl top --replay incident.ndjson
    """
    interval_s = _interval_s(interval)
    url = url_unless(url, ctx, given=replay)
    stream = not once and output is Format.NDJSON
    _check(url, replay, record, once=once, stream=stream, write=write, output=output)
    if not (once or stream):
        # Before anything is asked.
        _check_theme(theme)
    with contextlib.ExitStack() as stack:
        if replay is not None:
            source = _recording(replay)
        else:
            registered = not url or _says_which_cluster(ctx)
            source = _live(stack, url or [], cluster, metrics_port, registered=registered)
        if record is not None:
            source = _recorded(source, record, record_max)
        if stream:
            _stream(source, interval_s)
        elif once:
            _print_once(source, interval_s, output)
        else:
            orders = _orders() if write else None
            _show_screen(
                source, interval_s, no_color=no_color, ascii_only=ascii_only, orders=orders, theme=theme
            )


def _show_screen(
    source: SampleSource,
    interval_s: float,
    *,
    no_color: bool,
    ascii_only: bool,
    orders: Orders | None,
    theme: str | None,
) -> None:
    """Run the screen until it is left, which ends the command."""
    from bkctl.tui.app import run_top
    from bkctl.tui.themes import TERMINAL

    code = run_top(
        source,
        interval_s,
        no_color=no_color,
        ascii_only=ascii_only,
        orders=orders,
        theme=theme or TERMINAL,
    )
    raise typer.Exit(code)


def _orders() -> Orders:
    """Return who carries out the orders of the screen; in a protected context each asks for its name."""
    from bkctl.admin.top.actions import carry_out
    from bkctl.tui.orders import Orders

    with changing_cluster(True):
        return Orders(carry_out, protected_context())


def _interval_s(interval_ms: int) -> float:
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise UsageError(f"--interval {interval_ms} ms: from {INTERVAL_MS_MIN} ms to 1h")
    return interval_ms / 1000


def _check(
    url: list[str] | None,
    replay: str | None,
    record: str | None,
    *,
    once: bool,
    stream: bool,
    write: bool,
    output: Format | None,
) -> None:
    if write and (once or stream or replay is not None):
        raise UsageError("--write is for the screen over live bookies")
    if replay is not None and (url or record):
        raise UsageError("--replay shows a recording: it goes with neither --url nor --record")
    has_rows = once and chosen_format(output, one=True) in (Format.TABLE, Format.CSV)
    if current_view().is_given and not has_rows:
        raise UsageError(
            "--columns, --sort, --limit and --no-headers choose among rows of bookies: "
            "add --once, and -o table or -o csv"
        )
    if once or stream:
        return
    if output is not None:
        raise UsageError(f"-o {output.value} prints one sample: add --once (only -o ndjson goes on and on)")
    need("the screen of bkctl top", "textual", "prometheus_client")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the screen needs a terminal; without one: 'bkctl top --once -o json', or '-o ndjson' for samples"
            " one after another"
        )


def _check_theme(theme: str | None) -> None:
    from bkctl.tui.themes import TERMINAL, library_theme

    library_theme(theme or TERMINAL)


def _says_which_cluster(ctx: typer.Context) -> bool:
    """Return whether the command line itself names a cluster; the environment does not add one to --url."""
    names = ("conf", "override", "metadata_uri")
    sources = (ctx.get_parameter_source(name) for name in names)
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _recording(path: str) -> SampleSource:
    from bkctl.admin.top.recording import Recording

    return Recording(path)


def _recorded(source: SampleSource, path: str, bytes_max: int) -> SampleSource:
    from bkctl.admin.top.recording import RecordingSource

    return RecordingSource(source, path, bytes_max)


def _live(
    stack: contextlib.ExitStack,
    urls: list[str],
    cluster: ClusterOptions,
    metrics_port: int | None,
    *,
    registered: bool,
) -> SampleSource:
    """Return the live bookies; the metadata store is closed with ``stack``."""
    from bkctl.admin.top.autorecovery import AutorecoveryWatch
    from bkctl.admin.top.discovery import cluster_targets, target_of_url
    from bkctl.admin.top.live import LiveBookies

    targets = [target_of_url(url) for url in dict.fromkeys(urls)]
    title = ", ".join(target.name for target in targets)
    if not registered:
        return LiveBookies(title, targets)
    store = stack.enter_context(open_cluster(cluster))
    return LiveBookies(
        ", ".join(filter(None, (store.uri, title))),
        targets,
        partial(cluster_targets, store, metrics_port),
        autorecovery=AutorecoveryWatch(store).look,
    )


def _print_once(source: SampleSource, interval_s: float, output: Format | None) -> None:
    import asyncio

    from bkctl.admin.top.once import sample_once

    sample = asyncio.run(sample_once(source, interval_s))
    for remark in (sample.discovery_error, sample.notice):
        if remark is not None:
            typer.echo(f"bkctl: {remark}", err=True)
    form = chosen_format(output, one=True)
    if form in (Format.JSON, Format.NDJSON):
        write_one(_values(sample), SAMPLE_SCHEMA, form)
    else:
        write_rows(map(_row, sample.bookies), ROW_SCHEMA, form)
    silent = sum(bookie.error is not None for bookie in sample.bookies)
    if silent:
        raise typer.Exit(5 if silent == len(sample.bookies) else 3)


def _stream(source: SampleSource, interval_s: float) -> None:
    import asyncio

    from bkctl.admin.top.once import samples

    async def run() -> None:
        try:
            async with contextlib.aclosing(samples(source, interval_s)) as found:
                async for sample in found:
                    write_one(_values(sample), SAMPLE_SCHEMA, Format.NDJSON)
        finally:
            await source.close()

    asyncio.run(run())


def _values(sample: ClusterSample) -> dict[str, Any]:
    from bkctl.admin.top.sample_json import as_values

    values = as_values(sample)
    assert isinstance(values, dict)
    return values


def _row(bookie: BookieSample) -> dict[str, Any]:
    write_cache = bookie.write_cache_fullness()
    return {
        "bookie": bookie.bookie,
        "mode": None if bookie.mode is None else bookie.mode.value,
        "adds_per_s": bookie.adds_per_s,
        "reads_per_s": bookie.reads_per_s,
        "add_p99_ms": bookie.add_p99_ms,
        "read_p99_ms": bookie.read_p99_ms,
        "journal_sync_p99_ms": bookie.journal_sync_p99_ms,
        "write_cache_fullness": None if write_cache is None else round(write_cache, 3),
        "read_cache_hit_rate": bookie.read_cache_hit_rate,
        "disk_fullness": max((disk.used_fraction for disk in bookie.disks), default=None),
        "bottleneck": bookie.bottleneck.stage.value,
        "why": bookie.bottleneck.why,
    }
