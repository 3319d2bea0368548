"""Running a plan: one command after the other, each noted durably, so that the next run goes on behind it.

The log stands beside the plan and has a line of JSON for each beginning and each end. A step without an end
in it is run again: every command of a plan goes on where it was, or finds nothing left to do. It does not say
again what was lost before it was cut off: the record of its repair, which was not there when the step began,
shows that it had come so far. A step whose record of a repair is gone is run again, too: ``repair undo`` has
taken it back, and the damage is there again.

A step that ends with 1 or 3 has done what it can, and its report says what is lost, or not proved: the steps
behind it are run. That is safe, for a repair keeps what it changes, no step of a plan deletes what is kept,
and what a step could not prove stays where it was, or is in the copy as it was. A command that says by 3 that
it has left work undone is run again by the next run. Every other code ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import dirname
from typing import Any

from bkctl.admin.repairs.kept_files import refuse_link
from bkctl.admin.repairs.repair_plan import Needs, Plan, Step, verb_of
from bkctl.clock import Clock
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.vfs.base import WritableFileSystem

#: Runs a command line and returns its exit code.
RunCommand = Callable[[Sequence[str]], int]

UNCHECKED = _PARTLY = 3
_LOST = 1
_REFUSED, _NO_ANSWER, _GONE = 4, 5, 6
#: Exit codes after which a step has done what it can, and the next one follows: 1 says that it found, or
#: lost, something, 3 that not all of it could be proved.
_GOES_ON = (0, 1, UNCHECKED)
#: Copies what earlier steps have lost, and has not copied what they lose when they are run again.
_COPIES = ("ledger", "repair")
#: Verbs that say by 3 that they have left something undone, which they do when they are run again.
_LEAVES_WORK = (("ledger", "repair"), ("gc", "run"), ("bookie", "compact"))
_LOG_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The end of a step; ``was_done`` in an earlier run. ``advice`` is what to do before the next run."""

    step: Step
    exit_code: int
    was_done: bool = False
    advice: str = ""

    @property
    def is_done(self) -> bool:
        """Whether the next run leaves the step out."""
        return _is_done(self.step.verb, self.exit_code)

    @property
    def goes_on(self) -> bool:
        """Whether the next step follows."""
        return self.exit_code in _GOES_ON


@dataclass(frozen=True, slots=True)
class DoneStep:
    """An end in the log; ``repairs`` are the numbers of the records that the step has left in directories."""

    command: tuple[str, ...]
    exit_code: int
    repairs: frozenset[str]


class PlanLog:
    """The log of a plan's runs, a file that only grows."""

    def __init__(self, fs: WritableFileSystem, path: str, clock: Clock) -> None:
        self.path = path
        self._fs = fs
        self._clock = clock

    def done(self) -> dict[int, DoneStep]:
        """Return the last end of each step that is done, by its number.

        Raises RefusedError for a link in the log's place, StorageError.
        """
        found: dict[int, DoneStep] = {}
        for line in self._lines():
            command = tuple(map(str, line["command"]))
            if line.get("event") == "ended" and _is_done(verb_of(command), line.get("exit_code")):
                repairs = line.get("repairs")
                found[line["step"]] = DoneStep(
                    command,
                    int(line["exit_code"]),
                    frozenset(map(str, repairs) if isinstance(repairs, list) else ()),
                )
        return found

    def begun(self) -> set[int]:
        """Return the numbers of the steps that any run has begun. Raises as :meth:`done`."""
        return {line["step"] for line in self._lines()}

    def cut_off(self) -> dict[int, frozenset[str]]:
        """Return the steps that have begun and not ended since, each with the records there were before.

        Raises as :meth:`done`.
        """
        found: dict[int, frozenset[str]] = {}
        for line in self._lines():
            if line.get("event") == "begun" and isinstance(line.get("before"), list):
                found.setdefault(line["step"], frozenset(map(str, line["before"])))
            elif line.get("event") == "ended":
                found.pop(line["step"], None)
        return found

    def begin(self, step: Step, before: Collection[str]) -> None:
        """Note durably that a step begins, and the records there are before. Raises as :meth:`done`."""
        self._write(step, {"event": "begun", "before": sorted(before)})

    def end(self, step: Step, exit_code: int, repairs: Collection[str] = ()) -> None:
        """Note durably that a step has ended, and the records that it has left. Raises as :meth:`done`."""
        left = {"repairs": sorted(repairs)} if repairs else {}
        self._write(step, {"event": "ended", "exit_code": exit_code, **left})

    def _write(self, step: Step, facts: Mapping[str, object]) -> None:
        about = {"time_ms": self._clock.time_ms(), "step": step.number, "command": list(step.command)}
        line = {**facts, **about}
        refuse_link(self._fs, self.path)
        if self._fs.status(self.path) is None:
            file = self._fs.create(self.path)
        else:
            file = self._fs.open_to_write(self.path)
        try:
            end = file.size_bytes
            is_whole = not end or file.read_at(end - 1, 1) == b"\n"
            file.write_at(end, b"\n" * (not is_whole) + json.dumps(line).encode() + b"\n")
            file.sync()
        finally:
            file.close()
        # Each time: the run that made the file may have been killed in front of this.
        self._fs.sync_directory(dirname(self.path) or ".")

    def _lines(self) -> Iterator[dict[str, Any]]:
        refuse_link(self._fs, self.path)
        try:
            file = self._fs.open(self.path)
        except NotFoundError:
            return
        try:
            content = file.read_at(0, min(file.size_bytes, _LOG_BYTES_MAX))
        finally:
            file.close()
        # Half of a line, which a power cut left, says nothing: its step counts as not ended.
        yield from filter(None, map(_value, content.split(b"\n")))


