# Entries in memory, found by their key.

cdef extern from "entry_table.h" nogil:
    ctypedef struct bkctl_row:
        int64_t ledger, entry
        uint32_t block, offset, size, unused
    ctypedef struct bkctl_table:
        bkctl_row *rows
        size_t count, removed, ledgers
    uint32_t BKCTL_NO_ROW
    void bkctl_table_free(bkctl_table *table)
    enum:
        BKCTL_KEYS_AHEAD
    void bkctl_tables_find(
        const bkctl_table **tables, size_t table_count, const unsigned char *keys, size_t count,
        const bkctl_row **rows, size_t *where,
    )
    const bkctl_row *bkctl_table_find(const bkctl_table *table, int64_t ledger, int64_t entry)
    void bkctl_table_remove(bkctl_table *table, const bkctl_row *row)
    int64_t bkctl_table_highest(const bkctl_table *table, int64_t ledger)
    int bkctl_table_reserve(bkctl_table *table, size_t rows, size_t ledgers)
    void bkctl_table_put(bkctl_table *table, const bkctl_row *row)
    void bkctl_table_put_records(
        bkctl_table *table, const unsigned char *records, size_t size_bytes, uint32_t block
    )


cdef class EntryTable:
    """Entries by key; see ``_api``."""

    cdef bkctl_table _table
    # Every body lies in one of these; they are freed only as a whole.
    cdef list _blocks

    def __cinit__(self):
        self._blocks = []

    def __dealloc__(self):
        bkctl_table_free(&self._table)

    def __len__(self):
        return <Py_ssize_t>(self._table.count - self._table.removed)

    def put_records(self, bytes records not None):
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(records)
        cdef size_t size_bytes = len(records), count = 0, changes = 0
        if not bkctl_measure_records(at, size_bytes, &count, &changes):
            raise ValueError("not a chain of records")
        if not count:
            return 0
        self._reserve(count, changes, 1)
        self._blocks.append(records)
        bkctl_table_put_records(&self._table, at, size_bytes, <uint32_t>(len(self._blocks) - 1))
        return <Py_ssize_t>count

    def put_many(self, list keys not None, list bodies not None):
        cdef Py_ssize_t index, count = len(keys)
        cdef bytes key, body
        cdef const unsigned char *at
        cdef bkctl_row row
        if len(bodies) != count:
            raise ValueError("keys and bodies of different numbers")
        for index in range(count):
            key, body = keys[index], bodies[index]
            if key is None or body is None or len(key) != BKCTL_KEY_BYTES or len(body) > _MAX_ENTRIES:
                raise ValueError(f"entry {index}: not a key of 16 bytes and a body")
            at = <const unsigned char *>PyBytes_AsString(key)
            if (at[0] | at[8]) & 0x80:
                raise ValueError(f"entry {index}: a negative id")
        self._reserve(count, count, count)
        row.offset = row.unused = 0
        for index in range(count):
            key, body = keys[index], bodies[index]
            at = <const unsigned char *>PyBytes_AsString(key)
            row.ledger = <int64_t>bkctl_be64(at)
            row.entry = <int64_t>bkctl_be64(at + 8)
            row.block = <uint32_t>len(self._blocks)
            row.size = <uint32_t>len(body)
            self._blocks.append(body)
            bkctl_table_put(&self._table, &row)

    cdef int _reserve(self, size_t rows, size_t ledgers, size_t blocks) except -1:
        if len(self._blocks) + <Py_ssize_t>blocks > _MAX_ENTRIES:
            raise MemoryError
        if not bkctl_table_reserve(&self._table, rows, ledgers):
            raise MemoryError
        return 0

    def get(self, bytes key not None):
        if len(key) != BKCTL_KEY_BYTES:
            return None
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(key)
        cdef const bkctl_row *row = bkctl_table_find(
            &self._table, <int64_t>bkctl_be64(at), <int64_t>bkctl_be64(at + 8)
        )
        if row is NULL:
            return None
        cdef bytes block = self._blocks[row.block]
        if not row.offset and <Py_ssize_t>row.size == len(block):
            return block
        return PyBytes_FromStringAndSize(PyBytes_AsString(block) + row.offset, row.size)

    def highest(self, int64_t ledger):
        cdef int64_t found = bkctl_table_highest(&self._table, ledger)
        return None if found < 0 else found

    def entries(self, int64_t ledger):
        cdef size_t number
        cdef list found = []
        for number in range(self._table.count):
            if self._table.rows[number].ledger == ledger and self._table.rows[number].block != BKCTL_NO_ROW:
                found.append(self._table.rows[number].entry)
        return found

    def without(self, ledgers not None):
        """A table with the same entries except those of ``ledgers``, which keeps the same blocks."""
        cdef EntryTable left = EntryTable()
        cdef size_t number
        cdef int64_t before = -1
        cdef bint leaves = False
        left._blocks = list(self._blocks)
        left._reserve(self._table.count, self._table.ledgers, 0)
        for number in range(self._table.count):
            if self._table.rows[number].ledger != before or not number:
                before = self._table.rows[number].ledger
                leaves = before in ledgers
            if not leaves and self._table.rows[number].block != BKCTL_NO_ROW:
                bkctl_table_put(&left._table, self._table.rows + number)
        return left

    def remove_many(self, list keys not None):
        cdef bytes key
        cdef const unsigned char *at
        cdef const bkctl_row *row
        cdef Py_ssize_t freed = 0
        for key in keys:
            if key is None or len(key) != BKCTL_KEY_BYTES:
                raise ValueError("not a key of 16 bytes")
            at = <const unsigned char *>PyBytes_AsString(key)
            row = bkctl_table_find(&self._table, <int64_t>bkctl_be64(at), <int64_t>bkctl_be64(at + 8))
            if row is not NULL:
                freed += self._removed(row)
        return freed

    def remove_ledgers(self, ledgers not None, Py_ssize_t first, Py_ssize_t rows_max):
        cdef size_t number = max(first, 0), stop = self._table.count
        cdef int64_t before = -1
        cdef bint leaves = False
        cdef Py_ssize_t freed = 0
        if rows_max < <Py_ssize_t>(stop - min(number, stop)):
            stop = number + max(rows_max, 1)
        while number < stop:
            if self._table.rows[number].ledger != before:
                before = self._table.rows[number].ledger
                leaves = before in ledgers
            if leaves and self._table.rows[number].block != BKCTL_NO_ROW:
                freed += self._removed(self._table.rows + number)
            number += 1
        return (<Py_ssize_t>number if number < self._table.count else -1), freed

    cdef Py_ssize_t _removed(self, const bkctl_row *row) except -1:
        """Remove an entry, and its block when that is the body alone; bytes of that."""
        cdef uint32_t block = row.block
        cdef Py_ssize_t freed = 0
        if not row.offset:
            freed = len(self._blocks[block])
            self._blocks[block] = b""
        bkctl_table_remove(&self._table, row)
        return freed

    def clear(self, Py_ssize_t blocks_max):
        """Forget all entries, and free so many blocks; whether there are more."""
        bkctl_table_free(&self._table)
        del self._blocks[max(len(self._blocks) - blocks_max, 0) :]
        return bool(self._blocks)


