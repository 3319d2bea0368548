"""The one log that the arguments of a command name, wherever it lies now."""

from __future__ import annotations

import os

from bkctl.codec.entrylog import parse_log_name
from bkctl.commands.frame.options import parse_log_id
from bkctl.commands.frame.targets import paths_or_default, split_targets
from bkctl.errors import NotFoundError, UsageError


def log_target(targets: list[str]) -> tuple[list[str], int | None]:
    """Return the paths to look in and the id that was named, None where a path alone says which log.

    The path of a log that is not there any more names its id: it may be in quarantine. Raises UsageError,
    NotFoundError for a path in a folder that is not there.
    """
    others, folders, gone = [], [], []
    for target in targets:
        folder, name = os.path.split(target)
        log_id = parse_log_name(name)
        if folder and log_id is not None and not os.path.lexists(target):
            if not os.path.isdir(folder):
                raise NotFoundError(f"{target}: no such file or directory")
            folders.append(folder)
            gone.append(log_id)
        else:
            others.append(target)
    paths, ids = split_targets(others, parse_log_id)
    ids += gone
    if len(ids) > 1:
        raise UsageError("name one log")
    return paths_or_default(paths + folders), ids[0] if ids else None
