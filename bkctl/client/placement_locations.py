"""Find the places of bookies: from a topology script, or from Pulsar's rack mapping in the metadata store.

A script is called as in Hadoop, with addresses, and prints a location for each. It is asked about a bookie
once; where it fails the bookies are in the default rack, as in Java, and it is asked again a minute later.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from bkctl.client.placement import locations_of_pulsar, locations_of_script_output
from bkctl.clock import Clock, SystemClock
from bkctl.errors import BkctlError, ConnectionFailedError

_log = logging.getLogger(__name__)

#: How long a topology script may take.
SCRIPT_TIMEOUT_S = 10.0

#: Bookies in one call of a script (``networkTopologyScriptNumberArgs``), and bookies that are remembered.
ARGUMENTS_MAX = 100
_REMEMBERED_MAX = 100_000

#: Seconds after a failure, and between two reads of a mapping that may change.
_REFRESH_S = 60.0

#: Locations of bookies, asked for whenever some are chosen; those that are not named stand nowhere known.
Locations = Callable[[Sequence[str]], Mapping[str, str]]


def script_locations(script: str, timeout_s: float = SCRIPT_TIMEOUT_S) -> Locations:
    """Return what asks a script about bookies' hosts, called as ``script HOST...``.

    It raises ConnectionFailedError when the script fails or takes too long.
    """

    def ask(bookies: Sequence[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for at in range(0, len(bookies), ARGUMENTS_MAX):
            some = bookies[at : at + ARGUMENTS_MAX]
            found |= locations_of_script_output(some, _run(script, some, timeout_s), warn=_log.warning)
        return found

    return ask


def _run(script: str, bookies: Sequence[str], timeout_s: float) -> str:
    hosts = [bookie.rpartition(":")[0] or bookie for bookie in bookies]
    try:
        done = subprocess.run(  # noqa: S603 - the operator names the script
            [script, *hosts], capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except subprocess.TimeoutExpired:
        raise ConnectionFailedError(f"{script}: no answer within {timeout_s:g} s") from None
    except subprocess.CalledProcessError as error:
        raise ConnectionFailedError(f"{script}: exit code {error.returncode}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionFailedError(f"{script}: {error}") from None
    return done.stdout


class RememberedLocations:
    """Asks about each bookie once. May be called from several threads."""

    def __init__(self, ask: Locations, clock: Clock | None = None) -> None:
        self._ask = ask
        self._clock = clock or SystemClock()
        self._known: dict[str, str] = {}
        self._again_s = float("-inf")
        self._lock = threading.Lock()

    def __call__(self, bookies: Sequence[str]) -> Mapping[str, str]:
        """Return what is known of the bookies; a source that fails is logged."""
        with self._lock:
            new = [bookie for bookie in bookies if bookie not in self._known]
            if new and self._clock.monotonic() >= self._again_s:
                self._learn(new)
            return {bookie: self._known[bookie] for bookie in bookies if bookie in self._known}

    def _learn(self, bookies: list[str]) -> None:
        try:
            found = self._ask(bookies)
        except BkctlError as error:
            _log.warning("where bookies stand is not known: %s", error)
            self._again_s = self._clock.monotonic() + _REFRESH_S
            return
        if len(self._known) + len(found) > _REMEMBERED_MAX:
            self._known.clear()
        self._known.update(found)
        if len(found) < len(bookies):
            self._again_s = self._clock.monotonic() + _REFRESH_S


class PulsarLocations:
    """The rack mapping that ``read`` gives (None: there is none), read again once a minute.

    A file that cannot be read leaves the mapping as it was.
    """

    def __init__(self, read: Callable[[], bytes | None], clock: Clock | None = None) -> None:
        self._read = read
        self._clock = clock or SystemClock()
        self._known: Mapping[str, str] = {}
        self._due_s = float("-inf")
        self._lock = threading.Lock()

    def __call__(self, bookies: Sequence[str]) -> Mapping[str, str]:
        """Return what the mapping says of the bookies."""
        with self._lock:
            if self._clock.monotonic() >= self._due_s:
                self._due_s = self._clock.monotonic() + _REFRESH_S
                try:
                    self._known = locations_of_pulsar(self._read() or b"")
                except BkctlError as error:
                    _log.warning("where bookies stand is not known: %s", error)
            return {bookie: self._known[bookie] for bookie in bookies if bookie in self._known}
