"""Which process listens on a TCP port of this machine, for a refusal or a status that names it.

Source: proc(5), ``/proc/net/tcp``: local address as ``hex:hex``, state ``0A`` for a listener, the inode. An
address is written word by word in the machine's byte order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from bkctl.kvstore.lock_holder import LockHolder, open_files, process_ids, process_name

_LISTEN = "0A"
_WORD_DIGITS = 8

Address = IPv4Address | IPv6Address


class _Listener(NamedTuple):
    address: Address
    inode: str


def port_holder(port: int, address: Address | None = None) -> LockHolder | None:
    """Return the process that listens on a port, on any address or on one: one that listens on all counts.

    None when the system does not show it (another user's process, another container).
    """
    found = list(_listeners(port))
    if address is not None:
        at = [one for one in found if one.address == address]
        # The system gives a connection to who listens on its very address.
        found = at or [one for one in found if one.address.is_unspecified]
    wanted = {f"socket:[{one.inode}]" for one in found}
    if not wanted:
        return None
    for pid in process_ids():
        with suppress(OSError):  # another user's process, or one that has ended since it was listed
            if not wanted.isdisjoint(one.path for one in open_files(pid)):
                return LockHolder(pid, process_name(pid))
    return None


def _listeners(port: int) -> Iterator[_Listener]:
    """Yield the sockets that listen on the port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue  # no such table outside Linux, or without IPv6
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(number, 16) == port:
                yield _Listener(_address(address), fields[9])


def _address(digits: str) -> Address:
    """Return an address of the table; one of IPv4 that stands among those of IPv6 as what it is."""
    words = (digits[start : start + _WORD_DIGITS] for start in range(0, len(digits), _WORD_DIGITS))
    packed = b"".join(int(word, 16).to_bytes(_WORD_DIGITS // 2, sys.byteorder) for word in words)
    found = ip_address(packed)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
