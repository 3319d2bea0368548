/* Records of adds, taken apart by ledger: a bookie with several directories or journals keeps a ledger in the one whose
   number is the ledger's id modulo theirs.

   A run is adds of one ledger that stand side by side; its ledger is at the end of its grant. As in records.h nothing
   is trusted: bkctl_measure_parts says whether the others may look at the records. */

#ifndef BKCTL_PARTS_H
#define BKCTL_PARTS_H

#include "frames.h"
#include "records.h"

/* Of one part: its runs, its records, the bytes of these, and where the next run of it is copied to. */
typedef struct {
  int64_t runs, entries, bytes;
  unsigned char *grants, *records;
} bkctl_part;

static inline const unsigned char *bkctl_run_ledger(const unsigned char *grants, size_t run) {
  return grants + (run + 1) * BKCTL_GRANT_BYTES - 8;
}

/* The end of `count` records of a ledger from `at` on, in records[:size_bytes]; 0 where they are not there. */
static inline size_t bkctl_run_end(const unsigned char *records, size_t size_bytes, size_t at, int64_t count,
                                   const unsigned char *ledger) {
  for (; count > 0; count--) {
    if (size_bytes - at < 4 + BKCTL_KEY_BYTES) return 0;
    const size_t size = bkctl_be32(records + at);
    if (size < BKCTL_KEY_BYTES || size > size_bytes - at - 4) return 0;
    if (memcmp(records + at + 4, ledger, 8) != 0) return 0;
    at += 4 + size;
  }
  return at;
}

/* Add up what goes to each of `count` parts, which begin with zeros. 0 where the records are not those of the runs:
   whole, as many of each as `counts` says (one at least), of its ledger, and no others. */
static int bkctl_measure_parts(const unsigned char *grants, const int64_t *counts, size_t runs,
                               const unsigned char *records, size_t size_bytes, bkctl_part *parts, size_t count) {
  size_t at = 0;
  for (size_t run = 0; run < runs; run++) {
    if (counts[run] < 1) return 0;
    const unsigned char *ledger = bkctl_run_ledger(grants, run);
    const size_t end = bkctl_run_end(records, size_bytes, at, counts[run], ledger);
    if (!end || ledger[0] & 0x80) return 0;
    bkctl_part *part = parts + bkctl_be64(ledger) % count;
    part->runs++;
    part->entries += counts[run];
    part->bytes += (int64_t)(end - at);
    at = end;
  }
  return at == size_bytes;
}

/* Copy grants and records to where the parts want them, which has room for what was measured. */
static void bkctl_fill_parts(const unsigned char *grants, const int64_t *counts, size_t runs,
                             const unsigned char *records, size_t size_bytes, bkctl_part *parts, size_t count) {
  size_t at = 0;
  for (size_t run = 0; run < runs; run++) {
    const unsigned char *ledger = bkctl_run_ledger(grants, run);
    const size_t end = bkctl_run_end(records, size_bytes, at, counts[run], ledger);
    bkctl_part *part = parts + bkctl_be64(ledger) % count;
    memcpy(part->grants, grants + run * BKCTL_GRANT_BYTES, BKCTL_GRANT_BYTES);
    memcpy(part->records, records + at, end - at);
    part->grants += BKCTL_GRANT_BYTES;
    part->records += end - at;
    at = end;
  }
}

#endif
