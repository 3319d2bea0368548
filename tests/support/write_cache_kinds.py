"""The write cache in Python and the one over compiled tables, for tests of what both do."""

from __future__ import annotations

import struct

import pytest

from bkctl import _kernels
from bkctl.engine.cache.compiled_write_cache import CompiledWriteCache
from bkctl.engine.cache.write_cache import WriteCache
from bkctl.engine.cache.write_caches import AnyWriteCache

Kind = type[WriteCache] | type[CompiledWriteCache]

#: The kind that a bookie has here.
CHOSEN: Kind = WriteCache if _kernels.EntryTable is None else CompiledWriteCache

KINDS = [
    WriteCache,
    pytest.param(
        CompiledWriteCache,
        marks=pytest.mark.skipif(_kernels.EntryTable is None, reason="the compiled kernels do not run"),
    ),
]


def records_of(bodies: list[bytes]) -> bytes:
    """The bodies as a journal has them."""
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def put_records(cache: AnyWriteCache, bodies: list[bytes]) -> None:
    """Put entries as a run of adds brings them."""
    cache.put_records(records_of(bodies), sum(map(len, bodies)), {body[:8] for body in bodies})
