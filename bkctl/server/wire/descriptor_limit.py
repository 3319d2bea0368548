"""Shares a process's file descriptors between connections and files, so that neither takes the other's."""

from __future__ import annotations

import contextlib
import resource

from bkctl.errors import RefusedError

#: Descriptors that stay free for journals, entry logs and tables however many clients connect: half of all,
#: and no more than a bookie with very many files uses.
_FILES_SHARE = 2
_FILES_MAX = 4096
_HTTP_SHARE = 16
_HTTP_MAX = 200
_LEAST = 8
#: A bookie with one directory of each kind that nobody is connected to has some thirty, and its databases
#: open more as they grow.
_NEEDED = 128


def raise_soft_limit() -> None:
    """Raise the soft limit of descriptors to the hard one.

    Shells and service managers start processes with 1,024 for the sake of programs that use select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A sandbox may forbid the change; the connections then share the limit that is there.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def require_enough(descriptors: int) -> None:
    """Raise RefusedError when a bookie could not even open its files."""
    if descriptors < _NEEDED:
        raise RefusedError(
            f"this process may have {descriptors} files and connections open, a bookie needs {_NEEDED} at"
            " least, and thousands with many clients: raise the limit (ulimit -Hn, LimitNOFILE= of systemd)"
        )


def http_connections_max(descriptors: int) -> int:
    """Return how many connections the HTTP admin may have."""
    return max(_LEAST, min(_HTTP_MAX, descriptors // _HTTP_SHARE))


def bookie_connections_max(descriptors: int, wanted: int) -> int:
    """Return how many clients may be connected: ``wanted``, or what files and HTTP leave."""
    files = min(_FILES_MAX, descriptors // _FILES_SHARE)
    return max(_LEAST, min(wanted, descriptors - files - http_connections_max(descriptors)))
