"""Appends a run of adds to write caches and journals: all of it, or nothing.

The write stage calls this under the engine lock. Where there is no room nothing has changed. Behind the
append to a journal nobody but that journal answers, so what can fail comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from bkctl import _kernels
from bkctl._kernels._api import PARTS_MAX, RecordPart
from bkctl.engine.add_notes import AddNotes
from bkctl.engine.add_run import AddRun, RecordRun, framed
from bkctl.engine.engine_thread import Actions, logged_failure, report
from bkctl.engine.held_adds import Outcome
from bkctl.engine.journal.batch import JournalBatch, JournalSink
from bkctl.engine.journal.group_writer import LENGTH_WORD_BYTES
from bkctl.engine.journal.journal import Journal
from bkctl.engine.ledger_descriptor import LedgerDescriptor, ledgers_of
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.ledger_table import LedgerTable
from bkctl.engine.split_answer import SplitAnswer

#: A lone entry of more bytes is the journal thread's: its write takes longer than the way there and back.
LENT_BYTES_MAX = 64 << 10

_Home = TypeVar("_Home", Journal, LedgerStorage)

_APPENDING = "appending a part of a run"
NOTING = "noting adds that were appended"


class _Share(NamedTuple):
    """The part of a run that one journal gets: framed records, their bytes and their number."""

    journal: Journal
    pieces: list[bytes]
    size_bytes: int
    entries: int


class RunAppender:
    """Under the engine lock only. ``write_data`` False answers adds from the write cache alone."""

    def __init__(self, table: LedgerTable, notes: AddNotes, *, write_data: bool) -> None:
        self._table = table
        self._notes = notes
        self._write_data = write_data
        self._single = len(table.storages) == 1 and len(table.journals) == 1

    def append(self, run: AddRun | RecordRun, actions: Actions) -> Outcome:
        """Append a run; ``actions`` get the calls that are to be made without the lock.

        NOT_AS_IS: a ledger of the run is not known to be open under its key. Raises StorageError when the
        journal has failed.
        """
        if isinstance(run, RecordRun):
            if self._single:
                return self._append_records(run, actions)
            if self._table.parts <= PARTS_MAX:
                return self._append_record_parts(run, actions)
            run = run.as_lists()
        descriptors: list[LedgerDescriptor] = []
        for descriptor in map(self._table.grants.get, run.grants):
            if descriptor is None:
                return Outcome.NOT_AS_IS
            descriptors.append(descriptor)
        ledgers = set(descriptors)
        if self._single:
            taken = self._append_whole(run, ledgers, actions)
        else:
            taken = self._append_split(run, descriptors, actions)
        if not taken:
            return Outcome.NO_ROOM
        if not self._write_data:
            actions.append(partial(run.sink.journaled, [answer_of(run.sink, run.context, len(run.keys))]))
        # The journal answers from here on, also after an error, and nobody else may. Not even the way into a
        # function that would catch it may fail: it takes memory for its arguments.
        try:
            self._notes.run(run, descriptors, ledgers, actions)
        except Exception as error:  # noqa: BLE001 - the add is taken, whatever is known of it
            report(NOTING, error)
        return Outcome.ADDED

    def _append_records(self, run: RecordRun, actions: Actions) -> Outcome:
        """Append a run in one piece, of a bookie with one directory and one journal."""
        places = self._table.grants.find(run.grants)
        if places is None:
            return Outcome.NOT_AS_IS
        storage, journal = self._table.storages[0], self._table.journals[0]
        count = run.count
        size_bytes = len(run.records)
        if not (storage.has_room(run.size_bytes, count) and journal.has_room(size_bytes, count)):
            return Outcome.NO_ROOM
        storage.put_records(run.records, count, run.size_bytes, ledgers_of(run.grants))
        if self._write_data:
            batch = batch_of([run.records], size_bytes, count, run.sink, run.context)
            append_to(journal, batch, actions)
        else:
            actions.append(partial(run.sink.journaled, [answer_of(run.sink, run.context, count)]))
        try:
            self._notes.records(run, places, actions)
        except Exception as error:  # noqa: BLE001 - as in `append`
            report(NOTING, error)
        return Outcome.ADDED

    def _append_record_parts(self, run: RecordRun, actions: Actions) -> Outcome:
        """Append a run in one piece over several directories or journals: all of it, or nothing."""
        table = self._table
        places = table.grants.find(run.grants)
        if places is None:
            return Outcome.NOT_AS_IS
        # Each time it is tried: copies that are held with a run would exceed the bound of held adds.
        split = _kernels.split_records(run.grants, run.counts, run.records, table.parts)
        whole: RecordPart = (0, run.grants, run.records, run.count)
        by_storage = _by_home(table.storages, split, whole)
        shares = [
            _Share(journal, [part[2] for part in parts], _bytes_of(parts), _entries_of(parts))
            for journal, parts in _by_home(table.journals, split, whole)
        ]
        for storage, parts in by_storage:
            entries = _entries_of(parts)
            if not storage.has_room(_bytes_of(parts) - LENGTH_WORD_BYTES * entries, entries):
                return Outcome.NO_ROOM
        for share in shares:
            if not share.journal.has_room(share.size_bytes, share.entries):
                return Outcome.NO_ROOM
        for storage, parts in by_storage:
            for _, grants, records, count in parts:
                size_bytes = len(records) - LENGTH_WORD_BYTES * count
                storage.put_records(records, count, size_bytes, ledgers_of(grants))
        if self._write_data:
            self._append_shares(run, shares, actions)
        else:
            actions.append(partial(run.sink.journaled, [answer_of(run.sink, run.context, run.count)]))
        try:
            self._notes.records(run, places, actions)
        except Exception as error:  # noqa: BLE001 - as in `append`
            report(NOTING, error)
        return Outcome.ADDED

    def _append_whole(self, run: AddRun, ledgers: set[LedgerDescriptor], actions: Actions) -> bool:
        """Append a run of a bookie with one directory and one journal; False when there is no room."""
        storage, journal = self._table.storages[0], self._table.journals[0]
        count = len(run.keys)
        size_bytes = run.size_bytes + LENGTH_WORD_BYTES * count
        if not (storage.has_room(run.size_bytes, count) and journal.has_room(size_bytes, count)):
            return False
        storage.put_many(run.keys, run.bodies, run.size_bytes, [each.key_prefix for each in ledgers])
        if self._write_data:
            batch = batch_of(framed(run.bodies), size_bytes, count, run.sink, run.context)
            append_to(journal, batch, actions)
        return True

    def _append_split(self, run: AddRun, descriptors: list[LedgerDescriptor], actions: Actions) -> bool:
        """Append a run over several directories or journals: all of it is taken or, False, nothing."""
        by_storage: dict[LedgerStorage, list[int]] = {}
        by_journal: dict[Journal, list[int]] = {}
        for index, descriptor in enumerate(descriptors):
            by_storage.setdefault(descriptor.storage, []).append(index)
            by_journal.setdefault(descriptor.journal, []).append(index)
        sizes = list(map(len, run.bodies))
        for storage, indices in by_storage.items():
            if not storage.has_room(sum(sizes[index] for index in indices), len(indices)):
                return False
        for journal, indices in by_journal.items():
            if not journal.has_room(sum(sizes[index] + LENGTH_WORD_BYTES for index in indices), len(indices)):
                return False
        for storage, indices in by_storage.items():
            bodies = [run.bodies[index] for index in indices]
            storage.put_many([run.keys[index] for index in indices], bodies, sum(map(len, bodies)))
        if self._write_data:
            shares: list[_Share] = []
            for journal, indices in by_journal.items():
                bodies = [run.bodies[index] for index in indices]
                size_bytes = sum(map(len, bodies)) + LENGTH_WORD_BYTES * len(bodies)
                shares.append(_Share(journal, framed(bodies), size_bytes, len(bodies)))
            self._append_shares(run, shares, actions)
        return True

    def _append_shares(self, run: AddRun | RecordRun, shares: list[_Share], actions: Actions) -> None:
        """Append the shares of a run to their journals; one that cannot be appended fails the run."""
        if len(shares) == 1:
            ((journal, pieces, size_bytes, entries),) = shares
            append_to(journal, batch_of(pieces, size_bytes, entries, run.sink, run.context), actions)
            return
        sink = SplitAnswer(len(shares), run.sink, answer_of(run.sink, run.context, run.count))
        batches = [
            (journal, batch_of(pieces, size_bytes, entries, sink, None))
            for journal, pieces, size_bytes, entries in shares
        ]
        for journal, batch in batches:
            try:
                append_to(journal, batch, actions)
            except Exception as error:  # noqa: BLE001
                # Parts may be on their way to other journals: the one answer comes from the sink, once.
                failure = logged_failure(_APPENDING, error)
                actions.append(partial(sink.journal_failed, [batch], failure))


def _by_home(
    homes: Sequence[_Home], parts: list[RecordPart], whole: RecordPart
) -> list[tuple[_Home, list[RecordPart]]]:
    """Return the directories or journals that get something of a run, each with its parts.

    A ledger's home is its id modulo their number, which divides that of the parts.
    """
    if len(homes) == 1:
        return [(homes[0], [whole])]
    found: dict[int, list[RecordPart]] = {}
    for part in parts:
        found.setdefault(part[0] % len(homes), []).append(part)
    return [(homes[number], its) for number, its in found.items()]


def _bytes_of(parts: list[RecordPart]) -> int:
    return sum([len(records) for _, _, records, _ in parts])


def _entries_of(parts: list[RecordPart]) -> int:
    return sum([count for _, _, _, count in parts])


def append_to(journal: Journal, batch: JournalBatch, actions: Actions) -> None:
    """Append to a journal; a lone entry is written by this thread behind its locks, where it may be."""
    borrows = batch.entries == 1 and batch.size_bytes <= LENT_BYTES_MAX and journal.lends_its_turn
    if borrows:
        # In front: behind the append nothing may fail. The second one is for a first one that cannot begin.
        actions += (journal.write_lent, journal.return_turn)
    journal.append(batch, borrows=borrows)


def batch_of(
    pieces: list[bytes], size_bytes: int, entries: int, sink: JournalSink, context: object
) -> JournalBatch:
    """Return a batch of plain adds, whose answers wait for the sync."""
    return JournalBatch(
        pieces, size_bytes=size_bytes, entries=entries, after_write=False, sink=sink, context=context
    )


def answer_of(sink: JournalSink, context: object, entries: int) -> JournalBatch:
    """Return the batch that a sink is given for entries that no journal answers for."""
    return batch_of([], 0, entries, sink, context)
