"""Notes of which entry logs and journals a table was made without, as a whole or in part.

A table has no row for what the disk did not give, and whoever reads the table elsewhere sees nothing of it.
So the task that reads a file leaves a note of it in a folder of the table's own, which all tasks reach
(``TableOptions.unread_notes``), and the run looks there when the table is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from posixpath import basename

from bkctl.codec.entrylog import parse_log_name
from bkctl.codec.journal import parse_journal_name
from bkctl.errors import NoSpaceError, StorageError
from bkctl.pipeline.locations import located, new_name, read_file, written_file
from bkctl.pipeline.tables.options import TableOptions
from bkctl.reporting import counted

_ENDING = "unread"
_Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file of which rows may be lacking, and why.

    ``behind_mark``: records of a journal that the next start replays may be among them. ``opened``: the other
    rows of the file are there.
    """

    path: str
    why: str
    behind_mark: bool = True
    opened: bool = True


def note_unread(options: TableOptions, found: UnreadFile) -> None:
    """Leave a note, where somebody wants to know. Raises StorageError."""
    if options.unread_notes is not None:
        # Another attempt of the same task may write its own at the same time.
        written_file(new_name(options.unread_notes, _ENDING), json.dumps(asdict(found)).encode())


def speaks_of_file(error: StorageError) -> bool:
    """Return whether an error says something of the file that was to be opened.

    It does not where the system refuses the file to this user, or has no descriptor left.
    """
    return not (error.is_denied or isinstance(error, NoSpaceError))


def note_unopened(options: TableOptions, path: str, error: StorageError) -> bool:
    """Leave a note of a file that cannot be opened; return False where the error has to be raised.

    It has to be where nobody reads notes, and where it says nothing of an entry log or a journal
    (:func:`speaks_of_file`), or is of something else.
    """
    name = basename(error.path or "")
    is_ours = error.path == path or parse_journal_name(name) is not None or parse_log_name(name) is not None
    if options.unread_notes is None or not speaks_of_file(error) or not is_ours:
        return False
    note_unread(options, UnreadFile(path, str(error), opened=False))
    return True


def refused_bytes(path: str, ranges: Sequence[_Range]) -> str:
    """Return the sentence of a file in which the disk refused some ranges."""
    size = sum(stop - start for start, stop in ranges)
    return f"{path}: {counted(size, 'byte')} from offset {ranges[0][0]} on cannot be read"


def broken_bytes(path: str, offset: int, size_bytes: int) -> str:
    """Return the sentence of a file in which bytes are no records, ``offset`` being that of the first."""
    where = f"from offset {offset} on"
    what = (
        counted(size_bytes, f"byte {where} is no record", f"bytes {where} are no records")
        if size_bytes
        else (f"records are lacking {where}")
    )
    return f"{path}: {what} (job verify tells which)"


def unread_in(folder: str) -> list[UnreadFile]:
    """Return what tasks noted in a folder, each file once, by its path. Raises StorageError."""
    found: dict[str, UnreadFile] = {}
    for one in sorted(_notes(folder), key=lambda one: (one.path, one.behind_mark, one.why)):
        found[one.path] = one
    return list(found.values())


def _notes(folder: str) -> Iterator[UnreadFile]:
    place = located(folder)
    for name in place.names():
        # A note that is cut short is of an attempt that was ended: another one has left its own.
        if name.endswith(f".{_ENDING}"):
            with suppress(ValueError):
                yield UnreadFile(**json.loads(read_file(place.text_of(name))))
