/* A model family as a table: what it is called, what its architecture fixes, and which weights it
 * has.
 *
 * A family's file ends in one `const struct ebb_family` and is named once more, in family_list.h;
 * no other file may name a family. What a configuration may say and Ebb does not compute is refused
 * by table too, so that nothing that would change the numbers passes unseen.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_FAMILY_H
#define EBB_MODEL_FAMILY_H

#include "model/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A property that a key of config.json sets, or, where key is NULL, the architecture. */
struct ebb_family_flag {
    bool value;      /* where the key is missing, or always */
    const char *key; /* NULL: fixed */
};

/* A key of config.json that stands for something Ebb does not compute. Missing, null, empty or
 * `neutral` (false counts as 0, true as 1) means the feature is off; anything else is refused by
 * name and value. */
struct ebb_refused_key {
    const char *key; /* NULL ends a list */
    double neutral;
};

/* Sizes that a weight's shape is made of. */
enum ebb_size_kind {
    EBB_SIZE_ONE,      /* 1: the weight is a vector */
    EBB_SIZE_WIDTH,    /* C */
    EBB_SIZE_Q,        /* H D */
    EBB_SIZE_KV,       /* K D */
    EBB_SIZE_HEAD_DIM, /* D */
    EBB_SIZE_FFN,      /* F */
    EBB_SIZE_VOCAB     /* V */
};

/* Which models have the weight. */
enum ebb_weight_when {
    EBB_WHEN_ALWAYS,
    EBB_WHEN_QKV_BIAS,
    EBB_WHEN_O_BIAS,
    EBB_WHEN_MLP_BIAS,
    EBB_WHEN_QK_NORM,
    EBB_WHEN_UNTIED
};

/* One tensor of the files, or one per layer. Rows of a family stand in the order of
 * EBB_FIELD_LIST; rows that share a field fill it from the top. */
struct ebb_weight_row {
    enum ebb_field field;
    const char *name;   /* '#' stands for the layer's number; without it there is no layer */
    const char *target; /* LoRA's name for it, or NULL; the module is the name without ".weight" */
    enum ebb_size_kind rows, cols;
    enum ebb_weight_when when;
};

/* Fills config->window from config.json; the rest of `config` is known by then. */
typedef enum ebb_status (*ebb_windows_fn)(struct ebb_ctx *ctx, const char *where,
                                          const json_t *json, struct ebb_model_config *config);

struct ebb_family {
    const char *name;
    const char *model_type;
    const char *const *architectures; /* ends with NULL */
    struct ebb_family_flag tied, qkv_bias, o_bias, mlp_bias, qk_norm;
    bool head_dim_needed; /* config.json must give head_dim: C / H would be a guess */
    ebb_windows_fn windows;
    const struct ebb_refused_key *refused; /* beside those that every family refuses */
    const struct ebb_weight_row *rows;
    int64_t row_count;
};

/* The family of an architecture ("...ForCausalLM") or of a model_type; NULL if none. */
const struct ebb_family *ebb_family_find_architecture(const char *architecture);
const struct ebb_family *ebb_family_find_model_type(const char *model_type);
/* The i-th family of the list, NULL behind the last. */
const struct ebb_family *ebb_family_at(int64_t i);

/* The three ways in which families say which layers see only a window of tokens: never; all layers
 * the same, sliding_window or null; by layer, with layer_types or max_window_layers. */
enum ebb_status ebb_windows_none(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                 struct ebb_model_config *config);
enum ebb_status ebb_windows_all(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                struct ebb_model_config *config);
enum ebb_status ebb_windows_by_layer(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                     struct ebb_model_config *config);

/* The weights of a pre-norm decoder with rotary attention and a gated MLP, as transformers names
 * them. Families that differ from it in nothing but flags share the list. */
/* clang-format off */
#define EBB_ROW(field, name, target, rows, cols, when) \
    {EBB_FIELD_##field, name, target, EBB_SIZE_##rows, EBB_SIZE_##cols, EBB_WHEN_##when}
#define EBB_DECODER_ROWS \
    EBB_ROW(EMBED, "model.embed_tokens.weight", NULL, VOCAB, WIDTH, ALWAYS), \
    EBB_ROW(NORM1, "model.layers.#.input_layernorm.weight", NULL, ONE, WIDTH, ALWAYS), \
    EBB_ROW(QKV, "model.layers.#.self_attn.q_proj.weight", "q_proj", Q, WIDTH, ALWAYS), \
    EBB_ROW(QKV, "model.layers.#.self_attn.k_proj.weight", "k_proj", KV, WIDTH, ALWAYS), \
    EBB_ROW(QKV, "model.layers.#.self_attn.v_proj.weight", "v_proj", KV, WIDTH, ALWAYS), \
    EBB_ROW(QKV_BIAS, "model.layers.#.self_attn.q_proj.bias", NULL, ONE, Q, QKV_BIAS), \
    EBB_ROW(QKV_BIAS, "model.layers.#.self_attn.k_proj.bias", NULL, ONE, KV, QKV_BIAS), \
    EBB_ROW(QKV_BIAS, "model.layers.#.self_attn.v_proj.bias", NULL, ONE, KV, QKV_BIAS), \
    EBB_ROW(Q_NORM, "model.layers.#.self_attn.q_norm.weight", NULL, ONE, HEAD_DIM, QK_NORM), \
    EBB_ROW(K_NORM, "model.layers.#.self_attn.k_norm.weight", NULL, ONE, HEAD_DIM, QK_NORM), \
    EBB_ROW(O, "model.layers.#.self_attn.o_proj.weight", "o_proj", WIDTH, Q, ALWAYS), \
    EBB_ROW(O_BIAS, "model.layers.#.self_attn.o_proj.bias", NULL, ONE, WIDTH, O_BIAS), \
    EBB_ROW(NORM2, "model.layers.#.post_attention_layernorm.weight", NULL, ONE, WIDTH, ALWAYS), \
    EBB_ROW(GATE_UP, "model.layers.#.mlp.gate_proj.weight", "gate_proj", FFN, WIDTH, ALWAYS), \
    EBB_ROW(GATE_UP, "model.layers.#.mlp.up_proj.weight", "up_proj", FFN, WIDTH, ALWAYS), \
    EBB_ROW(GATE_UP_BIAS, "model.layers.#.mlp.gate_proj.bias", NULL, ONE, FFN, MLP_BIAS), \
    EBB_ROW(GATE_UP_BIAS, "model.layers.#.mlp.up_proj.bias", NULL, ONE, FFN, MLP_BIAS), \
    EBB_ROW(DOWN, "model.layers.#.mlp.down_proj.weight", "down_proj", WIDTH, FFN, ALWAYS), \
    EBB_ROW(DOWN_BIAS, "model.layers.#.mlp.down_proj.bias", NULL, ONE, WIDTH, MLP_BIAS), \
    EBB_ROW(FINAL_NORM, "model.norm.weight", NULL, ONE, WIDTH, ALWAYS), \
    EBB_ROW(HEAD, "lm_head.weight", NULL, VOCAB, WIDTH, UNTIED)
/* clang-format on */

#ifdef __cplusplus
}
#endif
#endif
