/* Fuzz target: a saved teacher, teacher.json and behind a NUL teacher.safetensors. The checksum is
 * put right first, so that what is behind it is reached. Rows that are accepted have tokens of the
 * vocabulary, none twice, and log-probabilities that descend from at most 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/teacher.h"
#include "fuzz.h"
#include "op/distill.h"

enum { LABELS = 4 };

/* Samples of three, two and five tokens, of which the last has no label but its last token. */
static struct ebb_dataset *make_set(struct ebb_ctx *ctx)
{
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const int64_t lengths[] = {3, 2, 5}, prompts[] = {1, 0, 4};
    struct ebb_dataset *set;
    FUZZ_CHECK(ebb_dataset_from_ids(ctx, ids, lengths, prompts, 3, &set) == EBB_OK);
    FUZZ_CHECK(set->labels == LABELS);
    return set;
}

/* The text with a checksum that fits, or as it is. */
static void put_right(struct ebb_ctx *ctx, struct fuzz_text text, struct ebb_str *out)
{
    json_t *json;
    struct ebb_str all = {0};
    char checksum[17];
    if (!fuzz_succeeded(ctx, ebb_json_parse(ctx, "input", 0, text.data, text.bytes, &json))) {
        FUZZ_CHECK(ebb_str_add(ctx, out, text.data, text.bytes) == EBB_OK);
        return;
    }
    if (json_is_object(json)) {
        (void)json_object_del(json, "checksum");
        FUZZ_CHECK(ebb_json_text(ctx, json, 0, &all) == EBB_OK);
        snprintf(checksum, sizeof checksum, "%016llx",
                 (unsigned long long)ebb_hash_bytes(all.data, all.bytes));
        FUZZ_CHECK(json_object_set_new(json, "checksum", json_string(checksum)) == 0);
        ebb_str_free(ctx, &all);
    }
    FUZZ_CHECK(ebb_json_text(ctx, json, 0, out) == EBB_OK);
    json_decref(json);
}

static void check_row(const struct ebb_teacher_info *info, const int32_t *ids, const char *logprobs)
{
    float before = 0, value;
    for (int64_t i = 0; i < info->k; i++) {
        if (info->dtype == EBB_BF16) {
            uint16_t half;
            memcpy(&half, logprobs + 2 * i, sizeof half);
            value = ebb_from_bf16(half);
        } else {
            memcpy(&value, logprobs + 4 * i, sizeof value);
        }
        FUZZ_CHECK(value <= before);
        FUZZ_CHECK(ids[i] >= 0 && ids[i] < info->vocab);
        for (int64_t j = 0; j < i; j++) FUZZ_CHECK(ids[j] != ids[i]);
        before = value;
    }
}

static void gather(struct ebb_ctx *ctx, struct ebb_teacher *teacher, const struct ebb_dataset *set)
{
    const struct ebb_loader_options options = {.per_device_batch_size = 3};
    const struct ebb_teacher_info *info = ebb_teacher_describe(teacher);
    int64_t width = ebb_dtype_bytes(info->dtype);
    const struct ebb_batch *batch;
    struct ebb_loader *loader;
    FUZZ_CHECK(info->k >= 1 && info->k <= EBB_DISTILL_TOPK && info->rows == LABELS);
    int32_t *ids = (int32_t *)malloc((size_t)(LABELS * info->k) * sizeof *ids);
    char *logprobs = (char *)malloc((size_t)(LABELS * info->k * width));
    FUZZ_CHECK(ids != NULL && logprobs != NULL);
    FUZZ_CHECK(ebb_loader_create(ctx, set, &options, &loader) == EBB_OK);
    FUZZ_CHECK(ebb_loader_next(ctx, loader, &batch) == EBB_OK);
    if (fuzz_succeeded(ctx, ebb_teacher_gather(ctx, teacher, batch, ebb_loader_samples(loader), ids,
                                               logprobs)))
        for (int64_t r = 0; r < LABELS; r++)
            check_row(info, ids + r * info->k, logprobs + r * info->k * width);
    ebb_loader_free(ctx, loader);
    free(logprobs);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_dataset *set = make_set(ctx);
    struct ebb_teacher *teacher;
    struct ebb_str json = {0};
    put_right(ctx, fuzz_take(&data, &bytes), &json);
    fuzz_file("teacher.json", json.data, json.bytes);
    fuzz_file("teacher.safetensors", data, bytes);
    if (fuzz_succeeded(ctx, ebb_teacher_open(ctx, "mem", set, &teacher))) gather(ctx, teacher, set);
    ebb_teacher_free(ctx, teacher);
    ebb_str_free(ctx, &json);
    ebb_dataset_free(ctx, set);
    fuzz_close(ctx);
    return 0;
}
