"""The stretches of rows in which columns keep their values: entries of a ledger mostly stand side by side."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def stretches(*columns: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the stretches begin in which all columns stay the same, and how long each is.

    Columns have one length; those without a row have no stretch.
    """
    first = columns[0]
    changes = first[1:] != first[:-1]
    for column in columns[1:]:
        changes |= column[1:] != column[:-1]
    starts = np.concatenate((np.zeros(min(1, len(first)), np.intp), np.flatnonzero(changes) + 1))
    return starts, np.diff(np.concatenate((starts, [len(first)])))


def slices(*columns: NDArray[np.integer]) -> Iterator[slice]:
    """Yield the stretches as slices, for work that is done on one after the other."""
    starts, lengths = stretches(*columns)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        yield slice(start, start + length)
