# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``_python``: the same functions, the same results.

Nothing here trusts what stands in a buffer: a record is looked at only where it lies inside. Loops over a
buffer run without the interpreter lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SetItem
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from os import urandom

from bkctl._kernels._counters import UPPER_S
from bkctl._kernels._python import failing_mac

cdef extern from "checksums.h" nogil:
    int BKCTL_CRC32C
    int BKCTL_CRC32
    int bkctl_hardware
    uint32_t bkctl_be32(const unsigned char *at)
    uint64_t bkctl_be64(const unsigned char *at)
    Py_ssize_t bkctl_next_failing(
        int kind,
        const unsigned char *buffer,
        const int64_t *starts,
        const int64_t *sizes,
        Py_ssize_t index,
        Py_ssize_t count,
    )
    int bkctl_prepare(int use_hardware)

cdef extern from "entries.h" nogil:
    int BKCTL_KEY_BYTES
    int BKCTL_GRANT_BYTES
    uint64_t bkctl_secret[2]
    void bkctl_put_be32(unsigned char *at, uint32_t value)
    ctypedef struct bkctl_stretch:
        size_t stop, count, body_bytes, grants
        int negative
    ctypedef struct bkctl_grant_columns:
        unsigned char *grants
        int64_t *lacs
        int64_t *counts
        size_t made
    ctypedef struct bkctl_row:
        int64_t ledger, entry
        uint32_t block, offset, size, unused
    ctypedef struct bkctl_table:
        bkctl_row *rows
        size_t count, removed, ledgers
    ctypedef struct bkctl_item:
        int64_t ledger, entry
        const unsigned char *body
        uint32_t size, table
    uint32_t BKCTL_NO_ROW
    int BKCTL_READ_LENGTH
    size_t bkctl_copy_v3_reads(
        const unsigned char *data, size_t start, size_t end, size_t *stop, unsigned char *keys, int64_t *txns
    )
    size_t bkctl_answer_v3_reads(
        unsigned char *to, const int64_t *txns, const int64_t *lacs, const unsigned char *records,
        size_t size_bytes,
    )
    size_t bkctl_leading_records(
        const unsigned char *data, size_t size_bytes, size_t size_min, size_t size_max, size_t others_max,
        size_t bytes_max, unsigned char *keys, int64_t *ends,
    )
    size_t bkctl_count_reads(const unsigned char *data, size_t start, size_t end, int *negative)
    void bkctl_answer_reads(
        unsigned char *to, const unsigned char *head, size_t head_bytes, const unsigned char *records,
        size_t size_bytes,
    )
    bkctl_stretch bkctl_measure_adds(const unsigned char *data, size_t start, size_t end)
    void bkctl_copy_adds(
        const unsigned char *data, const bkctl_stretch *stretch, size_t start, unsigned char *keys,
        unsigned char *records, bkctl_grant_columns *columns,
    )
    ctypedef struct bkctl_v3_stretch:
        size_t stop, count, body_bytes, answer_bytes, grants
    bkctl_v3_stretch bkctl_measure_v3_adds(const unsigned char *data, size_t start, size_t end)
    void bkctl_copy_v3_adds(
        const unsigned char *data, const bkctl_v3_stretch *stretch, size_t start, size_t end, unsigned char *keys,
        unsigned char *records, unsigned char *answers, bkctl_grant_columns *columns,
    )
    void bkctl_table_free(bkctl_table *table)
    const bkctl_row *bkctl_table_find(const bkctl_table *table, int64_t ledger, int64_t entry)
    void bkctl_table_remove(bkctl_table *table, const bkctl_row *row)
    int64_t bkctl_table_highest(const bkctl_table *table, int64_t ledger)
    int bkctl_table_reserve(bkctl_table *table, size_t rows, size_t ledgers)
    void bkctl_table_put(bkctl_table *table, const bkctl_row *row)
    int bkctl_measure_records(const unsigned char *records, size_t size_bytes, size_t *count, size_t *changes)
    void bkctl_table_put_records(
        bkctl_table *table, const unsigned char *records, size_t size_bytes, uint32_t block
    )
    size_t bkctl_read_records(
        int descriptor, const int64_t *starts, const unsigned char *keys, size_t count, size_t first_bytes,
        size_t size_max, unsigned char *records, int64_t *sizes,
    )
    ctypedef struct bkctl_synced:
        size_t wrote
        int write_error, sync_error
        int64_t sync_ns
    bkctl_synced bkctl_write_and_sync(int descriptor, const unsigned char *data, size_t size, int64_t offset)
    void bkctl_send_pieces(const int *descriptors, const char *const *pieces, size_t *sizes, size_t count)
    bkctl_item *bkctl_in_order(bkctl_item *items, size_t *count)
    size_t bkctl_batch(
        const bkctl_item *items, size_t first, size_t stop, size_t count_max, size_t bytes_max,
        size_t *body_bytes,
    )
    void bkctl_gather(
        const bkctl_item *items, size_t count, unsigned char *keys, unsigned char *records, int64_t *ends
    )

