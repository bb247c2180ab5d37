/* Copies between a device and host memory that its copy engines do not reach (the system refused to
 * pin it): in pieces, through a few slots that both sides reach, with a thread that moves the bytes
 * between slots and memory. Enqueueing does not wait for any of it.
 *
 * One bounce serves one queue. The queue itself is known by three functions only, so that tests can
 * put threads in place of a GPU.
 *
 * Who waits for what. Two words in memory that both sides reach, which only grow:
 *
 *   mark   written by the queue: "so far have I come"
 *   done   written by the thread: piece n of this queue is dealt with
 *
 *   piece n out:  queue   waits for done >= n - SLOTS, so that the slot is free
 *                         copies device -> slot, writes the next mark
 *                 thread  waits for that mark, copies slot -> memory, done = n
 *   piece n in:   queue   writes a mark, if it has waited for anything since its last one: what
 *                         was enqueued before may write the bytes that are about to be read
 *                 thread  waits for that mark, and for the mark behind the slot's last piece in;
 *                         copies memory -> slot, done = n
 *                 queue   waits for done >= n, copies slot -> device, writes the next mark
 *
 * Pieces are numbered in the order of enqueueing and the thread takes them in that order, so a
 * piece in sees what an earlier piece out of the same queue wrote, without any wait. Whoever else
 * depends on the queue must wait for its place, which is more than the queue's own event: a piece
 * out is in memory only when done has reached it. So an event notes ebb_bounce_place() when it is
 * recorded, and who waits for the event waits for done >= place as well.
 *
 * Why it cannot hang: every wait above is for something that was enqueued earlier, on the same
 * queue or (a place) on another. So in the order of enqueueing the first command that has not
 * finished can always go on, even if the hardware made one queue of all; and the thread calls
 * nothing of the driver, so no lock of the driver can hold it up. A queue has slots of its own,
 * because slots shared by queues would make a queue wait for another without an event saying so.
 *
 * When something fails: a function of the queue that fails, or a device that is lost, means that a
 * mark may never come. ebb_bounce_abandon then has the thread deal with all pieces at once, without
 * waiting and without copying: done grows, nobody waits for ever, and the failure is the caller's
 * to report. The thread waits for nothing that has no such end, so there is no watchdog here; a
 * queue that stands still before a mark does so at a ticket, whose watchdog ends it.
 *
 * Threads: one thread enqueues (all calls); ebb_bounce_abandon may come from any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_BOUNCE_H
#define EBB_DEVICE_BOUNCE_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef EBB_TORTURE
enum { EBB_BOUNCE_SLOTS = 2 };
#else
enum { EBB_BOUNCE_SLOTS = 4 };
#endif
enum { EBB_BOUNCE_WORDS = 16 }; /* two, a cache line apart */

struct ebb_bounce;

/* What is enqueued on the queue. A failure (with its text) means that nothing was; the piece is
 * given up. `word` is one of the words. */
struct ebb_bounce_queue {
    void *user;
    enum ebb_status (*wait)(void *user, uint64_t *word, uint64_t value); /* until it is reached */
    enum ebb_status (*write)(void *user, uint64_t *word, uint64_t value);
    enum ebb_status (*copy)(void *user, void *to, const void *from, size_t bytes);
    /* Called now and then while enqueueing waits for room: abandons what is beyond help. */
    void (*look)(void *user);
};

struct ebb_bounce_options {
    struct ebb_bounce_queue queue;
    const char *thread_name; /* at most 15 letters */
    /* Borrowed; both sides reach them: EBB_BOUNCE_SLOTS slots one behind the other, and
     * EBB_BOUNCE_WORDS words that are 0. */
    char *slots;
    size_t slot_bytes;
    uint64_t *words;
    int delay_us; /* torture: before each piece the thread sleeps a random time up to this */
    uint64_t delay_key;
};

/* The caller frees, after the queue has come to rest. */
enum ebb_status ebb_bounce_create(struct ebb_ctx *ctx, const struct ebb_bounce_options *options,
                                  struct ebb_bounce **bounce);
void ebb_bounce_free(struct ebb_bounce *bounce); /* ends the thread; accepts NULL */

/* Enqueue a copy. They wait only where 4096 pieces (torture: 4) are on their way. */
enum ebb_status ebb_bounce_out(struct ebb_bounce *bounce, void *memory, const void *device,
                               int64_t bytes);
enum ebb_status ebb_bounce_in(struct ebb_bounce *bounce, void *device, const void *memory,
                              int64_t bytes);
/* From memory to memory, in the queue's order. */
enum ebb_status ebb_bounce_within(struct ebb_bounce *bounce, void *to, const void *from,
                                  int64_t bytes);
/* The queue has been made to wait for something. */
void ebb_bounce_waited(struct ebb_bounce *bounce);

/* Number of the last piece that was enqueued; 0: none. */
uint64_t ebb_bounce_place(const struct ebb_bounce *bounce);
bool ebb_bounce_reached(const struct ebb_bounce *bounce, uint64_t place);
/* What others wait for to reach a place. */
uint64_t *ebb_bounce_done(const struct ebb_bounce *bounce);

/* The host waits for all pieces, after the queue has come to rest or the bounce was abandoned. What
 * was abandoned can be used again then, unless `for_good`. */
void ebb_bounce_drain(struct ebb_bounce *bounce, bool for_good);
void ebb_bounce_abandon(struct ebb_bounce *bounce);

#ifdef __cplusplus
}
#endif
#endif
