# Records of an entry log that stand one behind the other, and their digests.


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