cdef extern from "grants.h" nogil:
    ctypedef struct bkctl_grants:
        size_t made, count
    uint32_t bkctl_grant_find(const bkctl_grants *grants, const unsigned char *grant)
    int bkctl_grants_find(const bkctl_grants *grants, const unsigned char *given, size_t count, int64_t *rows)
    int bkctl_grants_reserve(bkctl_grants *grants)
    uint32_t bkctl_grants_put(bkctl_grants *grants, const unsigned char *grant)
    uint32_t bkctl_grants_remove(bkctl_grants *grants, const unsigned char *grant)
    void bkctl_grants_free(bkctl_grants *grants)

cdef extern from "compaction.h" nogil:
    void bkctl_put_be64(unsigned char *at, uint64_t value)
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

cdef extern from "runs.h" nogil:
    int BKCTL_RUN_COLUMNS
    ctypedef struct bkctl_window:
        const unsigned char *buffer
        size_t buffer_bytes
        const int64_t *starts
        const int64_t *sizes
        const int64_t *ledgers
        const int64_t *entries
        size_t count
    Py_ssize_t bkctl_count_runs(const bkctl_window *window)
    void bkctl_fill_runs(
        const bkctl_window *window, const unsigned char *failing, uint64_t first_location, int64_t **columns
    )
    int bkctl_digest_words(const bkctl_window *window, const unsigned char *digest_bytes, int64_t *words)

cdef extern from "tables.h" nogil:
    int BKCTL_TABLE_KEY_MAX
    ctypedef struct bkctl_table_rows:
        unsigned char *keys, *values
        size_t rows
    void bkctl_table_rows_free(bkctl_table_rows *rows)
    int bkctl_unpack_block(
        bkctl_table_rows *rows, const unsigned char *block, size_t size_bytes, const unsigned char **content,
        size_t *content_bytes,
    )
    int bkctl_rows_of_blocks(
        bkctl_table_rows *rows, const unsigned char *buffer, const int64_t *starts, const int64_t *sizes,
        size_t count, size_t key_bytes, size_t value_bytes,
    )
    int bkctl_blocks_inside(
        size_t buffer_bytes, const int64_t *starts, const int64_t *sizes, size_t count
    )

#: Of the functions' signatures; a build of another one is not used.
API = 8
IMPL = "native"

if not bkctl_prepare(True):
    raise ImportError("the compiled kernels compute wrong checksums")


cdef void _choose_secret():
    cdef bytes chosen = urandom(16)
    memcpy(bkctl_secret, PyBytes_AsString(chosen), 16)


# Before there is a table.
_choose_secret()


def use_hardware(wanted):
    """Compute CRC-32C by the processor's instruction, or by tables (for tests); whether it is used now."""
    if not bkctl_prepare(bool(wanted)):
        raise RuntimeError("the compiled kernels compute wrong checksums")
    return bool(bkctl_hardware)


