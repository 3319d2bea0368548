/* Records, as the journal and the entry logs hold them: be32 size, body; a body starts with be64 ledger, be64 entry,
   be64 last add confirmed.

   Nothing here looks at a byte outside of what it was given, and nothing is trusted: callers check with the functions
   that say so before they let the others run. */

#ifndef BKCTL_RECORDS_H
#define BKCTL_RECORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "checksums.h"

#define BKCTL_KEY_BYTES 16
#define BKCTL_LAC_AT 16

static inline void bkctl_put_be32(unsigned char *at, uint32_t value) {
  at[0] = (unsigned char)(value >> 24);
  at[1] = (unsigned char)(value >> 16);
  at[2] = (unsigned char)(value >> 8);
  at[3] = (unsigned char)value;
}

static inline void bkctl_put_be64(unsigned char *at, uint64_t value) {
  bkctl_put_be32(at, (uint32_t)(value >> 32));
  bkctl_put_be32(at + 4, (uint32_t)value);
}

/* Whether `records` is a chain of records with ids that are not negative, from its first to its last byte;
   their number, and how often the ledger changes from one to the next (the first counts as a change). */
static int bkctl_measure_records(const unsigned char *records, size_t size_bytes, size_t *count, size_t *changes) {
  size_t at = 0;
  uint64_t before = UINT64_MAX;
  *count = *changes = 0;
  if (size_bytes > UINT32_MAX) return 0;
  while (at < size_bytes) {
    if (size_bytes - at < 4 + BKCTL_KEY_BYTES) return 0;
    const uint32_t size = bkctl_be32(records + at);
    if (size < BKCTL_KEY_BYTES || size > size_bytes - at - 4) return 0;
    const uint64_t ledger = bkctl_be64(records + at + 4);
    if ((ledger | bkctl_be64(records + at + 12)) >> 63) return 0;
    *changes += ledger != before;
    before = ledger;
    ++*count;
    at += 4 + (size_t)size;
  }
  return 1;
}

/* The records that begin data[:size_bytes], are whole and of the first one's ledger, with ids that are not negative and
   bodies of `size_min`, which is BKCTL_KEY_BYTES at least, to `size_max`: the first, and behind it at most `others_max`
   with bodies of at most `bytes_max` together. Their keys and ends go where these are not NULL. Returns their number. */
static size_t bkctl_leading_records(const unsigned char *data, size_t size_bytes, size_t size_min, size_t size_max,
                                    size_t others_max, size_t bytes_max, unsigned char *keys, int64_t *ends) {
  size_t at = 0, count = 0;
  while (count <= others_max && size_bytes - at >= 4 + BKCTL_KEY_BYTES) {
    const size_t size = bkctl_be32(data + at);
    const unsigned char *key = data + at + 4;
    if (size < size_min || size > size_max || size > size_bytes - at - 4 || ((key[0] | key[8]) & 0x80)) break;
    if (count) {
      if (size > bytes_max || memcmp(key, data + 4, 8) != 0) break;
      bytes_max -= size;
    }
    at += 4 + size;
    if (keys) {
      memcpy(keys + count * BKCTL_KEY_BYTES, key, BKCTL_KEY_BYTES);
      ends[count] = (int64_t)at;
    }
    count++;
  }
  return count;
}

#endif
