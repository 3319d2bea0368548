"""Measure this process: processor time, waiting for a processor, memory (Linux)."""

from __future__ import annotations

import os
import resource
import sys
import threading
from dataclasses import dataclass

_PAGE_BYTES = resource.getpagesize()
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Sums since the process began.

    ``cpu_wait_s`` is the time in which a living thread could run and no processor was free, None where the
    system does not report it. ``cores_usable`` is how many threads can run at once: 1 where Python has its
    lock.
    """

    cpu_s: float
    cpu_wait_s: float | None
    cores: int
    cores_usable: int
    rss_bytes: int | None
    threads: int


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Address space, its part in memory, and the part of that shared with other processes or files."""

    virtual_bytes: int
    resident_bytes: int
    shared_bytes: int


def process_memory() -> ProcessMemory | None:
    """Return the memory in use now; None where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            virtual, resident, shared = map(int, stream.read().split()[:3])
    except (OSError, ValueError):
        return None
    return ProcessMemory(virtual * _PAGE_BYTES, resident * _PAGE_BYTES, shared * _PAGE_BYTES)


def process_usage() -> ProcessUsage:
    """Measure what this process uses now."""
    memory = process_memory()
    times = resource.getrusage(resource.RUSAGE_SELF)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ProcessUsage(
        cpu_s=times.ru_utime + times.ru_stime,
        cpu_wait_s=_cpu_wait_s(),
        cores=cores,
        cores_usable=1 if _has_global_lock() else cores,
        rss_bytes=None if memory is None else memory.resident_bytes,
        threads=threading.active_count(),
    )


def _has_global_lock() -> bool:
    # A build of Python 3.13 or newer without the lock says so here.
    enabled = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or bool(enabled())


def _cpu_wait_s() -> float | None:
    """Add up the second number of every thread's ``schedstat``: nanoseconds in the run queue."""
    waited_ns = []
    try:
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as stream:
                    waited_ns.append(int(stream.read().split()[1]))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended just now, or no thread has such a file
    except (OSError, ValueError, IndexError):
        return None
    return sum(waited_ns) / _NS_PER_S if waited_ns else None
