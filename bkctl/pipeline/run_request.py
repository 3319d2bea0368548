"""The request for a run of a job."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from bkctl.pipeline.job import Job, Parameters
from bkctl.pipeline.sets.choice import SetWish
from bkctl.pipeline.tables.ledger_source import is_uri
from bkctl.pipeline.tables.options import TableOptions


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a run: what to run on what.

    ``metadata`` is a URI, a dump, or a directory with tables ``ledgers`` and ``fragments``;
    ``metadata_after`` is a second one, of after the files.

    ``options`` say how tables are read: a bookie's name, digests, a password, damage. ``out`` is a directory
    that is made, is empty, or was written by an earlier run, whose tables of the same names are replaced.
    ``wish`` says which sets of a store are read.
    """

    job: Job
    paths: tuple[str, ...]
    out: str
    metadata: str | None = None
    metadata_after: str | None = None
    parameters: Parameters = field(default_factory=Parameters)
    options: TableOptions = field(default_factory=lambda: TableOptions(damage="rows"))
    wish: SetWish = field(default_factory=SetWish)

    @property
    def digest_metadata(self) -> str | None:
        """Return where digests can be learnt from: tables do not hold ledgers' passwords."""
        return None if self.metadata is None or os.path.isdir(self.metadata) else self.metadata

    @property
    def two_snapshots(self) -> bool:
        """Whether metadata is known from before the files were read and from after."""
        return self.metadata_after is not None or (self.metadata is not None and is_uri(self.metadata))
