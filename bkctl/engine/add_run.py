"""Adds on their way in: a run of plain ones that share one answer, or a single one with its own."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bkctl.engine.journal.batch import JournalSink

_I32 = struct.Struct(">i")
_LENGTH_WORDS_MAX = 4096


class AddRun:
    """Plain adds, in their order, answered together when all of them are durable.

    ``grants`` are master key + ledger id of each, ``keys`` ledger id + entry id, ``bodies`` the entries as
    they came (at least 24 bytes, ids not negative), ``size_bytes`` the sum of their lengths.
    """

    __slots__ = ("bodies", "context", "grants", "keys", "sink", "size_bytes")

    def __init__(
        self,
        grants: list[bytes],
        keys: list[bytes],
        bodies: list[bytes],
        size_bytes: int,
        sink: AddSink,
        context: object,
    ) -> None:
        self.grants = grants
        self.keys = keys
        self.bodies = bodies
        self.size_bytes = size_bytes
        self.sink = sink
        self.context = context

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.keys)


class RecordRun:
    """Plain adds as :class:`AddRun`, whose entries lie in one piece, as the journal and the caches keep them.

    ``records`` are length words and bodies in their order, ``count`` of them. ``grants`` are, one behind the
    other, those of adds that stand side by side; to each of them belong in ``lacs`` the highest last add
    confirmed of these adds, in ``counts`` their number, both as columns of native i64. ``as_lists`` makes the
    same run with an object for each entry.
    """

    __slots__ = ("as_lists", "context", "count", "counts", "grants", "lacs", "records", "sink", "size_bytes")

    def __init__(
        self,
        grants: bytes,
        lacs: bytes,
        counts: bytes,
        records: bytes,
        count: int,
        size_bytes: int,
        sink: AddSink,
        context: object,
        as_lists: Callable[[], AddRun],
    ) -> None:
        self.grants = grants
        self.lacs = lacs
        self.counts = counts
        self.records = records
        self.count = count
        self.size_bytes = size_bytes
        self.sink = sink
        self.context = context
        self.as_lists = as_lists


@dataclass(frozen=True, slots=True)
class SingleAdd:
    """One add with everything that a request can say."""

    body: bytes
    master_key: bytes
    sink: JournalSink
    context: object
    recovery: bool = False
    deferred_sync: bool = False
    high_priority: bool = False


class AddSink(JournalSink, Protocol):
    """The receiver of the answers of runs."""

    def add_again(self, run: AddRun | RecordRun) -> None:
        """Report that a held run can no longer be taken as a whole; a ledger was fenced, for instance.

        Nothing of the run was added: each of its entries is to be handed in by itself. Called without locks.
        """


class _LengthWords(dict[int, bytes]):
    """i32 length words by length, made once."""

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _LENGTH_WORDS_MAX:
            self.clear()
        word = self[size] = _I32.pack(size)
        return word


_words = _LengthWords()


def framed(bodies: list[bytes]) -> list[bytes]:
    """Return ``bodies`` as pieces of a journal: length word, body, length word, body, ..."""
    pieces = [b""] * (2 * len(bodies))
    pieces[::2] = [_words[size] for size in map(len, bodies)]
    pieces[1::2] = bodies
    return pieces
