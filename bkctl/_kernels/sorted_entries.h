/* Entries of tables in the order of their keys, and batches of them. */

#ifndef BKCTL_SORTED_ENTRIES_H
#define BKCTL_SORTED_ENTRIES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hashing.h"
#include "records.h"

/* A body, and the place of its table among all: of two bodies with one key that of the later table counts. */
typedef struct {
  int64_t ledger, entry;
  const unsigned char *body;
  uint32_t size, table;
} bkctl_item;

typedef struct {
  int64_t ledger;
  size_t first, count;
} bkctl_group;

static int bkctl_by_ledger(const void *one, const void *other) {
  const int64_t left = ((const bkctl_group *)one)->ledger, right = ((const bkctl_group *)other)->ledger;
  return (left > right) - (left < right);
}

static int bkctl_by_entry(const void *one, const void *other) {
  const bkctl_item *left = one, *right = other;
  if (left->entry != right->entry) return left->entry > right->entry ? 1 : -1;
  return (left->table < right->table) - (left->table > right->table);
}

/* Sort by ledger, then entry, and leave one item of each key; `count` becomes their number. Items of a ledger
   mostly come in ascending order already, so they are distributed to their ledgers, which hardly ever have to be
   sorted then. Takes `items`, which is freed; NULL when there is no memory. */
static bkctl_item *bkctl_in_order(bkctl_item *items, size_t *count) {
  const size_t total = *count;
  size_t places = bkctl_places(64), used = 0, kept = 0, after = 0;
  bkctl_group *groups = malloc((total + 1) * sizeof *groups);
  uint32_t *of = malloc((total + 1) * sizeof *of), *index = calloc(places, sizeof *index);
  bkctl_item *sorted = NULL;
  if (!groups || !of || !index) goto end;
  for (size_t number = 0; number < total; number++) {
    const int64_t ledger = items[number].ledger;
    if (!used || groups[after].ledger != ledger) {
      size_t place = bkctl_hash_ledger(ledger) & (places - 1);
      while (index[place] && groups[index[place] - 1].ledger != ledger) place = (place + 1) & (places - 1);
      if (!index[place]) {
        groups[used].ledger = ledger;
        groups[used].count = 0;
        index[place] = (uint32_t)++used;
        after = used - 1;
        if (2 * used > places) {
          uint32_t *grown = calloc(2 * places, sizeof *grown);
          if (!grown) goto end;
          free(index);
          index = grown;
          places *= 2;
          for (size_t each = 0; each < used; each++) {
            size_t at = bkctl_hash_ledger(groups[each].ledger) & (places - 1);
            while (index[at]) at = (at + 1) & (places - 1);
            index[at] = (uint32_t)each + 1;
          }
        }
      } else {
        after = index[place] - 1;
      }
    }
    of[number] = (uint32_t)after;
    groups[after].count++;
  }
  /* Where each group begins once they are sorted by ledger; `first` is its old number in between. */
  for (size_t each = 0; each < used; each++) groups[each].first = each;
  qsort(groups, used, sizeof *groups, bkctl_by_ledger);
  {
    size_t *starts = malloc((used + 1) * sizeof *starts);
    if (!starts) goto end;
    size_t start = 0;
    for (size_t each = 0; each < used; each++) {
      starts[groups[each].first] = start;
      groups[each].first = start;
      start += groups[each].count;
    }
    sorted = malloc((total + 1) * sizeof *sorted);
    if (!sorted) {
      free(starts);
      goto end;
    }
    for (size_t number = 0; number < total; number++) sorted[starts[of[number]]++] = items[number];
    free(starts);
  }
  for (size_t each = 0; each < used; each++) {
    bkctl_item *first = sorted + groups[each].first;
    const size_t size = groups[each].count;
    size_t number = 1;
    while (number < size && first[number - 1].entry < first[number].entry) number++;
    if (number < size) qsort(first, size, sizeof *first, bkctl_by_entry);
    for (number = 0; number < size; number++) {
      if (number && first[number].entry == first[number - 1].entry) continue;
      sorted[kept++] = first[number];
    }
  }
  *count = kept;
end:
  free(items);
  free(groups);
  free(of);
  free(index);
  return sorted;
}

/* The items from `first` on that make one batch: at most `count_max`, bodies of at most `bytes_max` together,
   one at least; the sum of their bodies. */
static size_t bkctl_batch(const bkctl_item *items, size_t first, size_t stop, size_t count_max, size_t bytes_max,
                          size_t *body_bytes) {
  size_t number = first, sum = 0;
  while (number < stop && number - first < count_max) {
    if (number > first && sum + items[number].size > bytes_max) break;
    sum += items[number++].size;
  }
  *body_bytes = sum;
  return number;
}

/* Copies items: keys, records, and behind each record the number of bytes so far. */
static void bkctl_gather(const bkctl_item *items, size_t count, unsigned char *keys, unsigned char *records,
                         int64_t *ends) {
  int64_t end = 0;
  for (size_t number = 0; number < count; number++) {
    const bkctl_item *item = items + number;
    bkctl_put_be64(keys, (uint64_t)item->ledger);
    bkctl_put_be64(keys + 8, (uint64_t)item->entry);
    bkctl_put_be32(records + end, item->size);
    memcpy(records + end + 4, item->body, item->size);
    keys += BKCTL_KEY_BYTES;
    end += 4 + (int64_t)item->size;
    ends[number] = end;
  }
}

#endif
