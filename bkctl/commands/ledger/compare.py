"""``bkctl ledger compare``: the replicas of a ledger, each read from its bookie alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, TlsOptions, open_client
from bkctl.commands.frame.ledger_options import LedgerArgument
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import EntryOption, OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.replication.replica_reads import EntryReplicas, Replica

COMPARE_SCHEMA: Schema = (
    Key("entry", "int", "entry id"),
    Key("bookie", "string", "a bookie that the metadata name for it"),
    Key(
        "state",
        "string",
        "present (the digest proves it), never_written (it says that it has none), unknown (an error, or "
        "limbo), corrupt (the digest does not check), different (proved, with another payload), no_answer",
    ),
    Key("lac", "int or null", "last add confirmed in the entry's header"),
    Key("length", "int or null", "the ledger's payload bytes up to this entry, in the entry's header"),
    Key("size_bytes", "int or null", "bytes of payload"),
    Key("sha256", "string or null", "of the payload"),
    Key("detail", "string", "why it is not present, or what else is to be said"),
)


@takes(COMPARE_SCHEMA)
def compare_command(
    ledger: LedgerArgument,
    entry: EntryOption = None,
    differences: Annotated[
        bool, typer.Option("--differences", help="Show only entries that some of their bookies lack.")
    ] = False,
    *,
    password: PasswordOptions,
    cluster: ClusterOptions,
    tls: TlsOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Read every entry from each of its bookies and compare the replicas.

    The command checks digests and compares payloads; it writes nothing and fences nothing. An open ledger is
    compared up to its last confirmed entry. The exit code is 0 when every bookie has every entry, else 1;
    then stderr counts for each bookie the bad replicas of each kind. Entries that differ only in the last add
    confirmed of their headers count as equal, because a recovery may have written one of them again.

    Examples:

      bkctl ledger compare 42

      bkctl ledger compare 42 --entry 100-199 --differences -o csv
    """
    from bkctl.admin.ledgers.replica_comparison import ReplicaComparison

    secret = password.read()
    entries = unequal = 0
    faults: Counter[tuple[str, str]] = Counter()
    with open_client(cluster, tls) as client:
        comparison = ReplicaComparison(client.client, ledger, secret)

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal entries, unequal
            for found in client.flatten(comparison.replicas(entry)):
                entries += 1
                unequal += not found.are_equal
                faults.update((one.bookie, one.state.value) for one in _lacking(found))
                if not differences or not found.are_equal:
                    yield from _rows(found)

        write_rows(rows(), COMPARE_SCHEMA, output)
    equal, compared = entries - unequal, counted(entries, "entry", "entries")
    where = "is on all of its bookies" if equal == 1 else "are on all of their bookies"
    typer.echo(f"bkctl: {equal} of {compared} {where}", err=True)
    for (bookie, state), count in sorted(faults.items()):
        typer.echo(f"bkctl: {bookie}: {counted(count, 'entry', 'entries')} {state}", err=True)
    if unequal:
        raise typer.Exit(1)


def _lacking(found: EntryReplicas) -> Iterator[Replica]:
    """Yield the replicas that are not what they should be."""
    return (one for one in found.replicas if not found.are_equal and one.state.value != "present")


def _rows(found: EntryReplicas) -> Iterator[dict[str, Any]]:
    for one in found.replicas:
        yield {
            "entry": one.entry,
            "bookie": one.bookie,
            "state": one.state.value,
            "lac": one.lac,
            "length": one.length,
            "size_bytes": one.size_bytes,
            "sha256": one.sha256,
            "detail": one.detail,
        }
