"""Find which bookies to watch, and where each is asked: at the HTTP endpoints that it registered."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.admin import http_json
from bkctl.codec.bookie_service_info import BookieServiceInfo, bookie_address
from bkctl.errors import CorruptionError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.http_address import http_url, http_urls, is_loopback, registered_infos

#: Bookies watched at once; more are named in ``ClusterSample.discovery_error``.
BOOKIES_MAX = 512
METRICS = "/metrics"
#: The error that is shown of a bookie that is down, and is therefore not asked.
DOWN = "not registered any more; it has a cookie, so it is down"


@dataclass(frozen=True, slots=True)
class Target:
    """A bookie to ask: its id as far as it is known, and base URLs, the first of which that answers counts.

    Without a URL ``reason`` says why. ``here_only``: it has registered a loopback address for HTTP and
    another one for clients, so on any machine but its own something else answers there. ``down``: it has a
    cookie and is not registered.
    """

    bookie: str | None
    urls: tuple[str, ...]
    reason: str | None = None
    here_only: bool = False
    down: bool = False

    @property
    def name(self) -> str:
        """The name of the target: its id, else host and port."""
        return self.bookie or self.urls[0].partition("://")[2]


def target_of_url(url: str) -> Target:
    """Make the target that ``--url`` names: the HTTP admin of a bookie, or a Java bookie's Prometheus port.

    Raises UsageError.
    """
    return Target(None, (http_json.base(url).removesuffix(METRICS),))


def cluster_targets(store: MetadataStore, metrics_port: int | None) -> list[Target]:
    """List the bookies of a cluster, ascending by id: the registered ones, and those that are down.

    Raises what the store raises.
    """
    registered = registered_targets(store, metrics_port)
    # Those that had a registration when it was looked at, so that nobody is up and down at once.
    known = {target.bookie for target in registered}
    missing = [bookie for bookie in store.cookies.cookie_bookies() if bookie not in known]
    down = [Target(bookie, (), DOWN, down=True) for bookie in missing]
    return sorted([*registered, *down], key=lambda target: target.name)


def registered_targets(store: MetadataStore, metrics_port: int | None) -> list[Target]:
    """List the registered bookies, ascending by id, and the addresses to ask each one for its metrics.

    First what it registered as its HTTP server; then ``metrics_port`` of the host that clients connect to,
    for Java bookies whose metrics have a port of their own or that registered none. A registration that does
    not decode is that bookie's reason and nobody else's. Raises what the store raises.
    """
    targets = []
    for bookie, info in registered_infos(store):
        if isinstance(info, CorruptionError):
            targets.append(Target(bookie, (), str(info)))
        else:
            targets.append(target_of_registration(bookie, info, metrics_port))
    return targets


def target_of_registration(bookie: str, info: BookieServiceInfo, metrics_port: int | None) -> Target:
    """Find where a bookie with this registration is asked; see :func:`registered_targets`."""
    address = bookie_address(bookie, info)
    urls = http_urls(bookie, info)
    if metrics_port is not None and address is not None:
        urls.append(http_url(address[0], metrics_port))
    if not urls:
        return Target(bookie, (), "it has registered no HTTP endpoint: name its port with --metrics-port")
    loopback = any(is_loopback(each.host) for each in info.endpoints if each.protocol == "http")
    elsewhere = address is None or not is_loopback(address[0])
    return Target(bookie, tuple(dict.fromkeys(urls)), here_only=loopback and elsewhere)
