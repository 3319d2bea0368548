"""Salvages of journals in a plan: of those that are damaged, and of those that are gone for good."""

from __future__ import annotations

from typing import Any

from bkctl.commands.frame.bookie_options import ConfigurationOptions

#: The doctor's findings about journals that an earlier copy would bring back.
_JOURNAL_KINDS = frozenset(
    {"missing_journal", "mark_beyond_journal", "mark_within_record", "damaged_journal"}
)
_SWAPPED = "journal directories were swapped"
#: The doctor's finding of an index that is gone; it names no command where the logs are gone as well.
_LOST_INDEX = "lost_index"
_WITH_THE_INDEX = (
    "bring the journals back together with the index and the logs that are lost; if they are lost for good, "
    "'bkctl bookie start --accept-loss' accepts both and sets limbo"
)
_JOURNAL_KNOW = (
    "if there is a copy of the journal, or if it was only moved, bring it back instead. Otherwise its "
    "entries are lost on this bookie; if it is not known which entries these are, all ledgers of the journal "
    "are put into limbo"
)


def with_journal_salvages(
    rows: list[dict[str, Any]], configuration: ConfigurationOptions, paths: list[str]
) -> list[dict[str, Any]]:
    """Return the rows with 'journal salvage --in-place' for journals that are damaged or gone for good.

    As for logs, the doctor leaves it to a person whether there is a copy of such a journal.
    """

    def is_salvaged(row: dict[str, Any]) -> bool:
        return row["kind"] in _JOURNAL_KINDS and not row["commands"] and _SWAPPED not in row["found"]

    if any(row["kind"] == _LOST_INDEX and not row["commands"] for row in rows):
        # A salvage needs the rows of the ledgers that it puts into limbo.
        return [_with_the_index(row) for row in rows]
    if not any(map(is_salvaged, rows)):
        return rows
    journals, places = _journals_of(configuration, paths)
    uri = configuration.metadata_uri
    metadata = ["--metadata", uri] if uri is not None else []

    def salvage(row: dict[str, Any]) -> list[str]:
        # One that was not found, because all of its journals are gone, is named by the row alone.
        known = journals if configuration.conf is not None else {*journals, row["dir"]}
        chosen = _chosen_journal(row, known)
        return ["bkctl", "journal", "salvage", *places, "--in-place", *chosen, *metadata, "--yes"]

    return [
        {**row, "commands": [salvage(row)], "instead": _JOURNAL_KNOW} if is_salvaged(row) else row
        for row in rows
    ]


def _with_the_index(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a journal as one for a person, who accepts the loss of the index as well."""
    if row["kind"] not in _JOURNAL_KINDS or _SWAPPED in row["found"]:
        return row
    return {**row, "commands": [], "instead": _WITH_THE_INDEX, "next": None}


def _journals_of(configuration: ConfigurationOptions, paths: list[str]) -> tuple[set[str], list[str]]:
    """Return the journal directories of the bookie, and the paths that name all of its directories."""
    from bkctl.commands.frame.bookie_options import bookie_config
    from bkctl.scan.files.paths import directories as found_directories
    from bkctl.vfs import PosixFileSystem

    if configuration.conf is None:
        return {found.path for found in found_directories(PosixFileSystem(), paths) if found.journals}, paths
    # A disk of these may be empty, or not mounted: nothing is searched for in them.
    directories = bookie_config(configuration).directories
    places = (*directories.journals, *directories.ledgers, *directories.index_places)
    return set(directories.journals), list(dict.fromkeys(places))


def _chosen_journal(row: dict[str, Any], journals: set[str]) -> list[str]:
    """Return the options that name the journal directory of a row.

    Where there are several, their journals may have the same names. The only one is named by its oldest
    journal, or by the one that the last mark names where it has none.
    """
    from bkctl.scan.directory import journal_ids
    from bkctl.vfs import PosixFileSystem

    if len(journals) > 1:
        return ["--journal-dir", row["dir"]]
    ids = journal_ids(PosixFileSystem(), row["dir"])
    return ["--journal", hex(ids[0] if ids else row["journal_id"])]
