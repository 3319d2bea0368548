"""The next steps after a difference between cookies."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname, join

from bkctl.admin.cookies.in_directories import CookieDifference
from bkctl.admin.next_step import NextStep, bkctl_line, ended_by, not_ended
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.bookie_directories import every_directory, holds_nothing
from bkctl.scan.directory import COOKIE_NAME, current
from bkctl.vfs import FileSystem

_PLACES = (
    "no command moves directories. Mount them where the cookie says, or name them in the configuration as "
    "the cookie does, in the same order: the bookie finds a ledger by the position of its directory"
)

#: How a person ends a difference in a field. No command can, because it cannot know which cookie is right.
INSTEAD = {
    "bookie_host": (
        "if the directories are this bookie's, configure its old id again (bookieId, or the address, "
        "interface and port from which it was made); if they are another bookie's, mount the right disk"
    ),
    "journal_dirs": _PLACES,
    "ledger_dirs": _PLACES,
    "index_dirs": _PLACES,
    "instance_id": (
        "if metadataServiceUri names another cluster, correct it. If the cluster was formatted, its ledgers "
        "are gone: empty the directories ('bkctl bookie format'), and the bookie joins as a new one"
    ),
    "layout_version": "upgrade the directory with BookKeeper's own `bookkeeper upgrade --upgrade`",
}

EMPTY = (
    "mount the right disk. Do not put a cookie into an empty directory: the lost disk would look complete, "
    "and the bookie would answer 'no such entry' for its entries. If the disk is lost for good, "
    "'bkctl bookie rebuild' prepares a new, empty one, which is then filled from the other replicas"
)

WITHOUT_SOURCE = (
    "no directory has a cookie that could be copied. When it is certain that the directories and the "
    "metadata are this bookie's, make a cookie from the configuration ('bkctl cookie generate --conf FILE "
    "--out cookie'), and store it with 'bkctl cookie create'"
)

NOT_STORED = (
    "only if the cookie was removed by mistake. If the bookie was decommissioned, empty its directories "
    "('bkctl bookie format') and start it as a new one"
)


def of_missing_file(directory: str, good: str | None, *, is_empty: bool, look: Sequence[str]) -> NextStep:
    """Return the step for a directory without a cookie; ``good`` is a file with the right one."""
    if is_empty:
        return not_ended(EMPTY, *look)
    if good is None:
        return not_ended(WITHOUT_SOURCE, *look)
    return ended_by(("cookie", "create", directory, "--file", good, "--yes"))


def of_missing_node(bookie: str, good: str | None, options: Sequence[str], look: Sequence[str]) -> NextStep:
    """Return the step for a bookie without a cookie in the metadata store."""
    if good is None:
        return not_ended(WITHOUT_SOURCE, *look)
    return ended_by(("cookie", "create", bookie, "--file", good, *options, "--yes"), instead=NOT_STORED)


def of_renamed(
    old: str, new: str, directories: Sequence[str], options: Sequence[str], look: Sequence[str]
) -> NextStep:
    """Return the step for a bookie whose configuration makes another id than the one of its cookies.

    No command writes a configuration, and only the old id keeps its ledgers reachable at once. The commands
    that make it a bookie of the new id are named in their order; the last one takes its ledgers along.
    """
    file = f"cookie-{new}"
    flow = (
        ("cookie", "generate", *options, "--out", file),
        ("cookie", "update", *directories, "--file", file, "--force"),
        ("cookie", "create", new, "--file", file, *options),
        ("cookie", "delete", old, *options),
    )
    listed = " && ".join(bkctl_line(*words) for words in flow)
    return not_ended(
        f"set bookieId={old} in the configuration, or give the bookie its old address and port: the metadata "
        f"of its ledgers names {old}, and under another id no client finds its entries. To make it bookie "
        f"{new} nevertheless: {listed}; then start it, and change its ledgers by "
        f"{bkctl_line('bookies', 'replace-id', old, new, *options)}",
        *look,
    )


def of_difference(
    filesystem: FileSystem, found: CookieDifference, good: str | None, options: Sequence[str]
) -> NextStep:
    """Return the step for a row of ``cookie diff``.

    ``good`` is a file with the cookie that is expected, None where there is none; ``options`` name the
    configuration and the metadata store.
    """
    look = ("cookie", "get", found.path) if found.source == "file" else ("cookie", "get", *options)
    if found.field != "cookie":
        return not_ended(INSTEAD[found.field], *look)
    look = ("doctor", *options, "--only", "directories,cookies")
    if found.source == "znode":
        return of_missing_node(found.expected or "", good, options, look)
    folder = dirname(found.path)
    is_there = filesystem.status(folder) is not None
    is_empty = not is_there or holds_nothing(filesystem.names(folder))
    return of_missing_file(folder, good, is_empty=is_empty, look=look)


def good_file(directories: DirectorySettings, found: Sequence[CookieDifference]) -> str | None:
    """Return the cookie file of a configured directory in which nothing differs; None without any."""
    differing = {one.path for one in found}
    files = (join(current(directory), COOKIE_NAME) for directory in every_directory(directories))
    return next((file for file in files if file not in differing), None)
