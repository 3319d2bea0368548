# Plain adds and reads in a receive buffer, and the answers to them.

cdef extern from "frames.h" nogil:
    int BKCTL_GRANT_BYTES, BKCTL_ANSWER_BYTES
    ctypedef struct bkctl_stretch:
        size_t stop, count, body_bytes, grants
        int negative
    ctypedef struct bkctl_grant_columns:
        unsigned char *grants
        int64_t *lacs
        int64_t *counts
        size_t made
    int BKCTL_READ_LENGTH
    size_t bkctl_copy_v3_reads(
        const unsigned char *data, size_t start, size_t end, size_t *stop, unsigned char *keys, int64_t *txns
    )
    size_t bkctl_answer_v3_reads(
        unsigned char *to, const int64_t *txns, const int64_t *lacs, const unsigned char *records,
        size_t size_bytes,
    )
    size_t bkctl_count_reads(const unsigned char *data, size_t start, size_t end, int *negative)
    void bkctl_answer_reads(
        unsigned char *to, const unsigned char *head, size_t head_bytes, const unsigned char *records,
        size_t size_bytes,
    )
    bkctl_stretch bkctl_measure_adds(const unsigned char *data, size_t start, size_t end)
    void bkctl_copy_adds(
        const unsigned char *data, const bkctl_stretch *stretch, size_t start, unsigned char *answers,
        unsigned char *records, bkctl_grant_columns *columns,
    )
    ctypedef struct bkctl_v3_stretch:
        size_t stop, count, body_bytes, answer_bytes, grants
    bkctl_v3_stretch bkctl_measure_v3_adds(const unsigned char *data, size_t start, size_t end)
    void bkctl_copy_v3_adds(
        const unsigned char *data, const bkctl_v3_stretch *stretch, size_t start, size_t end,
        unsigned char *answers, unsigned char *records, bkctl_grant_columns *columns,
    )


def scan_adds(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    if start < 0 or end < start or end > len(data):
        raise ValueError("outside of the buffer")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(data)
    # Looks at the heads only, and so is short.
    cdef bkctl_stretch found = bkctl_measure_adds(at, start, end)
    cdef Py_ssize_t count = found.count
    if found.negative or not count:
        return None, <Py_ssize_t>found.stop
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, count * BKCTL_ANSWER_BYTES)
    cdef bytes records = PyBytes_FromStringAndSize(NULL, found.body_bytes + 4 * count)
    cdef bytes grants = PyBytes_FromStringAndSize(NULL, found.grants * BKCTL_GRANT_BYTES)
    cdef bytes lacs = _column(found.grants), counts = _column(found.grants)
    cdef unsigned char *to_answers = <unsigned char *><void *>PyBytes_AsString(answers)
    cdef unsigned char *to_records = <unsigned char *><void *>PyBytes_AsString(records)
    cdef bkctl_grant_columns columns = _grant_columns(grants, lacs, counts)
    if <Py_ssize_t>found.body_bytes < _KEEP_LOCK_BYTES:
        bkctl_copy_adds(at, &found, start, to_answers, to_records, &columns)
    else:
        with nogil:
            bkctl_copy_adds(at, &found, start, to_answers, to_records, &columns)
    return (count, answers, records, grants, lacs, counts), <Py_ssize_t>found.stop


def scan_v3_adds(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    if start < 0 or end < start or end > len(data):
        raise ValueError("outside of the buffer")
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AsString(data)
    cdef bkctl_v3_stretch found = bkctl_measure_v3_adds(at, start, end)
    cdef Py_ssize_t count = found.count
    if not count:
        return None, <Py_ssize_t>found.stop
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, found.answer_bytes)
    cdef bytes records = PyBytes_FromStringAndSize(NULL, found.body_bytes + 4 * count)
    cdef bytes grants = PyBytes_FromStringAndSize(NULL, found.grants * BKCTL_GRANT_BYTES)
    cdef bytes lacs = _column(found.grants), counts = _column(found.grants)
    cdef unsigned char *to_answers = <unsigned char *><void *>PyBytes_AsString(answers)
    cdef unsigned char *to_records = <unsigned char *><void *>PyBytes_AsString(records)
    cdef bkctl_grant_columns columns = _grant_columns(grants, lacs, counts)
    if <Py_ssize_t>found.body_bytes < _KEEP_LOCK_BYTES:
        bkctl_copy_v3_adds(at, &found, start, end, to_answers, to_records, &columns)
    else:
        with nogil:
            bkctl_copy_v3_adds(at, &found, start, end, to_answers, to_records, &columns)
    return (count, answers, records, grants, lacs, counts), <Py_ssize_t>found.stop


cdef bkctl_grant_columns _grant_columns(bytes grants, bytes lacs, bytes counts):
    cdef bkctl_grant_columns columns
    columns.grants = <unsigned char *><void *>PyBytes_AsString(grants)
    columns.lacs = _numbers(lacs)
    columns.counts = _numbers(counts)
    columns.made = 0
    return columns


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
