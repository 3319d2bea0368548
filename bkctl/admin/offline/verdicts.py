"""The result of verifying one file."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.scan.damage import Damage, Verdict


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """One row of ``entrylog verify`` and ``journal verify``.

    ``records`` counts what could be read, ``bytes_salvageable`` their framed bytes, ``unchecked`` entries
    whose digest is not known. ``damage`` lists at most ``loss.DAMAGES_MAX`` ranges, ``damages`` counts all.
    """

    path: str
    verdict: Verdict
    records: int
    unchecked: int
    first_bad_offset: int | None
    bytes_salvageable: int
    damages: int
    damage: tuple[Damage, ...]
