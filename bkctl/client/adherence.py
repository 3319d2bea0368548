"""How well an ensemble keeps to a placement policy."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence


class Adherence(enum.Enum):
    """The value is the JSON form.

    Source: ``org.apache.bookkeeper.client.EnsemblePlacementPolicy.PlacementPolicyAdherence``.
    """

    STRICT = "strict"
    SOFT = "soft"
    FAIL = "fail"


#: Says of an ensemble, with its write quorum, how well it keeps to a policy.
Adheres = Callable[[Sequence[str], int], Adherence]
