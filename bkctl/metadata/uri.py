"""``metadataServiceUri``: parsed, put together from older keys, opened.

::

    zk+hierarchical://host1:2181;host2:2181/ledgers      ZooKeeper; the path is the ledgers root, no chroot
    metadata-store:zk:host1:2181;host2:2181/chroot       Pulsar's form; the root is <chroot>/ledgers
    embedded:///absolute/path/metadata.db                a SQLite file of this machine
    memory://name                                        this process only, for tests

The second piece of the scheme is the kind of ledger manager: ``null`` (or none: what LAYOUT says), ``flat``,
``hierarchical`` or ``longhierarchical``. The first piece names a row of ``DRIVERS``; a driver is imported
when a URI asks for it.

Source: ``org.apache.bookkeeper.conf.AbstractConfiguration.getMetadataServiceUri``,
``meta.zk.ZKMetadataDriverBase``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bkctl.clock import Clock, SystemClock
from bkctl.codec.ledger_path import LedgerLayout
from bkctl.errors import UsageError
from bkctl.extras import need
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.settings import MetadataSettings

if TYPE_CHECKING:
    from threading import Event

    from bkctl.metadata.tree import NodeTree

_ZOOKEEPER = "zk"

#: The root below an embedded or memory store, and below Pulsar's chroot.
DEFAULT_ROOT = "/ledgers"

_KINDS: dict[str, LedgerLayout | None] = {
    "null": None,
    "flat": LedgerLayout.FLAT,
    "hierarchical": LedgerLayout.HIERARCHICAL,
    "longhierarchical": LedgerLayout.LONG,
}
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<authority>[^/]*)(?P<path>/.*)?\Z", re.DOTALL)
_PULSAR = "metadata-store:"
_OTHER_PULSAR_STORES = ("oxia:", "etcd:", "rocksdb:", "memory:")
_PORT = re.compile(r"[0-9]{1,5}\Z")


@dataclass(frozen=True, slots=True)
class MetadataUri:
    """A parsed URI.

    ``servers`` are ``host:port`` as written (ZooKeeper), ``root`` the path of the ledgers root, ``layout``
    None when LAYOUT decides, ``location`` the file (embedded) or the name (memory).
    """

    text: str
    driver: str
    layout: LedgerLayout | None
    servers: tuple[str, ...]
    root: str
    location: str = ""


def parse_metadata_uri(text: str) -> MetadataUri:
    """Parse a URI into its parts. Raises UsageError saying what is wrong with it."""
    if text[: len(_PULSAR)].lower() == _PULSAR:
        return _parse_pulsar(text)
    found = _URI.match(text.strip())
    if found is None:
        raise UsageError(
            f"metadata URI {text[:200]!r}: expected zk://host:port/ledgers, embedded:///absolute/path or the "
            "like"
        )
    name, plus, kind = found["scheme"].lower().partition("+")
    driver = DRIVERS.get(name)
    if driver is None:
        raise UsageError(
            f"metadata URI {text[:200]!r}: unknown backend {name!r} (known: metadata-store:zk:, "
            f"{', '.join(DRIVERS)})"
        )
    layout = _layout(text, kind if plus else "null")
    place = driver.place(text, found["authority"], found["path"] or "")
    return MetadataUri(text, name, layout, place.servers, place.root, place.location)


def open_metadata_store(
    uri: str | MetadataUri,
    settings: MetadataSettings | None = None,
    clock: Clock | None = None,
    given_up: Event | None = None,
) -> MetadataStore:
    """Open the store that a URI names; nothing is made or changed by that.

    Raises UsageError for a URI that has no meaning, MissingPackageError for one of ZooKeeper's without kazoo,
    ConnectionFailedError when no server answers within ``settings.connect_timeout_ms``, or before another
    thread sets ``given_up``. An embedded file that is not there is an empty store (NoClusterError).
    """
    parsed = uri if isinstance(uri, MetadataUri) else parse_metadata_uri(uri)
    settings = settings or MetadataSettings()
    clock = clock or SystemClock()
    from bkctl.metadata.store import TreeMetadataStore

    tree = DRIVERS[parsed.driver].open(parsed, settings, clock, given_up)
    return TreeMetadataStore(parsed.text, tree, parsed.root, parsed.layout, clock)


class Place(NamedTuple):
    """The place that a URI names; see :class:`MetadataUri`."""

    servers: tuple[str, ...]
    root: str
    location: str = ""


def _on_zookeeper(text: str, authority: str, path: str) -> Place:
    return Place(_servers(text, authority), _root(text, path))


def _open_zookeeper(
    uri: MetadataUri, settings: MetadataSettings, clock: Clock, given_up: Event | None
) -> NodeTree:
    need("metadata in ZooKeeper", "kazoo")
    from bkctl.metadata.zookeeper.tree import ZooKeeperTree

    return ZooKeeperTree(uri.servers, settings, clock, given_up)


def _in_a_file(text: str, authority: str, path: str) -> Place:
    if authority or len(path) < 2 or path.endswith("/") or "\0" in path:
        raise UsageError(
            f"metadata URI {text[:200]!r}: expected embedded:///absolute/path/of/a/file (three slashes)"
        )
    return Place((), DEFAULT_ROOT, path)


def _open_file(uri: MetadataUri, settings: MetadataSettings, clock: Clock, _: Event | None) -> NodeTree:
    from bkctl.metadata.embedded.tree import SqliteTree

    return SqliteTree(uri.location, settings, clock)


def _in_memory(text: str, authority: str, path: str) -> Place:
    if path.strip("/"):
        raise UsageError(f"metadata URI {text[:200]!r}: expected memory://name")
    return Place((), DEFAULT_ROOT, authority)


def _open_memory(uri: MetadataUri, settings: MetadataSettings, clock: Clock, _: Event | None) -> NodeTree:
    from bkctl.metadata.memory import MemoryTree, shared_cluster

    timeout_ms = settings.session_timeout_ms
    return MemoryTree(shared_cluster(uri.location), clock, session_timeout_ms=timeout_ms)


@dataclass(frozen=True, slots=True)
class Driver:
    """One kind of metadata store.

    ``place`` finds it by the text, the authority and the path of a URI, or raises UsageError; ``open`` makes
    its tree. ``of_this_machine``: the first bookie that starts over it makes its cluster. ``has_file``: its
    location is a file, in a directory that a bookie makes.
    """

    place: Callable[[str, str, str], Place]
    open: Callable[[MetadataUri, MetadataSettings, Clock, Event | None], NodeTree]
    of_this_machine: bool = False
    has_file: bool = False


DRIVERS: Mapping[str, Driver] = {
    _ZOOKEEPER: Driver(_on_zookeeper, _open_zookeeper),
    "embedded": Driver(_in_a_file, _open_file, of_this_machine=True, has_file=True),
    "memory": Driver(_in_memory, _open_memory, of_this_machine=True),
}


def _parse_pulsar(text: str) -> MetadataUri:
    store = text[len(_PULSAR) :].strip()
    if store.lower().startswith(_OTHER_PULSAR_STORES):
        raise UsageError(f"metadata URI {text[:200]!r}: of Pulsar's stores only zk: is supported")
    store = store[len("zk:") :] if store.lower().startswith("zk:") else store
    authority, slash, chroot = store.removeprefix("//").partition("/")
    path = f"/{chroot.strip('/')}" if slash and chroot.strip("/") else ""
    root = _root(text, path + DEFAULT_ROOT)
    return MetadataUri(text, _ZOOKEEPER, None, _servers(text, authority), root)


def _layout(text: str, kind: str) -> LedgerLayout | None:
    if kind not in _KINDS:
        raise UsageError(
            f"metadata URI {text[:200]!r}: unknown ledger manager {kind!r} (known: {', '.join(_KINDS)})"
        )
    return _KINDS[kind]


def _servers(text: str, authority: str) -> tuple[str, ...]:
    servers = tuple(server.strip() for server in re.split("[,;]", authority) if server.strip())
    if not servers:
        raise UsageError(f"metadata URI {text[:200]!r}: no server")
    for server in servers:
        host, colon, port = server.rpartition(":")
        if colon and not server.endswith("]") and not (host and _PORT.match(port)):
            raise UsageError(f"metadata URI {text[:200]!r}: {server!r} is not host:port")
    return servers


def _root(text: str, path: str) -> str:
    if not path:
        raise UsageError(
            f"metadata URI {text[:200]!r}: no ledgers root path, as in zk://host:2181/ledgers (in a conf "
            "file separate servers with ';', BookKeeper cuts a value at its first ',')"
        )
    names = path.split("/")[1:]
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise UsageError(
            f"metadata URI {text[:200]!r}: {path!r} is not a node's path (no slash at the end, no empty name)"
        )
    return path
