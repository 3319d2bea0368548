"""Options by which a command learns about a bookie's configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import ConnectionFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bkctl.config.bookie import BookieConfig
    from bkctl.config.values import Notice


@dataclass(frozen=True, slots=True)
class ConfigurationOptions:
    """The place of a bookie's configuration, and what the command line sets in it."""

    conf: Annotated[
        str | None,
        typer.Option(
            "--conf",
            metavar="FILE",
            help="Configuration of the bookie, a bk_server.conf. Without it: ./bkctl-data.",
        ),
    ] = None
    override: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="Set a key of bk_server.conf; may be repeated."),
    ] = None
    metadata_uri: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            "--metadata-uri",
            metavar="URI",
            envvar="BKCTL_METADATA_URI",
            help="Metadata store: zk://host:2181/ledgers, embedded:///absolute/path, or "
            "metadata-store:zk:host:2181.",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Return whether the command line or the environment says anything."""
        return bool(self.conf or self.override or self.metadata_uri)

    def words(self) -> tuple[str, ...]:
        """Return the options by which another command finds the same configuration and metadata store."""
        words = ["--conf", self.conf] if self.conf is not None else []
        for override in self.override or ():
            words += ["-X", override]
        if self.metadata_uri is not None:
            words += ["--metadata", self.metadata_uri]
        return tuple(words)


MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=parse_byte_size,
        help="Memory for all caches together, such as 2G. Default: 256M.",
    ),
]


def given_keys(overrides: list[str] | None, metadata_uri: str | None = None) -> dict[str, str]:
    """Return the keys that -X sets, and --metadata-uri where -X does not set it.

    Raises UsageError, also for a key that is not known: in a file it may be meant for another program, on the
    command line it is a typing error.
    """
    keys: dict[str, str] = {}
    for override in overrides or ():
        from bkctl.config.values import check_known

        key, equals, value = (part.strip() for part in override.partition("="))
        if not equals or not key:
            raise UsageError(f"-X {override}: expected KEY=VALUE")
        check_known(key, f"-X {key}")
        keys[key] = value
    if metadata_uri is not None:
        from bkctl.config.values import OptionText

        given = OptionText(metadata_uri, "--metadata (BKCTL_METADATA_URI)")
        keys.setdefault("metadataServiceUri", given)
    return keys


def bookie_config(
    options: ConfigurationOptions,
    memory_bytes: int | None = None,
    *,
    tell: Callable[[Notice], None] | None = None,
) -> BookieConfig:
    """Load the configuration that the options give; notices about it go to ``tell``, or stderr.

    Raises UsageError, NotFoundError for a file that is not there.
    """
    from bkctl.config.loader import load

    keys = given_keys(options.override, options.metadata_uri)
    config, notices = load(options.conf, keys, os.environ, memory_bytes=memory_bytes)
    for notice in notices:
        (tell or _say)(notice)
    return config


def running_bookie_url(url: str | None, options: ConfigurationOptions, *, changes: bool = False) -> str:
    """Return the HTTP admin at ``url``, or that of the bookie that runs with this configuration.

    ``changes``: what follows sends the token. Raises ConnectionFailedError when there is no such bookie,
    RefusedError when its registration names a host that is not to get the token, and as
    :func:`bookie_config`.
    """
    given_keys(options.override)  # a key that is typed wrongly is one also where it is not needed
    if url is not None:
        return url
    from bkctl.config.loader import DATA_DIRECTORY

    if options.conf is None and options.metadata_uri is None and not os.path.isdir(DATA_DIRECTORY):
        raise ConnectionFailedError(
            "which bookie? Give --url http://bookie-3:8080 or --conf FILE; "
            f"there is no ./{DATA_DIRECTORY} here"
        )
    from bkctl.server.life.new_bookie import registered_http_url

    registered = registered_http_url(bookie_config(options))
    if changes:
        from bkctl.admin.http_json import require_named_host

        require_named_host(registered)
    return registered


def _say(notice: Notice) -> None:
    typer.echo(f"bkctl: {notice}", err=True)


def log_notice(notice: Notice) -> None:
    """Log a notice as a line of the log, for a command that logs."""
    import logging

    level = logging.WARNING if notice.warning else logging.INFO
    logging.getLogger("bkctl.config").log(level, "%s", notice)
