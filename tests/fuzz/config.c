/* Fuzz target: a model's config.json and, behind a NUL, its generation_config.json. What is
 * accepted has a shape that everything after it may count on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "model/family.h"
#include "model/weights.h"

/* Listing the weights of more layers than this takes memory, rightly. */
enum { LAYERS = 200 };

static void check_shape(struct ebb_ctx *ctx, const struct ebb_model_config *config)
{
    FUZZ_CHECK(config->family != NULL && config->layers > 0 && config->width > 0);
    FUZZ_CHECK(config->heads > 0 && config->kv_heads > 0 && config->head_dim > 0);
    FUZZ_CHECK(config->heads % config->kv_heads == 0);
    FUZZ_CHECK(config->ffn > 0 && config->vocab > 0 && config->max_positions > 0);
    FUZZ_CHECK(config->norm_eps > 0 && config->rope.theta > 0);
    FUZZ_CHECK(config->bos_id >= -1 && config->pad_id >= -1);
    FUZZ_CHECK(config->eos_count >= 0 && config->eos_count <= 8);
    for (int i = 0; i < config->eos_count; i++)
        FUZZ_CHECK(config->eos_ids[i] >= 0 && config->eos_ids[i] < config->vocab);
    for (int64_t i = 0; i < config->layers; i++) FUZZ_CHECK(config->window[i] >= 0);
    FUZZ_CHECK(ebb_model_config_parameters(config) > 0);
    if (config->layers > LAYERS) return;
    struct ebb_weight_list list = {0};
    if (!fuzz_succeeded(ctx, ebb_weight_list_create(ctx, config, &list))) return;
    for (int64_t i = 0; i < list.count; i++)
        FUZZ_CHECK(list.items[i].rows > 0 && list.items[i].cols > 0);
    ebb_weight_list_free(ctx, &list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct fuzz_text own = fuzz_take(&data, &bytes);
    fuzz_file("config.json", own.data, own.bytes);
    if (bytes > 0) fuzz_file("generation_config.json", data, bytes);
    struct ebb_model_config *config;
    if (fuzz_succeeded(ctx, ebb_model_config_load(ctx, "mem", &config))) {
        check_shape(ctx, config);
        ebb_model_config_free(ctx, config);
    }
    fuzz_close(ctx);
    return 0;
}
