"""Slows down clients that are refused again and again, so that a token cannot be guessed quickly."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.clock import Clock

#: Refusals of one address that are answered at once.
FREE_ATTEMPTS = 10
FIRST_DELAY_S = 0.1
DELAY_MAX_S = 2.0
#: An address without a refusal for this long starts over.
MEMORY_S = 60.0
#: Addresses that are remembered; the one refused longest ago is forgotten for a new one.
ADDRESSES_MAX = 1024
#: Answers that wait at a time; further ones are given at once, so that waiting costs no memory without bound.
WAITING_MAX = 50


class FailedAttempts:
    """Counts refusals by address; used by one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: For each address: refusals, and when the last one was (seconds of the clock).
        self._refusals: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def delay_s(self, address: str) -> float:
        """Count a refusal of ``address`` and return how long its answer is to wait, in seconds."""
        now_s = self._clock.monotonic()
        count, last_s = self._refusals.pop(address, (0, now_s))
        count = 1 if now_s - last_s > MEMORY_S else count + 1
        self._refusals[address] = (count, now_s)
        if len(self._refusals) > ADDRESSES_MAX:
            self._refusals.popitem(last=False)
        if count <= FREE_ATTEMPTS:
            return 0.0
        # The exponent is bounded: two to the count would not fit a float for a patient guesser.
        return min(DELAY_MAX_S, FIRST_DELAY_S * 2.0 ** min(count - FREE_ATTEMPTS - 1, 10))

    def forget(self, address: str) -> None:
        """Forget the refusals of an address that has sent the token."""
        self._refusals.pop(address, None)
