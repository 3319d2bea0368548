"""Other bookies in the places of those that fail while a recovery writes entries again.

They are named in memory only, and the close stores them: a recovery that fails leaves the ledger's ensemble
as it is. A failed bookie that cannot be replaced is no reason to stop while Aq others acknowledge (Java fails
then).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from bkctl.client.machine import BookiesAre, Event, MetadataFailed, Token
from bkctl.client.ops.add_pipeline import AddPipeline
from bkctl.client.ops.ensemble_change import with_replacements
from bkctl.client.ops.exchange import Exchange
from bkctl.client.ops.metadata_update import with_segment
from bkctl.client.ops.recovery_rehearsal import not_written_again
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError

#: How long an add waits for a bookie that has not answered the fence, before another takes its place.
SILENT_S = 0.25


class RecoveryReplacements:
    """Changes the ensemble of ``pipeline`` from the entry on that completes next.

    ``changed`` is called behind each change, ``failed`` with the error that ends the recovery.
    """

    def __init__(
        self,
        exchange: Exchange,
        pipeline: AddPipeline,
        ledger: int,
        write_quorum: int,
        *,
        changed: Callable[[], None],
        failed: Callable[[BkctlError], None],
    ) -> None:
        self._exchange = exchange
        self._pipeline = pipeline
        self._ledger = ledger
        self._write_quorum = write_quorum
        self._changed = changed
        self._fail = failed
        self._segments: list[tuple[int, tuple[str, ...]]] = []
        self._irreplaceable: set[tuple[int, str]] = set()
        self._failed_meanwhile: dict[int, str] = {}
        self._patience: Token | None = None

    def replace(self, failed: dict[int, str]) -> None:
        """Have others take the places of failed bookies; remember these while a change is going on."""
        if self._exchange.finished:
            return
        if self._pipeline.changing:
            self._failed_meanwhile.update(failed)
            return
        replaceable = {
            index: bookie
            for index, bookie in {**self._pipeline.failed_late, **failed}.items()
            if (index, bookie) not in self._irreplaceable
        }
        if not replaceable:
            self._fail_when_stuck()
            return
        self._pipeline.changing = True
        ensemble = self._pipeline.ensemble
        indices = tuple(sorted(replaceable))
        self._exchange.choose_bookies(
            len(indices),
            frozenset(ensemble).union(replaceable.values()),
            partial(self._chosen, indices),
            ensemble=ensemble,
            replace=indices,
            write_quorum=self._write_quorum,
        )

    def wait_for(self, silent: Collection[str]) -> None:
        """Have others take the places of bookies that hang before the adds' own time is over.

        ``silent`` are those that have not answered the fence; it shrinks as they do.
        """
        if self._patience is None and self._pipeline.held_up_by(silent):
            self._patience = self._exchange.set_timer(SILENT_S, partial(self._replace_silent, silent))

    def _replace_silent(self, silent: Collection[str], event: Event) -> None:
        self._patience = None
        held_up = self._pipeline.held_up_by(silent)
        if held_up:
            self.replace(held_up)

    def stored_in(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """Return the metadata with the segments of the changed ensembles."""
        for first_entry, bookies in self._segments:
            metadata = with_segment(metadata, first_entry, bookies)
        return metadata

    def _chosen(self, indices: tuple[int, ...], event: Event) -> None:
        if isinstance(event, MetadataFailed):
            self._fail(event.error)
            return
        bookies = event.bookies if isinstance(event, BookiesAre) else ()
        ensemble = self._pipeline.ensemble
        self._irreplaceable.update((index, ensemble[index]) for index in indices[len(bookies) :])
        changed = with_replacements(ensemble, indices, bookies)
        if changed != ensemble:
            self._segments.append((self._pipeline.next_entry, changed))
        meanwhile = self._failed_meanwhile
        self._failed_meanwhile = {}
        self._pipeline.replace(changed)
        still = {index: bookie for index, bookie in meanwhile.items() if changed[index] == bookie}
        if still:
            self.replace(still)
        else:
            self._fail_when_stuck()
        self._changed()

    def _fail_when_stuck(self) -> None:
        stuck = None if self._pipeline.changing else self._pipeline.stuck()
        if stuck is not None:
            failed = [self._pipeline.ensemble[index] for index in sorted(stuck.failed)]
            self._fail(not_written_again(self._ledger, stuck.entry, failed))
