/* A model's shape, read from the `config.json` that transformers writes.
 *
 * Nothing is guessed: a key that changes the numbers and is missing (rope theta, say) is an
 * error, an unknown architecture or a feature that Ebb does not compute is an error that names
 * it.
 *
 * Shape letters used everywhere: L layers, C width, H heads, K kv heads, D head size, F width of
 * the MLP, V vocabulary, T tokens of a micro-batch. H D need not equal C.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_CONFIG_H
#define EBB_MODEL_CONFIG_H

#include <jansson.h>

#include "base/context.h"
#include "base/number.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_family;

enum ebb_rope_kind { EBB_ROPE_DEFAULT, EBB_ROPE_LINEAR, EBB_ROPE_LLAMA3, EBB_ROPE_YARN };

/* Rotary position embedding. Which fields matter depends on `kind`; formulas in model/rope.h. */
struct ebb_rope {
    enum ebb_rope_kind kind;
    double theta;
    double factor;                 /* linear, llama3, yarn */
    double low_freq_factor;        /* llama3 */
    double high_freq_factor;       /* llama3 */
    double original_max_positions; /* llama3, yarn */
    double beta_fast, beta_slow;   /* yarn */
    double attention_factor; /* yarn: cos and sin are multiplied by it; 1 for the other kinds */
    bool truncate; /* yarn: correction range rounded to whole dimensions (transformers' default:
                      true) */
};

struct ebb_model_config {
    const struct ebb_family *family; /* borrowed, a constant table */
    int64_t layers, width, heads, kv_heads, head_dim, ffn, vocab;
    int64_t max_positions;
    double norm_eps;
    bool tied; /* the head is the input embedding */
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm; /* RMS norm over each head of q and k before rotary (Qwen3) */
    struct ebb_rope rope;
    int64_t *window;        /* [L] owned; tokens of sliding-window attention, 0: full */
    enum ebb_dtype dtype;   /* what the files say: F32, BF16 or F16 */
    int64_t bos_id, pad_id; /* -1: none */
    int64_t eos_ids[8];     /* generation_config.json's where present, else config.json's */
    int eos_count;
    json_t *json; /* owned: the file as read, written back unchanged beside saved weights */
};

/* Reads DIR/config.json (and generation_config.json where present). The caller frees. */
enum ebb_status ebb_model_config_load(struct ebb_ctx *ctx, const char *dir,
                                      struct ebb_model_config **config);
/* The same from one config file that need not lie in a model directory (`ebb init`, `ebb plan`). */
enum ebb_status ebb_model_config_load_file(struct ebb_ctx *ctx, const char *path,
                                           struct ebb_model_config **config);
void ebb_model_config_free(struct ebb_ctx *ctx, struct ebb_model_config *config); /* accepts NULL */

/* Parameters of the whole model, tied head counted once. */
int64_t ebb_model_config_parameters(const struct ebb_model_config *config);

#ifdef __cplusplus
}
#endif
#endif
