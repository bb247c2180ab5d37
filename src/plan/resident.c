/* What a plan holds between forward and backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

static bool is_backward(const struct ebb_entry *entry)
{
    return entry->kind == EBB_ENTRY_OP &&
           (entry->op == EBB_OP_rmsnorm_backward || entry->op == EBB_OP_swiglu_backward ||
            entry->op == EBB_OP_attention_backward || entry->op == EBB_OP_rotary_backward ||
            entry->op == EBB_OP_embed_backward);
}

int64_t ebb_plan_resident_bytes(const struct ebb_plan *plan)
{
    const struct ebb_program *train = plan->programs[EBB_PROGRAM_TRAIN];
    int64_t spanning = 0;
    int32_t first = 0;
    if (train == NULL) return 0;
    while (first < ebb_program_entries(train) && !is_backward(ebb_program_entry_at(train, first)))
        first++;
    for (int32_t i = ebb_program_persistent(train); i < ebb_program_tensors(train); i++) {
        const struct ebb_tensor *tensor = ebb_program_tensor_at(train, i);
        if (tensor->space == EBB_SPACE_DEVICE && tensor->first < first && tensor->last >= first)
            spanning += ebb_align_up(tensor->bytes);
    }
    return ebb_plan_persistent_end(plan, EBB_SPACE_DEVICE) + spanning;
}
