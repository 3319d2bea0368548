"""The next step where a command ends because a database of an index cannot be read: its rebuild."""

from __future__ import annotations

import os
from posixpath import basename, dirname, join

from bkctl.errors import CorruptionError


def rebuild_after(error: CorruptionError) -> str:
    """Return what to do next as the rest of a sentence; nothing for damage that is not an index's."""
    from bkctl.admin.next_step import bkctl_line
    from bkctl.scan.directory import home_of
    from bkctl.scan.index_databases import LEDGERS, LOCATIONS

    for path in () if error.path is None else (error.path, dirname(error.path)):
        index, name = dirname(path), basename(path)
        # A folder may have such a name and be something else; an index has both.
        if name in (LEDGERS, LOCATIONS) and all(os.path.isdir(join(index, n)) for n in (LEDGERS, LOCATIONS)):
            line = bkctl_line("index", "rebuild", home_of(index), f"--{name}")
            return f"; the index is damaged, rebuild it first: {line} (over a damaged log with --accept-loss)"
    return ""
