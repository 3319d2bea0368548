"""The findings of a start in the journals."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.scan.damage import Damage

#: Damages named in a report; the others are only counted.
DAMAGES_MAX = 100


@dataclass(slots=True)
class ReplayReport:
    """The findings of a start.

    ``damages`` and ``missing_journals`` are accepted losses; with ``lost_indexes``, the ledger directories
    whose index was lost, they put ``limbo_ledgers`` in limbo. ``torn_records`` were never acknowledged and
    are not served. ``mended_records`` had a damaged id, and their digests proved the right one;
    ``doubted_records`` may be other entries than they say. ``skipped_records`` are of ``skipped_ledgers``
    without a row and a key, or of earlier lives of their ledgers; ``keyless_ledgers`` have neither as well,
    and are kept in limbo.
    """

    journals: int = 0
    entries: int = 0
    bytes: int = 0
    fences: int = 0
    skipped_records: int = 0
    skipped_ledgers: int = 0
    keyless_ledgers: int = 0
    unsynced_holes: int = 0
    torn_records: int = 0
    mended_records: int = 0
    doubted_records: int = 0
    damages: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    missing_journals: int = 0
    lost_indexes: int = 0
    limbo_ledgers: int = 0
    seconds: float = 0.0

    def add_damage(self, damage: Damage) -> None:
        """Count an accepted damage, and keep it as long as there are few."""
        self.damage_count += 1
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(damage)

    @property
    def accepted(self) -> bool:
        """Whether the start went on over a loss."""
        return bool(self.damage_count or self.missing_journals or self.lost_indexes)