cdef struct Columns:
    int64_t *starts
    int64_t *sizes
    int64_t *ledgers
    int64_t *entries


cdef Py_ssize_t _follow(
    const unsigned char *buffer,
    Py_ssize_t *position,
    Py_ssize_t end,
    int64_t size_min,
    int64_t size_max,
    Columns *columns,
) noexcept nogil:
    """Number of records from ``position`` on, which is where they stop afterwards; ``columns`` may be NULL."""
    cdef Py_ssize_t count = 0, at = position[0]
    cdef int64_t size, ledger, entry
    while end - at >= 20:
        size = <int32_t>bkctl_be32(buffer + at)
        ledger = <int64_t>bkctl_be64(buffer + at + 4)
        entry = <int64_t>bkctl_be64(buffer + at + 12)
        if size < size_min or size > size_max or size > end - at - 4 or ledger < 0 or entry < 0:
            break
        if columns is not NULL:
            columns.starts[count] = at
            columns.sizes[count] = size
            columns.ledgers[count] = ledger
            columns.entries[count] = entry
        count += 1
        at += 4 + size
    position[0] = at
    return count


cdef bytes _column(Py_ssize_t count):
    return PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))


cdef int64_t *_numbers(bytes column):
    return <int64_t *><void *>PyBytes_AsString(column)


def walk_columns(bytes buffer not None, Py_ssize_t start, Py_ssize_t end, int64_t size_min, int64_t size_max):
    if start < 0 or end > len(buffer) or size_min < 0:
        raise ValueError("outside of the buffer")
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AsString(buffer)
    cdef Py_ssize_t position = start, count
    cdef Columns columns
    with nogil:
        count = _follow(data, &position, end, size_min, size_max, NULL)
    starts, sizes, ledgers, entries = _column(count), _column(count), _column(count), _column(count)
    columns.starts, columns.sizes = _numbers(starts), _numbers(sizes)
    columns.ledgers, columns.entries = _numbers(ledgers), _numbers(entries)
    position = start
    with nogil:
        _follow(data, &position, end, size_min, size_max, &columns)
    return starts, sizes, ledgers, entries, position


cdef list _listed(bytes column):
    cdef Py_ssize_t count = _count_of(column)
    cdef int64_t *numbers = _numbers(column)
    cdef Py_ssize_t index
    cdef list result = PyList_New(count)
    cdef object number
    for index in range(count):
        number = numbers[index]
        Py_INCREF(number)  # the list takes one over
        PyList_SetItem(result, index, number)
    return result


def walk_entries(bytes buffer not None, Py_ssize_t start, Py_ssize_t end, int64_t size_min, int64_t size_max):
    starts, sizes, ledgers, entries, stop = walk_columns(buffer, start, end, size_min, size_max)
    return _listed(starts), _listed(sizes), _listed(ledgers), _listed(entries), stop


