"""``bkctl bookies``: a cluster's bookies."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.bookies import drain, recover
from bkctl.commands.frame import value_completion
from bkctl.commands.frame.cluster_init import init_command
from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, client_settings, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.maintenance_warning import known_maintenance
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_rows

if TYPE_CHECKING:
    from bkctl.client.bookies import DiskSpace, KnownBookie, Probe

app = noun_app("The bookies of a cluster: list, ask, probe, drain, rename them.")

LIST_SCHEMA: Schema = (
    Key("bookie", "string", "id of the bookie"),
    Key(
        "mode",
        "string or null",
        "rw, ro: it is registered, which a killed one is until its session ends; down: it only has a cookie",
    ),
    Key(
        "endpoints",
        "array of objects",
        "id, protocol, host, port, auth, extensions, as it registered them",
        wide=True,
    ),
)

INFO_SCHEMA: Schema = (
    Key("bookie", "string", "id of the bookie"),
    Key("free_bytes", "int or null", "free bytes of its ledger directories"),
    Key("total_bytes", "int or null", "all bytes of them"),
    Key("error", "string or null", "why there is no answer"),
)

PROBE_SCHEMA: Schema = (
    Key("bookie", "string", "id of the bookie"),
    Key("address", "string or null", "host and port that clients connect to"),
    Key("v3_ms", "number or null", "connecting and one answer over protocol v3; null without one"),
    Key("v2_ms", "number or null", "the same over protocol v2"),
    Key("error", "string or null", "what failed"),
)

REPLACE_ID_SCHEMA: Schema = (
    Key("ledger", "int", "a ledger whose metadata name the old id"),
    Key("segments", "array", "first entries of the segments that do"),
    Key("replaced", "bool", "whether they name the new id now; with --dry-run, would"),
    Key("reason", "string or null", "why not"),
    Key("undo_file", "string or null", "the file that --undo reads"),
)


class BookieMode(StrEnum):
    """Values of ``--mode``."""

    WRITABLE = "rw"
    READ_ONLY = "ro"
    DOWN = "down"


BookieIdsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[BOOKIE...]",
        show_default=False,
        help="Ids of bookies. Default: all registered bookies.",
        autocompletion=value_completion.bookies,
    ),
]
TimeoutOption = Annotated[
    int,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=parse_duration_ms,
        help="How long to wait for the answer of a bookie.",
    ),
]


@app.command("list")
@takes(LIST_SCHEMA, watch=True)
def list_command(
    mode: Annotated[
        list[BookieMode] | None,
        typer.Option(
            "--mode", metavar="MODE", help="Show only bookies in this mode: rw, ro or down; may be repeated."
        ),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="Show bookies in every mode; this is the default.")
    ] = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] List the bookies of a cluster with their addresses, including those that are down.

    A bookie with a cookie that is not registered is down.

    A bookie that was killed stays registered, and is shown as rw or ro, until its session with the metadata
    store ends. This takes its zkTimeout, ten seconds by default. 'bkctl bookies probe' asks each bookie
    whether it answers.

    Examples:

      bkctl bookies list --metadata zk://localhost:2181/ledgers

      bkctl bookies list --mode down -o json
    """
    from bkctl.client.bookies import list_bookies

    with open_cluster(cluster) as store:
        rows = map(_listed, list_bookies(store))
        known_maintenance(store)
    wanted = {each.value for each in mode or BookieMode}
    write_rows(
        (row for row in rows if everyone or row["mode"] in wanted), LIST_SCHEMA, output, nothing="no bookies"
    )


def _listed(found: KnownBookie) -> dict[str, Any]:
    return {
        "bookie": found.bookie,
        "mode": BookieMode.DOWN.value if found.mode is None else found.mode.value,
        "endpoints": [
            {
                "id": endpoint.id,
                "protocol": endpoint.protocol,
                "host": endpoint.host,
                "port": endpoint.port,
                "auth": list(endpoint.auth),
                "extensions": list(endpoint.extensions),
            }
            for endpoint in found.endpoints
        ],
    }


