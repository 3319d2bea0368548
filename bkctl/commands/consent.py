"""Asking before something is written: ``--dry-run``, ``--yes``, a question on a terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bkctl.errors import RefusedError

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking; scripts need this.")]


def ask(what: str, *, yes: bool) -> None:
    """Return when ``what`` (``change 3 rows in 2 directories``) may be done.

    Raises RefusedError when the answer is no, and where nobody can be asked and there is no ``--yes``.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RefusedError(f"would {what}; add --yes to do it, or --dry-run to see it")
    if not typer.confirm(f"{what[:1].upper()}{what[1:]}?", err=True):
        raise RefusedError("nothing was changed")
