/* One interface to a machine that computes: its memory, its queues, events between them, copies,
 * tickets.
 *
 * A device has two spaces. DEVICE is what the memory budget is about (on the CPU backend: an
 * arena of that size, so that every plan, move and race is real without a GPU). HOST is where
 * saved tensors go out to (pinned on a GPU). Each space is reserved once, in one piece; nothing
 * is allocated afterwards.
 *
 * Three queues run side by side, each strictly in order: COMPUTE runs kernels, OUT copies to the
 * host, IN copies back. Order between queues exists only where an event says so. On the CPU
 * backend each queue is a thread, COMPUTE with an OpenMP team of its own.
 *
 * Errors: what fails inside a queue (a kernel's status, a dead copy) is remembered, everything
 * on any queue that has not begun by then is skipped, and ebb_device_sync returns the first
 * failure. Events are still recorded, so nobody waits for ever; a ticket's signal that is
 * skipped becomes the ticket's failure, so nobody believes in work that was not done. Enqueueing
 * itself never blocks on work, except when a queue's command ring is full (4096 commands; 4 in
 * the torture build): a thread that enqueues a ticket's wait must not be the one that signals it
 * later.
 *
 * Arguments that no program may pass (a queue out of range, an event without room, a range that
 * runs over a space's end, a second reserve) are our own mistakes and stop the process.
 *
 * CUDA: the queues are streams, and functions that are launched run at once on the caller's
 * thread to enqueue kernels. What was enqueued before a failure showed cannot be taken back and
 * runs; what is enqueued after it is skipped. There are no guard pages. Enqueueing blocks where
 * the driver's own ring is full (about a thousand commands), where 2048 timed waits of COMPUTE,
 * 1024 ticket waits or 4096 bounced pieces are on their way, and in a copy from or to memory of the
 * process that is not of a space.
 *
 * The host space is pinned but for its first pageable_bytes. Where the system refuses that, as much
 * of its end is pinned as it grants, with one warning. Copies of what is not pinned bounce through
 * a few pinned slots: slower, but still in the background (device_bounce.h). Where even the slots
 * cannot be pinned, these copies fail.
 *
 * A GPU that is lost (a kernel's fault, a hardware error) stays lost for the process: sync returns
 * EBB_DEVICE from then on, nothing more is enqueued, tickets that queues were to signal fail, and
 * freeing still works.
 *
 * Threads: all calls on one device come from one thread, except ebb_ticket_signal,
 * ebb_ticket_fail and ebb_ticket_wait.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_H
#define EBB_DEVICE_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_backend { EBB_BACKEND_CPU, EBB_BACKEND_CUDA };
enum ebb_space { EBB_SPACE_DEVICE, EBB_SPACE_HOST, EBB_SPACE_COUNT };
enum ebb_queue { EBB_QUEUE_COMPUTE, EBB_QUEUE_OUT, EBB_QUEUE_IN, EBB_QUEUE_COUNT };

struct ebb_device;

struct ebb_device_options {
    enum ebb_backend backend;
    int threads; /* of the CPU backend's COMPUTE queue; 0: every processor this process may use */
    /* Torture: before each command a queue sleeps a random time up to this; 0: never (the
     * torture build: a little). The times depend on the seed, the queue and the command's number
     * only. */
    int delay_us[EBB_QUEUE_COUNT]; /* up to 1000000 */
    uint64_t delay_seed;
    /* Of the HOST space, its first bytes, that are not to be pinned; a multiple of 4096. 0: all is.
     * Nothing is pinned for the CPU backend, whose copies are as fast without; it counts as if. */
    int64_t pageable_bytes;
    /* Tests: as if the system refused to pin the host space (CUDA), or more of it than pin_limit;
     * 0: no limit. Copies bounce in pieces of bounce_bytes; 0: 8 MiB. */
    bool pageable;
    int64_t pin_limit;
    int64_t bounce_bytes;
};

const char *ebb_backend_name(enum ebb_backend backend); /* "cpu", "cuda" */
bool ebb_backend_is_built(enum ebb_backend backend);    /* this build has it */
/* Does this build have the backend, and this machine what it needs? Cheap; nothing is created.
 * `why` (may be NULL; EBB_BACKEND_WHY bytes hold any) gets a sentence where it is false. */
enum { EBB_BACKEND_WHY = 320 };
bool ebb_backend_is_there(enum ebb_backend backend, char *why, size_t why_bytes);
/* What it runs on, by its own name, without a device being created. False: nothing is there. */
struct ebb_backend_facts {
    char name[96];   /* "NVIDIA H200", "AMD EPYC 7B13" */
    /* The driver's own version, "580.159.04"; where it does not tell, what it serves, "CUDA 13.0";
     * "" on the CPU. */
    char driver[32];
};
bool ebb_backend_facts(struct ebb_ctx *ctx, enum ebb_backend backend,
                       struct ebb_backend_facts *facts);
