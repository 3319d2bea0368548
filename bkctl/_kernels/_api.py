"""The kernel's interface: the functions that both twins have.

Each takes a ``bytes`` buffer and positions relative to it, and keeps no reference to the buffer. A record is
``i32 size, body`` and a body starts ``i64 ledger, i64 entry`` (see ``codec.entry``). A *column* is ``bytes``
that hold one native i64 after the other, as ``array("q")`` and numpy take them.

Records handed to a checksum lie inside the buffer; the compiled twin raises ValueError for others.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

#: Of a grant: a master key of 20 bytes and a ledger id.
GRANT_BYTES = 28

#: The number of this interface. A compiled twin that was built with another one is not used.
API = 10

#: Of one add or more: their number, the frames that answer "stored", records, and of adds with the same grant
#: that stand side by side: the grants (28 bytes each), columns of their highest LACs, and of their numbers.
AddColumns = tuple[int, bytes, bytes, bytes, bytes, bytes]


#: The most parts that :meth:`Kernels.split_records` takes adds apart into.
PARTS_MAX = 1024

#: The number of a part, the grants of its adds, their records, and how many there are.
RecordPart = tuple[int, bytes, bytes, int]


class EntryTable(Protocol):
    """Entries by key, the last one of a key wins. A *block* is a ``bytes`` object that has bodies in it.

    Every call is one step for other threads. Keys are 16 bytes, ids not negative; ValueError for others, and
    then nothing was put. Length is the number of different keys.
    """

    def __len__(self) -> int: ...

    def put_records(self, records: bytes) -> int:
        """Put the entries of a block, a chain of whole records (``i32 size, body``); their number."""

    def put_many(self, keys: list[bytes], bodies: list[bytes]) -> None:
        """Put entries, each body a block of its own."""

    def get(self, key: bytes) -> bytes | None:
        """Return the body of a key."""

    def highest(self, ledger: int) -> int | None:
        """Return the highest entry id of a ledger, None without entries; those that were removed count."""

    def entries(self, ledger: int) -> list[int]:
        """Return the entry ids of a ledger in any order; looks at all keys."""

    def without(self, ledgers: Container[int]) -> EntryTable:
        """Return a table without the entries of ``ledgers``, over the same blocks; looks at all keys."""

    def remove_many(self, keys: list[bytes]) -> int:
        """Remove entries; return the bytes of the bodies that were freed: of those that were put alone."""

    def remove_ledgers(self, ledgers: Container[int], first: int, rows_max: int) -> tuple[int, int]:
        """Remove entries of ledgers; looks at so many rows, from the ``first`` one on.

        Returns the row to go on with, -1 when there is none, and what :meth:`remove_many` returns.
        """

    def clear(self, blocks_max: int) -> bool:
        """Forget all entries and so many blocks; return whether there are more blocks."""


class SortedEntries(Protocol):
    """The entries of tables by ledger, then entry, each key once: :meth:`add`, :meth:`sort`, :meth:`next`.

    The tables may be cleared during its use. One thread uses it.
    """

    def add(self, table: EntryTable) -> None:
        """Add the entries of a table, which come before those of tables added earlier."""

    def sort(self) -> None:
        """Put the entries in order, with other threads running."""

    def next(
        self, entries_max: int, bytes_max: int, deleted: Container[int]
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return the next entries but those of ``deleted`` ledgers: keys, records, a column of their ends.

        At most ``entries_max`` with bodies of at most ``bytes_max`` together, or one; None when there are no
        more. ``ends`` has for each record where in ``records`` the next one begins.
        """


#: See :attr:`Kernels.gather_entries`.
GatherEntries = Callable[
    [tuple[EntryTable, ...], tuple[EntryTable, ...], bytes, bool, int], tuple[tuple[bytes, bytes], int]
]


#: See :attr:`Kernels.run_columns`.
RunColumns = Callable[[bytes, bytes, bytes, bytes, bytes, bytes, int], tuple[bytes, ...]]
#: See :attr:`Kernels.digest_words`.
DigestWords = Callable[[bytes, bytes, bytes, bytes, bytes, bytes], bytes]


