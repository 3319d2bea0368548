"""The placement of a client from BookKeeper's keys, with Java's names of classes.

Source: ``org.apache.bookkeeper.conf.ClientConfiguration``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bkctl.client.bookie_choice import PolicyChoice
from bkctl.client.bookies import ask_disk_space
from bkctl.client.placement_locations import (
    Locations,
    PulsarLocations,
    RememberedLocations,
    script_locations,
)
from bkctl.client.placement_policies import (
    SpreadPlacement,
    Weights,
    rack_aware,
    region_aware,
    zone_aware,
)
from bkctl.clock import SystemClock
from bkctl.config.server_keys.client import PlacementSettings
from bkctl.config.values import GivenValues
from bkctl.errors import UsageError
from bkctl.metadata.api import MetadataStore
from bkctl.net.settings import NetSettings

_POLICY, _RESOLVER = "ensemblePlacementPolicy", "reppDnsResolverClass"
_RACK, _RANDOM = "RackawareEnsemblePlacementPolicy", "DefaultEnsemblePlacementPolicy"
_REGION, _ZONE = "RegionAwareEnsemblePlacementPolicy", "ZoneawareEnsemblePlacementPolicy"
_SCRIPT = "ScriptBasedMapping"
#: Pulsar's resolver, by its name of today and of before.
_PULSAR = ("BookieRackAffinityMapping", "ZkBookieRackAffinityMapping")

_Policy = Callable[[Mapping[str, str]], SpreadPlacement]


def policy_choice(
    values: GivenValues, store: MetadataStore, net: NetSettings | None = None
) -> PolicyChoice | None:
    """Return how bookies are chosen; None for a random choice, also when there is no source of locations.

    Raises UsageError for a class that is not known.
    """
    settings = values.fill(PlacementSettings)
    name = _class(values, _POLICY, settings.policy, (_RACK, _REGION, _ZONE, _RANDOM))
    resolver = _class(values, _RESOLVER, settings.resolver, (_SCRIPT, *_PULSAR))
    locations = _locations(settings.script, resolver, store)
    if name == _RANDOM or (name is None and locations is None):
        return None
    policy = _policy(settings, name or _RACK)
    weights = _Room(settings, store, net).weights
    return PolicyChoice(store.registration, locations or (lambda bookies: {}), policy, weights=weights)


def _policy(settings: PlacementSettings, name: str) -> _Policy:
    if name == _RACK:
        return lambda at: rack_aware(at, settings.racks_min, enforce=settings.enforce_racks)
    if name == _REGION:
        regions = frozenset(filter(None, (settings.regions or "").split(";"))) or None
        least, enforce = settings.regions_min, settings.enforce_regions
        return lambda at: region_aware(at, least, enforce=enforce, regions=regions)
    desired, zones = settings.zones_desired, settings.zones_min
    return lambda at: zone_aware(at, desired, zones, enforce=settings.enforce_zones)


def _locations(script: str | None, resolver: str | None, store: MetadataStore) -> Locations | None:
    if resolver in _PULSAR:
        return PulsarLocations(store.pulsar_rack_mapping)
    return None if script is None else RememberedLocations(script_locations(script))


def _class(values: GivenValues, key: str, text: str | None, known: Sequence[str]) -> str | None:
    """Return the last part of a class name. Raises UsageError for one that is not known."""
    if text is None:
        return None
    name = text.rpartition(".")[2]
    if name not in known:
        raise UsageError(f"{values.where(key)}: {key}: known are {', '.join(known)}, found {text[:200]!r}")
    return name


class _Room:
    """The free space of bookies, asked for now and then (``getBookieInfoIntervalSeconds``)."""

    def __init__(self, settings: PlacementSettings, store: MetadataStore, net: NetSettings | None) -> None:
        self._settings = settings
        self._store = store
        self._net = net
        self._clock = SystemClock()
        self._due_s = float("-inf")
        self._free: dict[str, int] = {}

    def weights(self) -> Weights:
        """Return the weights. Called in a thread: it asks all bookies that are up when its time has come."""
        if self._settings.by_space and self._clock.monotonic() >= self._due_s:
            self._due_s = self._clock.monotonic() + self._settings.space_interval_s
            up = self._store.registration.bookies().writable
            found = ask_disk_space(self._store, up, self._settings.space_timeout_s, self._net)
            self._free = {one.bookie: one.free_bytes for one in found if one.free_bytes is not None}
        return Weights(self._free, self._settings.multiple_max)
