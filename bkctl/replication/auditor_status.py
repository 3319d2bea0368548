"""The counts of an auditor's work, under the names that Java's metrics have."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


class Counter(enum.Enum):
    """Counters; the value is Java's name, without the prefix of the process."""

    ELECTION_ATTEMPTS = "election_attempts"
    LEDGERS_CHECKED = "NUM_LEDGERS_CHECKED"
    AUDITS_DELAYED = "NUM_BOOKIE_AUDITS_DELAYED"
    DELAYED_AUDITS_CANCELLED = "NUM_DELAYED_BOOKIE_AUDITS_CANCELLED"
    CHECKS_SKIPPED = "NUM_SKIPPING_CHECK_TASK_TIMES"


class Gauge(enum.Enum):
    """A figure that the last check found; the value is Java's name."""

    NOT_ADHERING = "NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY"
    SOFTLY_ADHERING = "NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY"
    GRACE_PERIOD_ELAPSED = "NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"
    NO_REPLICA = "NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY"
    BELOW_ACK_QUORUM = "NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY"
    BELOW_WRITE_QUORUM = "NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY"


class Measure(enum.Enum):
    """A time or number measured once a round or once a ledger; the value is Java's name. Times are in ms."""

    UNDER_REPLICATED_LEDGERS = "NUM_UNDER_REPLICATED_LEDGERS"
    UNDER_REPLICATED_BYTES = "UNDER_REPLICATED_LEDGERS_TOTAL_SIZE"
    PUBLISH_TIME = "URL_PUBLISH_TIME_FOR_LOST_BOOKIE"
    METADATA_TIME = "BOOKIE_TO_LEDGERS_MAP_CREATION_TIME"
    BOOKIE_CHECK_TIME = "AUDIT_BOOKIES_TIME"
    LEDGER_CHECK_TIME = "CHECK_ALL_LEDGERS_TIME"
    PLACEMENT_CHECK_TIME = "PLACEMENT_POLICY_CHECK_TIME"
    REPLICAS_CHECK_TIME = "REPLICAS_CHECK_TIME"
    FRAGMENTS_PER_LEDGER = "NUM_FRAGMENTS_PER_LEDGER"
    BOOKIES_PER_LEDGER = "NUM_BOOKIES_PER_LEDGER"


@dataclass(frozen=True, slots=True)
class Summary:
    """The number and the sum of the values measured, separately for successes and failures."""

    count: int = 0
    total: float = 0.0
    failed_count: int = 0
    failed_total: float = 0.0

    def with_one(self, value: float, *, failed: bool = False) -> Summary:
        """Return the summary with one more measurement."""
        if failed:
            return Summary(self.count, self.total, self.failed_count + 1, self.failed_total + value)
        return Summary(self.count + 1, self.total + value, self.failed_count, self.failed_total)


@dataclass(frozen=True, slots=True)
class AuditorStatus:
    """One moment's picture of an auditor.

    ``is_elected`` is what it believes itself. ``gone`` are the bookies whose ledgers are not marked yet, and
    ``audit_in_s`` is how long it still waits for them, None when it does not. ``running`` are the checks
    under way. ``marked`` counts the marks that it made or extended, ``undecodable`` the ledgers whose
    metadata it could not read. ``last_error`` is the last reason for which a check was broken off.
    """

    bookie: str
    is_elected: bool = False
    is_enabled: bool = True
    gone: frozenset[str] = frozenset()
    audit_in_s: float | None = None
    running: tuple[str, ...] = ()
    marked: int = 0
    undecodable: int = 0
    last_error: str = ""
    counters: Mapping[Counter, int] = field(default_factory=lambda: MappingProxyType({}))
    gauges: Mapping[Gauge, int] = field(default_factory=lambda: MappingProxyType({}))
    summaries: Mapping[Measure, Summary] = field(default_factory=lambda: MappingProxyType({}))


class AuditorCounts:
    """The numbers while they are counted; used from the event loop alone."""

    def __init__(self) -> None:
        self.counters = dict.fromkeys(Counter, 0)
        self.gauges = dict.fromkeys(Gauge, 0)
        self.summaries = dict.fromkeys(Measure, Summary())
        self.marked = 0
        self.undecodable = 0
        self.last_error = ""

    def add(self, counter: Counter, number: int = 1) -> None:
        """Add a number to a counter."""
        self.counters[counter] += number

    def measure(self, measure: Measure, value: float, *, failed: bool = False) -> None:
        """Take in one measurement."""
        self.summaries[measure] = self.summaries[measure].with_one(value, failed=failed)
