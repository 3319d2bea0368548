/* Records of an entry log that live: found in a window of the log, copied to where they go next; and the columns
   that go with records: where they lie, and what they add up to for each ledger.

   As in records.h nothing is trusted: what is copied was measured before, and lies inside of the buffer. */

#ifndef BKCTL_COMPACTION_H
#define BKCTL_COMPACTION_H

#include "records.h"

/* Whether the index has the record `number` at its place in the log; `first` + any place in the buffer is a
   location. */
static inline int bkctl_is_at(const int64_t *starts, const int64_t *found, int64_t first, size_t number) {
  return found[number] == first + starts[number];
}

/* Measure the records whose places `found` names: how many, and their bytes with size words. 0 when a record,
   whether it is named or not, is shorter than a key or does not lie in the buffer. */
static int bkctl_measure_at(size_t buffer_bytes, const int64_t *starts, const int64_t *sizes, const int64_t *found,
                            size_t count, int64_t first, size_t *chosen, size_t *bytes) {
  *chosen = *bytes = 0;
  for (size_t number = 0; number < count; number++) {
    if (starts[number] < 0 || sizes[number] < BKCTL_KEY_BYTES) return 0;
    const uint64_t start = (uint64_t)starts[number], size = (uint64_t)sizes[number];
    if (start > buffer_bytes || buffer_bytes - start < 4 || buffer_bytes - start - 4 < size) return 0;
    if (!bkctl_is_at(starts, found, first, number)) continue;
    if (size + 4 > (uint64_t)PTRDIFF_MAX - *bytes) return 0;
    *bytes += 4 + size;
    ++*chosen;
  }
  return 1;
}

/* Copy the records that were measured: keys, records, behind each the number of bytes so far, and their places. */
static void bkctl_gather_at(const unsigned char *buffer, const int64_t *starts, const int64_t *sizes,
                            const int64_t *found, size_t count, int64_t first, unsigned char *keys,
                            unsigned char *records, int64_t *ends, int64_t *places) {
  size_t end = 0;
  for (size_t number = 0; number < count; number++) {
    if (!bkctl_is_at(starts, found, first, number)) continue;
    const unsigned char *record = buffer + starts[number];
    const size_t size = 4 + (size_t)sizes[number];
    memcpy(keys, record + 4, BKCTL_KEY_BYTES);
    memcpy(records + end, record, size);
    end += size;
    keys += BKCTL_KEY_BYTES;
    *ends++ = (int64_t)end;
    *places++ = found[number];
  }
}

/* Add two numbers; 1 when the sum has more than 64 bits. */
static inline int bkctl_add_overflows(int64_t number, int64_t other, int64_t *sum) {
  *sum = 0;
  if (other < 0 ? number < INT64_MIN - other : number > INT64_MAX - other) return 1;
  *sum = number + other;
  return 0;
}

/* For each run of records of one ledger that ledger, and the difference of the bounds around it: `bounds` has one
   number more than there are keys. The number of runs, -1 when a difference has more than 64 bits. */
static ptrdiff_t bkctl_ledger_sums(const unsigned char *keys, const int64_t *bounds, size_t count, int64_t *ledgers,
                                   int64_t *sums) {
  ptrdiff_t runs = 0;
  for (size_t number = 0, stop = 0; number < count; number = stop) {
    const int64_t ledger = (int64_t)bkctl_be64(keys + number * BKCTL_KEY_BYTES);
    for (stop = number + 1; stop < count; stop++)
      if ((int64_t)bkctl_be64(keys + stop * BKCTL_KEY_BYTES) != ledger) break;
    const int64_t start = bounds[number], end = bounds[stop];
    if (start < 0 ? end > INT64_MAX + start : end < INT64_MIN + start) return -1;
    ledgers[runs] = ledger;
    sums[runs++] = end - start;
  }
  return runs;
}

#endif