cdef struct _Found:
    const unsigned char *body
    uint32_t size


def gather_entries(
    tuple newest not None, tuple others not None, bytes keys not None, bint whole, Py_ssize_t bytes_max
):
    cdef Py_ssize_t count = len(keys) // BKCTL_KEY_BYTES, newest_count = len(newest)
    cdef Py_ssize_t asked = 0, hits = 0, body_bytes = 0, found = 0, group, index
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(keys)
    cdef const bkctl_row *rows[BKCTL_KEYS_AHEAD]
    cdef size_t where[BKCTL_KEYS_AHEAD]
    cdef tuple searched = newest + others
    cdef Py_ssize_t number, table_count = len(searched)
    cdef bytes block
    if len(keys) % BKCTL_KEY_BYTES:
        raise ValueError("keys have 16 bytes each")
    cdef const bkctl_table **tables = <const bkctl_table **>malloc((table_count + 1) * sizeof(bkctl_table *))
    cdef _Found *places = <_Found *>malloc((count + 1) * sizeof(_Found))
    try:
        if tables is NULL or places is NULL:
            raise MemoryError
        for number in range(table_count):
            tables[number] = &(<EntryTable?>searched[number])._table
        # Most often the first key says whether the others are there.
        group = min(count, BKCTL_KEYS_AHEAD if whole else 1)
        while group and body_bytes < bytes_max:
            # Nobody changes a table before this call ends: it keeps the interpreter lock.
            bkctl_tables_find(tables, table_count, at, group, rows, where)
            for index in range(group):
                if body_bytes >= bytes_max:
                    break
                if rows[index] is NULL:
                    if not whole:
                        return _gathered(places, asked, body_bytes + 4 * found), hits
                    places[asked].body = NULL
                else:
                    block = (<EntryTable>searched[where[index]])._blocks[rows[index].block]
                    places[asked].body = <const unsigned char *>PyBytes_AsString(block) + rows[index].offset
                    places[asked].size = rows[index].size
                    body_bytes += rows[index].size
                    found += 1
                    hits += <Py_ssize_t>where[index] < newest_count
                asked += 1
            at += BKCTL_KEY_BYTES * group
            group = min(count - asked, BKCTL_KEYS_AHEAD)
        return _gathered(places, asked, body_bytes + 4 * found), hits
    finally:
        free(tables)
        free(places)


cdef tuple _gathered(const _Found *places, Py_ssize_t count, Py_ssize_t records_bytes):
    """Records of what was found, and a column of the sizes of all."""
    cdef bytes records = PyBytes_FromStringAndSize(NULL, records_bytes)
    cdef bytes sizes = _column(count)
    cdef unsigned char *to = <unsigned char *><void *>PyBytes_AsString(records)
    cdef int64_t *to_sizes = _numbers(sizes)
    cdef Py_ssize_t index
    for index in range(count):
        to_sizes[index] = -1
        if places[index].body is not NULL:
            to_sizes[index] = places[index].size
            bkctl_put_be32(to, places[index].size)
            memcpy(to + 4, places[index].body, places[index].size)
            to += 4 + places[index].size
    return records, sizes
