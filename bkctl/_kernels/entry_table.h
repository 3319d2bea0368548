/* Tables of entries in memory, found by their key. As in records.h nothing is trusted. */

#ifndef BKCTL_ENTRY_TABLE_H
#define BKCTL_ENTRY_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hashing.h"
#include "records.h"

#define BKCTL_NO_ROW UINT32_MAX

/* Where an entry's body lies: in a block that somebody keeps, from `offset` on. The block of an entry that was
   removed is BKCTL_NO_ROW. */
typedef struct {
  int64_t ledger, entry;
  uint32_t block, offset, size, unused;
} bkctl_row;

typedef struct {
  int64_t ledger, highest;
  uint32_t used, unused;
} bkctl_newest;

/* Rows in the order of arrival, a later one of a key in the place of the first. `index` has row numbers + 1 in
   open addressing, `newest` the ledgers with their highest entry ids, `removed` is how many rows are of removed
   entries. */
typedef struct {
  bkctl_row *rows;
  size_t count, rows_max, removed;
  uint32_t *index;
  size_t places;
  bkctl_newest *newest;
  size_t ledgers, newest_places;
} bkctl_table;

static void bkctl_table_free(bkctl_table *table) {
  free(table->rows);
  free(table->index);
  free(table->newest);
  memset(table, 0, sizeof *table);
}

/* The place of a key with that hash, or the free one where it would be. */
static size_t bkctl_table_place(const bkctl_table *table, int64_t ledger, int64_t entry, uint64_t hash) {
  size_t place = hash & (table->places - 1);
  for (; table->index[place]; place = (place + 1) & (table->places - 1)) {
    const bkctl_row *row = table->rows + table->index[place] - 1;
    if (row->entry == entry && row->ledger == ledger) break;
  }
  return place;
}

static size_t bkctl_newest_place(const bkctl_newest *newest, size_t places, int64_t ledger, uint64_t hash) {
  size_t place = hash & (places - 1);
  while (newest[place].used && newest[place].ledger != ledger) place = (place + 1) & (places - 1);
  return place;
}

/* The row of a key, NULL without. */
static const bkctl_row *bkctl_table_find(const bkctl_table *table, int64_t ledger, int64_t entry) {
  if (!table->count) return NULL;
  const size_t place = bkctl_table_place(table, ledger, entry, bkctl_hash_key(ledger, entry));
  const bkctl_row *row = table->index[place] ? table->rows + table->index[place] - 1 : NULL;
  return row && row->block != BKCTL_NO_ROW ? row : NULL;
}

/* Keys that are looked for together: what they need comes from memory side by side. */
#define BKCTL_KEYS_AHEAD 16

/* Find each of at most BKCTL_KEYS_AHEAD keys in the first table that has it. `rows` become the keys' rows, NULL where
   no table has the key; `where` are the numbers of the tables. */
static void bkctl_tables_find(const bkctl_table *const *tables, size_t table_count, const unsigned char *keys,
                              size_t count, const bkctl_row **rows, size_t *where) {
  int64_t ledgers[BKCTL_KEYS_AHEAD], entries[BKCTL_KEYS_AHEAD];
  uint64_t hashes[BKCTL_KEYS_AHEAD];
  size_t left[BKCTL_KEYS_AHEAD], left_count = count;
  for (size_t key = 0; key < count; key++, keys += BKCTL_KEY_BYTES) {
    ledgers[key] = (int64_t)bkctl_be64(keys);
    entries[key] = (int64_t)bkctl_be64(keys + 8);
    hashes[key] = bkctl_hash_key(ledgers[key], entries[key]);
    rows[key] = NULL;
    left[key] = key;
  }
  for (size_t number = 0; number < table_count && left_count; number++) {
    const bkctl_table *table = tables[number];
    if (!table->count) continue;
    for (size_t at = 0; at < left_count; at++)
      __builtin_prefetch(table->index + (hashes[left[at]] & (table->places - 1)));
    for (size_t at = 0; at < left_count; at++) {
      const uint32_t found = table->index[hashes[left[at]] & (table->places - 1)];
      if (found) __builtin_prefetch(table->rows + found - 1);
    }
    size_t kept = 0;
    for (size_t at = 0; at < left_count; at++) {
      const size_t key = left[at];
      const size_t place = bkctl_table_place(table, ledgers[key], entries[key], hashes[key]);
      const bkctl_row *row = table->index[place] ? table->rows + table->index[place] - 1 : NULL;
      if (row && row->block != BKCTL_NO_ROW) {
        rows[key] = row;
        where[key] = number;
      } else {
        left[kept++] = key;
      }
    }
    left_count = kept;
  }
}

/* Remove the entry of a row that bkctl_table_find gave, or that is no removed one. */
static void bkctl_table_remove(bkctl_table *table, const bkctl_row *row) {
  table->rows[row - table->rows].block = BKCTL_NO_ROW;
  table->removed++;
}

