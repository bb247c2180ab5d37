/* What a step's time goes to: the parts that profiles and forecasts tell apart.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PART_H
#define EBB_PART_H

#include "op/work.h"
#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, key, text) */
#define EBB_PART_LIST(X)                                                                           \
    X(MATMUL, "matmul", "matmul")                                                                  \
    X(ATTENTION_FORWARD, "attention_forward", "attention, forward")                                \
    X(ATTENTION_BACKWARD, "attention_backward", "attention, backward")                             \
    X(MEMORY, "memory_bound", "memory-bound") /* norms, rotary, SwiGLU, rows, embedding */         \
    X(HEAD, "head", "head and loss")          /* the head's products, and losses */                \
    X(OPTIMIZER, "optimizer", "optimizer")                                                         \
    X(COPY_OUT, "copies_out", "copies out")                                                        \
    X(COPY_IN, "copies_in", "copies in")                                                           \
    X(STALL, "stalls", "stalls") /* COMPUTE waited for another queue */                            \
    X(GAP, "gaps", "gaps")       /* COMPUTE had nothing, and nothing to wait for */                \
    X(HOST, "host", "host")      /* between runs: batches, sums, what follows a sync */

enum ebb_step_part {
#define EBB_PART_ENUM(name, key, text) EBB_PART_##name,
    EBB_PART_LIST(EBB_PART_ENUM)
#undef EBB_PART_ENUM
        EBB_PART_COUNT
};
const char *ebb_step_part_key(enum ebb_step_part part);
const char *ebb_step_part_text(enum ebb_step_part part);

struct ebb_part_time {
    double seconds; /* of COMPUTE's time line */
    double beside;  /* on other queues */
    double flops, bytes;
};

/* Of an entry's own time. `optimizer`: the program is one of the optimizer, so that all its ops
 * are. */
enum ebb_step_part ebb_entry_part(const struct ebb_program *program, const struct ebb_entry *entry,
                                  bool optimizer);
/* In a run; of moves: the live bytes. `envs` [count]: of its micro-batches, as ebb_op_work wants
 * them. */
struct ebb_op_work ebb_entry_work(const struct ebb_program *program, const struct ebb_entry *entry,
                                  const struct ebb_op_env *envs, int32_t count);
/* An op's label, or "copy in [4096, 3584]". */
void ebb_entry_label(const struct ebb_program *program, const struct ebb_entry *entry,
                     char label[EBB_OP_LABEL]);

#ifdef __cplusplus
}
#endif
#endif
