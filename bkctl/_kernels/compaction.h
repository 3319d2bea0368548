/* Records of an entry log that live: found in a window of the log, copied to where they go next.

   As in entries.h nothing is trusted: what is copied was measured before, and lies inside of the buffer. */

#ifndef BKCTL_COMPACTION_H
#define BKCTL_COMPACTION_H

#include "entries.h"

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

#endif
