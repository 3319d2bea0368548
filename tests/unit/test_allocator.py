"""The arenas that threads of a process get memory from, as the C library reports them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from bkctl.allocator import ARENAS_MAX

#: Eight threads hold blocks at the same time, then the C library prints its arenas.
_PROGRAM = """
import ctypes, sys, threading
from bkctl.allocator import share_arenas

if sys.argv[1] == "shared":
    share_arenas()
met = threading.Barrier(8)

def hold():
    block = bytearray(100_000)
    met.wait(60)
    assert block

threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(library.fdopen(1, b"w"))
library.malloc_info(0, stream)
library.fflush(stream)
"""

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="only glibc reports its arenas"
)


def arenas(how: str, **environment: str) -> int:
    """The number of arenas that eight threads were given."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))
    }
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how],
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    return ran.stdout.count(b"<heap nr=")


def test_the_threads_of_a_bookie_share_arenas() -> None:
    assert arenas("own") > ARENAS_MAX, "threads share arenas anyway: the test is about something else"
    assert 1 <= arenas("shared") <= ARENAS_MAX


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_ARENA_MAX": "5"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=5"}],
    ids=["variable", "tunable"],
)
def test_the_number_that_the_environment_gives_counts(environment: dict[str, str]) -> None:
    assert arenas("shared", **environment) == 5


#: Blocks are freed between others that stay, so that the C library keeps them.
_FREED = """
from bkctl.allocator import give_freed_memory_back

def resident_kib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

blocks = [bytearray(b"x" * 8000) for _ in range(4000)]
blocks = blocks[::16]
kept = resident_kib()
give_freed_memory_back()
print(kept - resident_kib())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system says no resident memory")
def test_freed_memory_is_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _FREED], stdout=subprocess.PIPE, check=True, timeout=120, text=True
    )
    # 29 MiB were freed.
    assert int(ran.stdout) > 20 * 1024
