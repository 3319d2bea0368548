"""Options by which a command learns which cluster it is about."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.bookie_options import MetadataUriOption, OverrideOption
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore

__all__ = ["ClusterConfOption", "MetadataUriOption", "OverrideOption", "open_cluster"]

_URI_KEYS = {"metadataServiceUri", "zkServers"}

ClusterConfOption = Annotated[
    str | None,
    typer.Option(
        "--conf",
        metavar="FILE",
        help="A bk_server.conf or client configuration that names the metadata store.",
    ),
]


def open_cluster(conf: str | None, overrides: list[str] | None, metadata_uri: str | None) -> MetadataStore:
    """The metadata store that the options, the environment or ``./bkctl-data`` name.

    Raises UsageError when none of them does, so that a wrong directory never looks like an empty cluster.
    """
    from bkctl.config.loader import DATA_DIRECTORY, without_a_file
    from bkctl.config.metadata_uri import metadata_uri as uri_of
    from bkctl.config.properties import Properties, load_properties, read_bytes
    from bkctl.config.values import GivenValues, Notice, gather
    from bkctl.metadata.settings import MetadataSettings
    from bkctl.metadata.uri import open_metadata_store

    keys = _keys(overrides)
    if metadata_uri is not None:
        keys.setdefault("metadataServiceUri", metadata_uri)
    properties = Properties() if conf is None else load_properties(conf, os.environ, read_bytes)
    defaults = {}
    if conf is None and not _URI_KEYS & keys.keys():
        if not os.path.isdir(DATA_DIRECTORY):
            raise UsageError(
                "which cluster? Give --metadata-uri zk://host:2181/ledgers (or BKCTL_METADATA_URI, or --conf "
                f"FILE); there is no ./{DATA_DIRECTORY} here"
            )
        defaults = without_a_file(os.getcwd())
    values = GivenValues(gather(properties, defaults, os.environ, keys), os.environ)
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
    )
    return open_metadata_store(uri, settings)


def _keys(overrides: list[str] | None) -> dict[str, str]:
    keys: dict[str, str] = {}
    for override in overrides or ():
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"-X {override}: expected KEY=VALUE")
        keys[key.strip()] = value.strip()
    return keys
