"""The source of the ledgers' metadata: ``--metadata FILE|URI``, a dump of a metadata store or the store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions
from bkctl.commands.frame.cluster_options import ClusterOptions, finder_at
from bkctl.commands.frame.entry_options import Digest
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.admin.logs.digests import FindMetadata
    from bkctl.scan.digest_book import DigestBook

_URI_MARKS = ("://", "metadata-store:")

#: Before there was one name for both, this was the option for a dump.
OldDumpOption = Annotated[
    str | None,
    typer.Option("--ledger-metadata", metavar="FILE", hidden=True, help="A dump; --metadata takes it, too."),
]


DumpOrUriOption = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        "--metadata-uri",
        metavar="FILE|URI",
        envvar="BKCTL_METADATA_URI",
        help="The ledgers' metadata: a dump ('bkctl metadata dump'), or their store, zk://host:2181/ledgers.",
    ),
]


@dataclass(frozen=True, slots=True)
class DumpOrClusterOptions(ClusterOptions):
    """Which cluster a command is about, by its metadata store or by a dump of it."""

    metadata_uri: DumpOrUriOption = None


@dataclass(frozen=True, slots=True)
class DumpOrConfigurationOptions(ConfigurationOptions):
    """The configuration of a bookie, and the metadata of its cluster: their store or a dump of it."""

    metadata_uri: DumpOrUriOption = None


def is_dump(metadata: str) -> bool:
    """Return whether a value of ``--metadata`` names a file, and no store."""
    return not any(mark in metadata for mark in _URI_MARKS)


@dataclass(frozen=True, slots=True)
class LedgerMetadataOptions:
    """The source of digest types and passwords for a command over files: a dump, a metadata store, or both.

    The environment is not asked: such a command reaches for a cluster only when its line says so.
    """

    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="FILE|URI",
            help="The ledgers' metadata, with their digest types and passwords: a dump ('bkctl metadata "
            "dump'), or their store, such as zk://host:2181/ledgers.",
        ),
    ] = None
    ledger_metadata: OldDumpOption = None
    metadata_uri: Annotated[
        str | None,
        typer.Option("--metadata-uri", metavar="URI", hidden=True, help="A store; --metadata takes it, too."),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether a dump or a store is named."""
        return any(each is not None for each in (self.metadata, self.ledger_metadata, self.metadata_uri))

    @contextmanager
    def opened(self) -> Iterator[tuple[str | None, FindMetadata | None]]:
        """Open what is named: the path of a dump, and what finds metadata in the store.

        Raises UsageError when one of them is named twice, and what opening a store raises.
        """
        dump, uri = dump_and_store(self.metadata, self.ledger_metadata, self.metadata_uri)
        with finder_at(uri) as find:
            yield dump, find

    @contextmanager
    def book(self, digest: Digest, password: bytes | None, beside: Iterable[str]) -> Iterator[DigestBook]:
        """Open what is named, and give the book by which the entries of files are checked.

        ``beside`` are the directories of the files. Raises RefusedError where a cookie in one of them is of
        another cluster, and as :meth:`opened` does.
        """
        from bkctl.admin.logs.digests import digest_book
        from bkctl.vfs import PosixFileSystem

        with self.opened() as (dump, find):
            yield digest_book(
                PosixFileSystem(),
                mode=digest.value,
                metadata_file=dump,
                find=find,
                password=password,
                beside=beside,
            )


def dump_and_store(
    metadata: str | None, old_dump: str | None, old_uri: str | None = None
) -> tuple[str | None, str | None]:
    """Return the dump and the store that the options name. Raises UsageError when one is named twice."""
    dump, uri = old_dump, old_uri
    if metadata is None:
        return dump, uri
    if is_dump(metadata):
        if dump is not None:
            raise UsageError("give one dump of the ledgers' metadata, as --metadata FILE")
        if not os.path.lexists(metadata) and ":" in metadata:
            raise UsageError(
                f"--metadata {metadata}: no such file, and not a URI such as zk://host:2181/ledgers"
            )
        return metadata, uri
    if uri is not None:
        raise UsageError("give one metadata store, as --metadata URI")
    return dump, metadata
