"""Making a bookie's directories and cookies without starting it, and emptying them again.

Source: ``BookieInitializer``/``BookieImpl.format``, shell commands ``initbookie`` and ``bookieformat``.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from posixpath import dirname, join
from threading import Event

from bkctl.codec.bookie_service_info import decode_bookie_service_info
from bkctl.config.bookie import BookieConfig
from bkctl.directories.cookie_rules import CookieDecision, cookie_of, decide
from bkctl.errors import ConnectionFailedError, RefusedError, as_storage_errors
from bkctl.metadata.api import AlreadyExistsError, MetadataStore
from bkctl.metadata.http_address import http_urls
from bkctl.metadata.uri import DRIVERS, open_metadata_store, parse_metadata_uri
from bkctl.scan.directory import current
from bkctl.server.life import own_directories as directories
from bkctl.server.life.engine_settings import metadata_settings
from bkctl.server.life.identity import SystemHostNames, bookie_id, candidate_ids
from bkctl.vfs import PosixFileSystem


@dataclass(frozen=True, slots=True)
class NewBookie:
    """The bookie that :func:`initialise` made: ``directories`` have cookies now."""

    bookie: str
    instance_id: str | None
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FormattedDirectory:
    """A directory that was emptied, or would be: ``entries`` names in it, ``bytes`` in all files below."""

    directory: str
    entries: int
    bytes: int


def open_bookie_metadata(config: BookieConfig, given_up: Event | None = None) -> MetadataStore:
    """Open the metadata store of a bookie. A store of this machine alone is initialised if it is new.

    Raises as :func:`bkctl.metadata.uri.open_metadata_store`.
    """
    uri = parse_metadata_uri(config.metadata.uri)
    driver = DRIVERS[uri.driver]
    if driver.has_file:
        PosixFileSystem().make_directories(dirname(uri.location))
    store = open_metadata_store(uri, metadata_settings(config), given_up=given_up)
    if driver.of_this_machine and not store.layout.cluster_exists():
        # Several bookies may start at the same moment and find no cluster; one of them makes it.
        with suppress(AlreadyExistsError):
            store.layout.initialise_cluster()
    return store


def port_of_before(config: BookieConfig) -> int:
    """Return the port in the cookie of a bookie whose port the system chooses. 0 without one.

    Raises as :func:`bkctl.server.life.own_directories.examine`.
    """
    if config.identity.bookie_id is not None:
        return 0
    for fact in directories.examine(PosixFileSystem(), config.directories, config.storage_kind):
        if fact.cookie is not None:
            port = fact.cookie.bookie_host.rpartition(":")[2]
            return int(port) if port.isdecimal() else 0
    return 0


def decide_cookies(config: BookieConfig, metadata: MetadataStore, port: int) -> CookieDecision:
    """Return the cookies to stamp if the bookie may start. Raises RefusedError with the way out."""
    directories.refuse_planted_links(config.directories)
    names = SystemHostNames()
    cookie = cookie_of(
        bookie_id(config.identity, port, names), config.directories, metadata.layout.instance_id()
    )
    return decide(
        cookie,
        directories.examine(PosixFileSystem(), config.directories, config.storage_kind),
        directories.read_stored(metadata.cookies, candidate_ids(config.identity, port, names)),
        allow_expansion=config.directories.allow_expansion,
        kind=config.storage_kind,
    )


def initialise(config: BookieConfig) -> NewBookie:
    """Make the directories of a new bookie, with its cookie there and in the metadata store.

    Raises RefusedError when this bookie exists already, or may not start for another reason; UsageError
    when its port, which is part of its id, is left to the system.
    """
    if config.identity.port == 0 and config.identity.bookie_id is None:
        raise RefusedError("bookiePort=0: the port is part of a new bookie's id; set bookiePort or bookieId")
    filesystem = PosixFileSystem()
    with open_bookie_metadata(config) as metadata:
        decision = decide_cookies(config, metadata, config.identity.port)
        if not decision.is_new_bookie:
            raise RefusedError(f"bookie {decision.cookie.bookie_host} is initialised already")
        directories.make_current(filesystem, config.directories)
        with directories.DirectoryLocks(directories.every_directory(config.directories)):
            decision = decide_cookies(config, metadata, config.identity.port)
            directories.stamp(filesystem, metadata.cookies, decision)
    cookie = decision.cookie
    return NewBookie(cookie.bookie_host, cookie.instance_id, decision.stamp_directories)


def to_be_formatted(config: BookieConfig) -> list[FormattedDirectory]:
    """Return what :func:`format_directories` would remove. Raises StorageError."""
    found = []
    for directory in directories.every_directory(config.directories):
        path = current(directory)
        if os.path.isdir(path):
            entries = len(os.listdir(path))
            found.append(FormattedDirectory(directory, entries, _bytes_below(path)))
    return found


def format_directories(config: BookieConfig, *, delete_cookie: bool) -> list[FormattedDirectory]:
    """Empty every ``current`` directory; with ``delete_cookie`` the cluster forgets the bookie too.

    The cookie in the store goes first: an empty directory with a cookie in the store refuses to start, which
    is the safe half-way state. Raises RefusedError while a process uses a directory or, with
    ``delete_cookie``, while the bookie is registered; NotFoundError without a metadata store; StorageError.
    """
    plan = to_be_formatted(config)
    with directories.DirectoryLocks([found.directory for found in plan]):
        if delete_cookie:
            _delete_cookies(config)
        for found in plan:
            _empty(current(found.directory))
    return plan


def _delete_cookies(config: BookieConfig) -> None:
    own = _own_ids(config)
    if config.identity.port or config.identity.bookie_id is not None:
        configured = candidate_ids(config.identity, config.identity.port, SystemHostNames())
        others = [bookie for bookie in own if bookie not in configured]
        if others:
            raise RefusedError(
                f"the directories are those of bookie {', '.join(others)}, but the configuration is that of "
                f"{configured[-1]}, so it is not clear whose cookie to remove. Nothing was removed"
            )
    # A store that has to be made has no cookie of the bookie: it is another one, or the URI is wrong.
    with open_metadata_store(config.metadata.uri, metadata_settings(config)) as metadata:
        for bookie in own:
            if metadata.registration.registration(bookie) is not None:
                raise RefusedError(
                    f"bookie {bookie} is registered: it runs, perhaps on another machine, or it was killed a "
                    "moment ago (the registration ends with its session). Nothing was removed"
                )
        for bookie in own:
            stored = metadata.cookies.read_cookie(bookie)
            if stored is not None:
                metadata.cookies.delete_cookie(bookie, stored.version)


def _empty(path: str) -> None:
    with as_storage_errors(path):
        for name in os.listdir(path):
            entry = join(path, name)
            if os.path.isdir(entry) and not os.path.islink(entry):
                shutil.rmtree(entry)
            else:
                os.remove(entry)
    # The names are gone also after a power cut, before the bookie starts over.
    PosixFileSystem().sync_directory(path)


def _bytes_below(path: str) -> int:
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total


def registered_http_url(config: BookieConfig) -> str:
    """Return the URL of the HTTP admin of the bookie that runs with this configuration, as it registered it.

    A bookie whose port the system chose is found by the cookie in its directories. Raises
    ConnectionFailedError when it is not registered or has no HTTP admin.
    """
    own = _own_ids(config)
    with open_metadata_store(parse_metadata_uri(config.metadata.uri), metadata_settings(config)) as metadata:
        for bookie in own:
            registration = metadata.registration.registration(bookie)
            if registration is None:
                continue
            urls = http_urls(bookie, decode_bookie_service_info(registration.service_info))
            if urls:
                return urls[0]
            raise ConnectionFailedError(f"bookie {bookie} runs without an HTTP admin (httpServerEnabled)")
    named = " or ".join(own) or "this one"
    raise ConnectionFailedError(
        f"no bookie is registered as {named}, which is its id in this configuration. Start the bookie, or "
        "name another one with --conf or --url"
    )


def _own_ids(config: BookieConfig) -> list[str]:
    facts = directories.examine(PosixFileSystem(), config.directories, config.storage_kind)
    stamped = [fact.cookie.bookie_host for fact in facts if fact.cookie is not None]
    if config.identity.port == 0 and config.identity.bookie_id is None:
        return list(dict.fromkeys(stamped))
    return list(
        dict.fromkeys([*candidate_ids(config.identity, config.identity.port, SystemHostNames()), *stamped])
    )
