"""Damage and verdicts, for people on stderr and as rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from bkctl.admin.logs.unchecked import UncheckedEntries
from bkctl.admin.next_step import NextStep
from bkctl.commands.frame.next_steps import NEXT_KEYS, next_keys
from bkctl.commands.frame.output import Format, Key, Schema, chosen_format, write_rows
from bkctl.errors import StorageError
from bkctl.reporting import counted, listed
from bkctl.scan.damage import Damage, MissingEntries, Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.verdicts import FileVerdict

VERDICT_SCHEMA: Schema = (
    Key("path", "string", "the file"),
    Key(
        "verdict",
        "string",
        "clean, torn_tail, unsynced_tail (both normal after a crash), unchecked (nothing wrong was found but "
        "the digests of some entries could not be checked) or damaged",
    ),
    Key("tail", "string", "how the file ends, whatever the verdict: clean, torn_tail or unsynced_tail"),
    Key("records", "int", "records that can be read and whose digest does not contradict them"),
    Key("entries", "int", "entries among the records, those that a digest contradicts included"),
    Key(
        "unchecked", "int", "entries whose digest could not be checked: its type or its password is not known"
    ),
    Key("unchecked_ledgers", "array of ints", "ledgers of these entries, the 20 lowest ids", wide=True),
    Key("first_bad_offset", "int or null", "where the first damage begins"),
    Key("bytes_salvageable", "int", "bytes of the records that can be read"),
    Key("damages", "int", "number of damaged ranges"),
    Key(
        "damage",
        "array",
        "of {offset, bytes, reason, expected, found, missing}; "
        "missing: of {ledger, first_entry, last_entry, bytes, evidence}",
        wide=True,
    ),
    *NEXT_KEYS,
)

#: Keys that a table leaves out: their values are reported on stderr.
_NOT_IN_TABLES = ("damage", "tail", "entries", "unchecked_ledgers", *(key.key for key in NEXT_KEYS))

#: Of so many files with the same advice the paths are said.
_PATHS_NAMED = 3


def missing_row(missing: MissingEntries) -> dict[str, Any]:
    """Return the lost entries as JSON shows them."""
    return {
        "ledger": missing.ledger,
        "first_entry": missing.first_entry,
        "last_entry": missing.last_entry,
        "bytes": missing.bytes,
        "evidence": missing.evidence,
    }


def damage_row(damage: Damage) -> dict[str, Any]:
    """Return a damaged range as JSON shows it."""
    return {
        "offset": damage.offset,
        "bytes": damage.size_bytes,
        "reason": damage.reason,
        "expected": damage.expected,
        "found": damage.found,
        "missing": [missing_row(missing) for missing in damage.missing],
    }


def verdict_row(verdict: FileVerdict, step: NextStep | None) -> dict[str, Any]:
    """Return a verdict and its next step as JSON shows them."""
    return {
        "path": verdict.path,
        "verdict": verdict.verdict.value,
        "tail": verdict.tail.value,
        "records": verdict.records,
        "entries": verdict.entries,
        "unchecked": verdict.unchecked,
        "unchecked_ledgers": list(verdict.unchecked_ledgers),
        "first_bad_offset": verdict.first_bad_offset,
        "bytes_salvageable": verdict.bytes_salvageable,
        "damages": verdict.damages,
        "damage": [damage_row(damage) for damage in verdict.damage],
        **next_keys(step),
    }


def damage_line(damage: Damage) -> str:
    """Return one damage in a sentence."""
    what = "hole of an unsynced tail" if damage.unsynced else "damage"
    text = f"{damage.path}: {what} at {damage.offset}, {counted(damage.size_bytes, 'byte')}: {damage.reason}"
    if damage.expected:
        text += f", expected {damage.expected}"
    if damage.found:
        text += f", found {damage.found}"
    return text


def missing_line(missing: MissingEntries) -> str:
    """Return the lost entries in a phrase."""
    if missing.bytes is not None:
        return f"ledger {missing.ledger}: {counted(missing.bytes, 'byte')} of entries ({missing.evidence})"
    entries = (
        f"entry {missing.first_entry}"
        if missing.first_entry == missing.last_entry
        else f"entries {missing.first_entry} to {missing.last_entry}"
    )
    return f"ledger {missing.ledger} {entries} ({missing.evidence})"


def tell(damage: Damage) -> None:
    """Report a damage on stderr."""
    sys.stderr.write(f"bkctl: {damage_line(damage)}\n")


def exit_code_of(verdicts: Iterable[FileVerdict]) -> int:
    """Return 3 when entries could not be checked, else 1 when a file is damaged, else 0.

    With both, 3 counts: more damage may be among what was not checked. The damage is listed all the same.
    """
    found = list(verdicts)
    if any(verdict.unchecked for verdict in found):
        return 3
    return int(any(verdict.verdict is Verdict.DAMAGED for verdict in found))


def tell_unchecked(verdicts: Iterable[FileVerdict], book: DigestBook) -> None:
    """Say on stderr how many entries could not be checked, and what would make them checkable.

    Beside them the damaged files are counted. Says nothing when every entry was checked.
    """
    found = list(verdicts)
    unchecked = UncheckedEntries.of(found)
    if not unchecked.unchecked:
        return
    sys.stderr.write(f"bkctl: unchecked: {unchecked.with_remedy(book)}\n")
    damaged = sum(verdict.verdict is Verdict.DAMAGED for verdict in found)
    if damaged:
        verb = "is" if damaged == 1 else "are"
        sys.stderr.write(f"bkctl: {damaged} of {counted(len(found), 'file')} {verb} damaged\n")


def write_verdicts(
    verdicts: list[FileVerdict],
    next_step: Callable[[FileVerdict], NextStep | None],
    output: Format | None,
) -> None:
    """Write verdicts as rows; a table leaves out damage and next steps, which are reported on stderr."""
    rows = [verdict_row(verdict, next_step(verdict)) for verdict in verdicts]
    if chosen_format(output) is Format.TABLE:
        for row in rows:
            for key in _NOT_IN_TABLES:
                del row[key]
        for damage in (damage for verdict in verdicts for damage in verdict.damage):
            tell(damage)
            for missing in damage.missing:
                sys.stderr.write(f"bkctl:   lost: {missing_line(missing)}\n")
        _tell_steps([(verdict, next_step(verdict)) for verdict in verdicts])
    write_rows(rows, VERDICT_SCHEMA, output)


def _tell_steps(steps: list[tuple[FileVerdict, NextStep | None]]) -> None:
    """Write the next steps for damaged files to stderr, what several of them have in common once."""
    files: dict[str | None, list[str]] = {}
    lines: dict[str | None, list[str]] = {}
    for verdict, step in steps:
        if step is not None and verdict.verdict is Verdict.DAMAGED:
            files.setdefault(step.instead, []).append(verdict.path)
            lines.setdefault(step.instead, []).append(step.line or "")
    for instead, paths in files.items():
        upcoming = "; ".join(dict.fromkeys(lines[instead]))
        sys.stderr.write(f"bkctl: {listed(paths, _PATHS_NAMED)}: {instead}; next: {upcoming}\n")


class Unopened:
    """The files that could not be opened.

    The command goes on with the other files. The first error ends it when they are done; each further one is
    printed at once.
    """

    def __init__(self) -> None:
        self._first: StorageError | None = None

    def add(self, error: StorageError) -> None:
        """Remember the first error, and print any other on stderr."""
        if self._first is None:
            self._first = error
        else:
            sys.stderr.write(f"bkctl: error: {error}\n")

    def check(self) -> None:
        """Raise the first error, which ends the command with its exit code."""
        if self._first is not None:
            raise self._first
