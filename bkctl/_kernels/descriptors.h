/* What is read from files, written to them, and sent to sockets, without the interpreter. */

#ifndef BKCTL_DESCRIPTORS_H
#define BKCTL_DESCRIPTORS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "records.h"

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

#endif
