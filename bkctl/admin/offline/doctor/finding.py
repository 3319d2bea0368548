"""What the doctor reports."""

from __future__ import annotations

import enum
import shlex
from dataclasses import dataclass


class Severity(enum.Enum):
    """How much a finding matters.

    ``ERROR``: data is lost or in danger, or the bookie does not start. ``WARNING``: somebody should act
    before that happens. ``NOTE``: natural, repairs itself, or a matter of taste.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``check`` is the name of the check, ``next`` the command line to go on with.

    ``dir`` is a directory of the bookie, ``path`` a file; ``offset`` is one in that file. ``count`` is how
    many alike this one stands for.
    """

    check: str
    severity: Severity
    found: str
    expected: str
    next: str
    dir: str | None = None
    path: str | None = None
    ledger: int | None = None
    log_id: int | None = None
    journal_id: int | None = None
    offset: int | None = None
    count: int = 1


def bkctl_line(*words: str) -> str:
    """A command line of this program, quoted for a shell."""
    return shlex.join(["bkctl", *words])
