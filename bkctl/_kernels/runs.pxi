# Entries of a window of a log as runs of consecutive ids.

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
