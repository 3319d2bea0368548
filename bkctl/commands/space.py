"""``bkctl space``: who uses the space of bookies, by ledger, topic, application or bookie."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.codec.pulsar_names import NOBODY, LedgerOwner, ledger_owner
from bkctl.commands.frame.cluster_options import open_cluster
from bkctl.commands.frame.known_cluster import KnownClusterOptions, known_cluster
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import default_paths
from bkctl.errors import CorruptionError, UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.ledgers.known_ledgers import Cluster

app = noun_app()

SCHEMA: Schema = (
    Key("dir", "string", "directory of the entry logs (files, by ledger or dir)", wide=True),
    Key("ledger", "int", "ledger id (by ledger)"),
    Key("application", "string or null", "who wrote it, as the custom metadata say (by ledger, application)"),
    Key(
        "component", "string or null", "what for: managed-ledger, cursor, schema, ... (by ledger)", wide=True
    ),
    Key("topic", "string or null", "topic of Pulsar's (by ledger, topic)"),
    Key("bookie", "string", "id of the bookie (metadata, by bookie)"),
    Key("ledgers", "int", "number of ledgers (but by ledger)"),
    Key("open_ledgers", "int", "those that are open, whose length nobody knows yet: not counted (metadata)"),
    Key("bytes", "int", "bytes in entry logs, size words included; by metadata: of all replicas, about"),
    Key("live_bytes", "int", "bytes of entries that are alive (files)"),
    Key("dead_bytes", "int", "bytes that garbage collection and compaction can give back (files)"),
    Key("share", "number", "part of all bytes, 0 to 1"),
)


class GroupBy(StrEnum):
    """Values of ``--by``."""

    LEDGER = "ledger"
    TOPIC = "topic"
    APPLICATION = "application"
    BOOKIE = "bookie"
    DIR = "dir"


@dataclass(slots=True)
class _Sum:
    """The sum of what one group takes."""

    keys: dict[str, Any]
    bytes: int = 0
    live_bytes: int = 0
    ledgers: int = 0
    open_ledgers: int = 0


@app.command()
@takes(SCHEMA)
def space_command(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            show_default=False,
            help="Ledger directories, or folders that hold several. Without PATH, the metadata of the "
            "cluster are read; without a cluster, ./bkctl-data.",
        ),
    ] = None,
    by: Annotated[
        GroupBy,
        typer.Option(
            "--by", metavar="KEY", help="Key of the sums: ledger, topic, application, bookie or dir."
        ),
    ] = GroupBy.LEDGER,
    *,
    known: KnownClusterOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [reads] Show who uses the disk space, most bytes first.

    With PATH the command reads the entry logs of bookies, running or not. Every byte counts, live or garbage.
    The topic or application of a ledger is only known from its metadata: give --metadata for this. An entry
    is live if its ledger still exists and the index points to the copy in this log.

    Without PATH it only reads metadata: it multiplies the length of each closed ledger by its write quorum.
    This is what all bookies together hold of the ledger, without headers and garbage. Open ledgers are only
    counted.

    Exit code 1 when a log is damaged (its bytes are then only counted in part), when an index is lost, or
    when metadata cannot be decoded.

    Examples:

      bkctl space /data/bookie --metadata zk://localhost:2181/ledgers --by topic

      bkctl space --metadata zk://localhost:2181/ledgers --by topic --limit 20

      bkctl space /data/bookie --sort=-dead_bytes --limit 10
    """
    stored = not paths and (known.cluster.is_given or known.ledger_metadata is not None)
    if by is GroupBy.BOOKIE and not stored:
        raise UsageError("--by bookie sums up the cluster's metadata: leave PATH away and give --metadata")
    if by is GroupBy.DIR and stored:
        raise UsageError("--by dir sums up files: give a PATH")
    if stored:
        if known.ledger_metadata is not None:
            raise UsageError("give the metadata store, or a PATH beside the dump")
        sums, code = _of_metadata(known, by)
    else:
        sums, code = _of_files(context, paths or default_paths(", or --metadata"), known, by)
    rows = _rows(sums, files=not stored, by=by)
    write_rows(rows, _shown(sums, by), output, nothing="no entries")
    raise typer.Exit(code)


def _shown(sums: Iterable[_Sum], by: GroupBy) -> Schema:
    """Return the schema; a table has the directory where only that distinguishes its rows."""
    if by is not GroupBy.DIR and len({each.keys.get("dir") for each in sums}) < 2:
        return SCHEMA
    return tuple(key._replace(wide=False) if key.key == "dir" else key for key in SCHEMA)


