/* Parts of a step: which entry belongs to which.
 * SPDX-License-Identifier: Apache-2.0 */
#include "program/part.h"

#include <stdio.h>
#include <string.h>

#include "op/matmul.h"

static const char *const part_keys[] = {
#define PART_KEY(name, key, text) key,
    EBB_PART_LIST(PART_KEY)
#undef PART_KEY
};

static const char *const part_texts[] = {
#define PART_TEXT(name, key, text) text,
    EBB_PART_LIST(PART_TEXT)
#undef PART_TEXT
};

const char *ebb_step_part_key(enum ebb_step_part part)
{
    return part_keys[part];
}

const char *ebb_step_part_text(enum ebb_step_part part)
{
    return part_texts[part];
}

/* Transient tensors of the head are named so (model/decoder_head.c). */
static bool is_of_head(const struct ebb_program *program, const struct ebb_view *view)
{
    static const char prefix[] = "head.";
    if (view->tensor < 0) return false;
    const struct ebb_tensor *tensor = ebb_program_tensor_at(program, view->tensor);
    return !tensor->persistent && strncmp(tensor->name, prefix, sizeof prefix - 1) == 0;
}

static enum ebb_step_part part_of_matmul(const struct ebb_program *program,
                                         const struct ebb_matmul *m)
{
    bool head =
        is_of_head(program, &m->a) || is_of_head(program, &m->b) || is_of_head(program, &m->y);
    return head ? EBB_PART_HEAD : EBB_PART_MATMUL;
}

static enum ebb_step_part part_of_op(const struct ebb_program *program,
                                     const struct ebb_entry *entry)
{
    switch ((enum ebb_op)entry->op) {
    case EBB_OP_matmul:
        return part_of_matmul(program, (const struct ebb_matmul *)ebb_program_args(program, entry));
    case EBB_OP_attention_forward:
    case EBB_OP_attention_cached:
        return EBB_PART_ATTENTION_FORWARD;
    case EBB_OP_attention_backward:
        return EBB_PART_ATTENTION_BACKWARD;
    case EBB_OP_cross_entropy:
    case EBB_OP_distill:
    case EBB_OP_distill_topk:
    case EBB_OP_label_logprob:
    case EBB_OP_label_logprob_backward:
    case EBB_OP_preference_loss:
    case EBB_OP_topk:
        return EBB_PART_HEAD;
    case EBB_OP_norm_squared:
    case EBB_OP_clip:
    case EBB_OP_adamw:
    case EBB_OP_sgd:
        return EBB_PART_OPTIMIZER;
    default:
        return EBB_PART_MEMORY;
    }
}

enum ebb_step_part ebb_entry_part(const struct ebb_program *program, const struct ebb_entry *entry,
                                  bool optimizer)
{
    if (entry->kind == EBB_ENTRY_OUT) return EBB_PART_COPY_OUT;
    if (entry->kind == EBB_ENTRY_IN) return EBB_PART_COPY_IN;
    return optimizer ? EBB_PART_OPTIMIZER : part_of_op(program, entry);
}

struct ebb_op_work ebb_entry_work(const struct ebb_program *program, const struct ebb_entry *entry,
                                  const struct ebb_op_env *envs, int32_t count)
{
    const void *args = ebb_program_args(program, entry);
    if (!ebb_entry_runs(entry, count, envs[0].step->first != 0)) return (struct ebb_op_work){0};
    const struct ebb_op_env *env = &envs[ebb_entry_micro(entry)];
    if (entry->kind == EBB_ENTRY_OP) return ebb_op_work(env, (enum ebb_op)entry->op, args);
    const struct ebb_move *move = (const struct ebb_move *)args;
    struct ebb_op_work work = {.bytes =
                                   (double)(ebb_view_rows(env, &move->device) * move->device.cols *
                                            ebb_dtype_bytes((enum ebb_dtype)move->device.dtype))};
    return work;
}

void ebb_entry_label(const struct ebb_program *program, const struct ebb_entry *entry,
                     char label[EBB_OP_LABEL])
{
    const void *args = ebb_program_args(program, entry);
    if (entry->kind == EBB_ENTRY_OP) {
        ebb_op_label((enum ebb_op)entry->op, args, label);
        return;
    }
    const struct ebb_view *view = &((const struct ebb_move *)args)->device;
    snprintf(label, EBB_OP_LABEL, "copy %s [%lld, %lld]",
             entry->kind == EBB_ENTRY_OUT ? "out" : "in", (long long)view->rows,
             (long long)view->cols);
}
