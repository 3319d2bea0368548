"""The result of verifying one file."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.scan.damage import Damage, Verdict


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """One row of ``entrylog verify`` and ``journal verify``.

    ``records`` counts what could be read, ``bytes_salvageable`` their framed bytes. ``tail`` says how the
    file ends, whatever the verdict: ``CLEAN``, ``TORN_TAIL`` or ``UNSYNCED_TAIL``. ``unchecked`` counts those
    of the ``entries`` whose digest could not be checked, ``unchecked_ledgers`` has the lowest ids of their
    ledgers, at most ``loss.LEDGERS_NAMED``. ``damage`` lists at most ``loss.DAMAGES_MAX`` ranges, ``damages``
    counts all.
    """

    path: str
    verdict: Verdict
    tail: Verdict
    records: int
    entries: int
    unchecked: int
    unchecked_ledgers: tuple[int, ...]
    first_bad_offset: int | None
    bytes_salvageable: int
    damages: int
    damage: tuple[Damage, ...]
