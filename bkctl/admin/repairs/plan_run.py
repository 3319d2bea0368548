"""Running a plan: one command after the other, each noted durably, so that the next run goes on behind it.

The log stands beside the plan and has a line of JSON for each beginning and each end. A step without an end
in it is run again: every command of a plan goes on where it was, or finds nothing left to do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bkctl.admin.repairs.repair_plan import Needs, Plan, Step
from bkctl.clock import Clock
from bkctl.errors import CorruptionError, StorageError
from bkctl.vfs import PosixFileSystem

#: Runs a command line and returns its exit code.
RunCommand = Callable[[Sequence[str]], int]

#: Exit codes after which a step has done what it can: 1 says that it found, or lost, something.
_DONE = (0, 1)
_PARTLY, _REFUSED, _NO_ANSWER = 3, 4, 5
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
        """Whether the next step may follow."""
        return self.exit_code in _DONE


class PlanLog:
    """The log of a plan's runs, a file that only grows."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self._clock = clock

    def done(self) -> dict[int, tuple[tuple[str, ...], int]]:
        """Return the steps that are done: number to command and exit code. Raises StorageError."""
        found: dict[int, tuple[tuple[str, ...], int]] = {}
        for line in self._lines():
            if line.get("event") == "ended" and line.get("exit_code") in _DONE:
                found[line["step"]] = (tuple(map(str, line["command"])), int(line["exit_code"]))
        return found

    def note(self, event: str, step: Step, exit_code: int | None = None) -> None:
        """Write a line durably. Raises StorageError."""
        line = {
            "event": event,
            "time_ms": self._clock.time_ms(),
            "step": step.number,
            "command": list(step.command),
            "exit_code": exit_code,
        }
        is_new = not os.path.lexists(self.path)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self.path, flags, 0o600), "ab") as stream:
                stream.write(b"\n" * (not self._ends_whole()) + json.dumps(line).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}", path=self.path) from error
        if is_new:
            PosixFileSystem().sync_directory(os.path.dirname(self.path) or ".")

    def _ends_whole(self) -> bool:
        with open(self.path, "rb") as stream:
            size_bytes = stream.seek(0, os.SEEK_END)
            stream.seek(max(size_bytes - 1, 0))
            return stream.read(1) in (b"", b"\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            with open(self.path, "rb") as stream:
                content = stream.read(_LOG_BYTES_MAX)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}", path=self.path) from error
        # Half of a line, which a power cut left, says nothing: its step counts as not ended.
        yield from filter(None, map(_value, content.split(b"\n")))


def _value(line: bytes) -> dict[str, Any] | None:
    """Return a line's object, None for what :meth:`PlanLog.note` never writes."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("command"), list):
        return None
    return value if isinstance(value.get("step"), int) else None


def run_plan(plan: Plan, log: PlanLog, run: RunCommand) -> Iterator[StepEnd]:
    """Run what is not done, in its order; the first step that does not come to its end is the last.

    Raises StorageError, and CorruptionError for a log that is not this plan's.
    """
    done = log.done()
    for step in plan.steps:
        before = done.get(step.number)
        if before is not None:
            if before[0] != step.command:
                text = f"step {step.number} is another command: the log is another plan's"
                raise CorruptionError("log of a plan", expected=" ".join(step.command)[:60], found=text)
            yield StepEnd(step, before[1], was_done=True)
            continue
        log.note("begun", step)
        code = run(step.command)
        log.note("ended", step, code)
        end = StepEnd(step, code, advice=advice(step, code))
        yield end
        if not end.is_done:
            return


def advice(step: Step, code: int) -> str:
    """Return what to do before the plan is run again."""
    if code in _DONE:
        return ""
    if step.needs is Needs.STOPPED and code == _REFUSED:
        return "it needs the bookie stopped: stop it, if it runs; else see what the command says"
    if step.needs is Needs.RUNNING and code in (_PARTLY, _NO_ANSWER):
        return "it needs the bookie running: start it, if it is stopped; else see what the command says"
    return "see what the command says"
