"""The rows of ``gc run``: a step that was done or would be, and a log that stays."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.admin.gc.plan import COMPACT, REMOVE, Step
from bkctl.scan.directory import LogFile

DELETE_LEDGERS = "delete_ledgers"
FINISH = "finish"
LEFT = "left"
SET_ASIDE = "set_aside"


@dataclass(frozen=True, slots=True)
class RunRow:
    """A step that was done, or would be.

    ``action`` is ``delete_ledgers`` (``ledgers`` of them), ``finish`` (a compaction that a crash had cut
    off), ``remove``, ``compact``, ``left`` or ``set_aside``. For the last two ``detail`` says why.
    """

    dir: str
    action: str
    log_id: int | None
    path: str | None
    bytes: int
    copied_bytes: int
    freed_bytes: int
    ledgers: int
    detail: str
    done: bool


def row_of(step: Step, *, done: bool) -> RunRow:
    """Return the row of a step as it was decided."""
    return RunRow(
        step.dir,
        step.action,
        step.log_id,
        step.path,
        step.bytes,
        step.copied_bytes,
        step.freed_bytes,
        0,
        "no ledger of it is alive" if step.action == REMOVE else "",
        done,
    )


def compacted(step: Step, copied_bytes: int, detail: str) -> RunRow:
    """Return the row of a compaction that copied so many bytes."""
    freed = step.bytes - copied_bytes
    return RunRow(step.dir, COMPACT, step.log_id, step.path, step.bytes, copied_bytes, freed, 0, detail, True)


def staying(log: LogFile, action: str, why: str) -> RunRow:
    """Return the row of a log that stays because of what it is."""
    return RunRow(log.directory, action, log.log_id, log.path, log.size_bytes, 0, 0, 0, why, False)


def left(step: Step, why: str, action: str = LEFT) -> RunRow:
    """Return the row of a step that cannot be done."""
    return RunRow(step.dir, action, step.log_id, step.path, step.bytes, 0, 0, 0, why, False)


def deletion(directory: str, ledgers: int, *, done: bool) -> RunRow:
    """Return the row of the deletion of so many ledgers."""
    detail = "not in the metadata any more; their rows"
    return RunRow(directory, DELETE_LEDGERS, None, None, 0, 0, 0, ledgers, detail, done)