/* Memory that a percentage is of: the GPU's, or the machine's. 0: none is there. */
int64_t ebb_backend_bytes_total(enum ebb_backend backend);
/* What of it is free now. On a GPU the driver and libraries take their part of it (a few hundred
 * MiB) when a device is created. 0: not known. */
int64_t ebb_backend_bytes_free(struct ebb_ctx *ctx, enum ebb_backend backend);

/* The caller frees. EBB_UNSUPPORTED for a backend that this build does not have, EBB_DEVICE where
 * this machine cannot serve it; EBB_BAD_CONFIG for numbers out of range. */
enum ebb_status ebb_device_create(struct ebb_ctx *ctx, const struct ebb_device_options *options,
                                  struct ebb_device **device);
/* Waits for the queues; a failure that no sync has fetched is lost. Its tickets are freed after
 * a sync and before this. Accepts NULL. */
void ebb_device_free(struct ebb_device *device);
struct ebb_ctx *ebb_device_ctx(const struct ebb_device *device);
int ebb_device_threads(const struct ebb_device *device);
enum ebb_backend ebb_device_backend(const struct ebb_device *device);
/* "NVIDIA H200, compute capability 9.0, driver 13.0", or "cpu"; borrowed. */
const char *ebb_device_name(const struct ebb_device *device);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Reserves a space, once. The memory is zero and 4096-aligned, with an inaccessible guard page
 * right behind `bytes` rounded up to 4096. EBB_NO_MEMORY, or EBB_DOES_NOT_FIT for a GPU's memory,
 * names space and size. bytes may be 0. */
enum ebb_status ebb_device_reserve(struct ebb_device *device, enum ebb_space space, int64_t bytes);
/* NULL before reserve. */
void *ebb_device_base(const struct ebb_device *device, enum ebb_space space);
int64_t ebb_device_bytes(const struct ebb_device *device, enum ebb_space space);
/* Bytes of the space that are backed by memory now (the CPU backend: resident pages), as seen
 * from outside the plan. */
int64_t ebb_device_bytes_resident(const struct ebb_device *device, enum ebb_space space);

/* How it is known what a process uses of a GPU's memory, the surest first. */
enum ebb_bytes_way {
    /* The driver's account of this process (NVML): what nvidia-smi shows. Also where the driver
     * shows one process only, under a number that is not ours: in a container it is ours. On the
     * CPU backend: the arena's resident pages. */
    EBB_BYTES_COUNTED,
    /* What is used on the whole GPU, less what was used before this process opened it: wrong by
     * whatever other processes have taken or given back since. */
    EBB_BYTES_DIFFERENCE,
    EBB_BYTES_UNKNOWN /* no NVML; or the process had opened the GPU before this device was made */
};
/* Device memory of this process: spaces, blocks, libraries, the driver's context. -1: unknown. A
 * question to the driver, not one for every command. `way` may be NULL. */
int64_t ebb_device_bytes_process(const struct ebb_device *device, enum ebb_bytes_way *way);
/* Of that, what lies outside the DEVICE space: context, libraries, kernels, tests' blocks. -1:
 * not counted by the driver. 0 on the CPU backend. */
int64_t ebb_device_bytes_overhead(const struct ebb_device *device);

/* Who else uses the device's memory, as further lines of a message: "\nprocess 4711 (python3) uses
 * 12.5 GiB"; "" where nothing is known. Returns `out`. */
const char *ebb_device_other_users(const struct ebb_device *device, char *out, size_t out_bytes);

/* Waits until the HOST space stands: a GPU's is made in the background after it was reserved, which
 * writes to it. Before the host writes there by its address; the calls below and copies wait by
 * themselves. */
void ebb_device_host_ready(struct ebb_device *device);
/* What of the HOST space is pinned: its last bytes. Waits until it stands. */
int64_t ebb_device_bytes_pinned(struct ebb_device *device);
/* Seconds that backing and pinning the HOST space took. Waits until it stands. 0: nothing is
 * pinned, or nothing has to be (CPU). */
double ebb_device_pin_seconds(struct ebb_device *device);
/* The host's hand on either space, at once: what is enqueued must not touch the ranges (sync
 * first). Strides in bytes; `row_bytes` are copied of each of `rows`. Either pointer may also be
 * memory of the process. EBB_DEVICE where a GPU fails. */
enum ebb_status ebb_device_copy_rows(struct ebb_device *device, void *to, int64_t to_stride,
                                     const void *from, int64_t from_stride, int64_t row_bytes,
                                     int64_t rows);
enum ebb_status ebb_device_copy(struct ebb_device *device, void *to, const void *from,
                                int64_t bytes);
enum ebb_status ebb_device_fill(struct ebb_device *device, void *to, int byte, int64_t bytes);

/* Tests: device memory outside the spaces. `shared`: the host can use the pointer too, and it is
 * zeroed; otherwise it holds anything, so that tools see who reads what nobody wrote. */
