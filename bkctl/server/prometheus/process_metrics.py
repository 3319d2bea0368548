"""``process_*`` (Linux), and the few ``jvm_*`` that have an equal in a Python process."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from contextlib import suppress

from bkctl.engine.bookie import Bookie
from bkctl.metrics.scrape import Scrape
from bkctl.server.prometheus.process_usage import process_memory

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Fields behind the name in ``/proc/self/stat``; the name may hold anything, brackets included.
_START_TIME_FIELD = 19


class ProcessMetrics:
    """Times Python's cycle collector as long as it is open."""

    def __init__(self) -> None:
        generations = range(len(gc.get_stats()))
        self._collections = dict.fromkeys(generations, 0)
        self._seconds = dict.fromkeys(generations, 0.0)
        self._started_s = 0.0
        gc.callbacks.append(self._collecting)

    def close(self) -> None:
        """Time nothing any more; a second call does nothing."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def add(self, scrape: Scrape, bookie: Bookie | None, memory_bytes: int) -> None:
        """Everything that the system tells; ``memory_bytes`` is what the caches may have."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        scrape.counter("process_cpu_seconds_total", round(usage.ru_utime + usage.ru_stime, 3))
        scrape.gauge("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        scrape.gauge("jvm_threads_current", threading.active_count())
        direct_bytes = 0 if bookie is None else _cached_bytes(bookie)
        scrape.gauge("jvm_memory_direct_bytes_used", direct_bytes)
        scrape.gauge("jvm_memory_direct_bytes_max", memory_bytes)
        for generation, count in self._collections.items():
            seconds = round(self._seconds[generation], 6)
            scrape.total("jvm_gc_collection_seconds", count, seconds, gc=f"generation {generation}")
        with suppress(OSError):
            scrape.gauge("process_open_fds", len(os.listdir("/proc/self/fd")))
            scrape.gauge("process_start_time_seconds", _start_time_s())
        memory = process_memory()
        if memory is None:
            return
        scrape.gauge("process_virtual_memory_bytes", memory.virtual_bytes)
        scrape.gauge("process_resident_memory_bytes", memory.resident_bytes)
        heap_bytes = memory.resident_bytes - memory.shared_bytes - direct_bytes
        scrape.gauge("jvm_memory_bytes_used", max(heap_bytes, 0), area="heap")
        scrape.gauge("jvm_memory_bytes_used", memory.shared_bytes, area="nonheap")

    def _collecting(self, phase: str, about: dict[str, int]) -> None:
        """Python's cycle collector, before and after it runs; on the thread that it interrupts."""
        if phase == "start":
            self._started_s = time.perf_counter()
        else:
            generation = about["generation"]
            self._collections[generation] += 1
            self._seconds[generation] += time.perf_counter() - self._started_s


def _cached_bytes(bookie: Bookie) -> int:
    total = sum(journal.queued_bytes for journal in bookie.journals)
    for storage in bookie.storages:
        levels = storage.levels()
        total += levels.write_cache_bytes + levels.read_cache_bytes
    return total


def _start_time_s() -> float:
    """When the process began, in seconds since 1970. Raises OSError."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    with open("/proc/uptime", encoding="ascii") as uptime:
        up_s = float(uptime.read().split()[0])
    return round(time.time() - up_s + int(fields[_START_TIME_FIELD]) / _TICKS_PER_S, 2)
