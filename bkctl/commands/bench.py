"""``bkctl bench``: put load on a bookie and say what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions
from bkctl.commands.frame.cluster_options import TlsOptions, client_settings
from bkctl.commands.frame.durations import parse_duration_or_seconds_ms
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.admin.load.settings import LoadReport

app = noun_app("Put load on a bookie and measure it.")

SCHEMA: Schema = (
    Key("operations", "int", "answers in the measured time"),
    Key("failed", "int", "answers other than success"),
    Key("codes", "object", "answers by result code of the wire"),
    Key("seconds", "number", "measured time"),
    Key("rate_per_s", "number", "answers per second"),
    Key("p50_ms", "number", "median from request to answer"),
    Key("p99_ms", "number", "99 % were not slower"),
    Key("p999_ms", "number", "99.9 % were not slower"),
    Key("max_ms", "number", "the slowest"),
    Key("cpu_us_per_op", "number", "the generator's own processor time per operation"),
    Key("entries_per_ledger", "int", "entries of each ledger that were certainly written (add)"),
)

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="HOST:PORT", show_default=False, help="Host and port of the bookie, not of its HTTP admin."
    ),
]
WireOption = Annotated[int, typer.Option("--protocol", metavar="2|3", help="Version of the wire protocol.")]
ConnectionsOption = Annotated[
    int, typer.Option("--connections", metavar="N", help="Number of TCP connections.")
]
WindowOption = Annotated[
    int,
    typer.Option("--window", metavar="N", help="Number of requests without an answer on each connection."),
]
LedgersOption = Annotated[
    int, typer.Option("--ledgers", metavar="N", help="Number of ledgers on each connection.")
]
DurationOption = Annotated[
    int,
    typer.Option(
        "--duration",
        "--seconds",
        metavar="TIME",
        parser=parse_duration_or_seconds_ms,
        help="Time for which the load is measured.",
    ),
]
WarmupOption = Annotated[
    int,
    typer.Option(
        "--warmup",
        metavar="TIME",
        parser=parse_duration_or_seconds_ms,
        help="Time under load before the measurement begins.",
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Requests a second on all connections together. A latency begins when its request was due. "
        "After a pause, all late requests are sent at once. Default: as fast as the bookie answers.",
    ),
]
FirstLedgerOption = Annotated[
    int | None,
    typer.Option("--first-ledger", metavar="ID", help="Id of the first ledger; the others follow it."),
]
PasswordOption = Annotated[str, typer.Option("--password", metavar="TEXT", help="Password of the ledgers.")]


@app.command("add")
@takes(SCHEMA, one=True)
def add_command(
    address: AddressArgument,
    *,
    protocol: WireOption = 2,
    connections: ConnectionsOption = 8,
    window: WindowOption = 128,
    size: Annotated[
        int,
        typer.Option(
            "--size", metavar="SIZE", parser=parse_byte_size, help="Size of the payload of an entry."
        ),
    ] = "1K",  # type: ignore[assignment]
    ledgers: LedgersOption = 1,
    duration: DurationOption = "5s",  # type: ignore[assignment] # typer parses the default as well
    warmup: WarmupOption = "1s",  # type: ignore[assignment]
    rate: RateOption = None,
    first_ledger: FirstLedgerOption = None,
    password: PasswordOption = "",
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Add entries to new ledgers, as fast as the bookie answers.

    The ledgers have no metadata, so the bookie's garbage collection removes them. If the cluster has not
    given out ledger ids as high as theirs yet, the bookie holds back all deletions until 'bkctl bookie gc
    --confirm-deletions' allows them. The exit code is 1 when an add failed.

    Examples:

      bkctl bench add 127.0.0.1:3181

      bkctl bench add 127.0.0.1:3181 --size 100 --connections 64 --window 16 --protocol 3

      bkctl bench add bookie-3:3181 --tls-ca /etc/bookkeeper/ca.pem
    """
    _run(
        address,
        output,
        tls,
        reads=False,
        wire=protocol,
        connections=connections,
        window=window,
        payload_bytes=size,
        ledgers=ledgers,
        seconds=duration / 1000,
        warmup_s=warmup / 1000,
        rate_per_s=rate,
        first_ledger=first_ledger,
        password=password,
    )


@app.command("read")
@takes(SCHEMA, one=True)
def read_command(
    address: AddressArgument,
    *,
    entries: Annotated[
        int,
        typer.Option(
            "--entries", metavar="N", help="Number of entries of each ledger, as 'bench add' reported it."
        ),
    ],
    protocol: WireOption = 2,
    connections: ConnectionsOption = 8,
    window: WindowOption = 32,
    ledgers: LedgersOption = 1,
    random: Annotated[
        bool, typer.Option("--random", help="Read the entries in random order, not in their own.")
    ] = False,
    duration: DurationOption = "5s",  # type: ignore[assignment] # typer parses the default as well
    warmup: WarmupOption = "1s",  # type: ignore[assignment]
    rate: RateOption = None,
    first_ledger: FirstLedgerOption = None,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Read what 'bench add' wrote, with its --connections, --ledgers and --first-ledger.

    Examples:

      bkctl bench read 127.0.0.1:3181 --entries 100000 --random
    """
    _run(
        address,
        output,
        tls,
        reads=True,
        wire=protocol,
        connections=connections,
        window=window,
        entries=entries,
        ledgers=ledgers,
        random=random,
        seconds=duration / 1000,
        warmup_s=warmup / 1000,
        rate_per_s=rate,
        first_ledger=first_ledger,
    )


def _run(
    address: str,
    output: OutputOption,
    tls: TlsOptions,
    *,
    reads: bool,
    first_ledger: int | None,
    password: str = "",
    **settings: object,
) -> None:
    from bkctl.admin.load.run import run_load
    from bkctl.admin.load.settings import FIRST_ID, LoadSettings

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"{address}: expected HOST:PORT")
    report = run_load(
        LoadSettings(
            host.strip("[]"),
            int(port),
            first_ledger=FIRST_ID if first_ledger is None else first_ledger,
            password=password.encode(),
            tls=client_settings(ConfigurationOptions(), tls).net.tls,
            **settings,  # type: ignore[arg-type]
        ),
        reads=reads,
    )
    write_one(_row(report), SCHEMA, output)
    if report.failed:
        raise typer.Exit(1)


def _row(report: LoadReport) -> dict[str, object]:
    return {
        "operations": report.operations,
        "failed": report.failed,
        "codes": {str(code): count for code, count in report.codes.items()},
        "seconds": round(report.seconds, 3),
        "rate_per_s": round(report.rate_per_s, 1),
        "p50_ms": round(report.p50_ms, 3),
        "p99_ms": round(report.p99_ms, 3),
        "p999_ms": round(report.p999_ms, 3),
        "max_ms": round(report.max_ms, 3),
        "cpu_us_per_op": round(report.cpu_us_per_op, 3),
        "entries_per_ledger": report.entries_per_ledger,
    }
