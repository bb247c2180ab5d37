/* A model directory with random weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/init.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/init_int.h"
#include "model/safetensors_int.h"

static const int64_t shard_bytes = 5000000000; /* as transformers 4 has cut them */

/* ---- values ---- */

/* How a weight starts: one of these is each tensor's `user`. */
struct filling {
    enum ebb_weight_start start;
    enum ebb_dtype dtype;
    float std;
    uint64_t key;
    int64_t cols;
    int64_t zero_row; /* -1: none */
};

static void put(const struct filling *filling, void *out, int64_t at, float value)
{
    switch (filling->dtype) {
    case EBB_BF16:
        ((uint16_t *)out)[at] = ebb_to_bf16(value);
        break;
    case EBB_F16:
        ((uint16_t *)out)[at] = ebb_to_f16(value);
        break;
    default:
        ((float *)out)[at] = value;
        break;
    }
}

/* Element e of the tensor is a function of (key, e) alone, so parts and threads do not matter. */
static void fill_row(const struct filling *filling, int64_t row, void *out, int64_t at)
{
    int64_t first = row * filling->cols, end = first + filling->cols;
    for (int64_t quad = first / 4; quad * 4 < end; quad++) {
        uint32_t words[4];
        float normals[4];
        ebb_philox(filling->key, (uint64_t)quad, words);
        ebb_normal(words[0], words[1], normals);
        ebb_normal(words[2], words[3], normals + 2);
        for (int64_t e = quad * 4; e < quad * 4 + 4; e++)
            if (e >= first && e < end)
                put(filling, out, at + e - first, normals[e % 4] * filling->std);
    }
}

static enum ebb_status fill(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows, void *out)
{
    const struct filling *filling = user;
    int64_t cols = filling->cols;
    (void)ctx;
#pragma omp parallel for schedule(static) if (rows * cols > 65536)
    for (int64_t r = 0; r < rows; r++) {
        if (filling->start == EBB_START_NORMAL && row0 + r != filling->zero_row)
            fill_row(filling, row0 + r, out, r * cols);
        else
            for (int64_t c = 0; c < cols; c++)
                put(filling, out, r * cols + c, filling->start == EBB_START_ONES ? 1 : 0);
    }
    return EBB_OK;
}

enum ebb_weight_start ebb_weight_start(enum ebb_field field)
{
    switch (field) {
    case EBB_FIELD_NORM1:
    case EBB_FIELD_NORM2:
    case EBB_FIELD_FINAL_NORM:
    case EBB_FIELD_Q_NORM:
    case EBB_FIELD_K_NORM:
        return EBB_START_ONES;
    case EBB_FIELD_QKV_BIAS:
    case EBB_FIELD_O_BIAS:
    case EBB_FIELD_GATE_UP_BIAS:
    case EBB_FIELD_DOWN_BIAS:
        return EBB_START_ZEROS;
    default:
        return EBB_START_NORMAL;
    }
}

/* ---- writing ---- */

static enum ebb_status write_weights(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                                     const struct ebb_weight_list *weights, const char *dir,
                                     enum ebb_dtype dtype, double std, uint64_t seed)
{
    enum ebb_status status = EBB_NO_MEMORY;
    size_t count = (size_t)weights->count;
    struct filling *fillings = ebb_mem_alloc(ctx, count * sizeof *fillings);
    struct ebb_tensor_source *tensors = ebb_mem_alloc(ctx, count * sizeof *tensors);
    if (fillings == NULL || tensors == NULL) goto out;
    for (size_t i = 0; i < count; i++) {
        const struct ebb_weight *weight = &weights->items[i];
        struct ebb_tensor_source *tensor = &tensors[i];
        fillings[i] =
            (struct filling){.start = ebb_weight_start(weight->field),
                             .dtype = dtype,
                             .std = (float)std,
                             .key = ebb_random_key(seed, 0, 0, 0, (uint32_t)i),
                             .cols = weight->cols,
                             .zero_row = weight->field == EBB_FIELD_EMBED ? config->pad_id : -1};
        tensor->name = weight->name;
        tensor->dtype = dtype;
        tensor->dims = weight->rows == 1 ? 1 : 2;
        tensor->shape[0] = weight->rows == 1 ? weight->cols : weight->rows;
        tensor->shape[1] = weight->rows == 1 ? 0 : weight->cols;
        tensor->fill = fill;
        tensor->user = &fillings[i];
    }
    status = ebb_safetensors_save_dir(ctx, dir, tensors, weights->count, shard_bytes);
out:
    ebb_mem_free(ctx, fillings);
    ebb_mem_free(ctx, tensors);
    return status;
}