cdef bint _inside(const int64_t *starts, const int64_t *sizes, Py_ssize_t count, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        if starts[index] < 0 or sizes[index] < 0 or starts[index] > end - 4:
            return False
        if sizes[index] > end - 4 - starts[index]:
            return False
    return True


cdef list _failing(int kind, bytes buffer, const int64_t *starts, const int64_t *sizes, Py_ssize_t count):
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AsString(buffer)
    cdef Py_ssize_t index = 0, end = len(buffer)
    cdef list failing = []
    if not _inside(starts, sizes, count, end):
        raise ValueError("outside of the buffer")
    while index < count:
        with nogil:
            index = bkctl_next_failing(kind, data, starts, sizes, index, count)
        if index < count:
            failing.append(index)
            index += 1
    return failing


cdef list _failing_lists(int kind, bytes buffer, list starts, list sizes):
    cdef Py_ssize_t index, count = len(starts)
    if len(sizes) != count:
        raise ValueError("columns of different lengths")
    cdef int64_t *numbers = <int64_t *>malloc((2 * count + 1) * sizeof(int64_t))
    if numbers is NULL:
        raise MemoryError
    try:
        for index in range(count):
            numbers[index] = starts[index]
            numbers[count + index] = sizes[index]
        return _failing(kind, buffer, numbers, numbers + count, count)
    finally:
        free(numbers)


cdef list _failing_columns(int kind, bytes buffer, bytes starts, bytes sizes):
    cdef Py_ssize_t count = _count_of(starts)
    if len(starts) != len(sizes):
        raise ValueError("columns of different lengths")
    return _failing(kind, buffer, _numbers(starts), _numbers(sizes), count)


def failing_crc32c(bytes buffer not None, list starts not None, list sizes not None):
    return _failing_lists(BKCTL_CRC32C, buffer, starts, sizes)


def failing_crc32(bytes buffer not None, list starts not None, list sizes not None):
    return _failing_lists(BKCTL_CRC32, buffer, starts, sizes)


def columns_failing_crc32c(bytes buffer not None, bytes starts not None, bytes sizes not None):
    return _failing_columns(BKCTL_CRC32C, buffer, starts, sizes)


def columns_failing_crc32(bytes buffer not None, bytes starts not None, bytes sizes not None):
    return _failing_columns(BKCTL_CRC32, buffer, starts, sizes)


def join_rows(list rows not None, Py_ssize_t key_bytes, Py_ssize_t value_bytes):
    cdef Py_ssize_t index, count = len(rows)
    cdef bytes key, value
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, count * (key_bytes + value_bytes))
    cdef char *at = PyBytes_AsString(joined)
    for index in range(count):
        key, value = <tuple?>rows[index]
        if key is None or value is None or len(key) != key_bytes or len(value) != value_bytes:
            raise ValueError(f"row {index}: not of {key_bytes} and {value_bytes} bytes")
        memcpy(at, PyBytes_AsString(key), key_bytes)
        memcpy(at + key_bytes, PyBytes_AsString(value), value_bytes)
        at += key_bytes + value_bytes
    return joined


# --- adds, and entries in memory ---------------------------------------------------------------------------

#: Calls on fewer bytes keep the interpreter lock: giving it up for so short a time costs more than it gives.
cdef Py_ssize_t _KEEP_LOCK_BYTES = 1 << 16
cdef Py_ssize_t _MAX_ENTRIES = (1 << 31) - 1
#: Of `read_records`: what a call may need is bounded.
cdef Py_ssize_t _RECORD_BYTES_MAX = 1 << 20
cdef Py_ssize_t _RECORDS_MAX = 1 << 14


def scan_adds(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    if start < 0 or end < start or end > len(data):
        raise ValueError("outside of the buffer")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(data)
    # Looks at the heads only, and so is short.
    cdef bkctl_stretch found = bkctl_measure_adds(at, start, end)
    cdef Py_ssize_t count = found.count
    if found.negative:
        return None, <Py_ssize_t>found.stop
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, count * BKCTL_KEY_BYTES)
    cdef bytes records = PyBytes_FromStringAndSize(NULL, found.body_bytes + 4 * count)
    cdef bytes grants = PyBytes_FromStringAndSize(NULL, found.grants * BKCTL_GRANT_BYTES)
    cdef bytes lacs = _column(found.grants), counts = _column(found.grants)
    cdef unsigned char *to_keys = <unsigned char *><void *>PyBytes_AsString(keys)
    cdef unsigned char *to_records = <unsigned char *><void *>PyBytes_AsString(records)
    cdef bkctl_grant_columns columns = _grant_columns(grants, lacs, counts)
    if <Py_ssize_t>found.body_bytes < _KEEP_LOCK_BYTES:
        bkctl_copy_adds(at, &found, start, to_keys, to_records, &columns)
    else:
        with nogil:
            bkctl_copy_adds(at, &found, start, to_keys, to_records, &columns)
    return (keys, records, grants, lacs, counts), <Py_ssize_t>found.stop


