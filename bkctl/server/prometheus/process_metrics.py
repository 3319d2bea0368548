"""``process_*`` (Linux), and the few ``jvm_*`` that have an equal in a Python process."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

from bkctl.engine.bookie import Bookie
from bkctl.metrics.bookie_catalogue import CYCLES, PROCESS, PROCESS_SCRAPED
from bkctl.metrics.scrape import Scrape
from bkctl.server.prometheus.declared import scrape_metrics
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
        """Stop timing collections of garbage; a second call does nothing."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def add(self, scrape: Scrape, bookie: Bookie | None, memory_bytes: int) -> None:
        """Add what the system says of the process; ``memory_bytes`` is what the caches may have."""
        times = resource.getrusage(resource.RUSAGE_SELF)
        direct_bytes = 0 if bookie is None else _cached_bytes(bookie)
        memory = process_memory()
        part = SimpleNamespace(
            open_fds=None,
            start_time_s=None,
            cpu_s=round(times.ru_utime + times.ru_stime, 3),
            threads=threading.active_count(),
            fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            direct_bytes=direct_bytes,
            direct_bytes_max=memory_bytes,
            rss_bytes=None if memory is None else memory.resident_bytes,
            virtual_bytes=None if memory is None else memory.virtual_bytes,
            shared_bytes=None if memory is None else memory.shared_bytes,
            heap_bytes=None
            if memory is None
            else max(memory.resident_bytes - memory.shared_bytes - direct_bytes, 0),
        )
        with suppress(OSError):
            part.open_fds = len(os.listdir("/proc/self/fd"))
            part.start_time_s = _start_time_s()
        scrape_metrics(scrape, PROCESS, part)
        scrape_metrics(scrape, PROCESS_SCRAPED, part)
        for generation, count in self._collections.items():
            seconds = round(self._seconds[generation], 6)
            cycles = SimpleNamespace(collections=count, seconds=seconds)
            scrape_metrics(scrape, CYCLES, cycles, gc=f"generation {generation}")

    def _collecting(self, phase: str, about: dict[str, int]) -> None:
        """Time Python's cycle collector, before and after it runs; on the thread that it interrupts."""
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
    """Return when the process began, in seconds since 1970. Raises OSError."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    with open("/proc/uptime", encoding="ascii") as uptime:
        up_s = float(uptime.read().split()[0])
    return round(time.time() - up_s + int(fields[_START_TIME_FIELD]) / _TICKS_PER_S, 2)
