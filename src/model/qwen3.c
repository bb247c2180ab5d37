/* Qwen3, dense: heads of q and k are normalised before rotary, and their size is not C / H.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

static const char *const architectures[] = {"Qwen3ForCausalLM", NULL};

static const struct ebb_refused_key refused[] = {
    {"mlp_bias", 0},
    {NULL, 0},
};

static const struct ebb_weight_row rows[] = {EBB_DECODER_ROWS};

extern const struct ebb_family ebb_family_qwen3;
const struct ebb_family ebb_family_qwen3 = {
    .name = "qwen3",
    .model_type = "qwen3",
    .architectures = architectures,
    .tied = {false, "tie_word_embeddings"},
    .qkv_bias = {false, "attention_bias"},
    .o_bias = {false, "attention_bias"},
    .mlp_bias = {false, NULL},
    .qk_norm = {true, NULL},
    .head_dim_needed = true,
    .windows = ebb_windows_by_layer,
    .refused = refused,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};
