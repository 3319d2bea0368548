/* Blocks of RocksDB's table files: checked, unpacked, and their rows as columns.

   As in entries.h nothing is trusted: a length is looked at before anything is read or written by it. What is
   not of the one plain kind (rows that were put, of equal sizes, in strict order) is not read at all. */

#ifndef BKCTL_TABLES_H
#define BKCTL_TABLES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checksums.h"

/* Behind a block: how it is packed, and the checksum of the block with that byte. */
#define BKCTL_TRAILER_BYTES 5
#define BKCTL_UNPACKED_MAX ((size_t)1 << 24)
#define BKCTL_NUMBER_BYTES 8
#define BKCTL_TABLE_KEY_MAX 64
/* Copies may go so far beyond what they are to copy. */
#define BKCTL_SLACK 16

enum { BKCTL_NOT_PACKED = 0, BKCTL_LZ4 = 4, BKCTL_ROW_PUT = 1 };

static inline uint32_t bkctl_turned(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

/* XXH32 with seed 0. */
static uint32_t bkctl_xxh32(const unsigned char *at, size_t size_bytes) {
  const uint32_t p1 = 2654435761u, p2 = 2246822519u, p3 = 3266489917u, p4 = 668265263u, p5 = 374761393u;
  const unsigned char *end = at + size_bytes;
  uint32_t hash = p5;
  if (size_bytes >= 16) {
    uint32_t lane[4] = {p1 + p2, p2, 0, 0u - p1};
    for (; end - at >= 16; at += 16)
      for (int number = 0; number < 4; number++)
        lane[number] = bkctl_turned(lane[number] + bkctl_le32(at + 4 * number) * p2, 13) * p1;
    hash = bkctl_turned(lane[0], 1) + bkctl_turned(lane[1], 7) + bkctl_turned(lane[2], 12) +
           bkctl_turned(lane[3], 18);
  }
  hash += (uint32_t)size_bytes;
  for (; end - at >= 4; at += 4) hash = bkctl_turned(hash + bkctl_le32(at) * p3, 17) * p4;
  for (; at < end; at++) hash = bkctl_turned(hash + *at * p5, 11) * p1;
  hash ^= hash >> 15;
  hash *= p2;
  hash ^= hash >> 13;
  hash *= p3;
  return hash ^ hash >> 16;
}

/* Read a number of up to 32 bits, seven a byte; NULL when it does not end in front of `end`, or is larger. */
static inline const unsigned char *bkctl_varint32(const unsigned char *at, const unsigned char *end, uint32_t *value) {
  if (at < end && *at < 128) {
    *value = *at;
    return at + 1;
  }
  uint64_t found = 0;
  for (int shift = 0; shift < 35 && at < end; shift += 7) {
    found |= (uint64_t)(*at & 127) << shift;
    if (*at++ < 128) {
      *value = (uint32_t)found;
      return found > UINT32_MAX ? NULL : at;
    }
  }
  return NULL;
}

/* Add the bytes that lengthen a length of LZ4; 0 when they do not end, or it is more than `most`. */
static inline int bkctl_lengthen(const unsigned char **at, const unsigned char *end, size_t *length, size_t most) {
  unsigned char byte;
  do {
    if (*at == end) return 0;
    byte = *(*at)++;
    *length += byte;
    if (*length > most) return 0;
  } while (byte == 255);
  return 1;
}

/* Unpack a block of LZ4 that has exactly `wanted` bytes; 0 when it does not. `to` has room for the slack too. */
static int bkctl_unpack_lz4(const unsigned char *from, size_t size_bytes, unsigned char *to, size_t wanted) {
  const unsigned char *end = from + size_bytes;
  size_t done = 0;
  while (from < end) {
    const unsigned char token = *from++;
    size_t length = token >> 4;
    if (length == 15 && !bkctl_lengthen(&from, end, &length, wanted)) return 0;
    if (length > (size_t)(end - from) || length > wanted - done) return 0;
    if (length <= BKCTL_SLACK && end - from >= BKCTL_SLACK)
      memcpy(to + done, from, BKCTL_SLACK);
    else
      memcpy(to + done, from, length);
    from += length;
    done += length;
    if (from == end) return done == wanted;
    if (end - from < 2) return 0;
    const size_t distance = (size_t)from[0] | (size_t)from[1] << 8;
    from += 2;
    if (distance == 0 || distance > done) return 0;
    length = token & 15;
    if (length == 15 && !bkctl_lengthen(&from, end, &length, wanted)) return 0;
    length += 4;
    if (length > wanted - done) return 0;
    unsigned char *at = to + done;
    if (distance >= 8)
      for (size_t copied = 0; copied < length; copied += 8) memcpy(at + copied, at + copied - distance, 8);
    else
      for (size_t copied = 0; copied < length; copied++) at[copied] = at[copied - distance];
    done += length;
  }
  return 0;
}

typedef struct {
  /* What is unpacked, of the block that is looked at. */
  unsigned char *unpacked;
  size_t unpacked_room;
  /* Rows so far: keys and values as columns, each with room for so many rows. */
  unsigned char *keys, *values;
  size_t rows, room;
} bkctl_table_rows;

static void bkctl_table_rows_free(bkctl_table_rows *rows) {
  free(rows->unpacked);
  free(rows->keys);
  free(rows->values);
}

/* Results: 1, 0 when the block is not whole or not plain, -1 without memory. */

/* Check a block of `size_bytes` with its trailer behind it, and unpack it. */
static int bkctl_unpack_block(bkctl_table_rows *rows, const unsigned char *block, size_t size_bytes,
                              const unsigned char **content, size_t *content_bytes) {
  const unsigned char kind = block[size_bytes];
  if (bkctl_xxh32(block, size_bytes + 1) != bkctl_le32(block + size_bytes + 1)) return 0;
  if (kind == BKCTL_NOT_PACKED) {
    *content = block;
    *content_bytes = size_bytes;
    return 1;
  }
  uint32_t unpacked_bytes;
  const unsigned char *packed = bkctl_varint32(block, block + size_bytes, &unpacked_bytes);
  if (kind != BKCTL_LZ4 || packed == NULL || unpacked_bytes > BKCTL_UNPACKED_MAX) return 0;
  if (unpacked_bytes > rows->unpacked_room || rows->unpacked == NULL) {
    unsigned char *larger = (unsigned char *)realloc(rows->unpacked, (size_t)unpacked_bytes + BKCTL_SLACK);
    if (larger == NULL) return -1;
    rows->unpacked = larger;
    rows->unpacked_room = unpacked_bytes;
  }
  *content = rows->unpacked;
  *content_bytes = unpacked_bytes;
  return bkctl_unpack_lz4(packed, (size_t)(block + size_bytes - packed), rows->unpacked, unpacked_bytes);
}

static int bkctl_reserve_rows(bkctl_table_rows *rows, size_t key_bytes, size_t value_bytes) {
  if (rows->rows < rows->room) return 1;
  const size_t room = rows->room == 0 ? 4096 : 2 * rows->room;
  unsigned char *keys = (unsigned char *)realloc(rows->keys, room * key_bytes);
  if (keys == NULL) return -1;
  rows->keys = keys;
  unsigned char *values = (unsigned char *)realloc(rows->values, room * value_bytes);
  if (values == NULL) return -1;
  rows->values = values;
  rows->room = room;
  return 1;
}

/* Add the rows of an unpacked block. `key_bytes` is 1 to BKCTL_TABLE_KEY_MAX, `value_bytes` 1 or more. */
static int bkctl_add_rows(bkctl_table_rows *rows, const unsigned char *content, size_t content_bytes,
                          size_t key_bytes, size_t value_bytes) {
  if (content_bytes < 4) return 0;
  /* The highest bit is that of a block with an index of hashes. */
  const uint64_t restarts = bkctl_le32(content + content_bytes - 4);
  if (4 * restarts + 4 > content_bytes) return 0;
  const unsigned char *at = content, *end = content + content_bytes - 4 - 4 * restarts;
  unsigned char key[BKCTL_TABLE_KEY_MAX + BKCTL_NUMBER_BYTES];
  const size_t whole_bytes = key_bytes + BKCTL_NUMBER_BYTES;
  int first = 1;
  while (at < end) {
    uint32_t shared, own, value;
    at = bkctl_varint32(at, end, &shared);
    if (at != NULL) at = bkctl_varint32(at, end, &own);
    if (at != NULL) at = bkctl_varint32(at, end, &value);
    if (at == NULL || (uint64_t)shared + own != whole_bytes || value != value_bytes || (first && shared)) return 0;
    if ((size_t)(end - at) < (size_t)own + value_bytes) return 0;
    memcpy(key + shared, at, own);
    at += own;
    if (key[key_bytes] != BKCTL_ROW_PUT) return 0;
    if (rows->rows && memcmp(rows->keys + (rows->rows - 1) * key_bytes, key, key_bytes) >= 0) return 0;
    if (bkctl_reserve_rows(rows, key_bytes, value_bytes) < 0) return -1;
    memcpy(rows->keys + rows->rows * key_bytes, key, key_bytes);
    memcpy(rows->values + rows->rows * value_bytes, at, value_bytes);
    rows->rows++;
    at += value_bytes;
    first = 0;
  }
  return 1;
}

/* Add the rows of blocks, one behind the other; each lies in the buffer with its trailer. */
static int bkctl_rows_of_blocks(bkctl_table_rows *rows, const unsigned char *buffer, const int64_t *starts,
                                const int64_t *sizes, size_t count, size_t key_bytes, size_t value_bytes) {
  for (size_t number = 0; number < count; number++) {
    const unsigned char *content;
    size_t content_bytes;
    int result = bkctl_unpack_block(rows, buffer + starts[number], (size_t)sizes[number], &content, &content_bytes);
    if (result > 0) result = bkctl_add_rows(rows, content, content_bytes, key_bytes, value_bytes);
    if (result <= 0) return result;
  }
  return 1;
}

/* Whether each block lies in the buffer with its trailer. */
static int bkctl_blocks_inside(size_t buffer_bytes, const int64_t *starts, const int64_t *sizes, size_t count) {
  for (size_t number = 0; number < count; number++) {
    if (starts[number] < 0 || sizes[number] < 0) return 0;
    const uint64_t start = (uint64_t)starts[number], size = (uint64_t)sizes[number];
    if (start > buffer_bytes || size > buffer_bytes - start) return 0;
    if (buffer_bytes - start - size < BKCTL_TRAILER_BYTES) return 0;
  }
  return 1;
}

#endif
