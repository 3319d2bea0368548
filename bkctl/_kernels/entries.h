/* Adds in a receive buffer, and entries in memory: found by their key, sorted and gathered.

   A *record* is what the journal and the entry logs hold: be32 size, body; a body starts with be64 ledger,
   be64 entry. Nothing here looks at a byte outside of what it was given, and nothing is trusted: callers check
   with the functions that say so before they let the others run. */

#ifndef BKCTL_ENTRIES_H
#define BKCTL_ENTRIES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "checksums.h"

/* A plain add of protocol v2: be32 length, 02 01 00 00, 20 bytes of master key, the body. The *grant* is the
   master key and the ledger id behind it. */
#define BKCTL_ADD_HEAD 0x02010000u
#define BKCTL_ADD_LENGTH_MIN 48
#define BKCTL_GRANT_AT 8
#define BKCTL_GRANT_BYTES 28
#define BKCTL_MASTER_KEY_BYTES 20
#define BKCTL_BODY_AT 28
#define BKCTL_KEY_BYTES 16
#define BKCTL_LAC_AT 16

#define BKCTL_NO_ROW UINT32_MAX

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

/* --- hashing ---------------------------------------------------------------------------------------------- */

/* Clients choose ids and keys, so tables hash with SipHash-1-3 under a secret of the process. */
static uint64_t bkctl_secret[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

#define BKCTL_ROTATED(x, by) ((x) << (by) | (x) >> (64 - (by)))

static inline void bkctl_sip_round(uint64_t v[4]) {
  v[0] += v[1];
  v[1] = BKCTL_ROTATED(v[1], 13) ^ v[0];
  v[0] = BKCTL_ROTATED(v[0], 32);
  v[2] += v[3];
  v[3] = BKCTL_ROTATED(v[3], 16) ^ v[2];
  v[0] += v[3];
  v[3] = BKCTL_ROTATED(v[3], 21) ^ v[0];
  v[2] += v[1];
  v[1] = BKCTL_ROTATED(v[1], 17) ^ v[2];
  v[2] = BKCTL_ROTATED(v[2], 32);
}

static inline uint64_t bkctl_hash(const uint64_t *words, int count) {
  uint64_t v[4] = {
      bkctl_secret[0] ^ 0x736f6d6570736575u,
      bkctl_secret[1] ^ 0x646f72616e646f6du,
      bkctl_secret[0] ^ 0x6c7967656e657261u,
      bkctl_secret[1] ^ 0x7465646279746573u,
  };
  for (int index = 0; index < count; index++) {
    v[3] ^= words[index];
    bkctl_sip_round(v);
    v[0] ^= words[index];
  }
  v[2] ^= 0xff;
  for (int round = 0; round < 3; round++) bkctl_sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline uint64_t bkctl_hash_key(int64_t ledger, int64_t entry) {
  const uint64_t words[2] = {(uint64_t)ledger, (uint64_t)entry};
  return bkctl_hash(words, 2);
}

static inline uint64_t bkctl_hash_ledger(int64_t ledger) {
  const uint64_t word = (uint64_t)ledger;
  return bkctl_hash(&word, 1);
}

static inline uint64_t bkctl_hash_grant(const unsigned char *grant) {
  uint64_t words[4] = {0, 0, 0, 0};
  memcpy(words, grant, BKCTL_GRANT_BYTES);
  return bkctl_hash(words, 4);
}

/* The number of places, a power of two, of a table that is at most half full with `count`. */
static inline size_t bkctl_places(size_t count) {
  size_t places = 16;
  while (places < 2 * count) places *= 2;
  return places;
}

/* --- adds in a receive buffer ----------------------------------------------------------------------------- */

/* `grants`: how often the grant changes from one add to the next, the first one counted. */
typedef struct {
  size_t stop, count, body_bytes, grants;
  int negative;
} bkctl_stretch;

/* The stretch of plain adds from `start` on; `negative`: an id in it is. All of it lies in data[start:end]. */
static bkctl_stretch bkctl_measure_adds(const unsigned char *data, size_t start, size_t end) {
  bkctl_stretch found = {start, 0, 0, 0, 0};
  const unsigned char *before = NULL;
  size_t at = start;
  while (end - at >= 4 + BKCTL_ADD_LENGTH_MIN) {
    const uint32_t length = bkctl_be32(data + at);
    const unsigned char *grant = data + at + BKCTL_GRANT_AT;
    if (length < BKCTL_ADD_LENGTH_MIN || length > INT32_MAX || bkctl_be32(data + at + 4) != BKCTL_ADD_HEAD) break;
    if (length > end - at - 4) break;
    found.negative |= (data[at + BKCTL_BODY_AT] | data[at + BKCTL_BODY_AT + 8]) >> 7;
    found.grants += !before || memcmp(grant, before, BKCTL_GRANT_BYTES) != 0;
    found.count++;
    found.body_bytes += length - 24;
    before = grant;
    at += 4 + (size_t)length;
  }
  found.stop = at;
  return found;
}

/* What is known of adds with the same grant that stand side by side: the grants, the highest last add confirmed of
   each, and the number of adds. */
typedef struct {
  unsigned char *grants;
  int64_t *lacs, *counts;
  size_t made;
} bkctl_grant_columns;

static inline void bkctl_note_grant(bkctl_grant_columns *columns, const unsigned char *key, const unsigned char *body) {
  unsigned char *grant = columns->grants + columns->made * BKCTL_GRANT_BYTES;
  const int64_t lac = (int64_t)bkctl_be64(body + BKCTL_LAC_AT);
  size_t last = columns->made - 1;
  if (!columns->made || memcmp(key, grant - BKCTL_GRANT_BYTES, BKCTL_MASTER_KEY_BYTES) != 0 ||
      memcmp(body, grant - BKCTL_GRANT_BYTES + BKCTL_MASTER_KEY_BYTES, 8) != 0) {
    memcpy(grant, key, BKCTL_MASTER_KEY_BYTES);
    memcpy(grant + BKCTL_MASTER_KEY_BYTES, body, 8);
    last = columns->made++;
    columns->lacs[last] = lac;
    columns->counts[last] = 0;
  }
  columns->counts[last]++;
  if (lac > columns->lacs[last]) columns->lacs[last] = lac;
}

/* Copies the adds of a stretch: keys of 16 bytes, records, and columns with room for its grants. */
static void bkctl_copy_adds(const unsigned char *data, const bkctl_stretch *stretch, size_t start, unsigned char *keys,
                            unsigned char *records, bkctl_grant_columns *columns) {
  size_t at = start;
  for (size_t index = 0; index < stretch->count; index++) {
    const uint32_t size = bkctl_be32(data + at) - 24;
    const unsigned char *body = data + at + BKCTL_BODY_AT;
    bkctl_note_grant(columns, data + at + BKCTL_GRANT_AT, body);
    memcpy(keys, body, BKCTL_KEY_BYTES);
    bkctl_put_be32(records, size);
    memcpy(records + 4, body, size);
    keys += BKCTL_KEY_BYTES;
    records += 4 + (size_t)size;
    at += 28 + (size_t)size;
  }
}

/* --- reads in a receive buffer, and their answers ------------------------------------------------------------ */

/* A plain read of protocol v2: be32 length, which is 20, 02 02 00 00, the key. */
#define BKCTL_READ_HEAD 0x02020000u
#define BKCTL_READ_LENGTH 20

/* The number of plain reads from `start` on, none of them of the newest entry; all of them lie in data[start:end].
   `negative`: a ledger id among them is. */
static size_t bkctl_count_reads(const unsigned char *data, size_t start, size_t end, int *negative) {
  size_t count = 0;
  *negative = 0;
  for (; end - start >= 4 + BKCTL_READ_LENGTH; start += 4 + BKCTL_READ_LENGTH) {
    if (bkctl_be32(data + start) != BKCTL_READ_LENGTH || bkctl_be32(data + start + 4) != BKCTL_READ_HEAD) break;
    if (data[start + 16] & 0x80) break;
    *negative |= data[start + 8] >> 7;
    count++;
  }
  return count;
}

/* Frames that answer reads: be32 length, `head`, the key, the body, for each of a chain of records that was
   measured. */
static void bkctl_answer_reads(unsigned char *to, const unsigned char *head, size_t head_bytes,
                               const unsigned char *records, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes;) {
    const uint32_t size = bkctl_be32(records + at);
    bkctl_put_be32(to, (uint32_t)(head_bytes + BKCTL_KEY_BYTES) + size);
    memcpy(to + 4, head, head_bytes);
    memcpy(to + 4 + head_bytes, records + at + 4, BKCTL_KEY_BYTES);
    memcpy(to + 4 + head_bytes + BKCTL_KEY_BYTES, records + at + 4, size);
    to += 4 + head_bytes + BKCTL_KEY_BYTES + size;
    at += 4 + (size_t)size;
  }
}

/* --- adds of protocol v3 ----------------------------------------------------------------------------------- */

/* A plain add as Java's client writes it (<> is a canonical varint of a number below 2^63, n counts what follows):
   be32 n, 0a n 08 03 10 02 18 <txnId>, aa 06 <n> 08 <ledgerId> 10 <entryId> 1a 14 master key 22 <n> body.
   The body begins with the same ledger id. The answer "stored":
   be32 n, 0a n 08 03 10 02 18 <txnId>, 10 00 aa 06 n 08 00 10 <ledgerId> 18 <entryId>. */
#define BKCTL_VARINT_BYTES_MAX 9
#define BKCTL_V3_BODY_BYTES_MIN 24
/* Of an answer, without its length and the ids. */
#define BKCTL_V3_ANSWER_BYTES 16

typedef struct {
  size_t stop, key, body;
  uint32_t size;
  /* Where the ids' varints begin, behind their tags, and their widths. */
  size_t txn, ledger, entry;
  uint32_t txn_width, ledger_width, entry_width;
} bkctl_v3_add;

typedef struct {
  size_t stop, count, body_bytes, answer_bytes, grants;
} bkctl_v3_stretch;

/* The width of the canonical varint of a number below 2^63 that begins at data[at], 0 when there is none in front of
   `end`. */
static inline uint32_t bkctl_varint(const unsigned char *data, size_t at, size_t end, uint64_t *number) {
  uint64_t value = 0;
  for (uint32_t width = 0; width < BKCTL_VARINT_BYTES_MAX && at + width < end; width++) {
    const unsigned char byte = data[at + width];
    value |= (uint64_t)(byte & 0x7f) << (7 * width);
    if (byte & 0x80) continue;
    if (width && !byte) return 0;
    *number = value;
    return width + 1;
  }
  return 0;
}

/* The frame and the header of a request of version 3 without optional fields: where the frame stops, where the
   transaction id is, its width and value. */
typedef struct {
  size_t stop, txn;
  uint64_t txn_value;
  uint32_t txn_width;
} bkctl_v3_head;

/* Parses what begins at data[at]; `operation` is that of the header. Returns where the header ends, or 0 when there is
   no such header or the frame is not whole. */
static size_t bkctl_parse_v3_head(const unsigned char *data, size_t at, size_t end, unsigned char operation,
                                  bkctl_v3_head *head) {
  const unsigned char fields[5] = {0x08, 0x03, 0x10, operation, 0x18};
  if (end - at < 4) return 0;
  const uint32_t length = bkctl_be32(data + at);
  if (length > INT32_MAX || length > end - at - 4) return 0;
  head->stop = at + 4 + (size_t)length;
  at += 4;
  if (head->stop - at < 7 || data[at] != 0x0a || memcmp(data + at + 2, fields, sizeof fields) != 0) return 0;
  head->txn = at + 7;
  head->txn_width = bkctl_varint(data, head->txn, head->stop, &head->txn_value);
  if (!head->txn_width || data[at + 1] != sizeof fields + head->txn_width) return 0;
  return head->txn + head->txn_width;
}

/* Whether a plain add begins at `at`, whole in data[:end]. */
static int bkctl_parse_v3_add(const unsigned char *data, size_t at, size_t end, bkctl_v3_add *add) {
  bkctl_v3_head head;
  uint64_t number, ledger;
  uint32_t width;
  at = bkctl_parse_v3_head(data, at, end, 0x02, &head);
  if (!at) return 0;
  const size_t stop = head.stop;
  add->txn = head.txn;
  add->txn_width = head.txn_width;
  if (stop - at < 2 || data[at] != 0xaa || data[at + 1] != 0x06) return 0;
  at += 2;
  width = bkctl_varint(data, at, stop, &number);
  if (!width || number != stop - at - width) return 0;
  at += width;
  if (at == stop || data[at] != 0x08) return 0;
  add->ledger = at + 1;
  add->ledger_width = bkctl_varint(data, add->ledger, stop, &ledger);
  at = add->ledger + add->ledger_width;
  if (!add->ledger_width || at == stop || data[at] != 0x10) return 0;
  add->entry = at + 1;
  add->entry_width = bkctl_varint(data, add->entry, stop, &number);
  at = add->entry + add->entry_width;
  if (!add->entry_width || stop - at < 2 + BKCTL_MASTER_KEY_BYTES + 1 || data[at] != 0x1a) return 0;
  if (data[at + 1] != BKCTL_MASTER_KEY_BYTES) return 0;
  add->key = at + 2;
  at = add->key + BKCTL_MASTER_KEY_BYTES;
  if (data[at] != 0x22) return 0;
  width = bkctl_varint(data, at + 1, stop, &number);
  add->body = at + 1 + width;
  if (!width || number != stop - add->body || number < BKCTL_V3_BODY_BYTES_MIN) return 0;
  add->size = (uint32_t)number;
  add->stop = stop;
  return bkctl_be64(data + add->body) == ledger && !(data[add->body + 8] & 0x80);
}

/* The stretch of plain adds from `start` on. All of it lies in data[start:end]. */
static bkctl_v3_stretch bkctl_measure_v3_adds(const unsigned char *data, size_t start, size_t end) {
  bkctl_v3_stretch found = {start, 0, 0, 0, 0};
  bkctl_v3_add add, before;
  while (bkctl_parse_v3_add(data, found.stop, end, &add)) {
    found.grants += !found.count || memcmp(data + add.key, data + before.key, BKCTL_MASTER_KEY_BYTES) != 0 ||
                    memcmp(data + add.body, data + before.body, 8) != 0;
    before = add;
    found.count++;
    found.body_bytes += add.size;
    found.answer_bytes += 4 + BKCTL_V3_ANSWER_BYTES + add.txn_width + add.ledger_width + add.entry_width;
    found.stop = add.stop;
  }
  return found;
}

static unsigned char *bkctl_v3_answer(unsigned char *to, const unsigned char *data, const bkctl_v3_add *add) {
  static const unsigned char stored[4] = {0x10, 0x00, 0xaa, 0x06};
  const uint32_t ids = add->ledger_width + add->entry_width;
  bkctl_put_be32(to, BKCTL_V3_ANSWER_BYTES + add->txn_width + ids);
  /* 0a n 08 03 10 02 18 <txnId> is the request's. */
  memcpy(to + 4, data + add->txn - 7, 7 + add->txn_width);
  to += 11 + add->txn_width;
  memcpy(to, stored, sizeof stored);
  to[4] = (unsigned char)(4 + ids);
  to[5] = 0x08;
  to[6] = 0x00;
  to[7] = 0x10;
  memcpy(to + 8, data + add->ledger, add->ledger_width);
  to += 8 + add->ledger_width;
  *to = 0x18;
  memcpy(to + 1, data + add->entry, add->entry_width);
  return to + 1 + add->entry_width;
}

/* Copies the adds of a stretch as bkctl_copy_adds does, and their answers. */
static void bkctl_copy_v3_adds(const unsigned char *data, const bkctl_v3_stretch *stretch, size_t start, size_t end,
                               unsigned char *keys, unsigned char *records, unsigned char *answers,
                               bkctl_grant_columns *columns) {
  size_t at = start;
  for (size_t index = 0; index < stretch->count; index++) {
    bkctl_v3_add add;
    if (!bkctl_parse_v3_add(data, at, end, &add)) break; /* was measured: never */
    const unsigned char *body = data + add.body;
    bkctl_note_grant(columns, data + add.key, body);
    memcpy(keys, body, BKCTL_KEY_BYTES);
    bkctl_put_be32(records, add.size);
    memcpy(records + 4, body, add.size);
    answers = bkctl_v3_answer(answers, data, &add);
    keys += BKCTL_KEY_BYTES;
    records += 4 + (size_t)add.size;
    at = add.stop;
  }
}

/* --- reads of protocol v3 ---------------------------------------------------------------------------------- */

/* A plain read as Java's client writes it, and the answer with the entry (<>, n as above; the last add confirmed as
   a number of 64 bits):
   be32 n, 0a n 08 03 10 01 18 <txnId>, a2 06 n 08 <ledgerId> 10 <entryId>.
   be32 n, 0a n 08 03 10 01 18 <txnId>, 10 00 a2 06 <n> 08 00 10 <ledgerId> 18 <entryId> 22 <n> body 28 <lac>. */
typedef struct {
  size_t stop;
  uint64_t txn, ledger, entry;
} bkctl_v3_read;

/* Whether a plain read begins at `at`, whole in data[:end]. */
static int bkctl_parse_v3_read(const unsigned char *data, size_t at, size_t end, bkctl_v3_read *read) {
  bkctl_v3_head head;
  uint32_t width;
  at = bkctl_parse_v3_head(data, at, end, 0x01, &head);
  if (!at) return 0;
  const size_t stop = head.stop;
  read->txn = head.txn_value;
  if (stop - at < 4 || data[at] != 0xa2 || data[at + 1] != 0x06 || data[at + 2] != stop - at - 3) return 0;
  if (data[at + 3] != 0x08) return 0;
  at += 4;
  width = bkctl_varint(data, at, stop, &read->ledger);
  at += width;
  if (!width || at == stop || data[at] != 0x10) return 0;
  width = bkctl_varint(data, at + 1, stop, &read->entry);
  read->stop = stop;
  return width && at + 1 + width == stop;
}

/* The number of plain reads from `start` on, all of them in data[start:end]; `stop` is where they end. Their keys and
   transaction ids go where these are not NULL. */
static size_t bkctl_copy_v3_reads(const unsigned char *data, size_t start, size_t end, size_t *stop,
                                  unsigned char *keys, int64_t *txns) {
  bkctl_v3_read read;
  size_t count = 0;
  while (bkctl_parse_v3_read(data, start, end, &read)) {
    if (keys) {
      bkctl_put_be64(keys + count * BKCTL_KEY_BYTES, read.ledger);
      bkctl_put_be64(keys + count * BKCTL_KEY_BYTES + 8, read.entry);
      txns[count] = (int64_t)read.txn;
    }
    count++;
    start = read.stop;
  }
  *stop = start;
  return count;
}

static inline uint32_t bkctl_varint_width(uint64_t number) {
  uint32_t width = 1;
  while (number >>= 7) width++;
  return width;
}

static inline unsigned char *bkctl_put_varint(unsigned char *to, uint64_t number) {
  for (; number >= 0x80; number >>= 7) *to++ = (unsigned char)(number | 0x80);
  *to++ = (unsigned char)number;
  return to;
}

/* Frames that answer reads with a chain of records that was measured; `txns` and `lacs` are as many, no transaction id
   is negative. Writes nothing where `to` is NULL. Returns their bytes. */
static size_t bkctl_answer_v3_reads(unsigned char *to, const int64_t *txns, const int64_t *lacs,
                                    const unsigned char *records, size_t size_bytes) {
  size_t total = 0, number = 0;
  for (size_t at = 0; at < size_bytes; number++) {
    const uint32_t size = bkctl_be32(records + at);
    const unsigned char *body = records + at + 4;
    const uint64_t txn = (uint64_t)txns[number], lac = (uint64_t)lacs[number];
    const uint64_t ledger = bkctl_be64(body), entry = bkctl_be64(body + 8);
    const size_t part = 6 + bkctl_varint_width(ledger) + bkctl_varint_width(entry) + bkctl_varint_width(size) +
                        (size_t)size + bkctl_varint_width(lac);
    const size_t whole = 11 + bkctl_varint_width(txn) + bkctl_varint_width(part) + part;
    total += 4 + whole;
    at += 4 + (size_t)size;
    if (!to) continue;
    static const unsigned char operation[5] = {0x08, 0x03, 0x10, 0x01, 0x18}, found[4] = {0x10, 0x00, 0xa2, 0x06};
    bkctl_put_be32(to, (uint32_t)whole);
    to[4] = 0x0a;
    to[5] = (unsigned char)(sizeof operation + bkctl_varint_width(txn));
    memcpy(to + 6, operation, sizeof operation);
    to = bkctl_put_varint(to + 11, txn);
    memcpy(to, found, sizeof found);
    to = bkctl_put_varint(to + 4, part);
    *to++ = 0x08;
    *to++ = 0x00;
    *to++ = 0x10;
    to = bkctl_put_varint(to, ledger);
    *to++ = 0x18;
    to = bkctl_put_varint(to, entry);
    *to++ = 0x22;
    to = bkctl_put_varint(to, size);
    memcpy(to, body, size);
    to += size;
    *to++ = 0x28;
    to = bkctl_put_varint(to, lac);
  }
  return total;
}

/* --- tables of entries ------------------------------------------------------------------------------------ */

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

/* --- records of a file ------------------------------------------------------------------------------------- */

/* Read `length` bytes at `offset`; how many there are before the end of the file, -1 when the system cannot. */
static ssize_t bkctl_read_at(int descriptor, unsigned char *to, size_t length, off_t offset) {
  size_t got = 0;
  while (got < length) {
    const ssize_t more = pread(descriptor, to + got, length - got, offset + (off_t)got);
    if (more < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (!more) break;
    got += (size_t)more;
  }
  return (ssize_t)got;
}

/* Write `size` bytes at `offset`, and sync the file's data when all of them are written: `wrote` is how many were,
   `write_error` and `sync_error` the numbers of the errors or 0, `sync_ns` the time of the sync, -1 without one. */
typedef struct {
  size_t wrote;
  int write_error, sync_error;
  int64_t sync_ns;
} bkctl_synced;

static int64_t bkctl_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bkctl_synced bkctl_write_and_sync(int descriptor, const unsigned char *data, size_t size, off_t offset) {
  bkctl_synced done = {0, 0, 0, -1};
  while (done.wrote < size) {
    const ssize_t more = pwrite(descriptor, data + done.wrote, size - done.wrote, offset + (off_t)done.wrote);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) done.write_error = errno;
    if (more <= 0) return done;
    done.wrote += (size_t)more;
  }
  const int64_t began_ns = bkctl_now_ns();
  int failed;
  do {
    failed = fdatasync(descriptor);
  } while (failed && errno == EINTR);
  if (failed) done.sync_error = errno;
  done.sync_ns = bkctl_now_ns() - began_ns;
  return done;
}

/* Send each piece to its socket, as much of it as that takes at once: `sizes` become the bytes that were sent, 0 also
   where the socket has an error, or the descriptor is none. */
static void bkctl_send_pieces(const int *descriptors, const char *const *pieces, size_t *sizes, size_t count) {
  for (size_t number = 0; number < count; number++) {
    const ssize_t sent =
        descriptors[number] < 0
            ? -1
            : send(descriptors[number], pieces[number], sizes[number], MSG_DONTWAIT | MSG_NOSIGNAL);
    sizes[number] = sent > 0 ? (size_t)sent : 0;
  }
}

/* Read the records that begin at `starts`, each with `first_bytes` at once, and leave those in `records` that are
   whole, begin with their key and have bodies of BKCTL_KEY_BYTES to `size_max`; `sizes` has those of the bodies, -1
   for others. The caller has room for `count` pieces of 4 + `size_max`, and `first_bytes` is at most one. Returns
   the bytes of all records. */
static size_t bkctl_read_records(int descriptor, const int64_t *starts, const unsigned char *keys, size_t count,
                                 size_t first_bytes, size_t size_max, unsigned char *records, int64_t *sizes) {
  size_t end = 0;
  for (size_t number = 0; number < count; number++, keys += BKCTL_KEY_BYTES) {
    unsigned char *record = records + end;
    sizes[number] = -1;
    if (starts[number] < 0) continue;
    ssize_t got = bkctl_read_at(descriptor, record, first_bytes, (off_t)starts[number]);
    if (got < 4 + BKCTL_KEY_BYTES || memcmp(record + 4, keys, BKCTL_KEY_BYTES) != 0) continue;
    const size_t size = bkctl_be32(record);
    if (size < BKCTL_KEY_BYTES || size > size_max) continue;
    if (4 + size > (size_t)got) {
      if ((size_t)got < first_bytes || starts[number] > INT64_MAX - got) continue;
      const size_t rest = 4 + size - (size_t)got;
      if (bkctl_read_at(descriptor, record + got, rest, (off_t)(starts[number] + got)) != (ssize_t)rest) continue;
    }
    sizes[number] = (int64_t)size;
    end += 4 + size;
  }
  return end;
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

/* --- entries in order ------------------------------------------------------------------------------------- */

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
