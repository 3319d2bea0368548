# Entries of tables in the order of their keys.

cdef extern from "sorted_entries.h" nogil:
    ctypedef struct bkctl_item:
        int64_t ledger, entry
        const unsigned char *body
        uint32_t size, table
    bkctl_item *bkctl_in_order(bkctl_item *items, size_t *count)
    size_t bkctl_batch(
        const bkctl_item *items, size_t first, size_t stop, size_t count_max, size_t bytes_max,
        size_t *body_bytes,
    )
    void bkctl_gather(
        const bkctl_item *items, size_t count, unsigned char *keys, unsigned char *records, int64_t *ends
    )


cdef class SortedEntries:
    """Entries of tables, by ledger, then entry; see ``_api``."""

    cdef bkctl_item *_items
    cdef size_t _count, _next
    cdef uint32_t _tables
    cdef bint _sorted
    # The owners that keep the bodies in memory, also when the tables change.
    cdef list _kept

    def __cinit__(self):
        self._kept = []

    def __dealloc__(self):
        free(self._items)

    def add(self, EntryTable table not None):
        cdef size_t more = table._table.count - table._table.removed, number
        cdef bkctl_item *items
        cdef bkctl_row *row
        cdef list blocks = list(table._blocks)
        cdef int64_t block = -1
        cdef const unsigned char *base = NULL
        if self._sorted:
            raise ValueError("sorted already")
        if <Py_ssize_t>(self._count + more) > _MAX_ENTRIES:
            raise MemoryError
        if not more:
            return
        items = <bkctl_item *>realloc(self._items, (self._count + more) * sizeof(bkctl_item))
        if items is NULL:
            raise MemoryError
        self._items = items
        self._kept.append(blocks)
        items += self._count
        for number in range(table._table.count):
            row = table._table.rows + number
            if row.block == BKCTL_NO_ROW:
                continue
            if <int64_t>row.block != block:
                block = row.block
                base = <const unsigned char *>PyBytes_AsString(blocks[row.block])
            items.ledger = row.ledger
            items.entry = row.entry
            items.body = base + row.offset
            items.size = row.size
            items.table = self._tables
            items += 1
        self._count += more
        self._tables += 1

    def sort(self):
        cdef bkctl_item *items = self._items
        cdef size_t count = self._count
        if self._sorted:
            return
        # Nobody reads them during that, and no second call finds them.
        self._items = NULL
        self._count = 0
        self._sorted = True
        with nogil:
            items = bkctl_in_order(items, &count)
        if items is NULL:
            raise MemoryError
        self._items = items
        self._count = count

    def next(self, Py_ssize_t entries_max, Py_ssize_t bytes_max, deleted not None):
        cdef size_t first = self._next, stop = self._count, body_bytes = 0, count
        cdef bkctl_item *items = self._items
        if not self._sorted or entries_max < 1 or bytes_max < 1:
            raise ValueError("not sorted, or bounds below 1")
        if deleted:
            first = self._skip(first, deleted)
        if first == self._count:
            self._next = first
            return None
        if deleted:
            stop = self._until(first, first + entries_max, deleted)
        stop = bkctl_batch(items, first, stop, entries_max, bytes_max, &body_bytes)
        self._next = stop
        count = stop - first
        cdef bytes keys = PyBytes_FromStringAndSize(NULL, count * BKCTL_KEY_BYTES)
        cdef bytes records = PyBytes_FromStringAndSize(NULL, body_bytes + 4 * count)
        cdef bytes ends = _column(count)
        cdef unsigned char *to_keys = <unsigned char *><void *>PyBytes_AsString(keys)
        cdef unsigned char *to_records = <unsigned char *><void *>PyBytes_AsString(records)
        cdef int64_t *to_ends = _numbers(ends)
        with nogil:
            bkctl_gather(items + first, count, to_keys, to_records, to_ends)
        return keys, records, ends

    cdef size_t _skip(self, size_t number, deleted) except? 0:
        """The first item from ``number`` on whose ledger is not deleted."""
        cdef int64_t ledger
        while number < self._count:
            ledger = self._items[number].ledger
            if ledger not in deleted:
                break
            while number < self._count and self._items[number].ledger == ledger:
                number += 1
        return number

    cdef size_t _until(self, size_t number, size_t stop, deleted) except? 0:
        """The first item from ``number`` on, which is not, whose ledger is deleted; ``stop`` at the most."""
        cdef int64_t ledger
        if stop > self._count:
            stop = self._count
        while number < stop:
            ledger = self._items[number].ledger
            if ledger in deleted:
                break
            while number < stop and self._items[number].ledger == ledger:
                number += 1
        return number
