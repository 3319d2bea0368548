"""Which process listens on a TCP port of this machine, for a refusal that names it.

Source: proc(5), ``/proc/net/tcp``: local address as ``hex:hex``, state ``0A`` for a listener, the inode.
"""

from __future__ import annotations

from contextlib import suppress

from bkctl.kvstore.lock_holder import open_files, process_ids, process_name

_LISTEN = "0A"


def port_holder(port: int) -> str | None:
    """Return ``name (pid N)`` of the process that listens on a port.

    None when the system does not show it (another user's process, another container).
    """
    inodes = _listeners(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in process_ids():
        with suppress(OSError):  # another user's process, or one that has ended since it was listed
            if not wanted.isdisjoint(one.path for one in open_files(pid)):
                return f"{process_name(pid)} (pid {pid})"
    return None


def _listeners(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on the port, on any address."""
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
