"""The offline form of ``bkctl gc``: the directories that were named, and the cluster that is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.known_cluster import KnownClusterOptions, known_cluster
from bkctl.commands.frame.targets import default_paths
from bkctl.errors import UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.ledgers.known_ledgers import Cluster
    from bkctl.directories.index_spaces import IndexSpace


PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH...]",
        show_default=False,
        help="A ledger directory, its 'current', or a folder that holds several. Default: ./bkctl-data. Not "
        "with --url.",
    ),
]


def threshold_share(text: str) -> float:
    """Return a share of live bytes that was given as an option. Raises ValueError for one that is none."""
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(f"{text!r} is not above 0 and at most 1.")
    return value


def only_url(context: typer.Context, paths: list[str] | None, *allowed: str) -> None:
    """Raise UsageError when options of the offline form, or paths, stand beside --url."""
    from_line = [
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]
    wrong = [name for name in from_line if name not in (*allowed, "url", "schema", "paths")]
    if paths:
        raise UsageError("give PATH or --url, not both")
    if wrong:
        instead = "; 'bkctl gc plan --url' says what would be done" if wrong[0] == "dry_run" else ""
        raise UsageError(f"--{wrong[0].replace('_', '-')} does not go with --url{instead}")


def spaces_of(paths: list[str] | None) -> list[IndexSpace]:
    """Return the ledger directories that were named, by the index that they share."""
    from bkctl.directories.index_spaces import index_spaces
    from bkctl.scan.files.paths import directories

    filesystem = PosixFileSystem()
    return index_spaces(filesystem, directories(filesystem, paths or default_paths(", or --url")))


@contextmanager
def asked_cluster(context: typer.Context, options: KnownClusterOptions) -> Iterator[Cluster]:
    """Open the cluster that is asked which ledgers exist; it is said when nobody is asked."""
    from bkctl.admin.ledgers.known_ledgers import NoCluster

    with known_cluster(context, options) as cluster:
        if isinstance(cluster, NoCluster):
            sys.stderr.write(
                "bkctl: no metadata store was named: every ledger that the index has counts as live\n"
            )
        yield cluster