def scan_v3_adds(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    if start < 0 or end < start or end > len(data):
        raise ValueError("outside of the buffer")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(data)
    cdef bkctl_v3_stretch found = bkctl_measure_v3_adds(at, start, end)
    cdef Py_ssize_t count = found.count
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, count * BKCTL_KEY_BYTES)
    cdef bytes records = PyBytes_FromStringAndSize(NULL, found.body_bytes + 4 * count)
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, found.answer_bytes)
    cdef bytes grants = PyBytes_FromStringAndSize(NULL, found.grants * BKCTL_GRANT_BYTES)
    cdef bytes lacs = _column(found.grants), counts = _column(found.grants)
    cdef unsigned char *to_keys = <unsigned char *><void *>PyBytes_AsString(keys)
    cdef unsigned char *to_records = <unsigned char *><void *>PyBytes_AsString(records)
    cdef unsigned char *to_answers = <unsigned char *><void *>PyBytes_AsString(answers)
    cdef bkctl_grant_columns columns = _grant_columns(grants, lacs, counts)
    if <Py_ssize_t>found.body_bytes < _KEEP_LOCK_BYTES:
        bkctl_copy_v3_adds(at, &found, start, end, to_keys, to_records, to_answers, &columns)
    else:
        with nogil:
            bkctl_copy_v3_adds(at, &found, start, end, to_keys, to_records, to_answers, &columns)
    return (keys, records, grants, lacs, counts), answers, <Py_ssize_t>found.stop


cdef bkctl_grant_columns _grant_columns(bytes grants, bytes lacs, bytes counts):
    cdef bkctl_grant_columns columns
    columns.grants = <unsigned char *><void *>PyBytes_AsString(grants)
    columns.lacs = _numbers(lacs)
    columns.counts = _numbers(counts)
    columns.made = 0
    return columns


def answer_frames(bytes head not None, bytes keys not None):
    cdef Py_ssize_t count = len(keys) // BKCTL_KEY_BYTES, head_bytes = len(head), index
    if len(keys) % BKCTL_KEY_BYTES:
        raise ValueError("keys have 16 bytes each")
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, count * (head_bytes + BKCTL_KEY_BYTES))
    cdef char *to = PyBytes_AsString(frames)
    cdef const char *from_head = PyBytes_AsString(head)
    cdef const char *from_keys = PyBytes_AsString(keys)
    for index in range(count):
        memcpy(to, from_head, head_bytes)
        memcpy(to + head_bytes, from_keys + index * BKCTL_KEY_BYTES, BKCTL_KEY_BYTES)
        to += head_bytes + BKCTL_KEY_BYTES
    return frames


def scan_reads(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    if start < 0 or end < start or end > len(data):
        raise ValueError("outside of the buffer")
    cdef const char *at = PyBytes_AsString(data)
    cdef int negative = 0
    cdef Py_ssize_t index, frame_bytes = 4 + BKCTL_READ_LENGTH
    cdef Py_ssize_t count = bkctl_count_reads(<const unsigned char *>at, start, end, &negative)
    if negative:
        return None, start + count * frame_bytes
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, count * BKCTL_KEY_BYTES)
    cdef char *to = PyBytes_AsString(keys)
    for index in range(count):
        memcpy(to + index * BKCTL_KEY_BYTES, at + start + index * frame_bytes + 8, BKCTL_KEY_BYTES)
    return keys, start + count * frame_bytes


def read_answers(bytes head not None, bytes records not None):
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(records)
    cdef size_t count = 0, changes = 0, size_bytes = len(records), head_bytes = len(head)
    if head_bytes > <size_t>_RECORD_BYTES_MAX or not bkctl_measure_records(at, size_bytes, &count, &changes):
        raise ValueError("not a chain of records")
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, size_bytes + count * (head_bytes + BKCTL_KEY_BYTES))
    bkctl_answer_reads(
        <unsigned char *><void *>PyBytes_AsString(frames), <const unsigned char *>PyBytes_AsString(head),
        head_bytes, at, size_bytes,
    )
    return frames


