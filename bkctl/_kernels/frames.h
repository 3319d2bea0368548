/* Plain adds and reads in a receive buffer, of both versions of the protocol, and the answers to them. As in records.h
   nothing is trusted. */

#ifndef BKCTL_FRAMES_H
#define BKCTL_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "records.h"

/* A plain add of protocol v2: be32 length, 02 01 00 00, 20 bytes of master key, the body. The *grant* is the
   master key and the ledger id behind it. */
#define BKCTL_ADD_HEAD 0x02010000u
#define BKCTL_ADD_LENGTH_MIN 48
#define BKCTL_GRANT_AT 8
#define BKCTL_GRANT_BYTES 28
#define BKCTL_MASTER_KEY_BYTES 20
#define BKCTL_BODY_AT 28

/* --- adds of protocol v2 ----------------------------------------------------------------------------------- */

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

/* The answer "stored": be32 24, 02 01 00 00, be32 0, the key. */
#define BKCTL_ANSWER_BYTES 28

/* Copies the adds of a stretch: their answers, records, and columns with room for its grants. */
static void bkctl_copy_adds(const unsigned char *data, const bkctl_stretch *stretch, size_t start,
                            unsigned char *answers, unsigned char *records, bkctl_grant_columns *columns) {
  static const unsigned char stored[12] = {0, 0, 0, 24, 2, 1};
  size_t at = start;
  for (size_t index = 0; index < stretch->count; index++) {
    const uint32_t size = bkctl_be32(data + at) - 24;
    const unsigned char *body = data + at + BKCTL_BODY_AT;
    bkctl_note_grant(columns, data + at + BKCTL_GRANT_AT, body);
    memcpy(answers, stored, sizeof stored);
    memcpy(answers + sizeof stored, body, BKCTL_KEY_BYTES);
    bkctl_put_be32(records, size);
    memcpy(records + 4, body, size);
    answers += BKCTL_ANSWER_BYTES;
    records += 4 + (size_t)size;
    at += 28 + (size_t)size;
  }
}

/* --- reads of protocol v2, and their answers ---------------------------------------------------------------- */

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

/* Copies the adds of a stretch as bkctl_copy_adds does. */
static void bkctl_copy_v3_adds(const unsigned char *data, const bkctl_v3_stretch *stretch, size_t start, size_t end,
                               unsigned char *answers, unsigned char *records, bkctl_grant_columns *columns) {
  size_t at = start;
  for (size_t index = 0; index < stretch->count; index++) {
    bkctl_v3_add add;
    if (!bkctl_parse_v3_add(data, at, end, &add)) break; /* was measured: never */
    const unsigned char *body = data + add.body;
    bkctl_note_grant(columns, data + add.key, body);
    bkctl_put_be32(records, add.size);
    memcpy(records + 4, body, add.size);
    answers = bkctl_v3_answer(answers, data, &add);
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

#endif
