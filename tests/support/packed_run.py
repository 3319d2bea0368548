"""A run of adds as the compiled kernels hand it over: its entries in one piece."""

from __future__ import annotations

import struct
from array import array
from itertools import groupby
from operator import itemgetter

from bkctl.engine.add_run import AddRun, RecordRun, framed

_LAC = struct.Struct(">q")
_LAC_AT = 16


def packed(run: AddRun) -> RecordRun:
    """Return the same run: for grants that stand side by side the highest LAC and the number of entries."""
    grants: list[bytes] = []
    lacs: list[int] = []
    counts: list[int] = []
    for grant, adds in groupby(zip(run.grants, run.bodies, strict=True), itemgetter(0)):
        its_lacs = [_LAC.unpack_from(body, _LAC_AT)[0] for _, body in adds]
        grants.append(grant)
        lacs.append(max(its_lacs))
        counts.append(len(its_lacs))
    return RecordRun(
        b"".join(grants),
        array("q", lacs).tobytes(),
        array("q", counts).tobytes(),
        b"".join(framed(run.bodies)),
        run.count,
        run.size_bytes,
        run.sink,
        run.context,
        lambda: run,
    )
