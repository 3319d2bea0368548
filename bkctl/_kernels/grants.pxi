# Ledgers by grant. One call is one step for other threads: none of these gives the interpreter's lock away.

cdef extern from "grants.h" nogil:
    ctypedef struct bkctl_grants:
        size_t made, count
    uint32_t bkctl_grant_find(const bkctl_grants *grants, const unsigned char *grant)
    int bkctl_grants_find(const bkctl_grants *grants, const unsigned char *given, size_t count, int64_t *rows)
    int bkctl_grants_reserve(bkctl_grants *grants)
    uint32_t bkctl_grants_put(bkctl_grants *grants, const unsigned char *grant)
    uint32_t bkctl_grants_remove(bkctl_grants *grants, const unsigned char *grant)
    void bkctl_grants_free(bkctl_grants *grants)


cdef class GrantTable:
    """See ``_grants``."""

    cdef bkctl_grants _table
    #: The ledger of each row, None of one that is free.
    cdef list _uses

    def __cinit__(self):
        self._uses = []

    def __dealloc__(self):
        bkctl_grants_free(&self._table)

    def __len__(self):
        return self._table.count

    def __contains__(self, grant):
        return self.get(grant) is not None

    def __setitem__(self, bytes grant not None, LedgerUse use not None):
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(grant)
        cdef uint32_t row
        if len(grant) != BKCTL_GRANT_BYTES:
            raise ValueError("a grant has 28 bytes")
        if not bkctl_grants_reserve(&self._table):
            raise MemoryError
        if self._table.made == <size_t>len(self._uses):
            # In front of what counts: the list has a place for whatever row is next.
            self._uses.append(None)
        row = bkctl_grants_put(&self._table, at)
        self._set_use(row, use)

    cdef int _set_use(self, uint32_t row, object use) except -1:
        """Set the ledger of a row. Never fails: an index of Python's, for which there may be no memory, is made
        for `self._uses[row] = use`."""
        Py_INCREF(use)  # the list takes one over
        return PyList_SetItem(self._uses, row, use)

    def get(self, bytes grant not None):
        cdef uint32_t row = BKCTL_NO_ROW
        if len(grant) == BKCTL_GRANT_BYTES:
            row = bkctl_grant_find(&self._table, <const unsigned char *>PyBytes_AsString(grant))
        return None if row == BKCTL_NO_ROW else self._uses[row]

    def pop(self, bytes grant not None):
        cdef uint32_t row = BKCTL_NO_ROW
        if len(grant) == BKCTL_GRANT_BYTES:
            row = bkctl_grants_remove(&self._table, <const unsigned char *>PyBytes_AsString(grant))
        if row == BKCTL_NO_ROW:
            return None
        use = self._uses[row]
        self._set_use(row, None)
        return use

    def find(self, bytes grants not None):
        cdef Py_ssize_t count = len(grants) // BKCTL_GRANT_BYTES
        if len(grants) % BKCTL_GRANT_BYTES:
            raise ValueError("grants have 28 bytes each")
        cdef bytes rows = _column(count)
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(grants)
        return rows if bkctl_grants_find(&self._table, at, count, _numbers(rows)) else None

    def note(
        self, bytes rows not None, bytes lacs not None, bytes counts not None, double entry_bytes,
        int64_t generation,
    ):
        cdef Py_ssize_t number, count = _count_of(rows)
        if _count_of(lacs) != count or _count_of(counts) != count:
            raise ValueError("columns of different lengths")
        cdef const int64_t *from_rows = _numbers(rows)
        cdef const int64_t *from_lacs = _numbers(lacs)
        cdef const int64_t *from_counts = _numbers(counts)
        cdef list uses = self._uses, watched = [], uncounted = []
        cdef Py_ssize_t uses_count = len(uses)
        cdef LedgerUse use
        cdef LedgerCounter counter
        for number in range(count):
            if from_rows[number] < 0 or from_rows[number] >= uses_count or uses[from_rows[number]] is None:
                raise ValueError("no ledger has that place")
            if from_counts[number] < 0 or from_counts[number] > _ADDS_MAX:
                raise ValueError("no number of adds")
        for number in range(count):
            use = <LedgerUse>uses[from_rows[number]]
            if from_lacs[number] > use.lac:
                use.lac = from_lacs[number]
            use.used = True
            if use.watched:
                watched.append(use)
            counter = use.counter
            if counter.generation != generation:
                uncounted.append((use, from_counts[number]))
                continue
            counter.entries += from_counts[number]
            counter.bytes += <double>from_counts[number] * entry_bytes
        return watched, uncounted
