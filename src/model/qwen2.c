/* Qwen2 and Qwen2.5: q, k and v always have biases, the output projection never; upper layers may
 * have a window.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

static const char *const architectures[] = {"Qwen2ForCausalLM", NULL};

static const struct ebb_refused_key refused[] = {
    {"mlp_bias", 0},
    {NULL, 0},
};

static const struct ebb_weight_row rows[] = {EBB_DECODER_ROWS};

extern const struct ebb_family ebb_family_qwen2;
const struct ebb_family ebb_family_qwen2 = {
    .name = "qwen2",
    .model_type = "qwen2",
    .architectures = architectures,
    .tied = {false, "tie_word_embeddings"},
    .qkv_bias = {true, NULL},
    .o_bias = {false, NULL},
    .mlp_bias = {false, NULL},
    .qk_norm = {false, NULL},
    .head_dim_needed = false,
    .windows = ebb_windows_by_layer,
    .refused = refused,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};
