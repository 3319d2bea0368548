"""Asking before something is written: ``--dry-run``, ``--yes``, a question on a terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bkctl.errors import RefusedError

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking; scripts need this.")]


def ask(what: str, *, yes: bool, has_dry_run: bool = True) -> None:
    """Return when ``what`` (``change 3 rows in 2 directories``) may be done.

    Raises RefusedError when the answer is no, and where nobody can be asked and there is no ``--yes``;
    KeyboardInterrupt when the question is answered with Ctrl-C or Ctrl-D.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        look = ", or --dry-run to see it" if has_dry_run else ""
        raise RefusedError(f"would {what}; add --yes to do it{look}")
    try:
        agreed = typer.confirm(f"{what[:1].upper()}{what[1:]}?", err=True)
    except typer.Abort:
        sys.stderr.write("\n")
        raise KeyboardInterrupt from None
    if not agreed:
        raise RefusedError("nothing was changed")
