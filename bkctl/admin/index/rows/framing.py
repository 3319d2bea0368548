"""Records whose size word is damaged, though their digest proves all the rest of them.

A scan reads such a record, because the digest shows where it ends, and a salvage copies it. A bookie reads by
the size word and finds no entry there: an index must not name it.
"""

from __future__ import annotations

import numpy as np

from bkctl.codec.entry import EntryBatch
from bkctl.scan.columns.log_columns import gather_i32


def misframed(batch: EntryBatch) -> set[int]:
    """Return the indexes of the records of a batch that have another size in the file."""
    if not len(batch):
        return set()
    words = gather_i32(batch.buffer, np.array(batch.starts, np.int64))
    return set(np.flatnonzero(words != np.array(batch.sizes, np.int64)).tolist())
