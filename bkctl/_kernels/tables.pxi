# Blocks of RocksDB's table files.

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
