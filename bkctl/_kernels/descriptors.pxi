# What is read from files, written to them and synced, and sent to sockets.

cdef extern from "descriptors.h" nogil:
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
