# Records that live, copied to where they go next, and columns that go with records.

cdef extern from "compaction.h" nogil:
    int bkctl_measure_at(
        size_t buffer_bytes, const int64_t *starts, const int64_t *sizes, const int64_t *found, size_t count,
        int64_t first, size_t *chosen, size_t *bytes,
    )
    void bkctl_gather_at(
        const unsigned char *buffer, const int64_t *starts, const int64_t *sizes, const int64_t *found,
        size_t count, int64_t first, unsigned char *keys, unsigned char *records, int64_t *ends, int64_t *places,
    )
    int bkctl_add_overflows(int64_t number, int64_t other, int64_t *sum)
    Py_ssize_t bkctl_ledger_sums(
        const unsigned char *keys, const int64_t *bounds, size_t count, int64_t *ledgers, int64_t *sums
    )


cdef int64_t _LOCATION_MAX = (<uint64_t>1 << 63) - 1


def records_but(
    bytes starts not None, bytes sizes not None, bytes ledgers not None, bytes entries not None, dead not None
):
    cdef Py_ssize_t number, count = _count_of(starts), kept = 0
    if not len(starts) == len(sizes) == len(ledgers) == len(entries):
        raise ValueError("columns of different lengths")
    cdef const int64_t *from_starts = _numbers(starts)
    cdef const int64_t *from_sizes = _numbers(sizes)
    cdef const int64_t *from_ledgers = _numbers(ledgers)
    cdef const int64_t *from_entries = _numbers(entries)
    cdef int64_t *to = <int64_t *>malloc((count + 1) * 4 * sizeof(int64_t))
    cdef int64_t *to_starts = to
    cdef int64_t *to_sizes = to + count
    cdef unsigned char *to_keys = <unsigned char *>(to + 2 * count)
    cdef dict known = {}
    cdef bint leaves = False
    cdef int64_t before = -1
    if to is NULL:
        raise MemoryError
    try:
        for number in range(count):
            if from_ledgers[number] != before or not number:
                before = from_ledgers[number]
                if before not in known:
                    known[before] = before in dead
                leaves = known[before]
            if leaves:
                continue
            to_starts[kept] = from_starts[number]
            to_sizes[kept] = from_sizes[number]
            bkctl_put_be64(to_keys + kept * BKCTL_KEY_BYTES, <uint64_t>before)
            bkctl_put_be64(to_keys + kept * BKCTL_KEY_BYTES + 8, <uint64_t>from_entries[number])
            kept += 1
        return (
            PyBytes_FromStringAndSize(<const char *>to_starts, kept * sizeof(int64_t)),
            PyBytes_FromStringAndSize(<const char *>to_sizes, kept * sizeof(int64_t)),
            PyBytes_FromStringAndSize(<const char *>to_keys, kept * BKCTL_KEY_BYTES),
        )
    finally:
        free(to)


def gather_at(
    bytes buffer not None, bytes starts not None, bytes sizes not None, bytes found not None, int64_t first
):
    cdef Py_ssize_t count = _count_of(starts)
    cdef size_t chosen, record_bytes
    cdef bint inside
    if not len(starts) == len(sizes) == len(found):
        raise ValueError("columns of different lengths")
    if first < 0 or first > _LOCATION_MAX - <int64_t>len(buffer):
        raise ValueError("no location of a log")
    cdef size_t buffer_bytes = len(buffer)
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(buffer)
    cdef const int64_t *from_starts = _numbers(starts)
    cdef const int64_t *from_sizes = _numbers(sizes)
    cdef const int64_t *from_found = _numbers(found)
    with nogil:
        inside = bkctl_measure_at(
            buffer_bytes, from_starts, from_sizes, from_found, count, first, &chosen, &record_bytes
        )
    if not inside:
        raise ValueError("a record outside of the buffer, or shorter than its key")
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, chosen * BKCTL_KEY_BYTES)
    cdef bytes records = PyBytes_FromStringAndSize(NULL, record_bytes)
    cdef bytes ends = _column(chosen)
    cdef bytes places = _column(chosen)
    cdef unsigned char *to_keys = <unsigned char *><void *>PyBytes_AsString(keys)
    cdef unsigned char *to_records = <unsigned char *><void *>PyBytes_AsString(records)
    cdef int64_t *to_ends = _numbers(ends)
    cdef int64_t *to_places = _numbers(places)
    with nogil:
        bkctl_gather_at(
            at, from_starts, from_sizes, from_found, count, first, to_keys, to_records, to_ends, to_places
        )
    return keys, records, ends, places


def shifted(bytes column not None, int64_t number):
    cdef Py_ssize_t index, count = _count_of(column)
    cdef const int64_t *given = _numbers(column)
    cdef bytes made = _column(count)
    cdef int64_t *to = _numbers(made)
    cdef bint fits = True
    for index in range(count):
        fits &= not bkctl_add_overflows(given[index], number, to + index)
    if not fits:
        raise ValueError("a sum has no place in a column")
    return made


def pieces_of(bytes joined not None, Py_ssize_t size_bytes):
    if size_bytes < 1 or len(joined) % size_bytes:
        raise ValueError("not a whole number of pieces")
    cdef Py_ssize_t index, count = len(joined) // size_bytes
    cdef const char *at = PyBytes_AsString(joined)
    cdef list pieces = PyList_New(count)
    cdef bytes piece
    for index in range(count):
        piece = PyBytes_FromStringAndSize(at + index * size_bytes, size_bytes)
        Py_INCREF(piece)  # the list takes one over
        PyList_SetItem(pieces, index, piece)
    return pieces


def size_bounds(bytes ends not None):
    cdef Py_ssize_t index, count = _count_of(ends)
    cdef const int64_t *given = _numbers(ends)
    cdef int64_t before = 0, low = 0, high = 0
    if count:
        low = given[0]
    for index in range(count):
        if given[index] < before:
            raise ValueError("ends do not ascend")
        low = min(low, given[index] - before)
        high = max(high, given[index] - before)
        before = given[index]
    return low, high


def ledger_sums(bytes keys not None, bytes bounds not None):
    cdef Py_ssize_t count = _count_of(bounds) - 1, runs
    if count < 0 or len(keys) != count * BKCTL_KEY_BYTES:
        raise ValueError("columns of different lengths")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(keys)
    cdef const int64_t *given = _numbers(bounds)
    cdef int64_t *to = <int64_t *>malloc((2 * count + 1) * sizeof(int64_t))
    if to is NULL:
        raise MemoryError
    try:
        runs = bkctl_ledger_sums(at, given, count, to, to + count)
        if runs < 0:
            raise ValueError("a sum has no place in a column")
        return (
            PyBytes_FromStringAndSize(<const char *>to, runs * sizeof(int64_t)),
            PyBytes_FromStringAndSize(<const char *>(to + count), runs * sizeof(int64_t)),
        )
    finally:
        free(to)