def read_records(
    int descriptor, bytes starts not None, bytes keys not None, Py_ssize_t first_bytes, Py_ssize_t size_max
):
    cdef Py_ssize_t count = len(keys) // BKCTL_KEY_BYTES
    if len(keys) % BKCTL_KEY_BYTES or len(starts) != count * <Py_ssize_t>sizeof(int64_t):
        raise ValueError("columns of different lengths")
    if first_bytes < 1 or first_bytes > 4 + size_max or size_max > _RECORD_BYTES_MAX or count > _RECORDS_MAX:
        raise ValueError("more than is read at once")
    cdef bytes sizes = _column(count)
    cdef int64_t *to_sizes = _numbers(sizes)
    cdef const int64_t *from_starts = _numbers(starts)
    cdef const unsigned char *from_keys = <const unsigned char *>PyBytes_AsString(keys)
    # Pages that nothing is read into are never there.
    cdef unsigned char *records = <unsigned char *>malloc(count * (4 + size_max) + 1)
    cdef size_t end
    if records is NULL:
        raise MemoryError
    try:
        with nogil:
            end = bkctl_read_records(
                descriptor, from_starts, from_keys, count, first_bytes, size_max, records, to_sizes
            )
        return PyBytes_FromStringAndSize(<const char *>records, end), sizes
    finally:
        free(records)


def write_and_sync(int descriptor, data not None, int64_t offset):
    cdef bkctl_synced done
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            done = bkctl_write_and_sync(descriptor, <const unsigned char *>view.buf, view.len, offset)
    finally:
        PyBuffer_Release(&view)
    return <Py_ssize_t>done.wrote, done.write_error, done.sync_error, done.sync_ns


def send_pieces(list descriptors not None, list pieces not None):
    # Of its own, because other threads run during the call: a list may be changed by them.
    cdef tuple kept = tuple(pieces)
    cdef Py_ssize_t count = len(kept), number
    if len(descriptors) != count:
        raise ValueError("columns of different lengths")
    cdef int *to = <int *>malloc(count * sizeof(int) + 1)
    cdef const char **starts = <const char **>malloc(count * sizeof(char *) + 1)
    cdef size_t *sizes = <size_t *>malloc(count * sizeof(size_t) + 1)
    cdef bytes piece
    try:
        if to is NULL or starts is NULL or sizes is NULL:
            raise MemoryError
        for number in range(count):
            piece = <bytes?>kept[number]
            if piece is None:
                raise TypeError("a piece is bytes")
            to[number], starts[number], sizes[number] = descriptors[number], PyBytes_AsString(piece), len(piece)
        with nogil:
            bkctl_send_pieces(to, starts, sizes, count)
        return [<Py_ssize_t>sizes[number] for number in range(count)]
    finally:
        free(to)
        free(starts)
        free(sizes)


def scan_v3_reads(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    if start < 0 or end < start or end > len(data):
        raise ValueError("outside of the buffer")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(data)
    cdef size_t stop = start
    cdef size_t count = bkctl_copy_v3_reads(at, start, end, &stop, NULL, NULL)
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, count * BKCTL_KEY_BYTES)
    cdef bytes txns = _column(count)
    bkctl_copy_v3_reads(
        at, start, end, &stop, <unsigned char *><void *>PyBytes_AsString(keys), _numbers(txns)
    )
    return keys, txns, <Py_ssize_t>stop


