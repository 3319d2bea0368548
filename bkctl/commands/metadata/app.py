"""``bkctl metadata``: what stands in the metadata store, as it stands there."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.ledger_rows import ledger_row
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one
from bkctl.errors import CorruptionError, UsageError

if TYPE_CHECKING:
    from bkctl.admin.metadata_dump import DumpedNode
    from bkctl.metadata.api import MetadataStore

app = noun_app("The metadata store: dump it, show a node or the cluster.")

DUMP_SCHEMA: Schema = (
    Key("path", "string", "the file that was written"),
    Key("root", "string", "path of the ledgers root"),
    Key("nodes", "int", "number of nodes"),
    Key("bytes", "int", "bytes of their data"),
)

SHOW_SCHEMA: Schema = (
    Key("uri", "string", "metadata URI"),
    Key("root", "string", "path of the ledgers root"),
    Key("layout", "string", "where ledgers stand: flat, legacyhierarchical, hierarchical, longhierarchical"),
    Key("instance_id", "string or null", "the cluster's id"),
    Key("bookies", "array of strings", "bookies that are registered"),
    Key("cookies", "array of strings", "bookies that have a cookie"),
    Key("path", "string", "the node (with a path)"),
    Key("version", "int", "how often its data was rewritten (with a path)"),
    Key("ephemeral", "bool", "whether it goes with its session (with a path)"),
    Key("ctime_ms", "int", "when it was made, milliseconds since 1970 (with a path)"),
    Key("bytes", "int", "length of its data (with a path)"),
    Key("children", "array of strings", "names of its children (with a path)"),
    Key(
        "kind",
        "string",
        "ledger, cookie, layout, bookie, underreplication, underreplicated_ledger, replicator, text, binary "
        "or empty (with a path)",
    ),
    Key("value", "object, string or null", "its data decoded, without passwords (with a path)"),
    Key("data", "string", "its data, base64, with --show-secrets (with a path)"),
)


@app.command("dump")
@takes(DUMP_SCHEMA, one=True)
def dump_command(
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="The new file; only its owner can read it."),
    ] = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Write to stdout, including the passwords of ledgers.")
    ] = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Write every node below the ledgers root to one JSON file.

    Other commands read the file with --metadata. It holds the passwords of ledgers, so it is written to a
    file that only its owner can read, or to stdout with --show-secrets. Its last key, "end", shows that the
    dump is complete. It also says when the dump was begun and which ledger id would have been the next one: a
    ledger with a lower id that is not in the dump was deleted.

    Examples:

      bkctl metadata dump --out cluster.json

      bkctl metadata dump --show-secrets | jq keys
    """
    from bkctl.admin.metadata_dump import cluster_dump, write_dump, write_dump_file
    from bkctl.clock import SystemClock

    if (out is None) == (not show_secrets):
        raise UsageError("give either --out FILE, or --show-secrets for stdout: ledger passwords are in it")
    with open_cluster(cluster) as store:
        dump = cluster_dump(store, SystemClock())
        if out is None:
            write_dump(dump, sys.stdout.write)
            sys.stdout.flush()
            return
        written = write_dump_file(out, dump)
        row = {"path": out, "root": store.root, "nodes": written.nodes, "bytes": written.data_bytes}
    write_one(row, DUMP_SCHEMA, output)


@app.command("show")
@takes(SHOW_SCHEMA, one=True)
def show_command(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            show_default=False,
            help="Path of a node: absolute, or relative to the ledgers root.",
        ),
    ] = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Also print the bytes of the node, including passwords.")
    ] = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [reads] Show the cluster that a metadata URI names, or one node, decoded.

    'underreplication' shows autorecovery as a whole: whether it is enabled, which host is the auditor, and
    the ledgers that are marked (the first 1000). For each ledger it shows the bookies that lack replicas, the
    time of the mark, and the worker that copies the ledger.

    Examples:

      bkctl metadata show

      bkctl metadata show cookies/bookie-3:3181

      bkctl metadata show /ledgers/00/0000/L0042

      bkctl metadata show underreplication -o json | jq .value.ledgers
    """
    with open_cluster(cluster) as store:
        row = _cluster(store) if path is None else _shown(store, path, secrets=show_secrets)
    write_one(row, SHOW_SCHEMA, output)


def _cluster(store: MetadataStore) -> dict[str, Any]:
    return {
        "uri": store.uri,
        "root": store.root,
        "layout": store.layout.layout().value,
        "instance_id": store.layout.instance_id(),
        "bookies": list(store.registration.bookies().everyone),
        "cookies": store.cookies.cookie_bookies(),
    }


def _shown(store: MetadataStore, path: str, *, secrets: bool) -> dict[str, Any]:
    from bkctl.admin.metadata_dump import child_names, dump_node
    from bkctl.commands.metadata.underreplication_rows import is_underreplication, underreplication_row

    if is_underreplication(store.root, path):
        return underreplication_row(store)
    node = dump_node(store, path)
    kind, value = _decoded(store.root, node)
    row: dict[str, Any] = {
        "path": node.path,
        "version": node.version,
        "ephemeral": node.ephemeral,
        "ctime_ms": node.created_ms,
        "bytes": len(node.data),
        "children": child_names(store, node.path),
        "kind": kind,
        "value": value,
    }
    if secrets:
        row["data"] = base64.b64encode(node.data).decode("ascii")
    return row


def _decoded(root: str, node: DumpedNode) -> tuple[str, Any]:
    """Return what a node is, by its place, and its value."""
    from bkctl.codec.ledger_metadata import decode_ledger_metadata
    from bkctl.codec.ledger_path import split_ledger_path
    from bkctl.commands.metadata.underreplication_rows import decoded_underreplication

    below = node.path[len(root) :]
    ledger = split_ledger_path(node.path)
    try:
        if ledger is not None and ledger[0] == root:
            row = ledger_row(ledger[1], decode_ledger_metadata(node.data), node.version)
            return "ledger", row
        if below.startswith("/available/") and node.ephemeral:
            return "bookie", _service_info(node.data)
        marked = decoded_underreplication(root, node)
        if marked is not None:
            return marked
    except CorruptionError as error:
        raise error.located(node.path) from None
    if below.startswith("/cookies/"):
        return "cookie", node.data.decode("utf-8", "backslashreplace")
    if below == "/LAYOUT":
        return "layout", node.data.decode("utf-8", "backslashreplace")
    if not node.data:
        return "empty", None
    try:
        return "text", node.data.decode("utf-8")
    except UnicodeDecodeError:
        return "binary", None


def _service_info(data: bytes) -> dict[str, Any]:
    from bkctl.codec.bookie_service_info import decode_bookie_service_info

    info = decode_bookie_service_info(data)
    return {
        "endpoints": [
            {"id": found.id, "protocol": found.protocol, "host": found.host, "port": found.port}
            for found in info.endpoints
        ],
        "properties": dict(info.properties),
    }
