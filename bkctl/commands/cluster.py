"""``bkctl cluster``: a cluster as a whole, its making and what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.cluster_init import init_command
from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.maintenance_warning import known_maintenance
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, noun_app
from bkctl.commands.frame.output import Key, Schema, write_one

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore

app = noun_app("A cluster as a whole: make it, show it.")

INFO_SCHEMA: Schema = (
    Key("uri", "string", "metadata URI"),
    Key("root", "string", "path of the ledgers root"),
    Key("layout", "string", "where ledgers stand: flat, legacyhierarchical, hierarchical, longhierarchical"),
    Key("instance_id", "string or null", "the cluster's id"),
    Key("writable_bookies", "array of strings", "bookies that are registered and take new entries"),
    Key("read_only_bookies", "array of strings", "bookies that are registered and only read"),
    Key("down_bookies", "array of strings", "bookies that have a cookie and are not registered"),
    Key("autorecovery_enabled", "bool", "whether lost replicas are put back"),
    Key("auditor", "string or null", "who looks for lost replicas, null where nobody does"),
)


@app.command("info")
@takes(INFO_SCHEMA, one=True, watch=True)
def info_command(*, cluster: ClusterOptions, output: OutputOption = None) -> None:
    """[online] [reads] Show a cluster: its id, its bookies by mode, and its autorecovery.

    Examples:

      bkctl cluster info --metadata zk://localhost:2181/ledgers
    """
    with open_cluster(cluster) as store:
        row = _info(store)
        known_maintenance(store)
    write_one(row, INFO_SCHEMA, output)


def _info(store: MetadataStore) -> dict[str, Any]:
    from bkctl.client.bookies import list_bookies

    by_mode: dict[str | None, list[str]] = {}
    for found in list_bookies(store):
        by_mode.setdefault(None if found.mode is None else found.mode.value, []).append(found.bookie)
    return {
        "uri": store.uri,
        "root": store.root,
        "layout": store.layout.layout().value,
        "instance_id": store.layout.instance_id(),
        "writable_bookies": by_mode.get("rw", []),
        "read_only_bookies": by_mode.get("ro", []),
        "down_bookies": by_mode.get(None, []),
        "autorecovery_enabled": store.underreplication.enabled(),
        "auditor": store.underreplication.auditor(),
    }


app.command("init")(init_command)
