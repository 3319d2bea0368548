"""A run of adds as the compiled kernels hand it over: its entries in one piece."""

from __future__ import annotations

import struct

from bkctl.engine.add_run import AddRun, RecordRun, framed

_LAC = struct.Struct(">q")
_LAC_AT = 16


def packed(run: AddRun) -> RecordRun:
    """Return the same run, with each grant once, its highest LAC and the number of its entries."""
    lacs: dict[bytes, list[int]] = {}
    for grant, body in zip(run.grants, run.bodies, strict=True):
        lacs.setdefault(grant, []).append(_LAC.unpack_from(body, _LAC_AT)[0])
    return RecordRun(
        list(lacs),
        list(map(max, lacs.values())),
        list(map(len, lacs.values())),
        b"".join(framed(run.bodies)),
        run.count,
        run.size_bytes,
        run.sink,
        run.context,
        lambda: run,
    )
