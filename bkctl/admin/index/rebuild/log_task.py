"""The task of reading one entry log, and what that gives besides the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bkctl.admin.index.rebuild.digest_columns import Together
from bkctl.admin.index.rebuild.old_places import NotedPlaces
from bkctl.codec.digest import Digester
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile


@dataclass(frozen=True, slots=True)
class LogTask:
    """One log to read.

    ``digesters`` are known from ledger metadata, ``told`` from other logs; ``mode`` is ``auto`` or ``off``;
    ``again`` reads the log although it was read before. ``places`` are those of the index that is replaced,
    once the log is known to be damaged.
    """

    log: LogFile
    work_directory: str
    rows_max: int
    mode: str
    digesters: Mapping[int, Digester] = field(default_factory=dict, repr=False)
    told: Mapping[int, Digester] = field(default_factory=dict, repr=False)
    again: bool = False
    places: NotedPlaces | None = None

    def book(self) -> DigestBook:
        """Make a fresh book of digests."""
        known = Together(self.digesters, self.told) if self.told else self.digesters
        return DigestBook(known, enabled=self.mode != "off")


@dataclass(slots=True)
class FoundInLog:
    """The results of reading a log besides its rows; as in :class:`LogManifest`."""

    entries: int = 0
    unchecked: int = 0
    ledgers: set[int] = field(default_factory=set)
    damage: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    lost: tuple[int, ...] | None = ()
    digesters: dict[int, Digester] = field(default_factory=dict)
    cut: bool = False
    doubts: tuple[str, ...] = ()
