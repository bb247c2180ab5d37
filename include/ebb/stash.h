/* The stash: objects that leave the device for host memory and come back, in a fixed order, without
 * allocation.
 *
 * An object is a run of bytes with a home in host memory. It is written out from wherever it
 * lies on the device, and read back to wherever it is needed next; it may be moved in parts
 * (tile by tile). Each write-out of a whole object is a new *generation*; a read asks for the
 * generation that was written last and is refused if that is not complete.
 *
 *   EMPTY --out(first part)--> LEAVING --out(last part)--> AWAY      in(any part), any time
 *     ^                           ^                         |
 *     |                           '-----out(first part)-----'        begins the next generation
 *     '---reset, from either
 *
 * Order on the device is not the stash's business: copies are enqueued on the queue that the
 * caller names, and the caller puts events around them (a program proves them right,
 * program/check.h). What the stash refuses is a wrong order of *calls*: EBB_FAILED with a text
 * that names the object, the generation and what was wanted. Homes may overlap: whose turn it is
 * with the memory is the caller's business too.
 *
 * With checksums on, it also proves the bytes, by functions on the copy's own queue before and
 * after it. EBB_DEVICE naming object, bytes and generation, instead of a wrong gradient, when
 *   - a part changed while it left: something wrote the source or the home before the copy was
 *     done;
 *   - a part is read before the copy that writes it out has run: an event between the two queues
 *     is missing;
 *   - a part that is back differs from what left: the home was overwritten, or the target while it
 *     was read.
 * What happens to the source before a part's turn, and to the target after it, is out of the
 * stash's sight. Checksums need a device whose memory this process can read (the CPU backend;
 * others: EBB_UNSUPPORTED), and once in some thousand moves a call syncs the device to take its
 * records back, and returns the failure if that finds one.
 *
 * Threads: as the device's, all calls from one thread.
 *
 * Usable alone: nothing here knows of transformers, programs or plans.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_STASH_H
#define EBB_STASH_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_stash;

struct ebb_stash_object {
    const char *name;    /* for messages; borrowed for the stash's life */
    int64_t host_offset; /* home: bytes from the start of the device's HOST space */
    int64_t bytes;
};

/* `objects` is copied. checksums: hash every part at both ends (slow; for tests and the torture
 * build). The device's HOST space must be reserved before the first move; a home that does not
 * lie inside it is refused then. The caller frees, after a sync and before the device. */
enum ebb_status ebb_stash_create(struct ebb_device *device, const struct ebb_stash_object *objects,
                                 int64_t count, bool checksums, struct ebb_stash **stash);
void ebb_stash_free(struct ebb_stash *stash); /* accepts NULL */

/* Enqueue on `queue` a copy of bytes [offset, offset + bytes) of the object. Parts of one
 * generation go out in ascending order from 0 without holes; they may come in in any order, any
 * number of times, and cut differently. `bytes` of all parts may end before the object does: a
 * run with fewer tokens moves less (`last` says that this is the generation's last part). A part
 * may be empty. A refused call enqueues nothing and changes nothing. */
enum ebb_status ebb_stash_out(struct ebb_stash *stash, enum ebb_queue queue, int64_t object,
                              int64_t offset, int64_t bytes, bool last, const void *from);
enum ebb_status ebb_stash_in(struct ebb_stash *stash, enum ebb_queue queue, int64_t object,
                             int64_t offset, int64_t bytes, void *to);

/* Forgets every object's content: the start of a step, whatever became of the one before.
 * Generations count on. */
void ebb_stash_reset(struct ebb_stash *stash);
/* Complete write-outs so far, as calls: not whether the copies have run. */
uint64_t ebb_stash_generation(const struct ebb_stash *stash, int64_t object);

#ifdef __cplusplus
}
#endif
#endif
