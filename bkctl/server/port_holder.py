"""Which process listens on a TCP port of this machine, for a refusal that names it.

Source: proc(5), ``/proc/net/tcp``: local address as ``hex:hex``, state ``0A`` for a listener, the inode.
"""

from __future__ import annotations

import os

from bkctl.kvstore.lock_holder import process_name

_LISTEN = "0A"


def port_holder(port: int) -> str | None:
    """``name (pid N)``; None when the system does not tell (another user's process, another container)."""
    inodes = _listeners(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for name in os.listdir("/proc"):
        if name.isdigit() and _has_open(f"/proc/{name}/fd", wanted):
            return f"{process_name(int(name))} (pid {name})"
    return None


def _listeners(port: int) -> set[str]:
    """Inodes of the sockets that listen on the port, on any address."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue  # no such table outside Linux, or without IPv6
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _has_open(descriptors: str, wanted: set[str]) -> bool:
    try:
        numbers = os.listdir(descriptors)
    except OSError:
        return False  # another user's, or it has ended meanwhile
    for number in numbers:
        try:
            if os.readlink(f"{descriptors}/{number}") in wanted:
                return True
        except OSError:
            continue  # closed meanwhile
    return False
