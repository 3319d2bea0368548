"""Whether a bookie may start on its directories, and which cookies it has to write for that.

Every directory has a cookie in ``current/VERSION`` and the bookie has one in the metadata store; all are the
same. They reveal a bookie whose disk is missing, swapped or another's, before it answers "no such entry" for
what was on it. The table (``store``: the cookie in the metadata store):

======== ================================ ====================================================
store    directories without a cookie     result
======== ================================ ====================================================
absent   some, all of those empty         a new bookie: stamp every directory, then the store
absent   some, one of those not empty     refuse
absent   none                             refuse, unless no directory holds anything else: then
                                          a first start was interrupted, stamp the store
present  none                             start
present  some, no expansion               refuse
present  some, expansion allowed          refuse if one of them is known or not empty, else
                                          stamp every directory, then the store
======== ================================ ====================================================

Before that every cookie that is there must match the one made of the configuration. With
``allowStorageExpansion`` the ledger and index directories may be more than the cookie's; as a ledger's place
is its id modulo the number of ledger directories, their order and number still must not change once a
directory holds data (in Java they may, and then every ledger is "not found").

Where this differs from Java it is on the safe side: an interrupted first start goes on; an expansion that was
interrupted is finished; with expansion a journal directory that lost its cookie is refused, not stamped.

Source: ``LegacyCookieValidation``, ``Cookie`` (BookKeeper 4.17.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.codec.cookie import LAYOUT_VERSION, Cookie, join_dirs
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.errors import CorruptionError, RefusedError
from bkctl.storage_kinds import DEFAULT, StorageKind


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """One configured directory, without ``current``.

    ``is_empty``: nothing but a cookie is in it, or it is not there. ``holds_data``: journals, entry logs or
    indexes are. ``is_half_rebuilt``: a rebuild of the lost disk was cut off before it had the cookie.
    """

    path: str
    cookie: Cookie | None
    is_empty: bool
    holds_data: bool = False
    is_half_rebuilt: bool = False


@dataclass(frozen=True, slots=True)
class StoredCookie:
    """A cookie in the metadata store, the id it stands under, and the version to hand to an update."""

    bookie: str
    cookie: Cookie
    version: int


@dataclass(frozen=True, slots=True)
class CookieDecision:
    """The bookie may start after this: ``cookie`` goes to the directories, in order, and then to the store.

    ``store_version`` is the version to replace, None to create the cookie; it counts when ``stamp_store``.
    """

    cookie: Cookie
    stamp_directories: tuple[str, ...] = ()
    stamp_store: bool = False
    store_version: int | None = None

    @property
    def is_new_bookie(self) -> bool:
        """Whether nothing was known of this bookie before."""
        return self.stamp_store and self.store_version is None


def cookie_of(bookie: str, directories: DirectorySettings, instance_id: str | None) -> Cookie:
    """Return the cookie that the configuration asks for. Raises UsageError when a directory holds a TAB."""
    return Cookie(
        LAYOUT_VERSION,
        bookie,
        ",".join(directories.journals),
        join_dirs(directories.ledgers),
        instance_id,
        join_dirs(directories.indexes) if directories.indexes else None,
    )


def decide(
    wanted: Cookie,
    directories: Sequence[DirectoryFacts],
    stored: Sequence[StoredCookie],
    *,
    allow_expansion: bool,
    kind: StorageKind = DEFAULT,
) -> CookieDecision:
    """Return what to write before the bookie may start, by the table above.

    ``wanted`` is :func:`cookie_of`, ``directories`` every journal, ledger and index directory once, and
    ``stored`` the cookies found under each id that the bookie could have. With a storage over all directories
    their number and order do not matter. Raises RefusedError, naming the
    reason and the way out, and CorruptionError for a cookie whose directories do not parse.
    """
    for one in stored:
        _require_match(wanted, one.cookie, f"metadata store, bookie {one.bookie}", allow_expansion)
    for directory in directories:
        if directory.cookie is not None:
            _require_match(wanted, directory.cookie, directory.path, allow_expansion)
    found = [one.cookie for one in stored]
    found += [directory.cookie for directory in directories if directory.cookie is not None]
    if not kind.shares_log_ids:
        _require_same_places(wanted, found, directories)
    missing = [directory for directory in directories if directory.cookie is None]
    everywhere = tuple(directory.path for directory in directories)
    if not stored:
        return _without_a_stored_cookie(wanted, directories, missing, everywhere)
    if missing:
        if not allow_expansion:
            raise RefusedError(_lost(missing, stored))
        _require_new_and_empty(missing, found)
    if missing or any(_differs(wanted, cookie) for cookie in found):
        # Every directory again, so that all have the same cookie before the store has it.
        return CookieDecision(wanted, everywhere, True, stored[-1].version)
    return CookieDecision(wanted)


def _without_a_stored_cookie(
    wanted: Cookie,
    directories: Sequence[DirectoryFacts],
    missing: Sequence[DirectoryFacts],
    everywhere: tuple[str, ...],
) -> CookieDecision:
    # Data under a cookie means that the bookie has served: an empty directory beside it is a disk that was
    # lost, and a bookie that starts as new would answer "no such entry" for what was on it.
    served = [
        directory for directory in directories if directory.cookie is not None and not directory.is_empty
    ]
    if served:
        without = "".join(f" ({directory.path} has none)" for directory in missing)
        raise RefusedError(
            f"bookie {wanted.bookie_host} has no cookie in the metadata store, but its directories have "
            f"one{without}. Either the bookie was removed from the cluster, or this is another cluster's "
            "metadata. If it was decommissioned, empty its directories (`bkctl bookie format`) to start it "
            f"as a new bookie. If the cookie was removed by mistake, store {served[0].path}/current/VERSION "
            f"again (`bkctl cookie create {wanted.bookie_host} --file ...`)"
        )
    full = [directory.path for directory in missing if not directory.is_empty]
    if full:
        raise RefusedError(
            f"{', '.join(full)}: no cookie (current/VERSION), but not empty, and the metadata store does "
            f"not know bookie {wanted.bookie_host}. Check that the directories and the metadata are those "
            "of this bookie. To start a new bookie, empty the directories (`bkctl bookie format`)"
        )
    return CookieDecision(wanted, everywhere if missing else (), True)


def _lost(missing: Sequence[DirectoryFacts], stored: Sequence[StoredCookie]) -> str:
    half = [directory.path for directory in missing if directory.is_half_rebuilt]
    if half:
        return (
            f"{', '.join(half)}: no cookie (current/VERSION): `bkctl bookie rebuild` of bookie "
            f"{stored[-1].bookie} was interrupted. Run it again. Do not only restore the cookie: the bookie "
            "would then answer that lost entries never existed"
        )
    paths = ", ".join(directory.path for directory in missing)
    return (
        f"{paths}: no cookie (current/VERSION), but the metadata store knows bookie {stored[-1].bookie}: a "
        "disk is not mounted, or was replaced or emptied. Mount the right disks. If their data is lost, "
        "`bkctl bookie rebuild` prepares new, empty directories, which are then filled from the other "
        "replicas. If the bookie never had these directories, set allowStorageExpansion=true"
    )


def _require_new_and_empty(missing: Sequence[DirectoryFacts], found: Sequence[Cookie]) -> None:
    known = {path for cookie in found for path in cookie.paths}
    lost = [directory.path for directory in missing if directory.path in known]
    if lost:
        raise RefusedError(
            f"{', '.join(lost)}: no cookie (current/VERSION), but the bookie had this directory before: its "
            "disk is not mounted, or was emptied. Mount the right disk; allowStorageExpansion is only for "
            "new directories"
        )
    full = [directory.path for directory in missing if not directory.is_empty]
    if full:
        raise RefusedError(
            f"{', '.join(full)}: is not empty, but a new directory must be; empty it or name another one"
        )


def _differs(wanted: Cookie, found: Cookie) -> bool:
    return found.ledger_dirs != wanted.ledger_dirs or _index_text(found) != _index_text(wanted)


def _index_text(cookie: Cookie) -> str:
    return cookie.index_dirs if cookie.index_dirs and cookie.index_dirs.strip() else cookie.ledger_dirs


def _require_match(wanted: Cookie, found: Cookie, where: str, allow_expansion: bool) -> None:
    """Raise RefusedError that names the difference and what to do about it."""
    try:
        _require_same_bookie(wanted, found, where)
        _require_same_directories(wanted, found, where, allow_expansion)
    except CorruptionError as error:
        raise error.located(where) from error


def _require_same_bookie(wanted: Cookie, found: Cookie, where: str) -> None:
    if not found.has_fields:
        raise RefusedError(
            f"{where}: the cookie is of layout {found.layout_version}, which is too old; upgrade the bookie "
            "with BookKeeper's own `bookkeeper upgrade --upgrade`"
        )
    if found.bookie_host != wanted.bookie_host:
        raise RefusedError(
            f"{where}: the cookie is that of bookie {found.bookie_host}, but this bookie is "
            f"{wanted.bookie_host}. If the directories are right, configure the old id again: "
            f"bookieId={found.bookie_host}, or the address, interface and port from which it was made"
        )
    if found.instance_id != wanted.instance_id:
        raise RefusedError(
            f"{where}: the cookie is of cluster instance {found.instance_id or 'none'}, but the metadata "
            f"store's is {wanted.instance_id or 'none'}: the cluster was formatted since then, or "
            "metadataServiceUri names another cluster. Correct the URI, or empty the directories (`bkctl "
            "bookie format`) to join as a new bookie"
        )


def _require_same_directories(wanted: Cookie, found: Cookie, where: str, allow_expansion: bool) -> None:
    _require_directories("journalDirectories", found.journal_paths, wanted.journal_paths, where, False)
    if found.ledger_dirs != wanted.ledger_dirs:
        _require_directories(
            "ledgerDirectories", found.ledger_paths, wanted.ledger_paths, where, allow_expansion
        )
    if _index_text(found) != _index_text(wanted):
        _require_directories(
            "indexDirectories", found.index_paths, wanted.index_paths, where, allow_expansion
        )


def _require_directories(
    key: str, found: tuple[str, ...], wanted: tuple[str, ...], where: str, allow_expansion: bool
) -> None:
    if found == wanted or (allow_expansion and set(found) <= set(wanted)):
        return
    if sorted(found) == sorted(wanted):
        raise RefusedError(
            f"{where}: the order of {key} is not that of the cookie; set {key}={','.join(found)}"
        )
    message = f"{where}: {key}: the cookie has {','.join(found)}, the configuration {','.join(wanted)}"
    if set(found) < set(wanted) and key != "journalDirectories":
        raise RefusedError(f"{message}. To add new, empty directories, set allowStorageExpansion=true")
    raise RefusedError(
        f"{message}. Set {key}={','.join(found)}; if directories were moved, update their cookies, too"
    )


def _require_same_places(
    wanted: Cookie, found: Sequence[Cookie], directories: Sequence[DirectoryFacts]
) -> None:
    """Check the order and number of ledger and index directories, once there is data."""
    if not any(directory.holds_data for directory in directories):
        return
    for cookie in found:
        for key, old, new in (
            ("ledgerDirectories", cookie.ledger_paths, wanted.ledger_paths),
            ("indexDirectories", cookie.index_paths, wanted.index_paths),
        ):
            if old != new:
                raise RefusedError(
                    f"{key}: the configuration has {','.join(new)}, but the data was written with "
                    f"{','.join(old)}. DbLedgerStorage finds a ledger by its id modulo the number of "
                    "directories. If their number or order changes, it finds no ledger any more. Set "
                    f"{key}={','.join(old)}. To use more disks, start another bookie on them; or "
                    "decommission this bookie, empty it (`bkctl bookie format`) and start it again"
                )
