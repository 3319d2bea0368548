"""The process of a bookie that runs on this machine, for whoever looks for its id.

A database lock in its directories names it surely. An address of its HTTP admin names who listens there, and
that may be another program that passes connections on (a container's proxy, a tunnel): only a process that is
a bookie by its name counts, since the answer is what somebody sends a signal to.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.bookie_directories import every_directory
from bkctl.directories.holders import holders
from bkctl.errors import BkctlError
from bkctl.kvstore.lock_holder import LockHolder
from bkctl.scan.directory import current
from bkctl.server.life.port_holder import Address, port_holder

#: A part of the name of every bookie's process, ours and Java's.
_PROGRAMS = ("bkctl", "org.apache.bookkeeper.")
_PORTS = {"http": 80, "https": 443}


def process_in(directories: DirectorySettings) -> LockHolder | None:
    """Return the process that holds a database in a bookie's directories.

    None where there is none, or where that cannot be seen.
    """
    for directory in every_directory(directories):
        try:
            found = holders(current(directory))
        except BkctlError:
            continue  # no such directory, or one of another user
        for holder in found:
            if holder.how == "database lock":
                return LockHolder(holder.pid, holder.name)
    return None


def process_at(url: str) -> LockHolder | None:
    """Return the bookie's process that listens at an HTTP address, None where it is not seen from here."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for *_, address in found:
        at = ip_address(str(address[0]).partition("%")[0])
        holder = port_holder(port, at) if _is_here(at) else None
        if holder is not None and any(program in holder.name for program in _PROGRAMS):
            return holder
    return None


def _is_here(address: Address) -> bool:
    """Return whether an address is one of this machine."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
