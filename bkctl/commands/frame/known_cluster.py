"""Who is asked which ledgers exist: a metadata store, a dump of it, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.cluster_options import open_cluster
from bkctl.errors import UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.ledgers.known_ledgers import Cluster

TrustDumpOption = Annotated[
    bool,
    typer.Option(
        "--trust-dump",
        help="Let a dump prove that ledgers are gone though it has no end marker or instance id.",
    ),
]


@dataclass(frozen=True, slots=True)
class ClusterWords:
    """What a command line says of the cluster."""

    dump: str | None = None
    trust_dump: bool = False
    conf: str | None = None
    override: list[str] | None = None
    metadata_uri: str | None = None

    def again(self, context: typer.Context) -> tuple[str, ...]:
        """Return the options with which another command asks the same, without what the environment says."""
        if self.dump is not None:
            return ("--ledger-metadata", self.dump)
        words = [] if self.conf is None else ["--conf", self.conf]
        for key in self.override or ():
            words += ["-X", key]
        from_line = context.get_parameter_source("metadata_uri")
        if self.metadata_uri is not None and from_line is not None and from_line.name == "COMMANDLINE":
            words += ["--metadata-uri", self.metadata_uri]
        return tuple(words)


@contextmanager
def known_cluster(context: typer.Context, words: ClusterWords) -> Iterator[Cluster]:
    """Open what the options name. A dump wins over BKCTL_METADATA_URI; without either nobody is asked.

    Raises UsageError when both are named on the command line, and what reading a dump or opening a store
    raises.
    """
    from bkctl.admin.ledgers.known_ledgers import DumpedCluster, NoCluster, StoredCluster

    if words.dump is not None:
        from_line = context.get_parameter_source("metadata_uri")
        if words.conf or words.override or (from_line is not None and from_line.name == "COMMANDLINE"):
            raise UsageError("give a metadata store or --ledger-metadata, not both")
        from bkctl.scan.metadata_dump import load_metadata_dump

        dump = load_metadata_dump(PosixFileSystem(), words.dump)
        yield DumpedCluster(dump, name=words.dump, trusted=words.trust_dump)
        return
    if words.trust_dump:
        raise UsageError("--trust-dump is about a dump: give it with --ledger-metadata")
    if words.metadata_uri or words.conf or words.override:
        with open_cluster(words.conf, words.override, words.metadata_uri) as store:
            yield StoredCluster(store.layout, store.ledgers)
        return
    yield NoCluster()
