"""Entries of a write cache by ledger, then entry, without a call that sorts many at once.

Keys are distributed to their ledgers in pieces of some thousands, in order of arrival. Writers add to a
ledger in ascending order, so that its runs hardly ever overlap: they are sorted one by one and put behind
each other. Runs that do overlap are merged key by key, in Python, which is slower and lets other threads run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import accumulate, groupby, islice

from bkctl.engine.cache.entry_table import PIECE_ENTRIES, ledger_of

#: Keys of one ledger and the table that has all of their entries.
Run = tuple[list[bytes], dict[bytes, bytes]]
Batch = tuple[list[bytes], list[bytes]]


def distribute(keys: list[bytes], entries: dict[bytes, bytes], ledgers: dict[bytes, list[Run]]) -> None:
    """Add runs of at most ``PIECE_ENTRIES`` keys to the ledgers that the (distinct) keys belong to."""
    for start in range(0, len(keys), PIECE_ENTRIES):
        piece = sorted(keys[start : start + PIECE_ENTRIES])
        for ledger, group in groupby(piece, ledger_of):
            found = list(group)
            runs = ledgers.setdefault(ledger, [])
            if runs and runs[-1][1] is entries and len(runs[-1][0]) + len(found) <= PIECE_ENTRIES:
                runs[-1][0].extend(found)
            else:
                runs.append((found, entries))


def in_order(items: list[bytes]) -> Iterator[bytes]:
    """Return the items, sorted."""
    pieces = [sorted(items[start : start + PIECE_ENTRIES]) for start in range(0, len(items), PIECE_ENTRIES)]
    return iter(pieces[0]) if len(pieces) == 1 else merge(*pieces)


def ledger_in_order(runs: list[Run], newest: Callable[[bytes], bytes]) -> Iterator[Batch]:
    """Yield keys and bodies of one ledger, in lists of at most ``PIECE_ENTRIES``.

    Each key comes once, and they are ascending.

    ``newest`` finds the body of a key that several tables may have.
    """
    for keys, _ in runs:
        keys.sort()
    runs.sort(key=_first_key)
    overlapping: list[list[bytes]] = []
    for position, (keys, entries) in enumerate(runs):
        last = max(keys[-1], overlapping[0][-1]) if overlapping else keys[-1]
        follower = runs[position + 1][0][0] if position + 1 < len(runs) else None
        if follower is not None and follower <= last:
            # The list whose last key is the highest stands first.
            overlapping.insert(0 if keys[-1] == last else len(overlapping), keys)
        elif overlapping:
            yield from _merged([*overlapping, keys], newest)
            overlapping = []
        else:
            yield keys, list(map(entries.__getitem__, keys))


def pack(batches: Iterable[Batch], entries_max: int, bytes_max: int) -> Iterator[Batch]:
    """Pack the entries into batches as large as the bounds allow; an entry larger than that goes alone."""
    keys: list[bytes] = []
    bodies: list[bytes] = []
    size = 0
    for more_keys, more_bodies in batches:
        ends = list(accumulate(map(len, more_bodies)))
        start = 0
        while start < len(ends):
            before = ends[start - 1] if start else 0
            fitting = bisect_right(ends, before + bytes_max - size, start)
            stop = min(fitting, start + entries_max - len(keys))
            if stop <= start and keys:
                yield keys, bodies
                keys, bodies, size = [], [], 0
                continue
            stop = max(stop, start + 1)
            keys += more_keys[start:stop]
            bodies += more_bodies[start:stop]
            size += ends[stop - 1] - before
            start = stop
    if keys:
        yield keys, bodies


def _first_key(run: Run) -> bytes:
    return run[0][0]


def _merged(lists: list[list[bytes]], newest: Callable[[bytes], bytes]) -> Iterator[Batch]:
    keys = (key for key, _ in groupby(merge(*lists)))
    while piece := list(islice(keys, PIECE_ENTRIES)):
        yield piece, list(map(newest, piece))
