"""Which ids the entry logs of a directory have, and which one comes next. Pure; names in, ids out.

A name takes its id in any of these forms::

    1c.log                      an entry log
    1c.log.compacting           the target of a compaction that is running, or was when the bookie stopped
    1c.log.1a.compacted         a finished one whose entries the index does not know yet

Source: ``org.apache.bookkeeper.bookie.EntryLoggerAllocator`` and ``storage.EntryLogIdsImpl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from bkctl.codec.entrylog import log_name
from bkctl.codec.last_id import LOG_ID_MAX

# Java parses any letter case and leading zeros, so such a name takes its id too.
_TAKEN = re.compile(r"([0-9a-fA-F]+)\.log(?:\.compacting|\.[0-9a-fA-F]+\.compacted)?")


@dataclass(frozen=True, slots=True)
class LogNames:
    """The entry logs among the names of a directory.

    ``logs`` are the ids of ``<hex>.log``, ascending; ``taken`` those of every form; ``strange`` the names
    that look like a log's but cannot be one because their number is no i32. Java does not start over such a
    name; here it is in nobody's way.
    """

    logs: tuple[int, ...]
    taken: frozenset[int]
    strange: tuple[str, ...]


def sort_names(names: Iterable[str]) -> LogNames:
    """Separate the logs of a directory from its other files."""
    logs: list[int] = []
    taken: set[int] = set()
    strange: list[str] = []
    for name in names:
        found = _TAKEN.fullmatch(name)
        if found is None:
            continue
        log_id = int(found[1], 16)
        if log_id > LOG_ID_MAX:
            strange.append(name)
            continue
        taken.add(log_id)
        if name == log_name(log_id):
            logs.append(log_id)
    return LogNames(tuple(sorted(logs)), frozenset(taken), tuple(strange))


def last_log_id(names: LogNames, last_id: int | None) -> int:
    """Return the id that counts as given out last, -1 if none was.

    That is the larger one of ``last_id``, the number in the file ``lastId``, and the id before the largest
    gap of unused ones. Without a number, and when it is 0, the largest log counts; Java then forgets that log
    0 was given out once it is deleted, and its id comes again while index rows may still name it.
    """
    noted = last_id or max(names.logs, default=-1 if last_id is None else 0)
    return max(noted, _largest_gap(names.taken) - 1)


def next_log_id(last: int, taken: frozenset[int]) -> int:
    """Return the first free id after ``last``; behind the largest comes 0 again.

    ``taken`` are far fewer than there are ids, so there is a free one.
    """
    log_id = _following(last)
    while log_id in taken:
        log_id = _following(log_id)
    return log_id


def _following(log_id: int) -> int:
    return 0 if log_id >= LOG_ID_MAX else log_id + 1


def _largest_gap(taken: frozenset[int]) -> int:
    """Return the start of the largest range of ids that are not taken; the last of several equal ones."""
    edges = [-1, *sorted(taken), LOG_ID_MAX + 1]
    _, start = max((after - before - 1, before + 1) for before, after in pairwise(edges))
    return start
