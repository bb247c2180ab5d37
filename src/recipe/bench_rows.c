/* Rows of one length for `ebb bench`.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "recipe/bench_point.h"
#include "recipe/dpo.h"
#include "recipe/kd.h"

static const int64_t most_tokens = INT64_C(1) << 25; /* of distinct rows; then they come again */

bool ebb_bench_has_data(const struct ebb_config *config)
{
    return config->data != EBB_DATA_KEY_RANDOM && ebb_setup_has_data(config);
}

enum ebb_status ebb_bench_is_blank(struct ebb_ctx *ctx, const char *dir, bool *blank)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json",
                                          ".bin",         ".pt",
                                          ".pth",         ".gguf"};
    char **names = NULL;
    size_t count = 0;
    *blank = true;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof endings / sizeof endings[0]; k++) {
            size_t bytes = strlen(names[i]), end = strlen(endings[k]);
            if (bytes >= end && strcmp(names[i] + bytes - end, endings[k]) == 0) *blank = false;
        }
    ebb_dir_list_free(ctx, names, count);
    return EBB_OK;
}

/* ---- ids ---- */

/* Laid end to end; what there is comes again and again. */
static void fill_samples(const struct ebb_dataset *set, int64_t count, int32_t *ids)
{
    for (int64_t at = 0, sample = 0; at < count; sample = (sample + 1) % set->count) {
        int64_t length = ebb_dataset_length(set, sample);
        if (length > count - at) length = count - at;
        memcpy(ids + at, ebb_dataset_ids(set, sample), (size_t)length * sizeof *ids);
        at += length;
    }
}

static void fill_random(uint64_t seed, int64_t vocab, int64_t count, int32_t *ids)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        ebb_philox(seed, (uint64_t)i, words);
        ids[i] = (int32_t)(words[0] % (uint64_t)vocab);
    }
}

/* Ids that every model of the run has. */
static enum ebb_status find_vocab(const struct ebb_setup *setup, int64_t *vocab)
{
    const char *second = ebb_kd_wanted(setup->options, setup->config)
                             ? setup->config->teacher_model_name_or_path
                             : setup->config->ref_model_name_or_path;
    struct ebb_model_config *model = NULL;
    char *dir = NULL;
    *vocab = setup->model->vocab;
    if (second == NULL) return EBB_OK;
    EBB_TRY(ebb_model_find(setup->ctx, second, &setup->env->hub, &dir));
    enum ebb_status status = ebb_model_config_load(setup->ctx, dir, &model);
    if (status == EBB_OK && model->vocab < *vocab) *vocab = model->vocab;
    ebb_model_config_free(setup->ctx, model);
    ebb_mem_free(setup->ctx, dir);
    return status;
}

static enum ebb_status fill_ids(const struct ebb_setup *setup, int64_t count, int32_t *ids)
{
    int64_t vocab;
    if (setup->train_set) {
        fill_samples(setup->train_set, count, ids);
        return EBB_OK;
    }
    EBB_TRY(find_vocab(setup, &vocab));
    fill_random((uint64_t)setup->config->seed, vocab, count, ids);
    return EBB_OK;
}

/* ---- rows ---- */

/* Two rows are a pair; of KTO an answer, good and bad in turn, and the one that it is measured
 * against. */
static enum ebb_status pair_up(struct ebb_ctx *ctx, bool kto, struct ebb_dataset *set)
{
    set->group = 2;
    if (!kto) return EBB_OK;
    set->desirable = ebb_mem_alloc(ctx, (size_t)set->count);
    if (set->desirable == NULL) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < set->count; i++)
        set->desirable[i] = (uint8_t)(i % 2 ? EBB_DATASET_KL : i % 4 == 0);
    return EBB_OK;
}

static enum ebb_status make_rows(const struct ebb_setup *setup, int64_t rows, int64_t length,
                                 struct ebb_dataset **set)
{
    struct ebb_ctx *ctx = setup->ctx;
    int32_t *ids = ebb_mem_alloc(ctx, (size_t)(rows * length) * sizeof *ids);
    int64_t *lengths = ebb_mem_alloc(ctx, (size_t)rows * sizeof *lengths);
    enum ebb_status status = ids && lengths ? EBB_OK : EBB_NO_MEMORY;
    for (int64_t i = 0; status == EBB_OK && i < rows; i++) lengths[i] = length;
    if (status == EBB_OK) status = fill_ids(setup, rows * length, ids);
    if (status == EBB_OK) status = ebb_dataset_from_ids(ctx, ids, lengths, NULL, rows, set);
    ebb_mem_free(ctx, ids);
    ebb_mem_free(ctx, lengths);
    return status;
}

static enum ebb_status make_loader(struct ebb_setup *setup)
{
    const struct ebb_loader_options options = {.per_device_batch_size =
                                                   setup->config->per_device_train_batch_size,
                                               .max_length = setup->max_length,
                                               .seed = (uint64_t)setup->config->seed,
                                               .world = 1};
    EBB_TRY(ebb_loader_create(setup->ctx, setup->train_set, &options, &setup->train));
    const struct ebb_loader_facts *facts = ebb_loader_describe(setup->train);
    setup->request.capacity = (struct ebb_capacity){.tokens = facts->tokens_max,
                                                    .docs = facts->docs_max,
                                                    .doc_tokens = facts->longest};
    return EBB_OK;
}

enum ebb_status ebb_bench_rows(struct ebb_setup *setup, int64_t length)
{
    const struct ebb_config *config = setup->config;
    const bool pairs = setup->purpose == EBB_PURPOSE_PREFERENCE,
               kto = pairs && ebb_dpo_loss(config, setup->train_set) == EBB_PREFERENCE_KTO;
    const int64_t row_count = config->per_device_train_batch_size * (pairs ? 2 : 1);
    int64_t micros = config->gradient_accumulation_steps * config->steps;
    struct ebb_dataset *set = NULL;
    if (row_count > INT32_MAX / length)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "a micro-batch of %lld rows of %lld tokens would have more than 2^31 "
                        "tokens\n"
                        "where: %s",
                        (long long)row_count, (long long)length,
                        ebb_options_where(setup->options, "per_device_train_batch_size"));
    if (micros > most_tokens / (row_count * length)) micros = most_tokens / (row_count * length);
    if (micros < 1) micros = 1;
    EBB_TRY(make_rows(setup, micros * row_count, length, &set));
    enum ebb_status status = pairs ? pair_up(setup->ctx, kto, set) : EBB_OK;
    ebb_loader_free(setup->ctx, setup->train);
    ebb_dataset_free(setup->ctx, setup->train_set);
    setup->train = NULL;
    setup->train_set = set;
    setup->max_length = length;
    setup->eval_batch = config->per_device_train_batch_size;
    return status == EBB_OK ? make_loader(setup) : status;
}
