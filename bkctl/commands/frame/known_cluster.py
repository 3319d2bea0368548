"""Choose the source that says which ledgers exist: a metadata store, a dump of it, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.cluster_options import open_cluster
from bkctl.commands.frame.metadata_options import DumpOrClusterOptions, OldDumpOption, dump_and_store
from bkctl.errors import UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.ledgers.known_ledgers import Cluster

TrustDumpOption = Annotated[
    bool,
    typer.Option(
        "--trust-dump",
        help="Take a dump as proof that ledgers were deleted, even without an end marker or an instance id "
        "in it.",
    ),
]


@dataclass(frozen=True, slots=True)
class KnownClusterOptions:
    """The options that say where it is written which ledgers exist: in a dump, or in a metadata store."""

    ledger_metadata: OldDumpOption = None
    trust_dump: TrustDumpOption = False
    cluster: DumpOrClusterOptions = field(default_factory=DumpOrClusterOptions)

    def __post_init__(self) -> None:
        if self.ledger_metadata is None:
            dump, uri = dump_and_store(self.cluster.metadata_uri, None)
            object.__setattr__(self, "ledger_metadata", dump)
            object.__setattr__(self, "cluster", replace(self.cluster, metadata_uri=uri))

    def again(self, context: typer.Context) -> tuple[str, ...]:
        """Return the options with which another command asks the same, without what the environment says."""
        if self.ledger_metadata is not None:
            return ("--metadata", self.ledger_metadata)
        if _uri_is_on_the_line(context):
            return self.cluster.words()
        return replace(self.cluster, metadata_uri=None).words()


def _uri_is_on_the_line(context: typer.Context) -> bool:
    source = context.get_parameter_source("metadata_uri")
    return source is not None and source.name == "COMMANDLINE"


@contextmanager
def known_cluster(context: typer.Context, options: KnownClusterOptions) -> Iterator[Cluster]:
    """Open what the options name. A dump wins over BKCTL_METADATA_URI; without either nobody is asked.

    Raises UsageError when both are named on the command line, and what reading a dump or opening a store
    raises.
    """
    from bkctl.admin.ledgers.known_ledgers import DumpedCluster, NoCluster, StoredCluster

    path, cluster = options.ledger_metadata, options.cluster
    if path is not None:
        named = cluster.metadata_uri is not None and _uri_is_on_the_line(context)
        if cluster.conf or cluster.override or named:
            raise UsageError("give a metadata store or a dump of one, not both")
        from bkctl.scan.metadata_dump import load_metadata_dump

        dump = load_metadata_dump(PosixFileSystem(), path)
        yield DumpedCluster(dump, name=path, trusted=options.trust_dump)
        return
    if options.trust_dump:
        raise UsageError("--trust-dump is about a dump: give it with --metadata FILE")
    if cluster.is_given:
        with open_cluster(cluster) as store:
            yield StoredCluster(store.layout, store.ledgers, name=store.uri)
        return
    yield NoCluster()
