"""Takes memory away while a benchmark runs, so that both sides have pages that were in use before.

A virtual machine may give its free pages back to its host (``page_reporting``, a balloon). A page that is
taken into use then has to come from there: on one machine that cost 1.6 us of the system's time for each KB
of a file that was written, where an add takes 2.5 us in all, and it came and went with what had been removed
a moment ago. A bookie's machine is not like that: its memory is full of the pages of its logs. So a process
holds all memory but some gigabytes, and these are filled with the pages of a file, which the system uses
again for whatever is written and read next.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_HOLD = """
import mmap, sys
held = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(held), mmap.PAGESIZE):
    held[at] = 1
print("held", flush=True)
sys.stdin.read()
"""
_REPORTING = Path("/sys/module/page_reporting")


def gives_pages_back() -> bool:
    """Whether the machine tells its host of free pages."""
    return _REPORTING.is_dir()


@contextlib.contextmanager
def taken_memory(left_bytes: int, folder: Path) -> Iterator[None]:
    """Hold all memory that is available but ``left_bytes``, and fill these with a file in ``folder``.

    Raises RuntimeError when there is not so much.
    """
    size_bytes = _available_bytes() - left_bytes
    if size_bytes <= 0:
        raise RuntimeError(
            f"{_available_bytes() >> 20} MiB of memory are available, {left_bytes >> 20} wanted"
        )
    command = [sys.executable, "-c", _HOLD, str(size_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != "held\n":
                raise RuntimeError(f"no process could hold {size_bytes >> 20} MiB")
            with (folder / "pages").open("wb") as file:
                for _ in range(left_bytes >> 22):
                    file.write(bytes(1 << 22))
                file.flush()
                os.fsync(file.fileno())
            yield
        finally:
            holder.stdin.close()


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo does not say how much memory is available")
