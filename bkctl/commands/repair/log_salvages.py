"""Salvages of damaged or exchanged logs in a plan, and rebuilds of their indexes in front of them.

The doctor names no command for such a log. To bring its entries back from a copy of the file, from other
replicas, or not at all is a person's choice, and asking for a plan of repairs is that choice.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from bkctl.commands.frame.bookie_options import ConfigurationOptions
from bkctl.errors import BkctlError
from bkctl.scan.directory import current

#: Findings of logs that a salvage ends: damaged bytes, or a log of another ledger directory.
_SALVAGED_KINDS = frozenset({"damaged_log", "wrong_log_id_space"})
#: The doctor's finding of a rebuild that did not come to its end.
_LEFT_BEHIND = "unfinished_rebuild"
#: The doctor's finding of an index that is gone while there are logs; its rebuild names their directory.
_LOST_INDEX = "lost_index"
#: In the row of a log: where its index is, which may be another directory.
_INDEX = "index of the log"
_EXCHANGED_KNOW = (
    "if the log was moved here from another ledger directory, move it back instead: then nothing is lost. "
    "Otherwise it is put into quarantine, and the log that belongs here has to come from other replicas"
)


def with_log_salvage(row: dict[str, Any], configuration: ConfigurationOptions) -> dict[str, Any]:
    """Return the row of a damaged or exchanged log with the command that salvages it, others as they are."""
    from bkctl.admin.entrylogs.log_place import find_log
    from bkctl.admin.logs.file_steps import salvage_words
    from bkctl.vfs import PosixFileSystem

    if row["kind"] not in _SALVAGED_KINDS or row["commands"] or not row["path"]:
        return row
    try:
        place = find_log(PosixFileSystem(), [row["path"]], None, in_quarantine=False)
    except BkctlError as error:
        # Without an index nobody knows what a log should have.
        return {**row, "instead": f"{row['instead']} (not here: {error})"}
    row = {**row, _INDEX: place.space.dir}
    if row["kind"] != "damaged_log":
        if place.space.index_dirs != (place.current_dir,):
            # The index has a place of its own, which may be configured or mounted in a wrong order.
            return row
        row = {**row, "instead": _EXCHANGED_KNOW}
    metadata = configuration.metadata_uri
    words = ["--metadata", metadata] if metadata is not None else []
    return {**row, "commands": [["bkctl", *salvage_words(row["path"], words)]]}


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with either the salvage of a damaged log or the rebuild of its index, never both.

    A salvage moves the rows of an index, so that an index which is gone or wrong is rebuilt first, beside the
    damaged logs: the rebuild lists the entries that they lost, sets limbo, and the next plan has the salvage.
    If nothing but rows that name damaged bytes is wrong with the index, the salvage alone is enough: it lists
    their entries and puts the ledgers into limbo, and ``ledger repair`` gives them new rows. A rebuild that
    was refused over the damage, and left its work behind, is no reason for another one: the next plan has it.
    """
    choice = _Choice(rows)
    return [chosen for row in rows if (chosen := choice.of(row)) is not None]


#: To know about the rebuild of an index beside damaged logs.
_NEXT_PLAN = "after this step the damaged logs are salvaged: then make a new plan ('bkctl repair plan')"


class _Choice:
    """The indexes that are rebuilt, and what that leaves of the rows about them and their logs."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        logs = [row for row in rows if row["kind"] in _SALVAGED_KINDS]
        self._salvages = {row["path"]: row["commands"] for row in logs if row["commands"]}
        self._salvaged = {_index_of(row) for row in logs if row["commands"]}
        self._damaged = {_index_of(row) for row in logs if row["kind"] == "damaged_log"}
        self._rebuilt = {
            _index_of(row)
            for row in rows
            if _has(row, "index", "rebuild") and not self._names_damage(row) and not self._is_left_behind(row)
        }

    def of(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return a row with the commands that it has in the plan, None when it has none."""
        index, is_rebuild = _index_of(row), _has(row, "index", "rebuild")
        if index not in self._rebuilt:
            if self._is_left_behind(row):
                return None
            return self._as_salvage(row) if self._names_damage(row) else row
        if row["kind"] in _SALVAGED_KINDS or (self._names_damage(row) and not is_rebuild):
            return None
        if index in self._damaged and is_rebuild:
            commands = [[*words[:-1], "--accept-loss", "--yes"] for words in row["commands"]]
            known = (row.get("instead"), _NEXT_PLAN if index in self._salvaged else None)
            return {**row, "commands": commands, "instead": "; ".join(filter(None, known))}
        return row

    def _as_salvage(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row with the log's own salvage: one that does not ask the metadata proves less."""
        commands = [*chain.from_iterable(self._salvages.get(words[3], [words]) for words in row["commands"])]
        return {**row, "commands": commands or self._salvages[row["path"]], "instead": ""}

    def _names_damage(self, row: dict[str, Any]) -> bool:
        """Return whether a row is about an index whose rows name damaged bytes of a log."""
        dangles = row["kind"] == "dangling_location" and row["path"] in self._salvages
        return row["kind"] not in _SALVAGED_KINDS and (dangles or _has(row, "entrylog", "salvage"))

    def _is_left_behind(self, row: dict[str, Any]) -> bool:
        """Return whether a row is about the work of a rebuild that was refused over damaged logs."""
        return row["kind"] == _LEFT_BEHIND and _index_of(row) in self._salvaged


def _index_of(row: dict[str, Any]) -> str:
    """Return the directory of the index that speaks of a row's log, or that a row is about."""
    if row["kind"] == _LOST_INDEX and row["commands"]:
        # Its logs name it: no index says whose they are.
        return current(row["commands"][0][3])
    return str(row.get(_INDEX, row["dir"]))


def _has(row: dict[str, Any], *command: str) -> bool:
    return any(words[1:3] == [*command] for words in row["commands"])
