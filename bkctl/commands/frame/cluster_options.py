"""Options by which a command learns which cluster it is about, and how to talk to its bookies."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions, given_keys
from bkctl.errors import CorruptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bkctl.admin.logs.digests import FindMetadata
    from bkctl.client.driver import BookieChoice
    from bkctl.client.settings import ClientSettings
    from bkctl.client.sync import BookKeeperSync
    from bkctl.codec.ledger_metadata import LedgerMetadata
    from bkctl.config.values import GivenValues
    from bkctl.metadata.api import MetadataStore

_URI_KEYS = {"metadataServiceUri", "zkServers"}


@dataclass(frozen=True, slots=True)
class ClusterOptions(ConfigurationOptions):
    """Which cluster a command is about: where its metadata store is."""

    conf: Annotated[
        str | None,
        typer.Option(
            "--conf",
            metavar="FILE",
            help="A bk_server.conf or client configuration that names the metadata store.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How a client proves to bookies who it is, and they to it."""

    tls_ca: Annotated[
        str | None,
        typer.Option(
            "--tls-ca",
            metavar="FILE",
            envvar="BKCTL_TLS_CA",
            help="Use TLS for connections to bookies. A bookie's certificate must name its host, and is "
            "checked against the certificates in this PEM file. With -X tlsHostnameVerificationEnabled=false "
            "the host name is not checked.",
        ),
    ] = None
    tls_cert: Annotated[
        str | None,
        typer.Option(
            "--tls-cert",
            metavar="FILE",
            envvar="BKCTL_TLS_CERT",
            help="PEM file with this client's certificate.",
        ),
    ] = None
    tls_key: Annotated[
        str | None,
        typer.Option(
            "--tls-key",
            metavar="FILE",
            envvar="BKCTL_TLS_KEY",
            help="PEM file with this client's private key.",
        ),
    ] = None


def open_cluster(options: ConfigurationOptions) -> MetadataStore:
    """Open the metadata store that the options, the environment or ``./bkctl-data`` name.

    Raises UsageError when none of them does, so that a wrong directory never looks like an empty cluster.
    """
    from bkctl.config.loader import DATA_DIRECTORY, without_a_file
    from bkctl.config.metadata_uri import metadata_uri as uri_of
    from bkctl.config.values import Notice
    from bkctl.metadata.login import logged_in
    from bkctl.metadata.settings import MetadataSettings
    from bkctl.metadata.uri import open_metadata_store

    keys = given_keys(options.override, options.metadata_uri)
    named = options.metadata_uri
    if named is not None and "://" not in named and os.path.isfile(named):
        raise UsageError(
            f"--metadata {named}: is a file, and this command asks the metadata store itself, such as "
            "zk://host:2181/ledgers; a dump serves commands over files ('space', 'gc explain', 'doctor', ...)"
        )
    defaults = {}
    if options.conf is None and not _URI_KEYS & keys.keys():
        if not os.path.isdir(DATA_DIRECTORY):
            raise UsageError(
                "which cluster? Give --metadata zk://host:2181/ledgers (or BKCTL_METADATA_URI, or --conf "
                f"FILE); there is no ./{DATA_DIRECTORY} here. 'bkctl context add' names a cluster once "
                "for all commands"
            )
        defaults = without_a_file(os.getcwd())
    values = _values(options.conf, keys, defaults)
    notices: list[Notice] = []
    uri = uri_of(values, notices)
    for notice in notices:
        typer.echo(str(notice), err=True)
    standard = MetadataSettings()
    session_ms = values.integer("zkTimeout")
    settings = MetadataSettings(
        session_timeout_ms=session_ms,
        connect_timeout_ms=session_ms,
        retry_backoff_start_ms=values.integer_or_none("zkRetryBackoffStartMs")
        or standard.retry_backoff_start_ms,
        retry_backoff_max_ms=values.integer_or_none("zkRetryBackoffMaxMs") or standard.retry_backoff_max_ms,
        secure_acls=values.truth("zkEnableSecurity"),
    )
    return open_metadata_store(uri, logged_in(os.environ, settings))


