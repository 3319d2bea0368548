"""Twins of the kernels by name: ``python``, ``native``, and ``tables``: compiled, without the instruction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from bkctl._kernels import _python

if TYPE_CHECKING:
    from bkctl._kernels import _native
    from bkctl._kernels._api import Kernels
else:
    try:
        from bkctl._kernels import _native
    except ImportError:
        _native = None

#: For tests of the compiled twin.
COMPILED = pytest.mark.skipif(_native is None, reason="the compiled kernels are not built")

#: Names of the twins that are compiled, none where nothing is.
COMPILED_TWINS = () if _native is None else ("native", "tables")

TWINS = ["python", pytest.param("native", marks=COMPILED), pytest.param("tables", marks=COMPILED)]


@contextmanager
def twin(name: str) -> Iterator[Kernels]:
    """The twin ``name``, for a while."""
    if name == "python":
        yield _python
        return
    _native.use_hardware(name == "native")
    try:
        yield _native
    finally:
        _native.use_hardware(True)
