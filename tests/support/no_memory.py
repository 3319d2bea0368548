"""A call in the middle of which Python once gets no memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def without_memory(call: Callable[[], object], allowed: int) -> bool:
    """Make a call to which Python gives memory so many times, and then once none; whether it raised."""
    testcapi = pytest.importorskip("_testcapi")
    remove_hooks = testcapi.remove_mem_hooks
    testcapi.set_nomemory(allowed, allowed + 1)
    try:
        call()
    except MemoryError:
        return True
    finally:
        remove_hooks()
    return False
