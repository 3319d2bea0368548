"""Sets the C library's allocator for what a process of ours does with memory. Only glibc has these settings.

======================== ================== ==================================================================
setting (``mallopt``)    whose              why
======================== ================== ==================================================================
``M_ARENA_MAX``          a bookie's process each thread gets an arena of its own, up to eight for each
                                            processor, and an arena keeps what was freed in it; the threads of
                                            a bookie hand each other blocks of entries: it held 650 MiB where
                                            it holds 410 to 490 with two arenas
``M_MMAP_THRESHOLD``,    a worker's process to give a large block back and be given new pages costs as much as
``M_TRIM_THRESHOLD``                        what is done with it
======================== ================== ==================================================================

Nothing is set by ``malloc_trim``, which gives freed memory back once.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Free memory that a worker keeps, which it had in use before.
_KEPT_BYTES = 32 << 20
#: More arenas hold more memory, and one of them is not faster: small blocks come from caches of the threads.
ARENAS_MAX = 2
#: The settings by which a user chooses the number of arenas.
_CHOSEN = "MALLOC_ARENA_MAX"
_TUNABLES = ("GLIBC_TUNABLES", "glibc.malloc.arena_max")


def share_arenas() -> None:
    """Have all threads share ``ARENAS_MAX`` arenas, unless the environment says how many there are to be.

    To be called before threads are started: arenas that are there stay.
    """
    variable, name = _TUNABLES
    if _CHOSEN not in os.environ and name not in os.environ.get(variable, ""):
        _set(_M_ARENA_MAX, ARENAS_MAX)


def keep_freed_memory() -> None:
    """Have blocks of a window's or a table's size used again, in the place of new pages for each of them."""
    _set(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    _set(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_freed_memory_back() -> None:
    """Give the system back what was freed so far; of a bookie that has started these are some hundred KiB."""
    _call("malloc_trim", 0)


def _set(parameter: int, value: int) -> None:
    _call("mallopt", parameter, value)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library, if it has it."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
