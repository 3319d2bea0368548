"""Which bookies a new ledger gets, or take the place of failed ones: registered ones, by a policy.

Racks come from a table, or from a script as in Hadoop: called with addresses, it prints a location for each.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from random import Random

from bkctl.client.machine import ChooseBookies
from bkctl.client.placement import (
    Placement,
    RackAwarePlacement,
    RandomPlacement,
    locations_of_script_output,
)
from bkctl.errors import ConnectionFailedError
from bkctl.metadata.api import RegistrationManager

#: How long a topology script may take.
SCRIPT_TIMEOUT_S = 10.0

#: Locations of bookies, asked for whenever some are chosen.
Racks = Callable[[Sequence[str]], Mapping[str, str]]


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
        """See :class:`bkctl.client.driver.BookieChoice`."""
        return self._placement.choose(request, self._registration.bookies().writable, self._random)


class RackAwareChoice:
    """Chooses among the writable bookies so that each write set spans racks."""

    def __init__(
        self,
        registration: RegistrationManager,
        racks: Racks,
        *,
        racks_min: int = 2,
        enforce: bool = False,
        random: Random | None = None,
    ) -> None:
        self._registration = registration
        self._racks = racks
        self._racks_min = racks_min
        self._enforce = enforce
        self._random = random or Random()  # noqa: S311 - spreads load, keeps no secret

    def choose(self, request: ChooseBookies) -> tuple[str, ...]:
        """See :class:`bkctl.client.driver.BookieChoice`."""
        available = self._registration.bookies().writable
        racks = self._racks(sorted({*available, *request.ensemble}))
        placement = RackAwarePlacement(racks, self._racks_min, self._enforce)
        return placement.choose(request, available, self._random)


def script_racks(script: str) -> Racks:
    """The locations that a script prints for the bookies' hosts, called as ``script HOST...``.

    Raises ConnectionFailedError when it fails or takes more than :data:`SCRIPT_TIMEOUT_S`.
    """

    def ask(bookies: Sequence[str]) -> Mapping[str, str]:
        hosts = [bookie.rpartition(":")[0] or bookie for bookie in bookies]
        try:
            done = subprocess.run(  # noqa: S603 - the operator names the script
                [script, *hosts], capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S, check=True
            )
        except subprocess.TimeoutExpired:
            raise ConnectionFailedError(f"{script}: no answer within {SCRIPT_TIMEOUT_S:g} s") from None
        except subprocess.CalledProcessError as error:
            raise ConnectionFailedError(f"{script}: exit code {error.returncode}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConnectionFailedError(f"{script}: {error}") from None
        return locations_of_script_output(bookies, done.stdout)

    return ask
