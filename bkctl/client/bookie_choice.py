"""Which bookies a new ledger gets, or take the place of failed ones: registered ones, by a policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice
from random import Random

from bkctl.client.adherence import Adherence
from bkctl.client.machine import ChooseBookies
from bkctl.client.placement import Placement, RandomPlacement
from bkctl.client.placement_locations import Locations
from bkctl.client.placement_policies import SpreadPlacement, Weights
from bkctl.metadata.api import RegistrationManager

_log = logging.getLogger(__name__)


#: Sets of replicas that are tried when an ensemble is to keep to a policy.
_MENDS_MAX = 256


class RegisteredChoice:
    """Chooses among the writable bookies by ``placement``; the default is any of them, at random."""

    def __init__(
        self,
        registration: RegistrationManager,
        placement: Placement | None = None,
        random: Random | None = None,
    ) -> None:
        self._registration = registration
        self._placement = placement or RandomPlacement()
        self._random = random or Random()  # noqa: S311 - spreads load, keeps no secret

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """Choose bookies as :class:`bkctl.client.driver.BookieChoice` says."""
        return self._placement.choose(request, self._registration.bookies().writable, self._random)


class PolicyChoice:
    """Chooses among the writable bookies by a policy over what is known of where they stand now.

    ``policy`` makes the placement of locations, ``weights`` may ask bookies for their room. Choices that do
    not keep to the policy are logged and counted.
    """

    def __init__(
        self,
        registration: RegistrationManager,
        locations: Locations,
        policy: Callable[[Mapping[str, str]], SpreadPlacement],
        random: Random | None = None,
        weights: Callable[[], Weights] = Weights,
    ) -> None:
        self._registration = registration
        self._locations = locations
        self._policy = policy
        self._weights = weights
        self._random = random or Random()  # noqa: S311 - spreads load, keeps no secret
        #: Choices that break the policy, and that keep to the weaker form of it.
        self.failing = 0
        self.softly = 0

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """Choose bookies as :class:`bkctl.client.driver.BookieChoice` says."""
        available = self._registration.bookies().writable
        placement = self._policy(self._locations(sorted({*available, *request.ensemble})))
        placement = replace(placement, weights=self._weights())
        chosen = placement.choose(request, available, self._random)
        if chosen and request.write_quorum:
            self._count(request, placement, chosen)
        return chosen

    def adheres(self, ensemble: Sequence[str], write_quorum: int) -> Adherence:
        """Return how well an ensemble keeps to the policy; see :data:`bkctl.client.adherence.Adheres`."""
        return self._policy(self._locations(sorted(set(ensemble)))).adheres(ensemble, write_quorum)

    def mends(
        self, ensemble: Sequence[str], write_quorum: int, unwanted: Collection[str] = ()
    ) -> Mapping[int, str] | None:
        """Return the fewest replacements of bookies with which an ensemble keeps to the policy.

        The keys are indices, the values new bookies. Return an empty mapping when the ensemble keeps to the
        policy already, if only to the weaker form; None when the search's tries found no replacement.
        """
        available = set(self._registration.bookies().writable).difference(unwanted)
        placement = self._policy(self._locations(sorted({*available, *ensemble})))
        if placement.adheres(ensemble, write_quorum) is not Adherence.FAIL:
            return {}
        placement = replace(placement, weights=self._weights())
        for replaced in islice(_subsets(len(ensemble)), _MENDS_MAX):
            request = ChooseBookies(
                0, len(replaced), frozenset(ensemble), tuple(ensemble), replaced, write_quorum
            )
            chosen = placement.choose(request, available, self._random)
            wanted = list(ensemble)
            for index, bookie in zip(replaced, chosen, strict=False):
                wanted[index] = bookie
            if placement.adheres(wanted, write_quorum) is not Adherence.FAIL:
                return dict(zip(replaced, chosen, strict=False))
        return None

    def _count(self, request: ChooseBookies, placement: SpreadPlacement, chosen: tuple[str, ...]) -> None:
        ensemble = list(request.ensemble) or list(chosen)
        for index, bookie in zip(request.replace, chosen, strict=False):
            ensemble[index] = bookie
        found = placement.adheres(ensemble, request.write_quorum)
        self.softly += found is Adherence.SOFT
        if found is Adherence.FAIL:
            self.failing += 1
            places = ", ".join(f"{bookie} at {placement.location(bookie)}" for bookie in ensemble)
            _log.warning("an ensemble does not keep to the placement policy: %s", places)


class ChoiceAmong:
    """Chooses as another choice does, but only among ``allowed`` bookies."""

    def __init__(
        self,
        choice: Callable[[ChooseBookies], Sequence[str]],
        registration: RegistrationManager,
        allowed: Collection[str],
    ) -> None:
        self._choice = choice
        self._registration = registration
        self._allowed = frozenset(allowed)

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """Choose bookies as :class:`bkctl.client.driver.BookieChoice` says."""
        others = frozenset(self._registration.bookies().writable) - self._allowed
        chosen = tuple(self._choice(replace(request, exclude=request.exclude | others)))
        # One that has come in between is none of them.
        return chosen if self._allowed.issuperset(chosen) else ()


def _subsets(size: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of indices of an ensemble, the small ones first."""
    return chain.from_iterable(combinations(range(size), count) for count in range(1, size + 1))