enum ebb_status ebb_device_block_create(struct ebb_device *device, int64_t bytes, bool shared,
                                        void **block);
void ebb_device_block_free(struct ebb_device *device, void *block); /* accepts NULL */

/* ---- queues ---------------------------------------------------------------------------------- */

/* What a launched function gets: on a GPU, the stream to enqueue on (it runs at once, on the
 * caller's thread); on the CPU it runs on the queue's thread and may use `threads` OpenMP
 * threads (OUT and IN: 1), which is also the size that parallel regions have by themselves
 * there. A failing function gives its reason with EBB_FAIL. */
struct ebb_queue_env {
    struct ebb_device *device;
    void *stream; /* NULL on the CPU */
    int threads;
};
typedef enum ebb_status (*ebb_queue_fn)(const struct ebb_queue_env *env, const void *args);

/* `args` is borrowed until the command has run. */
enum ebb_status ebb_queue_launch(struct ebb_device *device, enum ebb_queue queue, ebb_queue_fn fn,
                                 const void *args);
/* Either pointer may lie in either space, or in memory of the process (not counted). The ranges
 * must not overlap. 0 bytes is nothing to do. */
enum ebb_status ebb_queue_copy(struct ebb_device *device, enum ebb_queue queue, void *to,
                               const void *from, int64_t bytes);

/* Events are numbered from 0. record marks the queue's place; wait makes the queue wait for the
 * latest record of that event which was *enqueued* before the wait (none: no wait), as CUDA's
 * do. */
/* Makes room for this many; may be called again. */
enum ebb_status ebb_device_events(struct ebb_device *device, int count);
enum ebb_status ebb_queue_record(struct ebb_device *device, enum ebb_queue queue, int event);
enum ebb_status ebb_queue_wait(struct ebb_device *device, enum ebb_queue queue, int event);

/* Marks: when a queue came past. A device without any pays nothing for them. */
/* Makes `count` more, for the device's life; their numbers begin at *first. Waits for what is
 * enqueued. */
enum ebb_status ebb_device_marks(struct ebb_device *device, int count, int *first);
/* The time at this place of the queue; a mark that is set again forgets its earlier time. */
enum ebb_status ebb_queue_mark(struct ebb_device *device, enum ebb_queue queue, int mark);
/* After a sync: the seconds from one mark to another, of whatever queues; below 0 where `to` was
 * the earlier one. NaN where either has no time: never set, or skipped after a failure. */
double ebb_device_mark_seconds(struct ebb_device *device, int from, int to);

/* Waits for every queue. The first failure of any command since the last sync; the device can be
 * used again after. The context's error text stays until ebb_error_clear. */
enum ebb_status ebb_device_sync(struct ebb_device *device);

/* Seconds and bytes since creation; complete after a sync, and may be read at any time. */
struct ebb_device_counters {
    int64_t bytes_out;    /* copied from DEVICE to HOST, on whatever queue */
    int64_t bytes_in;     /* from HOST to DEVICE */
    double stall_seconds; /* COMPUTE waited for events of other queues and for tickets */
    double busy_seconds[EBB_QUEUE_COUNT]; /* in launched functions and copies; CUDA: not measured */
};
void ebb_device_counters(const struct ebb_device *device, struct ebb_device_counters *counters);

/* ---- tickets --------------------------------------------------------------------------------- */

/* A counter that queues and host threads signal and wait for: what events cannot do when a wait
 * may be enqueued before its signal (disk, pageable memory). Starts at 0; values only grow: a
 * signal below the ticket's value changes nothing. */
struct ebb_ticket;
enum ebb_status ebb_ticket_create(struct ebb_device *device, struct ebb_ticket **ticket);
/* Nothing may be waiting, and no enqueued command may name it (sync first). Accepts NULL. */
void ebb_ticket_free(struct ebb_ticket *ticket);
void ebb_ticket_signal(struct ebb_ticket *ticket, uint64_t value);
/* A signaller that cannot keep its promise: every wait, now and later, returns this status (for
 * good: such a ticket can only be freed). The first failure counts. */
void ebb_ticket_fail(struct ebb_ticket *ticket, enum ebb_status status);
/* Host wait. EBB_DEVICE after `seconds` without the value, naming the ticket's value and the
 * wanted one. A queue's wait fails likewise, as a command does. */
enum ebb_status ebb_ticket_wait(struct ebb_ticket *ticket, uint64_t value, double seconds);
enum ebb_status ebb_queue_ticket_signal(struct ebb_device *device, enum ebb_queue queue,
                                        struct ebb_ticket *ticket, uint64_t value);
enum ebb_status ebb_queue_ticket_wait(struct ebb_device *device, enum ebb_queue queue,
                                      struct ebb_ticket *ticket, uint64_t value, double seconds);

#ifdef __cplusplus
}
#endif
#endif
