"""Journal directories in each other's place: the last mark of one names a journal that is in another one.

The cookies of a bookie's directories are the same, and say nothing of which one a directory is. A start that
went on would replay nothing of what is behind the marks, and the journals would be removed; a repair would
take what is there for lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.codec.journal import journal_name, parse_journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.errors import RefusedError
from bkctl.vfs import FileSystem


def refuse_exchanged_journals(filesystem: FileSystem, places: Sequence[tuple[str, LastMark]]) -> None:
    """Raise RefusedError where journal directories, given with their last marks, are exchanged.

    A directory that has the journal of its own mark is in its place: a journal there with the id of another
    mark is its own, too, and that mark's is gone.
    """
    held = [_ids(filesystem, directory) for directory, _ in places]
    at_home = [mark.journal_id in ids for (_, mark), ids in zip(places, held, strict=True)]
    found = [
        f"{other} holds {journal_name(mark.journal_id)}, which the last mark of {directory} names"
        for (directory, mark), is_home in zip(places, at_home, strict=True)
        for (other, _), ids, is_others_home in zip(places, held, at_home, strict=True)
        if mark.journal_id > 0 and mark.journal_id in ids and not is_home and not is_others_home
    ]
    if found:
        raise RefusedError(
            f"{'; '.join(found)}: the journal disks are mounted in each other's place. Mount each disk where "
            "its journals belong; where the order of journalDirectories was changed instead, give them, and "
            "the cookies, the old one back. Nothing is lost, so --accept-loss does not help"
        )


def _ids(filesystem: FileSystem, directory: str) -> set[int]:
    if filesystem.status(directory) is None:
        return set()
    return {each for each in map(parse_journal_name, filesystem.names(directory)) if each is not None}
