"""The bookie's id, and what it could be called under another configuration.

In order: ``bookieId``; ``advertisedAddress:port``; the address of ``listeningInterface`` (or of the host's
name), as ``ip:port`` or, with ``useHostNameAsBookieID``, as ``host:port``. A loopback address makes no id
unless ``allowLoopback``: ids of several machines would be the same.

Source: ``BookieImpl.getBookieAddress``, ``LegacyCookieValidation.possibleBookieIds``, ``BookieId``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from bkctl.config.server_keys.identity import IdentitySettings
from bkctl.errors import RefusedError, UsageError
from bkctl.metadata.paths import check_bookie_id

_SIOCGIFADDR = 0x8915


class HostNames(Protocol):
    """The names and addresses of the machine that an id is made of."""

    def address_of(self, interface: str | None) -> str:
        """Return an interface's IPv4 address, with None that of the host's own name. Raises UsageError."""

    def name_of(self, address: str) -> str:
        """Return the canonical host name of an address, the address itself when it has none."""


class SystemHostNames:
    """The operating system's answers."""

    def address_of(self, interface: str | None) -> str:
        if interface is None:
            name = socket.gethostname()
            try:
                return socket.gethostbyname(name)
            except OSError as error:
                raise UsageError(
                    f"the host's name {name} has no address ({error}); set advertisedAddress, "
                    "listeningInterface or bookieId"
                ) from error
        return _interface_address(interface)

    def name_of(self, address: str) -> str:
        return socket.getfqdn(address)


def _interface_address(interface: str) -> str:
    import fcntl

    known = ", ".join(name for _, name in socket.if_nameindex())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise UsageError(
                f"listeningInterface={interface}: {error.strerror}; interfaces here: {known}"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def bookie_id(identity: IdentitySettings, port: int, names: HostNames) -> str:
    """Return the id under which the bookie registers; ``port`` is the one it listens on.

    Raises UsageError for an id that is not allowed or cannot be made, RefusedError for a loopback address.
    """
    if identity.bookie_id is not None:
        return check_bookie_id(identity.bookie_id)
    if identity.advertised_address is not None:
        return _host_and_port(identity.advertised_address, port, "advertisedAddress")
    address = names.address_of(identity.listening_interface)
    if ipaddress.ip_address(address).is_loopback and not identity.allow_loopback:
        raise RefusedError(
            f"the bookie's address is {address}, a loopback address: bookies on several machines would all "
            f"have the id {address}:{port}. Set listeningInterface=eth0 or advertisedAddress=HOST. For a "
            "cluster on this machine alone, set allowLoopback=true"
        )
    if not identity.use_host_name:
        return _host_and_port(address, port, "the interface's address")
    name = names.name_of(address)
    if identity.use_short_host_name:
        name = name.split(".", 1)[0]
    return _host_and_port(name, port, "the host's name")


def candidate_ids(identity: IdentitySettings, port: int, names: HostNames) -> list[str]:
    """Return every id to look up cookies under, so that a change of the naming scheme is noticed.

    An explicit ``bookieId`` alone, and so that of a bookie without a configuration; else ``ip:port``,
    ``host:port`` and ``advertised:port``. One that cannot be made here is left out. Raises as
    :func:`bookie_id`.
    """
    own = bookie_id(identity, port, names)
    if identity.bookie_id is not None or identity.loopback_only:
        return [own]
    plain = replace(identity, advertised_address=None, allow_loopback=True)
    found: list[str] = []
    for other in (replace(plain, use_host_name=False), replace(plain, use_host_name=True)):
        with contextlib.suppress(UsageError):
            found.append(bookie_id(other, port, names))
    # The own id comes last: the cookie under it is the one that is replaced.
    return [one for one in dict.fromkeys(found) if one != own] + [own]


def require_permitted_user(user: str, permitted: Sequence[str]) -> None:
    """Raise RefusedError for a user that is not among ``permittedStartupUsers``."""
    if permitted and user not in permitted:
        raise RefusedError(
            f"user {user} may not start this bookie: permittedStartupUsers={','.join(permitted)}. The "
            "bookie's usual user could not write the files that another user makes"
        )


def _host_and_port(host: str, port: int, origin: str) -> str:
    if ":" in host:
        raise UsageError(
            f"{origin} {host} has a colon in it (is it an IPv6 address?), so it cannot be the host in "
            "host:port. Set advertisedAddress=HOSTNAME or bookieId=NAME"
        )
    return check_bookie_id(f"{host}:{port}")
