"""A file's content replaced as a whole, in steps that every writable file system has.

The steps are calls on the file system itself, so that a twin that fails or stops does so between them too.
"""

from __future__ import annotations

import os
from contextlib import suppress

from bkctl.errors import BkctlError
from bkctl.vfs.base import WritableFileSystem

#: How the name of a half-made file ends; one that a crash left behind may be removed.
TEMPORARY_SUFFIX = ".tmp"


def replace_by_rename(filesystem: WritableFileSystem, path: str, content: bytes) -> None:
    """Implement :meth:`bkctl.vfs.base.WritableFileSystem.replace`.

    The temporary name is ``path``, a random part and ``.tmp``; it is removed when a step fails.
    """
    temporary = f"{path}.{os.urandom(6).hex()}{TEMPORARY_SUFFIX}"
    file = filesystem.create(temporary, mode_of=path)
    try:
        try:
            file.write_at(0, content)
            # The content is durable before a name points to it, else a crash could leave an empty file.
            file.sync()
        finally:
            file.close()
        filesystem.rename(temporary, path)
    except BaseException:
        with suppress(BkctlError):
            filesystem.remove(temporary)
        raise
    # From here on a crash cannot bring the old content back.
    filesystem.sync_directory(os.path.dirname(path))
