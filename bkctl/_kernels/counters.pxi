# Counts of the adds of ledgers, and of durations. One call is one step for other threads: none of
# these gives the interpreter's lock away.


cdef class LedgerCounter:
    """The entries and bytes of a ledger; see ``_counters``."""

    cdef public double since_s
    cdef public double bytes
    cdef public int64_t generation
    cdef public int64_t entries
    cdef public int64_t marked
    cdef public int64_t before

    def __init__(self, double since_s, int64_t generation):
        self.since_s = since_s
        self.generation = generation


cdef class LedgerUse:
    """The part of a ledger that every add changes; see ``_counters``."""

    cdef public int64_t lac
    cdef public bint used
    cdef public bint watched
    cdef public LedgerCounter counter

    def __init__(self, LedgerCounter counter not None):
        self.lac = -1
        self.counter = counter


cdef enum:
    _BUCKETS = 240

cdef double _ends_s[_BUCKETS - 1]


def _fill_ends():
    if len(UPPER_S) != _BUCKETS:
        raise ImportError("the compiled kernels have other buckets; install again")
    for place in range(_BUCKETS - 1):
        _ends_s[place] = UPPER_S[place]


_fill_ends()


cdef class Histogram:
    """Counts of durations; see ``_counters``."""

    cdef int64_t _counts[_BUCKETS]
    cdef public bint on
    cdef public int64_t count
    cdef public double total_s
    cdef public double maximum_s

    def __init__(self):
        self.on = True

    @property
    def buckets(self):
        cdef int place
        return [self._counts[place] for place in range(_BUCKETS)]

    @buckets.setter
    def buckets(self, list counts not None):
        cdef int place
        cdef int64_t taken[_BUCKETS]
        if len(counts) != _BUCKETS:
            raise ValueError(f"a histogram has {_BUCKETS} buckets")
        for place in range(_BUCKETS):
            taken[place] = counts[place]
        memcpy(self._counts, taken, sizeof(taken))

    def add(self, double seconds, int64_t count=1):
        cdef int low = 0, high = _BUCKETS - 1, middle
        if not (self.on and count):
            return
        while low < high:
            middle = (low + high) // 2
            if _ends_s[middle] < seconds:
                low = middle + 1
            else:
                high = middle
        self._counts[low] += count
        self.count += count
        self.total_s += seconds * <double>count
        if seconds > self.maximum_s:
            self.maximum_s = seconds