/* The highest entry id of a ledger, -1 without entries. */
static int64_t bkctl_table_highest(const bkctl_table *table, int64_t ledger) {
  if (!table->count) return -1;
  const uint64_t hash = bkctl_hash_ledger(ledger);
  const bkctl_newest *found = table->newest + bkctl_newest_place(table->newest, table->newest_places, ledger, hash);
  return found->used ? found->highest : -1;
}

/* Make room for so many more rows and ledgers; 0 when there is no memory, with nothing changed that counts. */
static int bkctl_table_reserve(bkctl_table *table, size_t rows, size_t ledgers) {
  if (table->count + rows >= BKCTL_NO_ROW) return 0;
  if (table->count + rows > table->rows_max) {
    size_t rows_max = table->rows_max + table->rows_max / 2;
    if (rows_max < table->count + rows) rows_max = table->count + rows;
    bkctl_row *grown = realloc(table->rows, rows_max * sizeof *grown);
    if (!grown) return 0;
    table->rows = grown;
    table->rows_max = rows_max;
  }
  size_t places = bkctl_places(table->count + rows);
  if (places > table->places) {
    uint32_t *index = calloc(places, sizeof *index);
    if (!index) return 0;
    for (size_t number = 0; number < table->count; number++) {
      const bkctl_row *row = table->rows + number;
      size_t place = bkctl_hash_key(row->ledger, row->entry) & (places - 1);
      while (index[place]) place = (place + 1) & (places - 1);
      index[place] = (uint32_t)number + 1;
    }
    free(table->index);
    table->index = index;
    table->places = places;
  }
  places = bkctl_places(table->ledgers + ledgers);
  if (places > table->newest_places) {
    bkctl_newest *newest = calloc(places, sizeof *newest);
    if (!newest) return 0;
    for (size_t old = 0; old < table->newest_places; old++) {
      const bkctl_newest *moved = table->newest + old;
      if (moved->used)
        newest[bkctl_newest_place(newest, places, moved->ledger, bkctl_hash_ledger(moved->ledger))] = *moved;
    }
    free(table->newest);
    table->newest = newest;
    table->newest_places = places;
  }
  return 1;
}

/* Add a row, or put it in the place of the one of its key; room was reserved. The hashes are of key and ledger. */
static void bkctl_table_put_hashed(bkctl_table *table, const bkctl_row *row, uint64_t hash, uint64_t ledger_hash) {
  const size_t place = bkctl_table_place(table, row->ledger, row->entry, hash);
  if (table->index[place]) {
    bkctl_row *old = table->rows + table->index[place] - 1;
    table->removed -= old->block == BKCTL_NO_ROW;
    *old = *row;
    return;
  }
  table->rows[table->count] = *row;
  table->index[place] = (uint32_t)++table->count;
  bkctl_newest *newest =
      table->newest + bkctl_newest_place(table->newest, table->newest_places, row->ledger, ledger_hash);
  if (!newest->used) {
    newest->used = 1;
    newest->ledger = row->ledger;
    newest->highest = row->entry;
    table->ledgers++;
  } else if (row->entry > newest->highest) {
    newest->highest = row->entry;
  }
}

static void bkctl_table_put(bkctl_table *table, const bkctl_row *row) {
  bkctl_table_put_hashed(table, row, bkctl_hash_key(row->ledger, row->entry), bkctl_hash_ledger(row->ledger));
}

/* Records that are looked at together: what their places lie in comes from memory side by side. */
#define BKCTL_RECORDS_AHEAD 16

/* Put the records of a block that was measured; room was reserved. */
static void bkctl_table_put_records(bkctl_table *table, const unsigned char *records, size_t size_bytes,
                                    uint32_t block) {
  bkctl_row rows[BKCTL_RECORDS_AHEAD];
  uint64_t hashes[BKCTL_RECORDS_AHEAD], ledger_hashes[BKCTL_RECORDS_AHEAD];
  for (size_t at = 0; at < size_bytes;) {
    size_t count = 0;
    for (; count < BKCTL_RECORDS_AHEAD && at < size_bytes; count++) {
      bkctl_row *row = rows + count;
      row->ledger = (int64_t)bkctl_be64(records + at + 4);
      row->entry = (int64_t)bkctl_be64(records + at + 12);
      row->block = block;
      row->offset = (uint32_t)at + 4;
      row->size = bkctl_be32(records + at);
      row->unused = 0;
      hashes[count] = bkctl_hash_key(row->ledger, row->entry);
      ledger_hashes[count] = bkctl_hash_ledger(row->ledger);
      __builtin_prefetch(table->index + (hashes[count] & (table->places - 1)), 1);
      __builtin_prefetch(table->newest + (ledger_hashes[count] & (table->newest_places - 1)), 1);
      at += 4 + (size_t)row->size;
    }
    for (size_t number = 0; number < count; number++) {
      const uint32_t found = table->index[hashes[number] & (table->places - 1)];
      if (found) __builtin_prefetch(table->rows + found - 1);
    }
    for (size_t number = 0; number < count; number++)
      bkctl_table_put_hashed(table, rows + number, hashes[number], ledger_hashes[number]);
  }
}

#endif
