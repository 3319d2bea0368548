"""Compare two cookies, field by field, and explain their differences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bkctl.codec.cookie import Cookie
from bkctl.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field; ``cause`` is what makes such a difference, in a phrase. None is an absent field."""

    field: str
    expected: str | None
    found: str | None
    cause: str


def differences(wanted: Cookie, found: Cookie) -> list[FieldDifference]:
    """List the differences in what a bookie compares at its start: in id, directories and cluster instance.

    The number of the layout is not compared.

    Blank index directories are the ledger directories. Empty when a bookie takes the two for the same.
    """
    if not found.has_fields or not wanted.has_fields:
        return _of_layouts(wanted, found)
    return [*_of_bookies(wanted, found), *_of_directories(wanted, found), *_of_instances(wanted, found)]


def _of_layouts(wanted: Cookie, found: Cookie) -> list[FieldDifference]:
    if wanted.has_fields == found.has_fields:
        return []
    numbers = (str(wanted.layout_version), str(found.layout_version))
    return [FieldDifference("layout_version", *numbers, "a cookie of a layout below 3, which has no fields")]


def _of_bookies(wanted: Cookie, found: Cookie) -> Iterator[FieldDifference]:
    if wanted.bookie_host != found.bookie_host:
        cause = _cause_of_id(wanted.bookie_host, found.bookie_host)
        yield FieldDifference("bookie_host", wanted.bookie_host, found.bookie_host, cause)


def _cause_of_id(wanted: str, found: str) -> str:
    (host, _, port), (old_host, _, old_port) = wanted.rpartition(":"), found.rpartition(":")
    if host and host == old_host:
        return f"bookiePort was {old_port}, or the directory is that of another bookie of this machine"
    if host and old_host and port == old_port:
        return (
            "the address changed (a new IP, advertisedAddress, listeningInterface, useHostNameAsBookieID), "
            "or the directory is that of another machine's bookie"
        )
    if not host or not old_host:
        return "bookieId was set, changed or removed, or the directory is that of another bookie"
    return "the directory is that of another bookie"


def _of_directories(wanted: Cookie, found: Cookie) -> Iterator[FieldDifference]:
    for field, expected, actual in (
        ("journal_dirs", _paths(wanted, "journal"), _paths(found, "journal")),
        ("ledger_dirs", _paths(wanted, "ledger"), _paths(found, "ledger")),
        ("index_dirs", _paths(wanted, "index"), _paths(found, "index")),
    ):
        if expected == actual:
            continue
        if field == "index_dirs" and _is_implied(wanted) and _is_implied(found):
            continue  # the ledger directories, whose difference was reported
        yield FieldDifference(field, ",".join(expected), ",".join(actual), _cause_of_paths(expected, actual))


def _is_implied(cookie: Cookie) -> bool:
    return cookie.index_dirs is None or not cookie.index_dirs.strip()


def _paths(cookie: Cookie, which: str) -> tuple[str, ...]:
    """Get the paths of a cookie; where the stored text does not split, that text."""
    try:
        if which == "journal":
            return cookie.journal_paths
        return cookie.ledger_paths if which == "ledger" else cookie.index_paths
    except CorruptionError:
        return ((cookie.ledger_dirs if which == "ledger" else cookie.index_dirs) or "",)


def _cause_of_paths(expected: tuple[str, ...], found: tuple[str, ...]) -> str:
    new, gone = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if not new and not gone:
        return "the same directories in another order: every ledger would be looked for in the wrong one"
    if not gone:
        return f"added since: {', '.join(new)}"
    if not new:
        return f"left out: {', '.join(gone)}"
    if len(new) == len(gone) == 1 and new[0].rpartition("/")[2] == gone[0].rpartition("/")[2]:
        return f"moved or mounted elsewhere: {gone[0]} is {new[0]} now, or another bookie's"
    return f"added: {', '.join(new)}; left out: {', '.join(gone)}"


def _of_instances(wanted: Cookie, found: Cookie) -> Iterator[FieldDifference]:
    if wanted.instance_id == found.instance_id:
        return
    if found.instance_id is None:
        cause = "the cookie is of a time when the cluster had no instance id"
    elif wanted.instance_id is None:
        cause = "the cluster has no instance id: another cluster's metadata, or INSTANCEID was removed"
    else:
        cause = "the cluster was formatted since, or metadataServiceUri names another cluster"
    yield FieldDifference("instance_id", wanted.instance_id, found.instance_id, cause)
