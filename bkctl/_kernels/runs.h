/* Entries of a window of an entry log as runs of consecutive ids, and a word of each entry.

   The words and the sums are those of pipeline/tables/run_lengths.py and pipeline/sets/blocks.py. Arithmetic is
   modulo 2^64. As in records.h nothing is trusted: a record is looked at only when it lies in the buffer. */

#ifndef BKCTL_RUNS_H
#define BKCTL_RUNS_H

#include "checksums.h"

#define BKCTL_SUM_MASK (((uint64_t)1 << 44) - 1)
/* A body begins with ledger, entry, last add confirmed and length; a digest follows them. */
#define BKCTL_LAC_AT 16
#define BKCTL_HEADER_BYTES 32
#define BKCTL_RUN_COLUMNS 9

typedef struct {
  const unsigned char *buffer;
  size_t buffer_bytes;
  const int64_t *starts, *sizes, *ledgers, *entries;
  size_t count;
} bkctl_window;

static inline int bkctl_in_window(const bkctl_window *window, size_t number) {
  if (window->starts[number] < 0 || window->sizes[number] < 0) return 0;
  const uint64_t start = (uint64_t)window->starts[number], size = (uint64_t)window->sizes[number];
  return start <= window->buffer_bytes && window->buffer_bytes - start >= 4 &&
         window->buffer_bytes - start - 4 >= size;
}

static inline int bkctl_goes_on(const bkctl_window *window, size_t number) {
  return number > 0 && window->ledgers[number] == window->ledgers[number - 1] &&
         (uint64_t)window->entries[number] == (uint64_t)window->entries[number - 1] + 1;
}

/* Count the runs of the window's entries; -1 when a record does not lie in the buffer. */
static ptrdiff_t bkctl_count_runs(const bkctl_window *window) {
  ptrdiff_t runs = 0;
  for (size_t number = 0; number < window->count; number++) {
    if (!bkctl_in_window(window, number)) return -1;
    runs += !bkctl_goes_on(window, number);
  }
  return runs;
}

static inline uint64_t bkctl_place_word(uint64_t ledger, uint64_t entry, uint64_t location) {
  uint64_t value = location * 0x9E3779B97F4A7C15u;
  value ^= entry * 0xC2B2AE3D27D4EB4Fu;
  value ^= ledger * 0x165667B19E3779F9u;
  value ^= value >> 31;
  value *= 0xBF58476D1CE4E5B9u;
  return value ^ value >> 27;
}

/* Fill nine columns with the runs that were counted: ledger, first and last entry, entries, bytes with size
   words, lowest and highest last add confirmed (the highest and the lowest number there is, when no entry of the
   run has one), entries that fail, sum of words. `failing` has a byte for each record. */
static void bkctl_fill_runs(const bkctl_window *window, const unsigned char *failing, uint64_t first_location,
                            int64_t **columns) {
  ptrdiff_t run = -1;
  for (size_t number = 0; number < window->count; number++) {
    const int64_t ledger = window->ledgers[number], entry = window->entries[number];
    if (!bkctl_goes_on(window, number)) {
      run++;
      columns[0][run] = ledger;
      columns[1][run] = entry;
      columns[3][run] = columns[4][run] = columns[7][run] = columns[8][run] = 0;
      columns[5][run] = INT64_MAX;
      columns[6][run] = INT64_MIN;
    }
    columns[2][run] = entry;
    columns[3][run]++;
    columns[4][run] = (int64_t)((uint64_t)columns[4][run] + (uint64_t)window->sizes[number] + 4);
    if (window->sizes[number] >= BKCTL_HEADER_BYTES) {
      const int64_t lac = (int64_t)bkctl_be64(window->buffer + window->starts[number] + 4 + BKCTL_LAC_AT);
      if (lac < columns[5][run]) columns[5][run] = lac;
      if (lac > columns[6][run]) columns[6][run] = lac;
    }
    columns[7][run] += failing[number] != 0;
    const uint64_t location = first_location + (uint64_t)window->starts[number];
    const uint64_t word = bkctl_place_word((uint64_t)ledger, (uint64_t)entry, location);
    columns[8][run] = (int64_t)(((uint64_t)columns[8][run] + word) & BKCTL_SUM_MASK);
  }
}

static inline uint64_t bkctl_mix(uint64_t value, uint64_t more, uint64_t factor) {
  value ^= more * factor;
  value ^= value >> 29;
  value *= 0xBF58476D1CE4E5B9u;
  return value ^ value >> 32;
}

/* Write a word of each entry: of its ids, its size, and as many bytes of its digest as `digest_bytes` says, 4
   or 8, or none with 0. Returns 0 for another number, and for a record that is shorter or not in the buffer. */
static int bkctl_digest_words(const bkctl_window *window, const unsigned char *digest_bytes, int64_t *words) {
  for (size_t number = 0; number < window->count; number++) {
    const unsigned char wanted = digest_bytes[number];
    if (!bkctl_in_window(window, number)) return 0;
    if (wanted != 0 && wanted != 4 && wanted != 8) return 0;
    if (wanted && window->sizes[number] < BKCTL_HEADER_BYTES + wanted) return 0;
    const unsigned char *at = window->buffer + window->starts[number] + 4 + BKCTL_HEADER_BYTES;
    const uint64_t digest = wanted == 8 ? bkctl_be64(at) : wanted ? bkctl_be32(at) : 0;
    uint64_t value = (uint64_t)window->ledgers[number] * 0x165667B19E3779F9u;
    value = bkctl_mix(value, (uint64_t)window->entries[number], 0xC2B2AE3D27D4EB4Fu);
    value = bkctl_mix(value, (uint64_t)window->sizes[number], 0x9E3779B97F4A7C15u);
    words[number] = (int64_t)(bkctl_mix(value, digest, 0x27D4EB2F165667C5u) & BKCTL_SUM_MASK);
  }
  return 1;
}

#endif
