"""The rows of ``bench/peer.py``: their loads, their goals, and what was measured of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench.goals import Goal, Verdict

GENERATOR_SHARE_MAX = 0.25
#: Or the generator had something to do for so little of the time, and the machine's processors had nothing to
#: do for so much of it: then nobody waited for it. The less a bookie uses for an add, the larger is the share
#: of a generator that has 64 sockets to look after.
GENERATOR_BUSY_MAX = 0.5
IDLE_MIN = 0.1


@dataclass(frozen=True)
class Scenario:
    """One row: a load, and the goals for its ratios.

    ``taking_turns`` says that bookie and generator never have anything to do at the same time, so that what
    the generator uses is taken from nobody.
    """

    name: str
    load: dict[str, object]
    goals: tuple[Goal, ...]
    reads: bool = False
    taking_turns: bool = False


@dataclass(frozen=True)
class Round:
    """What one bookie did in one round; ``others`` is the number of processors that other programs had.

    ``generator_share`` is the generator's processor time to the bookie's, ``generator_busy`` that to the
    round's time, and ``idle`` the share of all processors' time in which they had nothing to do.
    """

    rate_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    generator_share: float
    generator_busy: float
    idle: float
    others: float
    failed: int

    def counts(self, scenario: Scenario) -> bool:
        """Whether it says something about the bookie."""
        small = self.generator_share < GENERATOR_SHARE_MAX
        rested = self.generator_busy < GENERATOR_BUSY_MAX and self.idle >= IDLE_MIN
        return (scenario.taking_turns or small or rested) and not self.failed


@dataclass
class Result:
    """All rounds of a scenario, in pairs."""

    scenario: Scenario
    pairs: list[tuple[Round, Round]] = field(default_factory=list)

    def counted(self) -> list[tuple[Round, Round]]:
        """The pairs of which both count."""
        return [pair for pair in self.pairs if all(each.counts(self.scenario) for each in pair)]

    def verdicts(self) -> list[Verdict]:
        """Each goal with the median of its ratios; None without a pair that counts."""
        counted = self.counted()
        return [
            Verdict(
                self.scenario.name,
                goal,
                statistics.median(ratios_of(counted, goal.of)) if counted else None,
                "" if counted else "no pair of rounds counts",
            )
            for goal in self.scenario.goals
        ]


def ratios_of(pairs: list[tuple[Round, Round]], what: str) -> list[float]:
    """Ours to Java's of a field, ascending."""
    return sorted(getattr(ours, what) / max(getattr(java, what), 1e-9) for ours, java in pairs)


def at_least(of: str, limit: float) -> Goal:
    """Ours to Java's is to be so much or more."""
    return Goal(of, limit, at_most=False)


def at_most(of: str, limit: float) -> Goal:
    """Ours to Java's is to be so much or less."""
    return Goal(of, limit, at_most=True)


ADD_GOALS = (at_least("rate_per_s", 1.5), at_most("cpu_us", 0.6))
ADD_1K = Scenario("add 1 KB, v2, 8 x 128", {"payload_bytes": 1024}, ADD_GOALS)
ADDS = (
    ADD_1K,
    Scenario("add 100 B, v2, 8 x 128", {"payload_bytes": 100}, ADD_GOALS),
    Scenario(
        "add 1 KB, v3, 8 x 128",
        {"payload_bytes": 1024, "wire": 3},
        (at_least("rate_per_s", 1.3), ADD_GOALS[1]),
    ),
    Scenario(
        "add 1 KB, v2, 64 x 16, 1,024 ledgers",
        {"payload_bytes": 1024, "connections": 64, "window": 16, "ledgers": 16},
        (at_least("rate_per_s", 1.3),),
    ),
)
#: Of bookies with two ledger directories and two journals.
ADD_TWO = Scenario("add 1 KB, v2, 8 x 128, two journals", {"payload_bytes": 1024}, ())
ONE = {"payload_bytes": 1024, "connections": 1, "window": 1}
ONE_ADD = Scenario("add 1 KB, v2, 1 x 1", ONE, (at_most("p50_ms", 0.15),), taking_turns=True)
ONE_ADD_AT_ONCE = Scenario(
    "the same, journalFlushWhenQueueEmpty", ONE, (at_most("p50_ms", 1.0),), taking_turns=True
)
HALF = Scenario("add 1 KB, v2, half of Java's rate", {"payload_bytes": 1024}, (at_most("p99_ms", 0.7),))
RANDOM = Scenario(
    "read 1 KB, random, 8 x 32", {"window": 32, "random": True}, (at_least("rate_per_s", 20),), reads=True
)
IN_ORDER = Scenario("read 1 KB, in order, 8 x 32", {"window": 32}, (at_least("rate_per_s", 3),), reads=True)
IN_ORDER_V3 = Scenario("read 1 KB, v3, in order, 8 x 32", {"window": 32, "wire": 3}, (), reads=True)
#: In these rows "Java" is our own code of another work tree. The allowance is for the spread of the pairs.
PURE = Scenario(
    "add 1 KB, v2, 8 x 128, pure Python / before",
    {"payload_bytes": 1024},
    (at_least("rate_per_s", 0.95), at_most("cpu_us", 1.05)),
)
COMPACTION = "compaction"
COMPACTION_GOAL = at_least("MB/s", 1.2)
MEMORY_GOALS = (
    ("memory before any load", at_most("bytes", 0.25)),
    ("memory, highest", at_most("bytes", 0.3)),
)


def show(result: Result) -> None:
    """One line of the table."""
    scenario, counted = result.scenario, result.counted()
    # Rounds that do not count are better than none to look at; a goal is not met by them.
    pairs = counted or result.pairs
    cells = [scenario.name]
    for what, form in (("rate_per_s", ",.0f"), ("p50_ms", ".2f"), ("p99_ms", ".1f"), ("cpu_us", ".1f")):
        ours, java = (statistics.median(getattr(pair[side], what) for pair in pairs) for side in (0, 1))
        ratios = ratios_of(pairs, what)
        middle = statistics.median(ratios)
        cells += [f"{ours:{form}} / {java:{form}}", f"{middle:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"]
    verdicts = "; ".join(verdict.text for verdict in result.verdicts())
    share, busy = (
        statistics.median(max(getattr(ours, what), getattr(java, what)) for ours, java in pairs)
        for what in ("generator_share", "generator_busy")
    )
    others = statistics.median(each.others for pair in pairs for each in pair)
    cells += [verdicts, f"{len(counted)}/{len(result.pairs)}", f"{share:.2f}, {busy:.2f}", f"{others:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    failed = sum(each.failed for pair in result.pairs for each in pair)
    if failed:
        print(f"| {failed} answers were errors: their rounds do not count |", flush=True)