def v3_read_answers(bytes txns not None, bytes lacs not None, bytes records not None):
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(records)
    cdef size_t count = 0, changes = 0, size_bytes = len(records), number
    cdef const int64_t *from_txns = _numbers(txns)
    cdef const int64_t *from_lacs = _numbers(lacs)
    if not bkctl_measure_records(at, size_bytes, &count, &changes):
        raise ValueError("not a chain of records")
    if <size_t>len(txns) != count * sizeof(int64_t) or len(lacs) != len(txns):
        raise ValueError("columns of different lengths")
    for number in range(count):
        if from_txns[number] < 0:
            raise ValueError("a negative transaction id")
    cdef bytes frames = PyBytes_FromStringAndSize(
        NULL, bkctl_answer_v3_reads(NULL, from_txns, from_lacs, at, size_bytes)
    )
    bkctl_answer_v3_reads(
        <unsigned char *><void *>PyBytes_AsString(frames), from_txns, from_lacs, at, size_bytes
    )
    return frames


def leading_records(
    bytes data not None, Py_ssize_t size_min, Py_ssize_t size_max, Py_ssize_t others_max, Py_ssize_t bytes_max
):
    if size_min < BKCTL_KEY_BYTES or size_max < size_min or others_max < 0 or bytes_max < 0:
        raise ValueError("bounds of no records")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(data)
    cdef size_t size_bytes = len(data)
    cdef size_t count = bkctl_leading_records(
        at, size_bytes, size_min, size_max, others_max, bytes_max, NULL, NULL
    )
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, count * BKCTL_KEY_BYTES)
    cdef bytes ends = _column(count)
    bkctl_leading_records(
        at, size_bytes, size_min, size_max, others_max, bytes_max,
        <unsigned char *><void *>PyBytes_AsString(keys), _numbers(ends),
    )
    return keys, ends


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
    cdef Py_ssize_t index, count = len(keys) // BKCTL_KEY_BYTES, asked = 0, hits = 0, body_bytes = 0, found = 0
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(keys)
    cdef const bkctl_row *row
    cdef EntryTable table
    cdef bytes block
    if len(keys) % BKCTL_KEY_BYTES:
        raise ValueError("keys have 16 bytes each")
    cdef _Found *places = <_Found *>malloc((count + 1) * sizeof(_Found))
    if places is NULL:
        raise MemoryError
    try:
        while asked < count and body_bytes < bytes_max:
            row = NULL
            for table in newest:
                row = bkctl_table_find(&table._table, <int64_t>bkctl_be64(at), <int64_t>bkctl_be64(at + 8))
                if row is not NULL:
                    hits += 1
                    break
            else:
                for table in others:
                    row = bkctl_table_find(&table._table, <int64_t>bkctl_be64(at), <int64_t>bkctl_be64(at + 8))
                    if row is not NULL:
                        break
            if row is NULL:
                if not whole:
                    break
                places[asked].body = NULL
            else:
                # Nobody changes a table before this call ends: it keeps the interpreter lock.
                block = table._blocks[row.block]
                places[asked].body = <const unsigned char *>PyBytes_AsString(block) + row.offset
                places[asked].size = row.size
                body_bytes += row.size
                found += 1
            asked += 1
            at += BKCTL_KEY_BYTES
        return _gathered(places, asked, body_bytes + 4 * found), hits
    finally:
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


# --- compaction ---------------------------------------------------------------------------------------------

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


cdef Py_ssize_t _count_of(bytes column) except -1:
    """The numbers of a column."""
    if len(column) % <Py_ssize_t>sizeof(int64_t):
        raise ValueError("columns of different lengths")
    return len(column) // <Py_ssize_t>sizeof(int64_t)


# --- runs of a log's entries --------------------------------------------------------------------------------


cdef bkctl_window _window(
    bytes buffer, bytes starts, bytes sizes, bytes ledgers, bytes entries, bytes by_record
) except *:
    cdef bkctl_window window
    cdef Py_ssize_t number_bytes = <Py_ssize_t>sizeof(int64_t)
    if not len(starts) == len(sizes) == len(ledgers) == len(entries) == len(by_record) * number_bytes:
        raise ValueError("columns of different lengths")
    window.buffer, window.buffer_bytes = <const unsigned char *>PyBytes_AsString(buffer), len(buffer)
    window.starts, window.sizes = _numbers(starts), _numbers(sizes)
    window.ledgers, window.entries = _numbers(ledgers), _numbers(entries)
    window.count = len(by_record)
    return window