class Kernels(Protocol):
    """A module of kernels. ``API`` grows with every new function, and with every change of one."""

    API: int
    IMPL: str

    def walk_entries(
        self, buffer: bytes, start: int, end: int, size_min: int, size_max: int
    ) -> tuple[list[int], list[int], list[int], list[int], int]:
        """Follow entry records from ``start``: positions of size words, sizes, ledgers, entries, the stop.

        Stops at the first record that is not whole in ``buffer[:end]``, whose size is outside
        ``[size_min, size_max]`` or whose ledger or entry id is negative. ``0 <= start``, ``0 <= size_min``,
        ``end <= len(buffer)``.
        """

    def walk_columns(
        self, buffer: bytes, start: int, end: int, size_min: int, size_max: int
    ) -> tuple[bytes, bytes, bytes, bytes, int]:
        """Return what :meth:`walk_entries` does, as columns instead of lists."""

    def failing_crc32c(self, buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
        """Return the indices of the records whose CRC-32C does not check; too short ones included."""

    def failing_crc32(self, buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
        """Return the indices of the records whose CRC-32 does not check; too short ones included."""

    def failing_mac(self, buffer: bytes, starts: list[int], sizes: list[int], key: bytes) -> list[int]:
        """Return the indices of records whose HMAC-SHA1 under ``key`` (at most 64 bytes) does not check."""

    def columns_failing_crc32c(self, buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
        """Return what :meth:`failing_crc32c` does, for records given as columns."""

    def columns_failing_crc32(self, buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
        """Return what :meth:`failing_crc32` does, for records given as columns."""

    @property
    def EntryTable(self) -> Callable[[], EntryTable] | None:
        """Return the class of the compiled twin; the other has the write cache in Python instead."""

    @property
    def SortedEntries(self) -> Callable[[], SortedEntries] | None:
        """Return the class of the compiled twin."""

    def scan_adds(self, data: bytes, start: int, end: int) -> tuple[AddColumns | None, int]:
        """Return the plain adds of protocol v2 from ``start`` on, and where they stop.

        They stop at the first frame that is not whole in ``data[:end]`` or no plain add. None instead of the
        columns when there is none, or an id among them is negative. ValueError for places outside of the
        buffer.
        """

    def scan_v3_adds(self, data: bytes, start: int, end: int) -> tuple[AddColumns | None, int]:
        """Return the plain adds of protocol v3 from ``start`` on, None without any, and where they stop.

        They stop at the first frame that is not whole in ``data[:end]`` or not written as Java's client
        writes a plain add (``protocol.scan_v3``), or has a negative id. ValueError for places outside of the
        buffer.
        """

    def split_records(self, grants: bytes, counts: bytes, records: bytes, parts_max: int) -> list[RecordPart]:
        """Take adds apart by their ledgers, each of which belongs to the part ``ledger % parts_max``.

        The adds are given as in ``AddColumns``; those of one part keep their order. Returns the parts that
        have any, by their numbers; of one part alone it returns what was given, without a copy. Other threads
        run while much is copied. ValueError for columns that do not fit the records, and for no part, or more
        than ``PARTS_MAX``.
        """

    @property
    def gather_entries(self) -> GatherEntries | None:
        """Return the compiled twin's ``gather_entries(newest, others, keys, whole, bytes_max)``.

        It looks each of ``keys``, which are joined, up in the tables of ``newest``, then of ``others``, where
        the first one that has it counts, and returns the entries as records, a column of the sizes of their
        bodies, -1 for what is not there, and how many were in ``newest``. It ends behind the one that brings
        the bodies to ``bytes_max``, and without ``whole`` before the first one that is not there. One step
        for other threads.
        """

    def scan_reads(self, data: bytes, start: int, end: int) -> tuple[bytes | None, int]:
        """Return the keys of the plain reads of protocol v2 from ``start`` on, joined, and where they stop.

        They stop at the first frame that is not whole in ``data[:end]`` or no plain read. None instead of the
        keys when a ledger id among them is negative. ValueError for places outside of the buffer.
        """

    def read_answers(self, head: bytes, records: bytes) -> bytes:
        """Return a frame for each record: its i32 length, ``head``, the first 16 bytes of the body, the body.

        ValueError when they are no chain of records, with ids that are not negative.
        """

    def read_records(
        self, descriptor: int, starts: bytes, keys: bytes, first_bytes: int, size_max: int
    ) -> tuple[bytes, bytes]:
        """Read the records that begin at ``starts`` (a column) of a file; other threads run during the call.

        Returns those that are whole, begin with their key of ``keys`` and have bodies of 16 to ``size_max``
        bytes, one behind the other, and a column of the bodies' sizes, -1 for each record with any fault.
        One read brings ``first_bytes``; longer records take another one. Raises ValueError for columns that
        do not fit each other and for bounds that a call is not made for.
        """

    def write_and_sync(
        self, descriptor: int, data: bytes | memoryview, offset: int
    ) -> tuple[int, int, int, int]:
        """Write ``data`` at ``offset``, then sync the file's data; other threads run during the call.

        Returns how many bytes were written, the number of the error that ended the write, that of the sync,
        both 0 without one, and the nanoseconds of the sync, -1 where there was none: it is begun when all of
        ``data`` is written, and never tried again.
        """

    def send_pieces(self, descriptors: list[int], pieces: list[bytes]) -> list[int]:
        """Send each piece to its socket, none of which blocks; other threads run during the call.

        Returns how many bytes each socket took at once: 0 also where it has an error, or the descriptor is
        negative. Raises ValueError for lists of different lengths.
        """

    def scan_v3_reads(self, data: bytes, start: int, end: int) -> tuple[bytes, bytes, int]:
        """Return the keys of the plain reads of protocol v3 from ``start`` on, joined, a column of their
        transaction ids, and where they stop.

        They stop at the first frame that is not whole in ``data[:end]`` or not written as Java's client
        writes a plain read (``protocol.scan_v3``). ValueError for places outside of the buffer.
        """

    def v3_read_answers(self, txns: bytes, lacs: bytes, records: bytes) -> bytes:
        """Return the frames of protocol v3 that answer reads with these entries.

        ``txns`` and ``lacs`` are columns: the transaction ids, and the last adds confirmed that go with the
        entries. ValueError when they do not fit the records, or these are no chain of records, with ids that
        are not negative.
        """

    def leading_records(
        self, data: bytes, size_min: int, size_max: int, others_max: int, bytes_max: int
    ) -> tuple[bytes, bytes]:
        """Return the keys, joined, of the records that ``data`` begins with, and a column of their ends.

        They are whole, of the first one's ledger, and have bodies of ``size_min``, 16 or more, to
        ``size_max`` bytes: the first one, and behind it at most ``others_max`` with bodies of at most
        ``bytes_max`` together. They stop at a negative id. ValueError for other bounds.
        """

    def join_rows(self, rows: list[tuple[bytes, bytes]], key_bytes: int, value_bytes: int) -> bytes:
        """Return the keys and values of rows one behind the other.

        Raises ValueError when a row has another length of either.
        """

    def records_but(
        self, starts: bytes, sizes: bytes, ledgers: bytes, entries: bytes, dead: Container[int]
    ) -> tuple[bytes, bytes, bytes]:
        """Return columns of starts and sizes of records whose ledgers are not ``dead``, and the keys.

        The keys are joined. Columns are those of :meth:`walk_columns`; ValueError when their lengths differ.
        Each ledger is looked for once.
        """

    def gather_at(
        self, buffer: bytes, starts: bytes, sizes: bytes, found: bytes, first: int
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """Copy those records of a window that are where the index has their entries; other threads run.

        ``found`` is the column of the locations that the index has, ``first`` what the buffer's first byte
        would have. Returns joined keys, records, a column of their ends and one of their locations.
        ValueError for columns of different lengths, for a record that does not lie in the buffer or is
        shorter than its key, and for a ``first`` that no log has.
        """

    def shifted(self, column: bytes, number: int) -> bytes:
        """Return the column with ``number`` added to each of its numbers.

        ValueError when it is no column, and for a sum that has no place in one; OverflowError for a number
        that has none.
        """

    def pieces_of(self, joined: bytes, size_bytes: int) -> list[bytes]:
        """Return the pieces of so many bytes each that are joined.

        ValueError when it is no whole number of pieces, and for a size below 1.
        """

    def size_bounds(self, ends: bytes) -> tuple[int, int]:
        """Return the smallest and the largest size of pieces that end at ``ends``, the first from 0 on.

        Both are 0 when there is none. ValueError when it is no column, or its numbers do not ascend from 0.
        """

    def ledger_sums(self, keys: bytes, bounds: bytes) -> tuple[bytes, bytes]:
        """Return columns of ledgers and of bytes: for each run of records of one ledger what they take.

        ``keys`` are joined, ``bounds`` says where the records begin, and where the last one ends.
        ValueError for columns of lengths that do not fit, and for a sum that has no place in one.
        """

    @property
    def run_columns(self) -> RunColumns | None:
        """Return the function of the compiled twin; the pipeline has the other one, over numpy.

        It takes a window's buffer, columns of starts, sizes, ledgers and entries, a byte for each record
        that is not 0 where its digest fails, and the packed location that the buffer's first byte would
        have. It joins entries of a ledger that follow each other, and returns nine columns of the runs:
        ledger, first and last entry, entries, bytes with size words, lowest and highest last add confirmed,
        failing ones, sum of words (``pipeline.tables.run_lengths``). Where no entry of a run has a last add
        confirmed, the lowest is the highest number there is, and the other way round. ValueError for columns
        of different lengths and for a record that does not lie in the buffer.
        """

    @property
    def digest_words(self) -> DigestWords | None:
        """Return the function of the compiled twin; the pipeline has the other one, over numpy.

        It takes a window as :attr:`run_columns` does, with the number of bytes of each record's digest that
        count: 0, 4 or 8. It returns a column of a word of each entry (``pipeline.sets.blocks``). ValueError
        as there, for another number, and for a record that is shorter than header and digest.
        """

    def table_block(self, buffer: bytes, start: int, size: int) -> bytes | None:
        """Return the content of a block of a RocksDB table file whose trailer stands behind it, unpacked.

        None when its checksum (XXH32) fails, and for a block that is packed with anything but LZ4 or has
        more than 16 MiB. ValueError when block and trailer do not lie in the buffer.
        """

    def table_rows(
        self, buffer: bytes, starts: bytes, sizes: bytes, key_bytes: int, value_bytes: int
    ) -> tuple[bytes, bytes] | None:
        """Return the rows of blocks as joined keys and joined values; other threads run.

        None unless every block is whole (:meth:`table_block`) and plain: rows that were put, with keys and
        values of so many bytes, each key above the one before it. ValueError for columns of different
        lengths, sizes outside of 1 to 64, and blocks that do not lie in the buffer with their trailers.
        """
