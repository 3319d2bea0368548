"""Goals of a benchmark, and what was measured of each: ratios of our figures to another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """On which side of ``limit`` the ratio of a figure is to be; ``of`` is the figure's name."""

    of: str
    limit: float
    at_most: bool

    @property
    def text(self) -> str:
        """The goal in words."""
        return f"{self.of.split('_')[0]} {'<=' if self.at_most else '>='} {self.limit:g}"


@dataclass(frozen=True)
class Verdict:
    """A goal and the ratio that was measured; None with ``why`` where nothing was."""

    work: str
    goal: Goal
    ratio: float | None
    why: str = ""

    @property
    def met(self) -> bool:
        """Whether the goal is met. What was not measured is not."""
        if self.ratio is None:
            return False
        return self.ratio <= self.goal.limit if self.goal.at_most else self.ratio >= self.goal.limit

    @property
    def word(self) -> str:
        """``met``, ``MISSED`` or why there is no answer."""
        return self.why if self.ratio is None else "met" if self.met else "MISSED"

    @property
    def text(self) -> str:
        """The goal, and whether it is met."""
        return f"{self.goal.text}: {self.word}"


def show_verdicts(verdicts: Sequence[Verdict]) -> bool:
    """Print a line for each goal, and how many are met; whether all are."""
    print("\n| work | goal, ours to the other's | measured | |\n|---|---|---|---|")
    for verdict in verdicts:
        measured = "-" if verdict.ratio is None else f"{verdict.ratio:.2f}"
        print(f"| {verdict.work} | {verdict.goal.text} | {measured} | {verdict.word} |")
    met = sum(verdict.met for verdict in verdicts)
    print(f"\n{met} of {len(verdicts)} goals are met")
    return met == len(verdicts)