static enum ebb_status save_config(struct ebb_ctx *ctx, const struct ebb_model_config *config,
                                   const char *dir, enum ebb_dtype dtype, bool bytes)
{
    EBB_TRY(ebb_config_set_dtype(ctx, config->json, dtype));
    if (bytes) EBB_TRY(ebb_config_set_bytes_tokens(ctx, config->json));
    char *path = ebb_path_join(ctx, dir, "config.json");
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_json_save(ctx, path, config->json);
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status write_model(struct ebb_ctx *ctx, struct ebb_model_config *config,
                                   const char *tokenizer_dir, const char *dir, enum ebb_dtype dtype,
                                   double std, uint64_t seed)
{
    struct ebb_weight_list weights = {0};
    bool bytes = tokenizer_dir && strcmp(tokenizer_dir, EBB_TOKENIZER_BYTES) == 0;
    EBB_TRY(ebb_dir_create(ctx, dir));
    if (bytes) {
        config->pad_id = -1;
        EBB_TRY(ebb_model_write_bytes_tokenizer(ctx, dir));
    } else if (tokenizer_dir) {
        EBB_TRY(ebb_model_copy_tokenizer(ctx, tokenizer_dir, dir));
    }
    EBB_TRY(save_config(ctx, config, dir, dtype, bytes));
    EBB_TRY(ebb_weight_list_create(ctx, config, &weights));
    enum ebb_status status = write_weights(ctx, config, &weights, dir, dtype, std, seed);
    ebb_weight_list_free(ctx, &weights);
    return status;
}

/* ---- checks ---- */

/* The weights come last, so a directory without them is no model yet; a config.json there may be
 * the one to use. */
static enum ebb_status check_dir(struct ebb_ctx *ctx, const char *config_path, const char *dir)
{
    static const char *const names[] = {EBB_SAFETENSORS_SINGLE, EBB_SAFETENSORS_INDEX,
                                        "config.json"};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; status == EBB_OK && i < sizeof names / sizeof names[0]; i++) {
        char *path = ebb_path_join(ctx, dir, names[i]);
        if (path == NULL) return EBB_NO_MEMORY;
        if (ebb_file_exists(path) && !ebb_path_same(path, config_path))
            status =
                EBB_FAIL(ctx, EBB_BAD_CONFIG,
                         "'%s' holds a model already ('%s')\nname another directory, or remove "
                         "that one",
                         dir, names[i]);
        ebb_mem_free(ctx, path);
    }
    return status;
}

static enum ebb_status check_request(struct ebb_ctx *ctx, const char *where,
                                     const struct ebb_model_config *config,
                                     const char *tokenizer_dir, enum ebb_dtype dtype, double *std)
{
    bool found;
    *std = 0.02;
    EBB_TRY(ebb_json_double(ctx, where, config->json, "initializer_range", std, &found));
    if (!(*std >= 0 && *std <= 1))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: 'initializer_range' is %g, must be from 0 to 1",
                        where, *std);
    if (dtype != EBB_F32 && dtype != EBB_BF16 && dtype != EBB_F16)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "weights cannot be %s; float32, bfloat16 and float16 are offered",
                        ebb_dtype_name(dtype));
    if (tokenizer_dir == NULL) return EBB_OK;
    if (strcmp(tokenizer_dir, EBB_TOKENIZER_BYTES) != 0)
        return ebb_dir_exists(tokenizer_dir)
                   ? EBB_OK
                   : EBB_FAIL(ctx, EBB_BAD_CONFIG,
                              "no tokenizer directory '%s'; '%s' stands for the byte tokenizer",
                              tokenizer_dir, EBB_TOKENIZER_BYTES);
    if (config->vocab < EBB_BYTES_VOCAB)
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "%s: 'vocab_size' is %lld, the byte tokenizer needs %d", where,
                        (long long)config->vocab, EBB_BYTES_VOCAB);
    return EBB_OK;
}

/* A new directory appears whole or not at all; one that is there already is filled in place. */
static enum ebb_status write_into(struct ebb_ctx *ctx, struct ebb_model_config *config,
                                  const char *tokenizer_dir, const char *dir, enum ebb_dtype dtype,
                                  double std, uint64_t seed)
{
    if (ebb_dir_exists(dir)) return write_model(ctx, config, tokenizer_dir, dir, dtype, std, seed);
    size_t bytes = strlen(dir);
    while (bytes > 1 && dir[bytes - 1] == '/') bytes--;
    char *partial = ebb_mem_format(ctx, "%.*s.partial", (int)bytes, dir);
    if (partial == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_dir_remove(ctx, partial);
    if (status == EBB_OK)
        status = write_model(ctx, config, tokenizer_dir, partial, dtype, std, seed);
    if (status == EBB_OK) status = ebb_dir_commit(ctx, partial, dir);
    if (status != EBB_OK) (void)ebb_dir_remove(ctx, partial);
    ebb_mem_free(ctx, partial);
    return status;
}

enum ebb_status ebb_model_init(struct ebb_ctx *ctx, const char *config_path,
                               const char *tokenizer_dir, const char *dir, enum ebb_dtype dtype,
                               uint64_t seed)
{
    struct ebb_model_config *config;
    double std = 0;
    EBB_TRY(ebb_model_config_load_file(ctx, config_path, &config));
    enum ebb_status status = check_request(ctx, config_path, config, tokenizer_dir, dtype, &std);
    if (status == EBB_OK) status = check_dir(ctx, config_path, dir);
    if (status == EBB_OK) status = write_into(ctx, config, tokenizer_dir, dir, dtype, std, seed);
    ebb_model_config_free(ctx, config);
    return status;
}
