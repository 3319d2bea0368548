"""The process that holds a lease: its name in the table of sessions, and whether it is gone."""

from __future__ import annotations

import os


def holder_of(pid: int) -> str:
    """Return ``process 12 of 345 in pid:[678]``: id, start in clock ticks since boot, namespace of the ids.

    Without /proc it is the id alone, of which nobody concludes anything.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            began = file.read().rpartition(b")")[2].split()[19].decode()
        return f"process {pid} of {began} in {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"process {pid}"


def is_gone(holder: str) -> bool:
    """Return whether the process is certainly no more: same namespace, and none of its id and start."""
    words = holder.split()
    if len(words) != 6 or not words[1].isdigit():
        return False
    try:
        here = os.readlink("/proc/self/ns/pid")
    except OSError:
        return False
    if words[5] != here:
        return False
    if not os.path.exists(f"/proc/{words[1]}"):
        return True
    now = holder_of(int(words[1]))
    return now.count(" ") == 5 and now != holder