@app.command("info")
@takes(INFO_SCHEMA, watch=True)
def info_command(
    bookies: BookieIdsArgument = None,
    timeout: TimeoutOption = "5s",  # type: ignore[assignment]
    *,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Ask bookies how much room they have.

    Exit code 3 when some bookies do not answer, 5 when none does.

    Examples:

      bkctl bookies info

      bkctl bookies info bookie-3:3181 --timeout 1s
    """
    from bkctl.client.bookies import ask_disk_space, registered_ids

    net = client_settings(cluster, tls).net
    with open_cluster(cluster) as store:
        found = ask_disk_space(store, bookies or registered_ids(store), timeout / 1000, net)
    write_rows(found, INFO_SCHEMA, output)
    _exit_by_errors(found)


@app.command("probe")
@takes(PROBE_SCHEMA)
def probe_command(
    bookies: BookieIdsArgument = None,
    timeout: TimeoutOption = "5s",  # type: ignore[assignment]
    *,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Connect to bookies and check that they answer, over both versions of the protocol.

    The command writes nothing. Exit code 3 when some bookies do not answer, 5 when none does.

    Examples:

      bkctl bookies probe

      bkctl bookies probe bookie-3:3181 -o json
    """
    from bkctl.client.bookies import probe_bookies, registered_ids

    net = client_settings(cluster, tls).net
    with open_cluster(cluster) as store:
        found = probe_bookies(store, bookies or registered_ids(store), timeout / 1000, net)
    write_rows(map(_probed, found), PROBE_SCHEMA, output)
    _exit_by_errors(found)


def _probed(found: Probe) -> dict[str, Any]:
    row = dataclasses.asdict(found)
    for key in ("v3_ms", "v2_ms"):
        row[key] = None if row[key] is None else round(row[key], 3)
    return row


def _exit_by_errors(rows: Sequence[DiskSpace | Probe]) -> None:
    failed = sum(row.error is not None for row in rows)
    if failed:
        raise typer.Exit(5 if failed == len(rows) else 3)


#: Its name before there was a noun for the cluster.
app.command("init", hidden=True)(init_command)


_New = Annotated[
    str,
    typer.Argument(
        metavar="NEW", show_default=False, help="The id that the bookie has now, and with which it is up."
    ),
]
_UndoFile = Annotated[
    str | None,
    typer.Option(
        "--undo-file",
        metavar="FILE",
        help="Record of the changes, for --undo. Default: replace-id-TIME.undo in this directory.",
    ),
]
_Undo = Annotated[
    str | None,
    typer.Option(
        "--undo",
        metavar="FILE",
        help="Undo the changes that this file records; name NEW first, then OLD.",
    ),
]


@app.command("replace-id")
@takes(REPLACE_ID_SCHEMA)
def replace_id_command(
    old: Annotated[
        str, typer.Argument(metavar="OLD", show_default=False, help="The id that the bookie had.")
    ],
    new: _New,
    undo_file: _UndoFile = None,
    undo: _Undo = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Replace a bookie's old id by its new one in the metadata of all ledgers.

    Use it for a bookie that was given another id and kept its entries. A ledger is changed only if the bookie
    with the new id has the first and the last entry of each segment that names the old id; --dry-run checks
    this, too. Open ledgers are not changed. The command is refused (exit code 4) while OLD is up, and while
    NEW is not up. Exit code 3 when some ledgers were not changed. After an interruption, run it again with
    the same --undo-file.

    Examples:

      bkctl bookies replace-id 10.0.0.7:3181 bookie-7:3181 --dry-run

      bkctl bookies replace-id bookie-7:3181 10.0.0.7:3181 --undo replace-id-1700000000000.undo
    """
    from bkctl.admin.bookie_id_replacement import UndoFile, refuse_wrong_ids, replace_bookie_id
    from bkctl.clock import SystemClock

    settings = client_settings(cluster, tls)
    only = None if undo is None else UndoFile(undo).places()
    file = UndoFile(os.path.abspath(undo_file or f"replace-id-{SystemClock().time_ms()}.undo"))
    kept = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal kept
        for one in found:
            kept += one.reason is not None
            yield {
                "ledger": one.ledger,
                "segments": list(one.segments),
                "replaced": one.reason is None,
                "reason": one.reason,
                "undo_file": file.path if one.reason is None and not dry_run else None,
            }

    with open_cluster(cluster) as store:
        refuse_wrong_ids(store, old, new)
        if not dry_run:
            ask(f"put {new} in the places of {old} in all ledgers", yes=yes)
        record = None if dry_run else file.record
        found = replace_bookie_id(store, settings, old, new, only=only, record=record)
        write_rows(rows(), REPLACE_ID_SCHEMA, output)
    if kept:
        raise typer.Exit(3)


recover.register(app)
drain.register(app)
