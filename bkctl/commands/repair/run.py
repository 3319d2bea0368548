"""``bkctl repair run``: a plan is carried out, and goes on where it stopped."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.confirmation import YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, file_content
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.own_command import run_own_command
from bkctl.errors import RefusedError, UsageError
from bkctl.reporting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bkctl.admin.repairs.plan_run import PlanLog, StepEnd
    from bkctl.admin.repairs.repair_plan import Plan
    from bkctl.vfs.base import FileSystem

RUN_SCHEMA: Schema = (
    Key("number", "int", "the step's place in the plan"),
    Key("line", "string", "its command line"),
    Key("exit_code", "int", "how it ended; 1: it found, or lost, something; 3: it could not check all"),
    Key("was_done", "bool", "whether an earlier run had done it"),
    Key("advice", "string", "what to do before the plan is run again; empty when it is done"),
)


@takes(RUN_SCHEMA)
def run_command(
    plan_file: Annotated[
        str, typer.Argument(metavar="PLAN", show_default=False, help="A file of 'bkctl repair plan --out'.")
    ],
    yes: YesOption = False,
    *,
    output: OutputOption = None,
) -> None:
    """[offline] [online] [writes] Carry out a plan of 'bkctl repair plan', step by step.

    Every step is recorded durably in PLAN.log, so that the next run continues after the last finished step. A
    step that 'bkctl repair undo' has undone is run again. The output of the commands goes to stderr.

    A step that ends with 1 or 3 is done, and its report says what is lost or not proved; then the run
    continues. Any other code ends the run with that code, and the row says what to do next: a step may need
    the bookie stopped (4) or running (5). A plan is refused (4) if the cookies (VERSION) show that its
    directories belong to another bookie now.

    Exit code of a whole run: 3 when a step ended with 3, when the plan has findings that no command can
    repair, or when a step that copies from replicas is not done, for example because the bookie is stopped
    (the next run repeats it). Otherwise 1 when entries are lost that no later 'ledger repair' has copied
    back; a step that was killed after its repair counts as a loss if it may be one. Otherwise 0.

    Then run 'bkctl repair plan' again, because a repair may reveal further damage. 'bkctl repair undo' undoes
    the changes of a step in the directories of a stopped bookie.

    Examples:

      bkctl repair run plan.json

      bkctl repair run plan.json --yes
    """
    from bkctl.admin.repairs.plan_lock import held_plan
    from bkctl.admin.repairs.repair_plan import plan_in

    content = _content(plan_file)
    try:
        plan = plan_in(content)
    except UsageError as error:
        raise UsageError(f"{plan_file}: {error}") from None
    with held_plan(plan_file):
        _run_plan(plan_file, plan, yes, output)


def _run_plan(plan_file: str, plan: Plan, yes: bool, output: Any) -> None:
    """Carry out a plan that this process holds; raise typer.Exit with the code."""
    from bkctl.admin.repairs.plan_run import PlanLog, run_plan, still_done
    from bkctl.clock import SystemClock
    from bkctl.vfs import PosixFileSystem

    filesystem = PosixFileSystem()
    log = PlanLog(filesystem, f"{plan_file}.log", SystemClock())
    records = partial(_records, filesystem, plan)
    done = still_done(plan, log, records())
    left = [step for step in plan.steps if step.number not in done]
    check = partial(_check, filesystem, plan, log)
    if left:
        check()
        ask(
            f"run {len(left)} of {counted(len(plan.steps), 'command')} of {plan_file}",
            yes=yes,
            has_dry_run=False,
        )
    ends: list[StepEnd] = []

    def rows() -> Iterator[dict[str, Any]]:
        for end in run_plan(plan, log, partial(_run, directory=plan.working_directory), check, records):
            ends.append(end)
            yield _row(end)

    write_rows(rows(), RUN_SCHEMA, output)
    raise typer.Exit(_end(ends, len(plan.by_hand)))


def _end(ends: Sequence[StepEnd], by_hand: int) -> int:
    """Say what is left of a run; its exit code."""
    from bkctl.admin.repairs.plan_run import UNCHECKED, strongest

    for end in ends:
        if not end.is_done:
            typer.echo(
                f"bkctl: step {end.step.number} is not done: {end.advice}; then run the plan again", err=True
            )
    if ends and not ends[-1].goes_on:
        return ends[-1].exit_code
    left = _what_is_left(ends)
    lost = [end.step.number for end in left if end.step.lists_losses and end.exit_code == 1]
    unchecked = [end.step.number for end in left if end.is_done and end.exit_code == UNCHECKED]
    _tell_what_is_left(lost, unchecked, by_hand)
    return strongest([*(end.exit_code for end in left), *([UNCHECKED] if by_hand else [])])


def _what_is_left(ends: Sequence[StepEnd]) -> list[StepEnd]:
    """Return the ends of steps without the losses that a copy from other replicas has brought back since."""
    left: list[StepEnd] = []
    for end in ends:
        if end.step.verb == ("ledger", "repair") and end.exit_code == 0:
            left = [one for one in left if not (one.step.lists_losses and one.exit_code == 1)]
        left.append(end)
    return left


def _row(end: StepEnd) -> dict[str, Any]:
    return {
        "number": end.step.number,
        "line": shlex.join(end.step.command),
        "exit_code": end.exit_code,
        "was_done": end.was_done,
        "advice": end.advice,
    }


def _content(plan_file: str) -> bytes:
    """Read the file of a plan. Raises UsageError for a directory, which may be that of a bookie."""
    if os.path.isdir(plan_file):
        raise UsageError(
            f"{plan_file}: is a directory, and PLAN is a file; "
            f"'bkctl repair plan {plan_file} --out plan.json' writes one"
        )
    return file_content(plan_file, "PLAN")


def _tell_what_is_left(lost: list[int], unchecked: list[int], by_hand: int) -> None:
    if lost:
        typer.echo(
            f"bkctl: step {', '.join(map(str, lost))} has lost entries, or may have, and put their ledgers "
            "into limbo. While the bookie runs, 'bkctl ledger repair' brings them back (a plan made with "
            "--metadata URI has this step)",
            err=True,
        )
    if unchecked:
        typer.echo(
            f"bkctl: step {', '.join(map(str, unchecked))} could not prove some entries, and may have lost "
            "others. Its report names them, and the option that would prove them (such as --metadata, if "
            "it has the password). Ledgers that lost entries are in limbo, until 'bkctl ledger repair'",
            err=True,
        )
    if by_hand:
        left_over = f"{counted(by_hand, 'finding')} of the plan {'is' if by_hand == 1 else 'are'} left to you"
        typer.echo(f"bkctl: {left_over}: no command ends {'it' if by_hand == 1 else 'them'}", err=True)


def _check(filesystem: FileSystem, plan: Plan, log: PlanLog) -> None:
    """Raise RefusedError where the plan is not about what stands in its places now."""
    from bkctl.admin.repairs.plan_binding import check_bound

    begun, where = log.begun(), plan.working_directory
    check_bound(filesystem, plan, [step for step in plan.steps if step.number in begun])
    if where is not None and not os.path.isdir(where):
        raise RefusedError(f"{where}: no such directory; the paths of the plan are relative to it")


def _records(filesystem: FileSystem, plan: Plan) -> set[str]:
    """Return the numbers of the records of repairs in the plan's directories."""
    from bkctl.admin.repairs.repair_records import read_records

    places = [place.path for place in plan.directories if filesystem.status(place.path) is not None]
    return {found.record.number for found in read_records(filesystem, places).found}


def _run(command: Sequence[str], directory: str | None) -> int:
    """Run a command of this program; what it writes goes to stderr."""
    typer.echo(f"bkctl: {shlex.join(command)}", err=True)
    return run_own_command(command, directory)
