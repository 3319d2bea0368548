"""``bkctl cluster init``, which was ``bkctl bookies init`` before and can still be called so."""

from __future__ import annotations

from bkctl.commands.frame.cluster_options import ClusterOptions, open_cluster
from bkctl.commands.frame.confirmation import DryRunOption
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_one

INIT_SCHEMA: Schema = (
    Key("uri", "string", "metadata URI"),
    Key("root", "string", "path of the ledgers root"),
    Key("instance_id", "string or null", "the new cluster's id; null with --dry-run"),
    Key("created", "bool", "whether it was made"),
)


@takes(INIT_SCHEMA, one=True)
def init_command(
    dry_run: DryRunOption = False,
    *,
    cluster: ClusterOptions,
    output: OutputOption = None,
) -> None:
    """[online] [writes] Make a new, empty cluster in the metadata store.

    If there is a cluster already, nothing is changed (exit code 4). The parent of the ledgers root must
    exist. The command makes no bookie: use 'bkctl bookie init' for that.

    Examples:

      bkctl cluster init --metadata zk+hierarchical://localhost:2181/ledgers
    """
    from bkctl.metadata.api import AlreadyExistsError

    with open_cluster(cluster) as store:
        instance = None
        if not dry_run:
            instance = store.layout.initialise_cluster()
        elif store.layout.cluster_exists():
            raise AlreadyExistsError(f"{store.uri}: there is a cluster at {store.root} already")
        row = {"uri": store.uri, "root": store.root, "instance_id": instance, "created": not dry_run}
    write_one(row, INIT_SCHEMA, output)
