"""Losses of an index that a start has accepted, noted durably until limbo is durable in all its ledgers.

A start that accepts the loss of an index makes databases, or files, in its place and writes rows in limbo.
When it is killed in between, an empty database may be left that looks like one of a directory which never had
a ledger, or rows of which some are missing: nothing would show the loss to the next start. So a file beside
the databases says what was lost before anything is made, and is removed once the last mark was moved.

A rebuild puts index files that were lost back one by one. When it is killed in between, the folders of those
that are back hide the others from the next start. So it notes the loss, too, until all are in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join

from bkctl.scan.directory import read_small
from bkctl.vfs import FileSystem, WritableFileSystem

#: In the ``current`` directory of an index.
ACCEPTED_NAME = "ACCEPTED_LOSS"
#: Why what is in the place of such a part does not count.
CUT_OFF = "a start that accepted its loss was cut off"
#: The state of what a rebuild is putting back, file by file.
HALF_BACK = "half-back"
#: Why what is back of it does not count.
HALF_REBUILT = "an index rebuild that puts it back was cut off"


def accepted_parts(filesystem: FileSystem, *indexes: str) -> dict[str, str]:
    """Return the parts of an index whose loss a start has accepted without coming to its end.

    They are those of :func:`bkctl.engine.lost_index.find_lost_indexes`, or ``HALF_BACK``. Raises
    StorageError.
    """
    parts: dict[str, str] = {}
    for index in indexes:
        path = join(index, ACCEPTED_NAME)
        if filesystem.status(path) is None:
            continue
        lines = read_small(filesystem, path).decode(errors="surrogateescape").splitlines()
        parts |= {name: state for state, _, name in (line.partition(" ") for line in lines) if name}
    return parts


def note_accepted(filesystem: WritableFileSystem, index: str, parts: Mapping[str, str]) -> None:
    """Note durably that the loss of parts of an index is being accepted. Raises StorageError."""
    lines = "".join(f"{state} {name}\n" for name, state in sorted(parts.items()))
    filesystem.replace(join(index, ACCEPTED_NAME), lines.encode(errors="surrogateescape"))


def forget_accepted(filesystem: WritableFileSystem, *indexes: str) -> None:
    """Forget what was accepted: the index is whole again, or all its ledgers are in limbo.

    Raises StorageError.
    """
    for index in indexes:
        path = join(index, ACCEPTED_NAME)
        if filesystem.status(path) is not None:
            filesystem.remove(path)
            filesystem.sync_directory(index)
