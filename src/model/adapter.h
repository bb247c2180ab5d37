/* LoRA adapters in PEFT's format: which modules, what ranks and scales, and the files.
 *
 * LoRA (Hu et al. 2021, arXiv 2106.09685): y = W x + s B (A dropout(x)), A [r, in], B [out, r],
 * s = alpha / r, or alpha / sqrt(r) with rsLoRA (Kalajdzievski 2023, arXiv 2312.03732). A starts
 * uniform in [-1/sqrt(in), 1/sqrt(in)] (PEFT's kaiming_uniform with a = sqrt(5)), B at zero.
 * Files: adapter_config.json and adapter_model.safetensors with names
 * "base_model.model.<module>.lora_A.weight" [r, in] and "...lora_B.weight" [out, r].
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_ADAPTER_H
#define EBB_MODEL_ADAPTER_H

#include "model/safetensors.h"
#include "model/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_ADAPTER_TARGETS = 16 };

struct ebb_adapter_config {
    int64_t rank;
    double alpha;
    double dropout;
    bool rslora;
    char *targets[EBB_ADAPTER_TARGETS]; /* owned: "q_proj", ...; resolved, never "all-linear" */
    int target_count;
    char *base_model; /* owned: base_model_name_or_path */
};

/* Resolves "all-linear", or a list separated by commas or spaces, against the model's weights; a
 * target that the model does not have is EBB_BAD_CONFIG naming those it has. */
enum ebb_status ebb_adapter_config_targets(struct ebb_ctx *ctx,
                                           const struct ebb_weight_list *weights, const char *text,
                                           struct ebb_adapter_config *config);
void ebb_adapter_config_clear(struct ebb_ctx *ctx, struct ebb_adapter_config *config);
/* s of the formula above. */
double ebb_adapter_scale(const struct ebb_adapter_config *config);
/* Is the weight adapted? As in PEFT, a target is a module's whole path or the end of one behind
 * a dot. */
bool ebb_adapter_has(const struct ebb_adapter_config *config, const struct ebb_weight *weight);

/* Reads DIR/adapter_config.json; features that Ebb does not compute (DoRA, modules_to_save,
 * per-module ranks, bias, layer lists, fan_in_fan_out) are EBB_UNSUPPORTED naming them. */
enum ebb_status ebb_adapter_config_load(struct ebb_ctx *ctx, const char *dir,
                                        struct ebb_adapter_config *config);
/* Every target of a loaded configuration must name at least one of the model's weights;
 * EBB_UNSUPPORTED otherwise ("lm_head", "embed_tokens", another family's names). */
enum ebb_status ebb_adapter_config_check(struct ebb_ctx *ctx, const struct ebb_weight_list *weights,
                                         const struct ebb_adapter_config *config);
enum ebb_status ebb_adapter_config_save(struct ebb_ctx *ctx, const char *dir,
                                        const struct ebb_adapter_config *config);
/* "base_model.model.<module>.lora_A.weight"; `which` is 'A' or 'B'. The caller frees. */
char *ebb_adapter_tensor_name(struct ebb_ctx *ctx, const struct ebb_weight *weight, char which);
/* Fills A [rank, in] with its starting values; `instance` keeps modules apart. */
void ebb_adapter_init_a(const struct ebb_adapter_config *config, const struct ebb_weight *weight,
                        uint64_t seed, uint32_t instance, float *a);
/* out[rows, cols] = base + s B A in fp32, rows [row0, row0 + rows) of the weight, rounded once
 * to `dtype`. base: file tensor; a [r, in], b [out, r] fp32. */
void ebb_adapter_merge(const struct ebb_adapter_config *config, const struct ebb_tensor_info *base,
                       const float *a, const float *b, int64_t row0, int64_t rows,
                       enum ebb_dtype dtype, void *out);

#ifdef __cplusplus
}
#endif
#endif