def _rows(sums: Iterable[_Sum], *, files: bool, by: GroupBy) -> Iterator[dict[str, Any]]:
    ranked = sorted(sums, key=lambda each: -each.bytes)
    total = sum(each.bytes for each in ranked)
    for each in ranked:
        row: dict[str, Any] = dict(each.keys)
        if by is not GroupBy.LEDGER:
            row["ledgers"] = each.ledgers
        if not files:
            row["open_ledgers"] = each.open_ledgers
        row["bytes"] = each.bytes
        if files:
            row |= {"live_bytes": each.live_bytes, "dead_bytes": each.bytes - each.live_bytes}
        yield row | {"share": round(each.bytes / total, 4) if total else 0.0}


def _keys(by: GroupBy, ledger: int, owner: LedgerOwner, place: str) -> tuple[Any, dict[str, Any]]:
    """Return what a group is known by, and the keys of its row."""
    if by is GroupBy.LEDGER:
        names = {"application": owner.application, "component": owner.component, "topic": owner.topic}
        return (place, ledger), {**({"dir": place} if place else {}), "ledger": ledger, **names}
    if by is GroupBy.TOPIC:
        return owner.topic, {"topic": owner.topic}
    if by is GroupBy.APPLICATION:
        return owner.application, {"application": owner.application}
    return place, {"dir" if by is GroupBy.DIR else "bookie": place}


def _of_files(
    context: typer.Context, paths: list[str], known: KnownClusterOptions, by: GroupBy
) -> tuple[list[_Sum], int]:
    from bkctl.admin.gc.space_use import Reservation, UnreadLog, space_use
    from bkctl.clock import SystemClock
    from bkctl.directories.index_spaces import index_spaces
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    spaces = index_spaces(filesystem, directories(filesystem, paths))
    groups: dict[Any, _Sum] = {}
    code = 0
    with (
        known_cluster(context, known) as cluster,
        progress("reading logs", sum(space.bytes_total for space in spaces)) as advance,
    ):
        found = []
        for item in space_use(filesystem, spaces, cluster, SystemClock(), advance=advance):
            if isinstance(item, UnreadLog):
                sys.stderr.write(f"bkctl: {item.problem}\n")
                code = 1
            elif isinstance(item, Reservation):
                sys.stderr.write(f"bkctl: {item.dir}: {item.why}\n")
                code = 1 if item.is_lost else code
            else:
                found.append(item)
        owners = _owners(cluster, {item.ledger for item in found})
        for item in found:
            group, keys = _keys(by, item.ledger, owners.get(item.ledger, NOBODY), item.dir)
            counted = groups.setdefault(group, _Sum(keys))
            counted.bytes += item.bytes
            counted.live_bytes += item.live_bytes
            counted.ledgers += 1
    return list(groups.values()), code


def _owners(cluster: Cluster, ledgers: set[int]) -> dict[int, LedgerOwner]:
    """Return the owner of each ledger whose metadata are known."""
    from bkctl.admin.ledgers.grouped_metadata import LEDGERS_AT_ONCE

    found: dict[int, LedgerOwner] = {}
    rest = iter(sorted(ledgers) if cluster.is_asked else ())
    while group := tuple(islice(rest, LEDGERS_AT_ONCE)):
        for ledger, metadata in cluster.metadata_of(group).items():
            if not isinstance(metadata, CorruptionError):
                found[ledger] = ledger_owner(metadata.custom_metadata)
    return found


def _of_metadata(known: KnownClusterOptions, by: GroupBy) -> tuple[list[_Sum], int]:
    from bkctl.admin.ledgers.replicated_bytes import replicated_bytes
    from bkctl.metadata.ledger_filter import LedgerFilter, UnreadableLedger, list_ledgers

    groups: dict[Any, _Sum] = {}
    code = 0
    with open_cluster(known.cluster) as store, progress("listing", counts="ledgers") as advance:
        for found in list_ledgers(store.ledgers, LedgerFilter(), advance):
            if isinstance(found, UnreadableLedger):
                sys.stderr.write(f"bkctl: ledger {found.ledger}: {found.error}\n")
                code = 1
                continue
            owner = ledger_owner(found.metadata.custom_metadata)
            for bookie, size in replicated_bytes(found.metadata, by_bookie=by is GroupBy.BOOKIE).items():
                group, keys = _keys(by, found.ledger, owner, bookie)
                counted = groups.setdefault(group, _Sum(keys))
                counted.ledgers += 1
                counted.open_ledgers += size is None
                counted.bytes += size or 0
    return list(groups.values()), code