def _is_done(verb: tuple[str, ...], code: object) -> bool:
    """Return whether a command has done what it can, by its noun and verb and its exit code."""
    return code in _GOES_ON and (code != UNCHECKED or verb not in _LEAVES_WORK)


def _value(line: bytes) -> dict[str, Any] | None:
    """Return a line's object, None for what :meth:`PlanLog.note` never writes."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("command"), list):
        return None
    return value if isinstance(value.get("step"), int) else None


def _nothing() -> None:
    """Accept every step."""


def _no_records() -> frozenset[str]:
    """Return the records of a plan that is about no directories."""
    return frozenset()


def still_done(plan: Plan, log: PlanLog, records: Collection[str]) -> dict[int, DoneStep]:
    """Return the steps that are done and were not undone; ``records`` are the records of repairs there are.

    A copy from replicas is not done when a step in front of it, which may lose entries, is to be run again.
    Raises CorruptionError for a log that is not this plan's, StorageError, RefusedError.
    """
    ended, done = log.done(), {}
    may_lose = False
    for step in plan.steps:
        before = ended.get(step.number)
        if before is not None and before.command != step.command:
            text = f"step {step.number} is another command: the log is another plan's"
            raise CorruptionError("log of a plan", expected=" ".join(step.command)[:60], found=text)
        is_done = before is not None and before.repairs <= set(records)
        if before is not None and is_done and not (may_lose and step.verb == _COPIES):
            done[step.number] = before
        may_lose |= step.lists_losses and not is_done
    return done


def run_plan(
    plan: Plan,
    log: PlanLog,
    run: RunCommand,
    check: Callable[[], None] = _nothing,
    records: Callable[[], Collection[str]] = _no_records,
) -> Iterator[StepEnd]:
    """Run what is not done, in its order; the first step that fails or is refused is the last.

    ``check`` is called in front of each step, and raises where it must not be run. ``records`` gives the
    numbers of the records of repairs in the plan's directories. Raises as :func:`still_done`.
    """
    done = still_done(plan, log, records())
    for step in plan.steps:
        before = done.get(step.number)
        if before is not None:
            yield StepEnd(step, before.exit_code, was_done=True)
            continue
        check()
        there = frozenset(records())
        first = log.cut_off().get(step.number, there)
        log.begin(step, there)
        code = run(step.command)
        left = set(records()) - first
        if code == 0 and step.lists_losses and left & there:
            # An earlier run was cut off behind the repair: it may have lost what this one does not find.
            code = _LOST
        log.end(step, code, left)
        end = StepEnd(step, code, advice=advice(step, code))
        yield end
        if not end.goes_on:
            return


def strongest(codes: Iterable[int]) -> int:
    """Return the exit code of steps that counts most, 0 without any: the higher it is, the more is left."""
    return max(codes, default=0)


def advice(step: Step, code: int) -> str:
    """Return what to do before the plan is run again."""
    if _is_done(step.verb, code):
        return ""
    if code == _GONE:
        return "a file or directory of this step is missing: bring it back, or make a new plan"
    if step.needs is Needs.STOPPED and code == _REFUSED:
        return "it needs a stopped bookie: stop the bookie if it runs, else read the command's message"
    if step.needs is Needs.RUNNING and code in (_PARTLY, _NO_ANSWER):
        return "it needs a running bookie: start the bookie if it is stopped, else read the command's message"
    return "read the command's message"
