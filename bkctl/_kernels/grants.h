/* Ledgers by grant: the master key and the ledger id as an add brings them.

   Rows keep their number for as long as they are there. Places are an open-addressing table over them, at most half
   full; what is removed leaves no mark, because those behind it move up. */

#ifndef BKCTL_GRANTS_H
#define BKCTL_GRANTS_H

#include "entry_table.h"
#include "frames.h"

/* Half a cache line. Of a row that is free `hash` is the next free one and 1, or 0. */
typedef struct {
  unsigned char grant[BKCTL_GRANT_BYTES];
  uint32_t hash;
} bkctl_grant_row;

/* A place holds the number of a row and 1; 0 is a free place. `made`: rows that were ever in use. */
typedef struct {
  bkctl_grant_row *rows;
  uint32_t *places;
  size_t places_count, rows_max, made, count;
  uint32_t first_free;
} bkctl_grants;

static inline uint32_t bkctl_grant_hash(const unsigned char *grant) {
  uint64_t words[4] = {0, 0, 0, 0};
  memcpy(words, grant, BKCTL_GRANT_BYTES);
  return (uint32_t)bkctl_hash(words, 4);
}

/* The place of a grant, or the free one where it would be. The table has places. */
static inline size_t bkctl_grant_place(const bkctl_grants *grants, const unsigned char *grant, uint32_t hash) {
  const size_t mask = grants->places_count - 1;
  size_t place = hash & mask;
  for (; grants->places[place]; place = (place + 1) & mask) {
    const bkctl_grant_row *row = grants->rows + grants->places[place] - 1;
    if (row->hash == hash && memcmp(row->grant, grant, BKCTL_GRANT_BYTES) == 0) break;
  }
  return place;
}

/* The row of a grant, BKCTL_NO_ROW when it is not there. */
static inline uint32_t bkctl_grant_find(const bkctl_grants *grants, const unsigned char *grant) {
  if (!grants->count) return BKCTL_NO_ROW;
  /* Of a free place 0 - 1, which is no row. */
  return grants->places[bkctl_grant_place(grants, grant, bkctl_grant_hash(grant))] - 1;
}

/* Grants that are looked up together: what they are compared with comes from memory side by side. */
#define BKCTL_GRANTS_AHEAD 16

/* Finds the rows of grants that lie one behind the other; false when one of them is not there. */
static int bkctl_grants_find(const bkctl_grants *grants, const unsigned char *given, size_t count, int64_t *rows) {
  uint32_t hashes[BKCTL_GRANTS_AHEAD];
  if (!grants->count) return !count;
  const size_t mask = grants->places_count - 1;
  for (size_t first = 0; first < count; first += BKCTL_GRANTS_AHEAD) {
    const size_t some = count - first < BKCTL_GRANTS_AHEAD ? count - first : BKCTL_GRANTS_AHEAD;
    for (size_t number = 0; number < some; number++) {
      hashes[number] = bkctl_grant_hash(given + (first + number) * BKCTL_GRANT_BYTES);
      __builtin_prefetch(grants->places + (hashes[number] & mask));
    }
    for (size_t number = 0; number < some; number++) {
      const uint32_t found = grants->places[hashes[number] & mask];
      if (found) __builtin_prefetch(grants->rows + found - 1);
    }
    for (size_t number = 0; number < some; number++) {
      const unsigned char *grant = given + (first + number) * BKCTL_GRANT_BYTES;
      const uint32_t found = grants->places[bkctl_grant_place(grants, grant, hashes[number])];
      if (!found) return 0;
      rows[first + number] = (int64_t)found - 1;
    }
  }
  return 1;
}

/* Makes room for one row more; false without memory, and then nothing has changed. */
static int bkctl_grants_reserve(bkctl_grants *grants) {
  if (!grants->first_free && grants->made == grants->rows_max) {
    const size_t rows_max = grants->rows_max ? 2 * grants->rows_max : 16;
    if (rows_max > UINT32_MAX / 4) return 0;
    bkctl_grant_row *rows = realloc(grants->rows, rows_max * sizeof *rows);
    if (!rows) return 0;
    grants->rows = rows;
    grants->rows_max = rows_max;
  }
  const size_t places_count = bkctl_places(grants->count + 1);
  if (places_count <= grants->places_count) return 1;
  uint32_t *places = calloc(places_count, sizeof *places);
  if (!places) return 0;
  for (size_t old = 0; old < grants->places_count; old++) {
    if (!grants->places[old]) continue;
    size_t place = grants->rows[grants->places[old] - 1].hash & (places_count - 1);
    while (places[place]) place = (place + 1) & (places_count - 1);
    places[place] = grants->places[old];
  }
  free(grants->places);
  grants->places = places;
  grants->places_count = places_count;
  return 1;
}

/* The row of a grant, which is a new one if there was none. Room was made. */
static uint32_t bkctl_grants_put(bkctl_grants *grants, const unsigned char *grant) {
  const uint32_t hash = bkctl_grant_hash(grant);
  const size_t place = bkctl_grant_place(grants, grant, hash);
  if (grants->places[place]) return grants->places[place] - 1;
  uint32_t row;
  if (grants->first_free) {
    row = grants->first_free - 1;
    grants->first_free = grants->rows[row].hash;
  } else {
    row = (uint32_t)grants->made++;
  }
  memcpy(grants->rows[row].grant, grant, BKCTL_GRANT_BYTES);
  grants->rows[row].hash = hash;
  grants->places[place] = row + 1;
  grants->count++;
  return row;
}

/* Removes a grant; returns its row, which is free now, or BKCTL_NO_ROW when it was not there. */
static uint32_t bkctl_grants_remove(bkctl_grants *grants, const unsigned char *grant) {
  if (!grants->count) return BKCTL_NO_ROW;
  const size_t mask = grants->places_count - 1;
  size_t hole = bkctl_grant_place(grants, grant, bkctl_grant_hash(grant));
  if (!grants->places[hole]) return BKCTL_NO_ROW;
  const uint32_t row = grants->places[hole] - 1;
  for (size_t next = (hole + 1) & mask; grants->places[next]; next = (next + 1) & mask) {
    /* One moves up if its way from where it belongs leads over the hole. */
    const size_t home = grants->rows[grants->places[next] - 1].hash & mask;
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    grants->places[hole] = grants->places[next];
    hole = next;
  }
  grants->places[hole] = 0;
  grants->rows[row].hash = grants->first_free;
  grants->first_free = row + 1;
  grants->count--;
  return row;
}

static void bkctl_grants_free(bkctl_grants *grants) {
  free(grants->rows);
  free(grants->places);
}

#endif
