"""The SQL of the jobs, in files beside their modules."""

from __future__ import annotations

import re
from importlib import resources

_INCLUDE = re.compile(r"^-- include ([a-z_]+)$", re.MULTILINE)


def sql_text(name: str) -> str:
    """Return the SQL text of ``NAME.sql``, with the files that its lines ``-- include OTHER`` name."""
    text = resources.files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: sql_text(line[1]), text)
