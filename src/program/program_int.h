/* What the files of this room share: the program's tables.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PROGRAM_INT_H
#define EBB_PROGRAM_INT_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_program_stage {
    EBB_STAGE_BUILD,
    EBB_STAGE_FINISHED,
    EBB_STAGE_LAID_OUT,
    EBB_STAGE_ORDERED
};

struct ebb_program {
    struct ebb_ctx *ctx; /* borrowed */
    char name[48];
    enum ebb_program_stage stage;
    struct ebb_tensor *tensors;
    int32_t tensor_count, tensor_room, persistent;
    struct ebb_entry *entries;
    int32_t entry_count, entry_room;
    char *pool; /* arguments of all entries, each at a multiple of 16 */
    int32_t pool_bytes, pool_room;
    int32_t *objects; /* [object_count] host tensors */
    int32_t object_count, object_room;
    int32_t *waits; /* of all entries, in the order of the entries */
    int32_t wait_count, wait_room;
    int32_t events;
    int64_t pageable; /* bytes of the host space, from its start on, that are not pinned */
    int32_t micro;    /* of the entries that are appended now */
    int32_t micros;
};

/* Makes room for `want` items of `item_bytes` in a table; it grows by half. */
enum ebb_status ebb_table_room(struct ebb_ctx *ctx, void **table, int32_t *room, int64_t want,
                               size_t item_bytes);
/* EBB_FAILED naming the call unless the program has come to `stage`. */
enum ebb_status ebb_program_need(const struct ebb_program *program, enum ebb_program_stage stage,
                                 const char *call);
const struct ebb_view *ebb_entry_view(const struct ebb_program *program,
                                      const struct ebb_entry *entry, int i);

/* How many entries from `entry` on, up to `max` (at least 1), may run as one command: ops of one
 * kind on one queue, next to each other in program order, of which only the first waits and only
 * the last is waited for. Views whose bit is set in `shared` are the same in all of them; beside
 * those none of them writes a byte that another touches. */
int32_t ebb_program_run_length(const struct ebb_program *program, int32_t entry, int32_t max,
                               uint32_t shared);

enum { EBB_ENTRY_TEXT = 80 };
/* Writes "entry 12 (matmul on queue compute)" into `out`, which is returned. */
const char *ebb_entry_text(const struct ebb_program *program, int32_t entry,
                           char out[EBB_ENTRY_TEXT]);
const char *ebb_space_text(enum ebb_space space); /* "device", "host" */

#ifdef __cplusplus
}
#endif
#endif
