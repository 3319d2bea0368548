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

from bkctl._kernels._api import PARTS_MAX
from bkctl._kernels._counters import UPPER_S
from bkctl._kernels._walks import failing_mac

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

cdef extern from "hashing.h" nogil:
    uint64_t bkctl_secret[2]

cdef extern from "records.h" nogil:
    int BKCTL_KEY_BYTES
    void bkctl_put_be32(unsigned char *at, uint32_t value)
    size_t bkctl_leading_records(
        const unsigned char *data, size_t size_bytes, size_t size_min, size_t size_max, size_t others_max,
        size_t bytes_max, unsigned char *keys, int64_t *ends,
    )
    int bkctl_measure_records(const unsigned char *records, size_t size_bytes, size_t *count, size_t *changes)
    void bkctl_put_be64(unsigned char *at, uint64_t value)

#: See ``_api``.
API = 10
IMPL = "native"

if not bkctl_prepare(True):
    raise ImportError("the compiled kernels compute wrong checksums")


cdef void _choose_secret():
    cdef bytes chosen = urandom(16)
    memcpy(bkctl_secret, PyBytes_AsString(chosen), 16)


# Before there is a table.
_choose_secret()


#: Calls on fewer bytes keep the interpreter lock: giving it up for so short a time costs more than it gives.
cdef Py_ssize_t _KEEP_LOCK_BYTES = 1 << 16
cdef Py_ssize_t _MAX_ENTRIES = (1 << 31) - 1
#: Of `read_records`: what a call may need is bounded.
cdef Py_ssize_t _RECORD_BYTES_MAX = 1 << 20
cdef Py_ssize_t _RECORDS_MAX = 1 << 14
#: Of one ledger that `GrantTable.note` takes at once: sums of them have a place in 64 bits.
cdef int64_t _ADDS_MAX = (1 << 31) - 1


cdef bytes _column(Py_ssize_t count):
    return PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))


cdef int64_t *_numbers(bytes column):
    return <int64_t *><void *>PyBytes_AsString(column)


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


cdef Py_ssize_t _count_of(bytes column) except -1:
    """The numbers of a column."""
    if len(column) % <Py_ssize_t>sizeof(int64_t):
        raise ValueError("columns of different lengths")
    return len(column) // <Py_ssize_t>sizeof(int64_t)


include "walks.pxi"
include "frames.pxi"
include "descriptors.pxi"
include "entry_table.pxi"
include "sorted_entries.pxi"
include "compaction.pxi"
include "runs.pxi"
include "tables.pxi"
include "counters.pxi"
include "grants.pxi"
include "parts.pxi"
