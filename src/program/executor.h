/* Runs programs on a device: walks the list and only enqueues. No allocation inside a run, and
 * no waiting, unless the device is eight runs of the same executor behind (or a checksum pool of
 * the stash is used up).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_EXECUTOR_H
#define EBB_EXECUTOR_H

#include "ebb/stash.h"
#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_executor;

struct ebb_executor_options {
    bool checksums;       /* of everything the stash moves */
    bool own_allocations; /* every device tensor in a heap block of its own, so that sanitizers see
                             an overrun; the device's arena is then not used. Persistent tensors are
                             shared by the executors of one `share` chain */
    struct ebb_executor *share; /* with own_allocations: take persistent tensors' blocks from this
                                   one (borrowed, must live longer); NULL: make them */
    /* The host's copy of the documents' starts, for GPU ops: set before each run, and left alone
     * while one is enqueued; those of micro-batch i begin at i * doc_starts_stride. NULL: none. */
    const int32_t *doc_starts;
    int64_t doc_starts_stride;
    bool profile; /* a mark before and behind each entry: ebb_executor_times */
};

/* `device` has both spaces reserved at least up to the program's ends. Everything is borrowed
 * and must outlive the executor. libs NULL, options NULL: none. The caller frees, while nothing
 * runs. */
enum ebb_status ebb_executor_create(struct ebb_ctx *ctx, struct ebb_device *device,
                                    const struct ebb_op_libs *libs,
                                    const struct ebb_program *program,
                                    const struct ebb_executor_options *options,
                                    struct ebb_executor **executor);
void ebb_executor_free(struct ebb_executor *executor); /* accepts NULL */

/* Enqueues the whole program for `count` micro-batches, at least 1 and at most as many as it takes.
 * `steps` [count] are copied: their values for this run. The program's entries
 * see everything that was enqueued before the call as done (all queues join first). Then
 * ebb_device_sync to wait; what an op reports while it runs comes back from there. Moves skip
 * rows that are not live; the last part with a live row ends its generation. */
enum ebb_status ebb_executor_run(struct ebb_executor *executor, const struct ebb_step *steps,
                                 int32_t count);

/* When an entry ran, by the marks around it; what it waited for before comes before its begin. Of
 * entries that ran as one the first has all the time, the others 0 seconds at its end. */
struct ebb_entry_time {
    double begin; /* seconds from where COMPUTE began the run; on other queues it may be below 0 */
    double seconds;
    int32_t count; /* of entries that it is for; 0: an entry before it has the time */
};
/* Of the latest run, after a sync; [entries of the program]. False: the run did not get through,
 * and what is there means nothing. Only with `profile`. */
bool ebb_executor_times(const struct ebb_executor *executor, struct ebb_entry_time *times);

/* Where a tensor lies, for reading and writing by the host while nothing runs. NULL: a transient
 * one that the program never touches, or a persistent one without a place. */
void *ebb_executor_tensor(const struct ebb_executor *executor, int32_t tensor);

/* End of the highest device byte that the entries enqueued so far could touch (their views at
 * capacity), from their real addresses; with own_allocations, from the layout. */
int64_t ebb_executor_peak_bytes(const struct ebb_executor *executor);
void ebb_executor_forget_peak(struct ebb_executor *executor);

#ifdef __cplusplus
}
#endif
#endif
