/* CRC-32C (Castagnoli) and CRC-32 (zlib's) of runs of bytes, and of the records of a whole window.

   Both polynomials have tables for eight bytes at a time. CRC-32C has an instruction on x86-64 since 2008
   (SSE 4.2, asked for at run time) and on 64-bit ARM (asked for when compiled). The instruction can begin
   every cycle and takes three, so three records are digested side by side. */

#ifndef BKCTL_CHECKSUMS_H
#define BKCTL_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define BKCTL_HARDWARE __attribute__((target("sse4.2")))
#define BKCTL_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define BKCTL_OCTET(crc, octet) _mm_crc32_u8((crc), (octet))
#define BKCTL_HARDWARE_IS_THERE() __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && !defined(__AARCH64EB__)
#include <arm_acle.h>
#define BKCTL_HARDWARE
#define BKCTL_WORD(crc, word) __crc32cd((crc), (word))
#define BKCTL_OCTET(crc, octet) __crc32cb((crc), (octet))
#define BKCTL_HARDWARE_IS_THERE() 1
#endif

enum { BKCTL_CRC32C, BKCTL_CRC32 };

#define BKCTL_LANES 3
#define BKCTL_HEADER_BYTES 32

static uint32_t bkctl_tables[2][8][256];
static int bkctl_hardware;

