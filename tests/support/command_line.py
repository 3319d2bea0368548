"""Running a command line of bkctl in this process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from click.testing import Result
from typer.testing import CliRunner


def invoke(words: Sequence[str], **options: Any) -> Result:
    """Run a command of the real application; ``options`` are those of ``CliRunner.invoke``.

    A command that logs does so to a stream that ends with it; tests behind this one have their own.
    """
    from bkctl.commands.frame.root import app

    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        return CliRunner().invoke(app, list(words), **options)
    finally:
        root.handlers[:], root.level = before
