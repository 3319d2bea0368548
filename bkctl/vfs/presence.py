"""Asks the system whether a name is there, and does not take a failure for a no, as ``os.path`` does."""

from __future__ import annotations

import os

from bkctl.errors import storage_error


def is_there(path: str) -> bool:
    """Return whether there is such a name, also that of a link which leads nowhere.

    Raises StorageError where that cannot be looked at: whoever goes on without it may give up what is there.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise storage_error(error, path) from error
    return True
