/* The list of a model's weights: what each is called in safetensors files and where it lies in
 * Ebb's layout.
 *
 * Ebb fuses matrices that share an input: q, k and v stand below each other in one matrix `qkv`
 * [(H + 2K) D, C], gate and up in `gate_up` [2F, C] (gate first). A fused matrix is one *field*;
 * a weight of a file fills rows row0 .. row0 + rows of its field. LoRA works on file weights
 * ("q_proj"), not on fields.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_WEIGHTS_H
#define EBB_MODEL_WEIGHTS_H

#include "model/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, text): fields in the order of the forward pass. Vectors (norms, biases) are [1, n]. */
#define EBB_FIELD_LIST(X)                                                                          \
    X(EMBED, "embed")               /* [V, C]                    no layer */                       \
    X(NORM1, "norm1")               /* [1, C]                    before attention */               \
    X(QKV, "qkv")                   /* [(H + 2K) D, C] */                                          \
    X(QKV_BIAS, "qkv_bias")         /* [1, (H + 2K) D] */                                          \
    X(Q_NORM, "q_norm")             /* [1, D] */                                                   \
    X(K_NORM, "k_norm")             /* [1, D] */                                                   \
    X(O, "o")                       /* [C, H D] */                                                 \
    X(O_BIAS, "o_bias")             /* [1, C] */                                                   \
    X(NORM2, "norm2")               /* [1, C]                    before the MLP */                 \
    X(GATE_UP, "gate_up")           /* [2F, C] */                                                  \
    X(GATE_UP_BIAS, "gate_up_bias") /* [1, 2F] */                                                  \
    X(DOWN, "down")                 /* [C, F] */                                                   \
    X(DOWN_BIAS, "down_bias")       /* [1, C] */                                                   \
    X(FINAL_NORM, "final_norm")     /* [1, C]                    no layer */                       \
    X(HEAD, "head")                 /* [V, C]                    no layer; absent where tied */

enum ebb_field {
#define EBB_FIELD_ENUM(name, text) EBB_FIELD_##name,
    EBB_FIELD_LIST(EBB_FIELD_ENUM)
#undef EBB_FIELD_ENUM
        EBB_FIELD_COUNT
};

const char *ebb_field_name(enum ebb_field field);

struct ebb_weight {
    /* Owned: the tensor's name in the files, "model.layers.0.self_attn.q_proj.weight". */
    char *name;
    /* Owned: LoRA's module path, "model.layers.0.self_attn.q_proj"; NULL where LoRA never goes. */
    char *module;
    const char *target; /* borrowed: "q_proj", as in PEFT's target_modules; NULL with module */
    enum ebb_field field;
    int layer;          /* -1: no layer */
    int64_t row0;       /* first row in the field; for vectors [1, n]: first column */
    int64_t rows, cols; /* shape in the file; vectors have rows 1 (and one dimension in the file) */
};

struct ebb_weight_list {
    struct ebb_weight *items;
    int64_t count;
};

/* Every weight of the model, layers in order, fields in the order of the list above. The caller
 * frees. */
enum ebb_status ebb_weight_list_create(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                                       struct ebb_weight_list *list);
void ebb_weight_list_free(struct ebb_ctx *ctx, struct ebb_weight_list *list);

#ifdef __cplusplus
}
#endif
#endif
