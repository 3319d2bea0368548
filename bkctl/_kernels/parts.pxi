# Records of adds, taken apart by where their ledgers go.

cdef extern from "parts.h" nogil:
    ctypedef struct bkctl_part:
        int64_t runs
        int64_t entries
        int64_t bytes
        unsigned char *grants
        unsigned char *records
    int bkctl_measure_parts(
        const unsigned char *grants, const int64_t *counts, size_t runs, const unsigned char *records,
        size_t size_bytes, bkctl_part *parts, size_t count,
    )
    void bkctl_fill_parts(
        const unsigned char *grants, const int64_t *counts, size_t runs, const unsigned char *records,
        size_t size_bytes, bkctl_part *parts, size_t count,
    )


def split_records(
    bytes grants not None, bytes counts not None, bytes records not None, Py_ssize_t parts_max,
):
    cdef Py_ssize_t number, runs = _count_of(counts), used = 0
    if len(grants) != runs * BKCTL_GRANT_BYTES:
        raise ValueError("columns of different lengths")
    if parts_max < 1 or parts_max > PARTS_MAX:
        raise ValueError(f"1 to {PARTS_MAX} parts")
    cdef const unsigned char *from_grants = <const unsigned char *>PyBytes_AsString(grants)
    cdef const unsigned char *from_records = <const unsigned char *>PyBytes_AsString(records)
    cdef const int64_t *from_counts = _numbers(counts)
    cdef size_t size_bytes = len(records)
    cdef bytes part_grants, part_records
    cdef list made = []
    cdef bint fits
    cdef bkctl_part *parts = <bkctl_part *>calloc(parts_max, sizeof(bkctl_part))
    if parts is NULL:
        raise MemoryError
    try:
        fits = bkctl_measure_parts(
            from_grants, from_counts, runs, from_records, size_bytes, parts, parts_max
        )
        if not fits:
            raise ValueError("records that are not those of the grants")
        for number in range(parts_max):
            used += parts[number].runs > 0
        for number in range(parts_max):
            if not parts[number].runs:
                continue
            if used == 1:
                return [(number, grants, records, parts[number].entries)]
            part_grants = PyBytes_FromStringAndSize(NULL, parts[number].runs * BKCTL_GRANT_BYTES)
            part_records = PyBytes_FromStringAndSize(NULL, parts[number].bytes)
            parts[number].grants = <unsigned char *>PyBytes_AsString(part_grants)
            parts[number].records = <unsigned char *>PyBytes_AsString(part_records)
            made.append((number, part_grants, part_records, parts[number].entries))
        if size_bytes < <size_t>_KEEP_LOCK_BYTES:
            bkctl_fill_parts(from_grants, from_counts, runs, from_records, size_bytes, parts, parts_max)
        else:
            with nogil:
                bkctl_fill_parts(from_grants, from_counts, runs, from_records, size_bytes, parts, parts_max)
        return made
    finally:
        free(parts)
