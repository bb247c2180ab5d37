/* Llama 2, 3, 3.1, 3.2 and what was built alike (SmolLM2, TinyLlama): one bias switch for all of
 * attention.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

static const char *const architectures[] = {"LlamaForCausalLM", NULL};

static const struct ebb_refused_key refused[] = {
    {"sliding_window", 0}, /* the architecture has none, so one who sets it wants another */
    {NULL, 0},
};

static const struct ebb_weight_row rows[] = {EBB_DECODER_ROWS};

extern const struct ebb_family ebb_family_llama;
const struct ebb_family ebb_family_llama = {
    .name = "llama",
    .model_type = "llama",
    .architectures = architectures,
    .tied = {false, "tie_word_embeddings"},
    .qkv_bias = {false, "attention_bias"},
    .o_bias = {false, "attention_bias"},
    .mlp_bias = {false, "mlp_bias"},
    .qk_norm = {false, NULL},
    .head_dim_needed = false,
    .windows = ebb_windows_none,
    .refused = refused,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};
