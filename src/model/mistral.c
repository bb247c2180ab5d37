/* Mistral: no biases, and one window for every layer or for none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

static const char *const architectures[] = {"MistralForCausalLM", NULL};

static const struct ebb_refused_key refused[] = {
    {"attention_bias", 0},
    {"mlp_bias", 0},
    {NULL, 0},
};

static const struct ebb_weight_row rows[] = {EBB_DECODER_ROWS};

extern const struct ebb_family ebb_family_mistral;
const struct ebb_family ebb_family_mistral = {
    .name = "mistral",
    .model_type = "mistral",
    .architectures = architectures,
    .tied = {false, "tie_word_embeddings"},
    .qkv_bias = {false, NULL},
    .o_bias = {false, NULL},
    .mlp_bias = {false, NULL},
    .qk_norm = {false, NULL},
    .head_dim_needed = false,
    .windows = ebb_windows_all,
    .refused = refused,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};