@contextmanager
def finder_at(uri: str | None) -> Iterator[FindMetadata | None]:
    """Open the metadata store at a URI to find ledgers' metadata in; gives None without one.

    Raises what opening a store raises; what the context gives raises what reading from it does.
    """
    if uri is None:
        yield None
        return
    with open_cluster(ClusterOptions(metadata_uri=uri)) as store:
        yield StoredMetadata(store)


class StoredMetadata:
    """The metadata of ledgers in a store; every method raises what reading from the store raises.

    A ledger whose metadata do not decode is named on stderr and counts as not known. Where all ledgers of a
    bookie are asked for, it may be one of these.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._damaged: set[int] = set()

    @property
    def instance_id(self) -> str | None:
        """The UUID of the store's cluster, None without one."""
        return self._store.layout.instance_id()

    def __call__(self, ledger: int) -> LedgerMetadata | None:
        """Return the metadata of a ledger, None without any."""
        from bkctl.metadata.api import find_ledger

        try:
            stored = find_ledger(self._store.ledgers, ledger)
        except CorruptionError as error:
            self._damaged.add(ledger)
            typer.echo(f"bkctl: ledger {ledger}: {error}", err=True)
            return None
        return None if stored is None else stored.metadata

    def every(self) -> Iterator[tuple[int, LedgerMetadata | None]]:
        """Yield every ledger with its metadata, with None where these do not decode."""
        ledgers = self._store.ledgers
        for ledger, stored in ledgers.read_ledgers(ledgers.ledgers()):
            if isinstance(stored, CorruptionError):
                typer.echo(
                    f"bkctl: ledger {ledger}: {stored}; it may be placed on this bookie and counts as such",
                    err=True,
                )
                yield ledger, None
            elif stored is not None:
                yield ledger, stored.metadata

    def is_damaged(self, ledger: int) -> bool:
        """Return whether the metadata of a ledger that was looked for do not decode."""
        return ledger in self._damaged


def client_settings(options: ConfigurationOptions, tls: TlsOptions) -> ClientSettings:
    """Return how to talk to bookies: by the options, then ``-X``, then the file. Raises UsageError."""
    from bkctl.client.configuration import client_settings as of_values
    from bkctl.net.tls import ClientTlsSettings, client_context

    given = None
    if tls != TlsOptions():
        given = ClientTlsSettings(trust_path=tls.tls_ca, certificate_path=tls.tls_cert, key_path=tls.tls_key)
    settings = of_values(_values(options.conf, given_keys(options.override), {}), os.environ, given)
    if settings.net.tls is not None:
        client_context(settings.net.tls)  # its files are looked at before anything else
    return settings


@contextmanager
def open_client(
    options: ConfigurationOptions,
    tls: TlsOptions,
    choice: Callable[[MetadataStore], BookieChoice] | None = None,
) -> Iterator[BookKeeperSync]:
    """Open a client of the cluster of :func:`open_cluster`, with the settings of :func:`client_settings`."""
    from bkctl.client.sync import BookKeeperSync

    settings = client_settings(options, tls)
    with (
        open_cluster(options) as store,
        BookKeeperSync(store, settings, choice=choice) as client,
    ):
        yield client


def cluster_values(options: ConfigurationOptions) -> GivenValues:
    """Return what ``-X`` and the file say, for settings that are no client's. Raises UsageError."""
    return _values(options.conf, given_keys(options.override), {})


def _values(conf: str | None, keys: dict[str, str], defaults: dict[str, tuple[str, ...]]) -> GivenValues:
    from bkctl.config.properties import Properties, load_properties, read_bytes
    from bkctl.config.values import GivenValues, gather

    properties = Properties() if conf is None else load_properties(conf, os.environ, read_bytes)
    return GivenValues(gather(properties, defaults, os.environ, keys), os.environ)