def run_columns(
    bytes buffer not None, bytes starts not None, bytes sizes not None, bytes ledgers not None,
    bytes entries not None, bytes failing not None, int64_t first,
):
    cdef bkctl_window window = _window(buffer, starts, sizes, ledgers, entries, failing)
    cdef const unsigned char *marks = <const unsigned char *>PyBytes_AsString(failing)
    cdef int64_t *columns[9]
    cdef Py_ssize_t runs
    with nogil:
        runs = bkctl_count_runs(&window)
    if runs < 0:
        raise ValueError("a record outside of the buffer")
    cdef list made = [_column(runs) for _ in range(BKCTL_RUN_COLUMNS)]
    cdef int number
    for number in range(BKCTL_RUN_COLUMNS):
        columns[number] = _numbers(made[number])
    with nogil:
        bkctl_fill_runs(&window, marks, <uint64_t>first, columns)
    return tuple(made)


def digest_words(
    bytes buffer not None, bytes starts not None, bytes sizes not None, bytes ledgers not None,
    bytes entries not None, bytes digest_bytes not None,
):
    cdef bkctl_window window = _window(buffer, starts, sizes, ledgers, entries, digest_bytes)
    cdef const unsigned char *wanted = <const unsigned char *>PyBytes_AsString(digest_bytes)
    cdef bytes words = _column(window.count)
    cdef int64_t *to = _numbers(words)
    cdef bint inside
    with nogil:
        inside = bkctl_digest_words(&window, wanted, to)
    if not inside:
        raise ValueError("a record outside of the buffer, or shorter than its digest")
    return words


# --- table files -------------------------------------------------------------------------------------------


def table_block(bytes buffer not None, int64_t start, int64_t size):
    if not bkctl_blocks_inside(len(buffer), &start, &size, 1):
        raise ValueError("outside of the buffer")
    cdef bkctl_table_rows rows
    memset(&rows, 0, sizeof(rows))
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(buffer)
    cdef const unsigned char *content
    cdef size_t content_bytes
    cdef int result
    try:
        result = bkctl_unpack_block(&rows, at + start, size, &content, &content_bytes)
        if result < 0:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char *>content, content_bytes) if result else None
    finally:
        bkctl_table_rows_free(&rows)


def table_rows(
    bytes buffer not None, bytes starts not None, bytes sizes not None, Py_ssize_t key_bytes, Py_ssize_t value_bytes
):
    cdef Py_ssize_t count = _count_of(starts)
    if len(starts) != len(sizes):
        raise ValueError("columns of different lengths")
    if not 1 <= key_bytes <= BKCTL_TABLE_KEY_MAX or not 1 <= value_bytes <= BKCTL_TABLE_KEY_MAX:
        raise ValueError(f"keys and values have 1 to {BKCTL_TABLE_KEY_MAX} bytes")
    cdef const int64_t *from_starts = _numbers(starts)
    cdef const int64_t *from_sizes = _numbers(sizes)
    if not bkctl_blocks_inside(len(buffer), from_starts, from_sizes, count):
        raise ValueError("outside of the buffer")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(buffer)
    cdef bkctl_table_rows rows
    cdef int result
    memset(&rows, 0, sizeof(rows))
    try:
        with nogil:
            result = bkctl_rows_of_blocks(&rows, at, from_starts, from_sizes, count, key_bytes, value_bytes)
        if result < 0:
            raise MemoryError
        if not result:
            return None
        return (
            PyBytes_FromStringAndSize(<char *>rows.keys, rows.rows * key_bytes),
            PyBytes_FromStringAndSize(<char *>rows.values, rows.rows * value_bytes),
        )
    finally:
        bkctl_table_rows_free(&rows)


# --- what is counted ---------------------------------------------------------------------------------------


include "counters.pxi"
include "grants.pxi"
