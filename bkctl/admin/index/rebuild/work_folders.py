"""The work folders of a rebuild that fails: one that changed nothing leaves nothing behind.

A folder that stays says that a rebuild was begun and has not ended: an undo of an earlier repair then finds
the directory changed, and a collection of garbage is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from bkctl.admin.index.rebuild.state import drop_whole, sync_directory
from bkctl.admin.index.rebuild.swap import has_marker
from bkctl.errors import BkctlError
from bkctl.vfs.presence import is_there


@contextmanager
def removed_on_failure(
    paths: Sequence[str], has_begun: Callable[[], bool], recheck: Callable[[], None]
) -> Iterator[None]:
    """Remove the work folders that the body makes among ``paths`` when it raises a BkctlError.

    They stay for a rerun where ``has_begun`` says that an index was put in place, where an index waits in
    one for that, and where ``recheck`` finds somebody else at work. A folder that was there before is an
    earlier run's, which goes on with it. After a kill nothing is removed.
    """
    before = {path for path in paths if is_there(path)}
    try:
        yield
    except BkctlError:
        # That the folders cannot be removed would hide the error that they are removed for.
        with suppress(BkctlError):
            made = [path for path in paths if path not in before and is_there(path)]
            if made and not has_begun() and not any(map(has_marker, paths)):
                recheck()
                _remove(made)
        raise


def _remove(paths: Sequence[str]) -> None:
    """Remove folders durably. Raises StorageError."""
    for path in paths:
        drop_whole(path)
        sync_directory(os.path.dirname(path))
