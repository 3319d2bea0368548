/* How tables find what clients have named. */

#ifndef BKCTL_HASHING_H
#define BKCTL_HASHING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* The number of places, a power of two, of a table that is at most half full with `count`. */
static inline size_t bkctl_places(size_t count) {
  size_t places = 16;
  while (places < 2 * count) places *= 2;
  return places;
}

#endif
