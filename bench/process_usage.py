"""What a running process has used, from ``/proc``: processor time, resident memory; the machine's load."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4)  # idle, iowait


def cpu_s(pid: int) -> float:
    """User and system seconds of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def user_s(pid: int) -> float:
    """User seconds of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS_PER_S


def threads_s(pid: int) -> dict[int, tuple[float, float]]:
    """User and system seconds of each thread of a process so far, by its number."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        found[int(task.name)] = (int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)
    return found


def resident_bytes(pid: int) -> int:
    """Resident bytes now."""
    return _status_kib(pid, "VmRSS") << 10


def resident_bytes_max(pid: int) -> int:
    """The most resident bytes that there ever were."""
    return _status_kib(pid, "VmHWM") << 10


def machine_busy_s() -> float:
    """Seconds that all processors together were busy since the machine started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(int(ticks) for place, ticks in enumerate(fields) if place not in _IDLE_FIELDS) / _TICKS_PER_S


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid}: no {name}")