static inline uint32_t bkctl_be32(const unsigned char *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t bkctl_be64(const unsigned char *at) {
  return (uint64_t)bkctl_be32(at) << 32 | bkctl_be32(at + 4);
}

static inline uint32_t bkctl_le32(const unsigned char *at) {
  return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* The inner state of a checksum over `size` more bytes; it starts and ends as the complement of the value. */
static uint32_t bkctl_by_table(int kind, uint32_t crc, const unsigned char *at, size_t size) {
  const uint32_t(*table)[256] = (const uint32_t(*)[256])bkctl_tables[kind];
  for (; size >= 8; at += 8, size -= 8) {
    uint32_t low = crc ^ bkctl_le32(at), high = bkctl_le32(at + 4);
    crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
          table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^ table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
  }
  for (; size; at++, size--) crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
  return crc;
}

#ifdef BKCTL_HARDWARE
static inline uint64_t bkctl_word(const unsigned char *at) {
  uint64_t word;
  memcpy(&word, at, 8);
  return word;
}

BKCTL_HARDWARE static uint32_t bkctl_by_instruction(uint32_t crc, const unsigned char *at, size_t size) {
  for (; size >= 8; at += 8, size -= 8) crc = BKCTL_WORD(crc, bkctl_word(at));
  for (; size; at++, size--) crc = BKCTL_OCTET(crc, *at);
  return crc;
}

/* Three runs of bytes; what is longer than the shortest one goes on alone. */
BKCTL_HARDWARE static void bkctl_three(uint32_t *crcs, const unsigned char *const *at, const size_t *sizes) {
  uint32_t a = crcs[0], b = crcs[1], c = crcs[2];
  const unsigned char *p = at[0], *q = at[1], *r = at[2];
  size_t least = sizes[0] < sizes[1] ? sizes[0] : sizes[1];
  size_t whole = (least < sizes[2] ? least : sizes[2]) & ~(size_t)7;
  for (size_t done = 0; done < whole; done += 8) {
    a = BKCTL_WORD(a, bkctl_word(p + done));
    b = BKCTL_WORD(b, bkctl_word(q + done));
    c = BKCTL_WORD(c, bkctl_word(r + done));
  }
  crcs[0] = bkctl_by_instruction(a, p + whole, sizes[0] - whole);
  crcs[1] = bkctl_by_instruction(b, q + whole, sizes[1] - whole);
  crcs[2] = bkctl_by_instruction(c, r + whole, sizes[2] - whole);
}
#endif

static uint32_t bkctl_run(int kind, uint32_t crc, const unsigned char *at, size_t size) {
#ifdef BKCTL_HARDWARE
  if (kind == BKCTL_CRC32C && bkctl_hardware) return bkctl_by_instruction(crc, at, size);
#endif
  return bkctl_by_table(kind, crc, at, size);
}

/* Whether the digest of the record with this body checks; a body that is too short for one does not. */
static int bkctl_checks(int kind, const unsigned char *body, int64_t size) {
  const int digest_bytes = kind == BKCTL_CRC32C ? 4 : 8;
  const unsigned char *digest = body + BKCTL_HEADER_BYTES, *data = digest + digest_bytes;
  if (size < BKCTL_HEADER_BYTES + digest_bytes) return 0;
  uint32_t crc = bkctl_run(kind, 0xffffffffu, body, BKCTL_HEADER_BYTES);
  crc = ~bkctl_run(kind, crc, data, (size_t)(size - BKCTL_HEADER_BYTES - digest_bytes));
  return kind == BKCTL_CRC32C ? bkctl_be32(digest) == crc : bkctl_be64(digest) == crc;
}

/* The index of the first record from `index` on whose digest does not check; `count` when all do. */
static ptrdiff_t bkctl_next_failing(int kind, const unsigned char *buffer, const int64_t *starts,
                                    const int64_t *sizes, ptrdiff_t index, ptrdiff_t count) {
#ifdef BKCTL_HARDWARE
  const int least = BKCTL_HEADER_BYTES + 4;
  while (kind == BKCTL_CRC32C && bkctl_hardware && index + BKCTL_LANES <= count) {
    const unsigned char *heads[BKCTL_LANES], *data[BKCTL_LANES];
    size_t head_bytes[BKCTL_LANES], data_bytes[BKCTL_LANES];
    uint32_t crcs[BKCTL_LANES];
    int lane = 0;
    for (; lane < BKCTL_LANES && sizes[index + lane] >= least; lane++) {
      heads[lane] = buffer + starts[index + lane] + 4;
      head_bytes[lane] = BKCTL_HEADER_BYTES;
      data[lane] = heads[lane] + least;
      data_bytes[lane] = (size_t)(sizes[index + lane] - least);
      crcs[lane] = 0xffffffffu;
    }
    if (lane < BKCTL_LANES) break;
    bkctl_three(crcs, heads, head_bytes);
    bkctl_three(crcs, data, data_bytes);
    for (lane = 0; lane < BKCTL_LANES; lane++)
      if (bkctl_be32(heads[lane] + BKCTL_HEADER_BYTES) != ~crcs[lane]) return index + lane;
    index += BKCTL_LANES;
  }
#endif
  for (; index < count; index++)
    if (!bkctl_checks(kind, buffer + starts[index] + 4, sizes[index])) return index;
  return count;
}

/* Make the tables; 0 when a checksum is not what its definition says, by table or by instruction. */
static int bkctl_prepare(int use_hardware) {
  const uint32_t polynomials[2] = {0x82f63b78u, 0xedb88320u}, expected[2] = {0xe3069283u, 0xcbf43926u};
  const unsigned char *sample = (const unsigned char *)"123456789";
  int sound = 1;
  for (int kind = 0; kind < 2; kind++) {
    for (uint32_t octet = 0; octet < 256; octet++) {
      uint32_t crc = octet;
      for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomials[kind] : 0);
      bkctl_tables[kind][0][octet] = crc;
    }
    for (int step = 1; step < 8; step++)
      for (int octet = 0; octet < 256; octet++) {
        uint32_t before = bkctl_tables[kind][step - 1][octet];
        bkctl_tables[kind][step][octet] = before >> 8 ^ bkctl_tables[kind][0][before & 0xff];
      }
    sound = sound && ~bkctl_by_table(kind, 0xffffffffu, sample, 9) == expected[kind];
  }
#ifdef BKCTL_HARDWARE
  bkctl_hardware = use_hardware && BKCTL_HARDWARE_IS_THERE();
#endif
  return sound && ~bkctl_run(BKCTL_CRC32C, 0xffffffffu, sample, 9) == expected[0];
}

#endif
