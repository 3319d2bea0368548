"""Giving a bookie's places in the metadata of ledgers to the id that it has now.

This is for a bookie that was given another id and kept its entries. Each ledger is judged by itself: the new
id must answer for the first and the last entry of every segment that is to name it. Otherwise the ledger
stays as it is, because a lost replica would count as one that is there. One compare-and-set changes a ledger.
The ids and their ledgers are recorded before, so that a run that was interrupted is simply started again.

Source: ``org.apache.bookkeeper.client.UpdateLedgerOp``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from random import Random
from typing import cast

from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.metadata_update import rewritten
from bkctl.client.settings import ClientSettings
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import BkctlError, CorruptionError, NotFoundError, RefusedError, StorageError, UsageError
from bkctl.metadata.api import MetadataStore, StoredLedger, VersionConflictError
from bkctl.replication.fragment_check import BadFragment, FragmentCheckMachine
from bkctl.replication.fragments import fragments
from bkctl.types import LedgerState
from bkctl.vfs import PosixFileSystem

#: How many ledgers are read, and changed, at the same time.
AT_ONCE = 16

#: Ledgers and the first entries of the segments that are to be changed.
Places = Mapping[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class ReplacedId:
    """A ledger that names the old id, in the segments that begin with these entries.

    ``reason`` says why it was not changed; None when it was, or would be.
    """

    ledger: int
    segments: tuple[int, ...]
    reason: str | None = None


def refuse_wrong_ids(store: MetadataStore, old: str, new: str) -> None:
    """Raise RefusedError unless the old id is gone and the new one is up; UsageError where they are one."""
    if old == new:
        raise UsageError("the two ids are the same")
    up = store.registration.bookies().everyone
    if old in up:
        raise RefusedError(f"bookie {old} is up, so it cannot be the old id of another bookie")
    if new not in up:
        raise RefusedError(f"bookie {new} is not up, so it cannot be checked whether it has the entries")


def replace_bookie_id(
    store: MetadataStore,
    settings: ClientSettings,
    old: str,
    new: str,
    *,
    only: Places | None = None,
    record: Callable[[list[ReplacedId]], None] | None = None,
) -> Iterator[ReplacedId]:
    """Yield each ledger that names ``old``, after ``new`` was put in its places; streamed.

    ``record`` gets the changes before they are made; without it none is made. ``only`` are the sole places to
    be changed. Raises the store's errors.
    """
    found = (one for one in _naming(store, old) if only is None or one[0] in only)
    with asyncio.Runner() as runner:
        replacer = runner.run(_replacer(store, settings, old, new, only))
        try:
            while group := list(islice(found, AT_ONCE)):
                yield from runner.run(replacer.change(group, record))
        finally:
            runner.run(replacer.close())


def _naming(store: MetadataStore, old: str) -> Iterator[tuple[int, StoredLedger | CorruptionError]]:
    """Yield the ledgers that name a bookie, and those whose metadata cannot be read."""
    for ledger, stored in store.ledgers.read_ledgers(store.ledgers.ledgers()):
        if isinstance(stored, CorruptionError) or (
            stored is not None and any(old in segment.bookies for segment in stored.metadata.segments)
        ):
            yield ledger, stored


async def _replacer(
    store: MetadataStore, settings: ClientSettings, old: str, new: str, only: Places | None
) -> _Replacer:
    return _Replacer(store, BookKeeper(store, settings), old, new, only)


class _Replacer:
    """Looks at ledgers and changes them, on one event loop."""

    def __init__(
        self, store: MetadataStore, client: BookKeeper, old: str, new: str, only: Places | None
    ) -> None:
        self._store = store
        self._client = client
        self._old = old
        self._new = new
        self._only = only
        self._random = Random()  # noqa: S311 - chooses entries to look at, keeps no secret

    async def close(self) -> None:
        await self._client.close()

    async def change(
        self,
        group: list[tuple[int, StoredLedger | CorruptionError]],
        record: Callable[[list[ReplacedId]], None] | None,
    ) -> list[ReplacedId]:
        planned = await asyncio.gather(*[self._plan(ledger, stored) for ledger, stored in group])
        good = [row for row, metadata in planned if metadata is not None]
        if record is None or not good:
            return [row for row, _ in planned]
        await self._client.in_thread(partial(record, good))
        return await asyncio.gather(
            *[
                self._update(row, stored, metadata)
                for (row, metadata), (_, stored) in zip(planned, group, strict=True)
            ]
        )

    async def _plan(
        self, ledger: int, stored: StoredLedger | CorruptionError
    ) -> tuple[ReplacedId, LedgerMetadata | None]:
        """Return what is to be changed in a ledger and its new metadata; None where it stays as it is."""
        if isinstance(stored, CorruptionError):
            return ReplacedId(ledger, (), f"its metadata cannot be read: {stored}"), None
        metadata = stored.metadata
        wanted = None if self._only is None else self._only[ledger]
        changed = [
            segment
            for segment in metadata.segments
            if self._old in segment.bookies and (wanted is None or segment.first_entry in wanted)
        ]
        row = ReplacedId(ledger, tuple(segment.first_entry for segment in changed))
        if metadata.state is not LedgerState.CLOSED:
            return replace(row, reason="it is not closed: close it first ('bkctl ledger recover')"), None
        if any(self._new in segment.bookies for segment in changed):
            return replace(row, reason=f"{self._new} is in the same ensemble"), None
        renamed = self._renamed(metadata, set(row.segments))
        try:
            missing = await self._missing(ledger, renamed, set(row.segments))
        except BkctlError as error:
            missing = str(error)
        return (row, renamed) if missing is None else (replace(row, reason=missing), None)

    def _renamed(self, metadata: LedgerMetadata, first_entries: set[int]) -> LedgerMetadata:
        segments = [
            replace(
                segment,
                bookies=tuple(self._new if bookie == self._old else bookie for bookie in segment.bookies),
            )
            if segment.first_entry in first_entries
            else segment
            for segment in metadata.segments
        ]
        return replace(rewritten(metadata), segments=tuple(segments))

    async def _missing(self, ledger: int, metadata: LedgerMetadata, first_entries: set[int]) -> str | None:
        """Return what the new id does not have; None when it has what was asked for."""
        parts = [
            part
            for part in fragments(metadata, metadata.last_entry)
            if metadata.segments[part.position].first_entry in first_entries
        ]
        machine = FragmentCheckMachine(
            LedgerAccess.of(ledger, metadata), metadata, parts, {self._new}, self._random
        )
        bad = cast("tuple[BadFragment, ...]", await self._client.run(machine))
        found = [one for part in bad for one in part.bad if one.bookie == self._new]
        if not found:
            return None
        return f"{self._new} does not prove entry {found[0].entry}: {found[0].defect.value}"

    async def _update(
        self, row: ReplacedId, stored: StoredLedger | CorruptionError, metadata: LedgerMetadata | None
    ) -> ReplacedId:
        if metadata is None or isinstance(stored, CorruptionError):
            return row
        update = partial(self._store.ledgers.update_ledger, row.ledger, metadata, stored.version)
        try:
            await self._client.in_thread(update)
        except VersionConflictError:
            return replace(row, reason="somebody changed it in the meantime: run this again")
        except NotFoundError:
            return replace(row, reason="it was deleted in the meantime")
        return row


class UndoFile:
    """Lines of JSON with the ledgers and segments to be changed; a run that goes on appends."""

    def __init__(self, path: str) -> None:
        self.path = path

    def record(self, rows: Iterable[ReplacedId]) -> None:
        """Append rows to the file; they are on disk when this returns. Raises StorageError."""
        lines = "".join(
            json.dumps({"ledger": row.ledger, "segments": list(row.segments)}) + "\n" for row in rows
        )
        try:
            # No link is followed: root may be writing here, into a folder that others write to as well.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self.path, flags, 0o600), "ab") as stream:
                stream.write(lines.encode())
                stream.flush()
                os.fsync(stream.fileno())
            PosixFileSystem().sync_directory(os.path.dirname(os.path.abspath(self.path)))
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}", path=self.path) from error

    def places(self) -> Places:
        """Return what the file names. Raises StorageError, UsageError for what is no such file."""
        found: dict[int, frozenset[int]] = {}
        try:
            with open(self.path, encoding="ascii") as stream:
                for line in stream:
                    row = json.loads(line)
                    found[int(row["ledger"])] = found.get(int(row["ledger"]), frozenset()) | frozenset(
                        map(int, row["segments"])
                    )
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}", path=self.path) from error
        except (ValueError, TypeError, KeyError):
            raise UsageError(f"{self.path}: this is no undo file of 'bookies replace-id'") from None
        return found
