"""``bkctl pulsar``: the ledgers of a cluster as Apache Pulsar's metadata know them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.durations import parse_duration_ms
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.admin.ledgers.pulsar_orphans import JudgedLedger, NamedLedgers
    from bkctl.metadata.api import MetadataStore, StoredLedger

app = noun_app("Ledgers as Apache Pulsar's metadata know them.")

ORPHANS_SCHEMA: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("standing", "string", "orphan, unknown, or named (with --all)"),
    Key("component", "string or null", "what for: managed-ledger, cursor, schema, compacted-ledger, ..."),
    Key("topic", "string or null", "topic that the ledger says it is of"),
    Key("cursor", "string or null", "subscription whose position it keeps", wide=True),
    Key("state", "string", "open, in_recovery or closed", wide=True),
    Key("bytes", "int or null", "payload bytes of all replicas, null of a ledger that is not closed"),
    Key("created_ms", "int", "when it was made; the later of what metadata and node say"),
    Key("why", "string or null", "why it is unknown"),
)

#: Undecodable nodes that are named on stderr.
_SHOWN_MAX = 10


@app.command("orphans")
@takes(ORPHANS_SCHEMA)
def orphans_command(
    *,
    cluster: ClusterOptions,
    root: Annotated[
        list[str] | None,
        typer.Option(
            "--root",
            metavar="PATH",
            help="Path of Pulsar's metadata, above managed-ledgers. Repeat it for several Pulsar clusters on "
            "the same bookies. Default: the parent of the ledgers root.",
        ),
    ] = None,
    older_than: Annotated[
        int,
        typer.Option(
            "--older-than",
            metavar="TIME",
            parser=parse_duration_ms,
            help="Age from which a ledger can be an orphan, such as 12h or 30d.",
        ),
    ] = "1d",  # type: ignore[assignment]
    every: Annotated[
        bool, typer.Option("--all", help="Also show ledgers that Pulsar's metadata name.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """[online] [reads] List Pulsar ledgers that Pulsar's metadata no longer name.

    A ledger was made by Pulsar if its custom metadata say so. Each of these ledgers is looked up in the
    metadata of topics, cursors and schemas. A ledger that is named nowhere is an orphan: no broker reads or
    deletes it, but it takes up space. The command changes nothing. Look at a ledger with 'bkctl ledger show'
    before you delete it.

    If this cannot be proved, a ledger is 'unknown'. This concerns all ledgers as soon as one node of Pulsar's
    metadata cannot be decoded (brokers may compress nodes). It also concerns ledgers of a namespace that is
    not here, which may belong to another Pulsar cluster on the same bookies; ledgers that other metadata may
    name, such as those of compacted topics; and young ledgers. Ledgers of other applications are left out.

    Exit code 0 without orphans; 1 when there are orphans; 3 when metadata cannot be decoded; 6 when there are
    no managed ledgers under the path.

    Examples:

      bkctl pulsar orphans --metadata zk://localhost:2181/ledgers

      bkctl pulsar orphans --older-than 30d --sort=-bytes --limit 20

      bkctl pulsar orphans --root /pulsar-a --root /pulsar-b -o json
    """
    from bkctl.admin.ledgers.pulsar_orphans import judge, pulsars_ledgers, read_names

    counts: Counter[str] = Counter()
    unreadable: list[int] = []
    with open_cluster(cluster) as store:
        made_before_ms = time.time() * 1000 - older_than
        with progress("listing", counts="ledgers") as advance:
            ledgers = list(pulsars_ledgers(_readable(store, unreadable, advance)))
        with progress("reading Pulsar's metadata", counts="nodes") as advance:
            names = read_names(store, root or [_above(store.root)], advance)
        _say_undecoded(names)
        rows = _rows(store, judge(ledgers, names, made_before_ms), counts, every=every)
        write_rows(rows, ORPHANS_SCHEMA, output, nothing="every ledger of Pulsar's is named")
    found = ", ".join(f"{counts[name]} {name}" for name in ("named", "orphan", "unknown"))
    typer.echo(f"bkctl: {counted(counts.total(), 'ledger')} of Pulsar's: {found}", err=True)
    partly = bool(names.undecoded or unreadable)
    raise typer.Exit(3 if partly else int(bool(counts["orphan"])))


def _readable(
    store: MetadataStore, unreadable: list[int], advance: Callable[[int], None]
) -> Iterator[StoredLedger]:
    """Yield every ledger; those that do not decode are named on stderr and put to ``unreadable``."""
    from bkctl.metadata.ledger_filter import LedgerFilter, UnreadableLedger, list_ledgers

    for found in list_ledgers(store.ledgers, LedgerFilter(), advance):
        if isinstance(found, UnreadableLedger):
            unreadable.append(found.ledger)
            typer.echo(f"bkctl: ledger {found.ledger}: {found.error}", err=True)
        else:
            yield found


def _rows(
    store: MetadataStore, judged: Iterator[JudgedLedger], counts: Counter[str], *, every: bool
) -> Iterator[dict[str, Any]]:
    """Yield the rows, without orphans that were deleted since they were found."""
    from bkctl.admin.ledgers.pulsar_orphans import Standing, created_ms
    from bkctl.admin.ledgers.replicated_bytes import replicated_bytes

    for one in judged:
        if one.standing is not Standing.NAMED and not store.ledgers.ledger_exists(one.stored.ledger):
            continue
        counts[one.standing.value] += 1
        if one.standing is Standing.NAMED and not every:
            continue
        yield {
            "ledger": one.stored.ledger,
            "standing": one.standing.value,
            "component": one.owner.component,
            "topic": one.owner.topic,
            "cursor": one.owner.cursor,
            "state": one.stored.metadata.state.name.lower(),
            "bytes": replicated_bytes(one.stored.metadata, by_bookie=False)[""],
            "created_ms": created_ms(one.stored),
            "why": one.why or None,
        }


def _above(ledgers_root: str) -> str:
    return ledgers_root.rpartition("/")[0] or "/"


def _say_undecoded(names: NamedLedgers) -> None:
    for path, error in names.undecoded[:_SHOWN_MAX]:
        typer.echo(f"bkctl: {path}: {error}", err=True)
    more = len(names.undecoded) - _SHOWN_MAX
    if more > 0:
        typer.echo(f"bkctl: and {counted(more, 'node')} more that do not decode", err=True)
