/* Merging: checks first, then one pass over the base's tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/merge.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "model/init.h"

#define ADAPTER_FILE "adapter_model.safetensors"

enum { NAMES_SHOWN = 4 };

/* One tensor of the base, and what is added to it. */
struct part {
    struct merge *merge;
    const struct ebb_tensor_info *base;
    const struct ebb_weight
        *weight; /* what the model uses it for; NULL: nothing, it is copied all the same */
    const struct ebb_tensor_info *a, *b; /* NULL: not adapted */
    enum ebb_dtype dtype;                /* to write */
};

struct merge {
    struct ebb_ctx *ctx;
    const char *model_dir, *adapter_dir;
    char *out, *temp; /* owned: where the result will be, and is while it is written */
    struct ebb_model_config *config;
    struct ebb_weight_list weights;
    struct ebb_adapter_config adapter;
    struct ebb_safetensors *base, *low; /* the model's files, the adapter's */
    struct ebb_tensor_source *tensors;  /* [count] */
    struct part *parts;                 /* [count] */
    int64_t count, adapted;
    float *a, *b; /* the pair of `loaded`, fp32 */
    const struct part *loaded;
};

/* ---- where to -------------------------------------------------------------------------------- */

static bool is_model_file(const char *name)
{
    size_t n = strlen(name), end = strlen(".safetensors");
    return strcmp(name, "config.json") == 0 || strcmp(name, "adapter_config.json") == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0 ||
           (n > end && strcmp(name + n - end, ".safetensors") == 0);
}

static enum ebb_status check_empty(struct ebb_ctx *ctx, const char *dir)
{
    char **names;
    size_t count;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; status == EBB_OK && i < count; i++)
        if (is_model_file(names[i]))
            status = EBB_FAIL(ctx, EBB_BAD_CONFIG,
                              "'%s' holds a model already ('%s')\ntry:   a new directory", dir,
                              names[i]);
    if (status == EBB_OK && count > 0)
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG, "'%s' is not empty ('%s')\ntry:   a new directory",
                          dir, names[0]);
    ebb_dir_list_free(ctx, names, count);
    return status;
}

/* An existing directory is known by its real path, so that "." and links have a neighbour too. */
static enum ebb_status settle_out(struct merge *m, const char *out_dir)
{
    char real[PATH_MAX];
    size_t bytes = strlen(out_dir);
    if (ebb_file_exists(out_dir) || bytes == 0)
        return EBB_FAIL(m->ctx, EBB_BAD_CONFIG,
                        "'%s' is %s, a directory to write the merged model to is wanted", out_dir,
                        bytes == 0 ? "no name" : "a file");
    if (ebb_dir_exists(out_dir)) {
        EBB_TRY(check_empty(m->ctx, out_dir));
        if (realpath(out_dir, real) == NULL)
            return EBB_FAIL(m->ctx, EBB_IO, "cannot find the path of '%s'", out_dir);
        m->out = ebb_mem_strdup(m->ctx, real);
    } else {
        while (bytes > 1 && out_dir[bytes - 1] == '/') bytes--;
        m->out = ebb_mem_strndup(m->ctx, out_dir, bytes);
    }
    if (!m->out) return EBB_NO_MEMORY;
    const char *slash = strrchr(m->out, '/'), *name = slash ? slash + 1 : m->out;
    m->temp = ebb_mem_format(m->ctx, "%.*s.%s.merge-tmp", (int)(name - m->out), m->out, name);
    return m->temp ? EBB_OK : EBB_NO_MEMORY;
}

/* ---- what from ------------------------------------------------------------------------------- */

static enum ebb_status open_inputs(struct merge *m)
{
    char *path = ebb_path_join(m->ctx, m->adapter_dir, ADAPTER_FILE);
    enum ebb_status status = path ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = ebb_model_config_load(m->ctx, m->model_dir, &m->config);
    if (status == EBB_OK) status = ebb_weight_list_create(m->ctx, m->config, &m->weights);
    if (status == EBB_OK) status = ebb_adapter_config_load(m->ctx, m->adapter_dir, &m->adapter);
    if (status == EBB_OK) status = ebb_adapter_config_check(m->ctx, &m->weights, &m->adapter);
    if (status == EBB_OK) status = ebb_safetensors_open_dir(m->ctx, m->model_dir, &m->base);
    if (status == EBB_OK) status = ebb_safetensors_open_file(m->ctx, path, &m->low);
    ebb_mem_free(m->ctx, path);
    return status;
}

static bool is_float(enum ebb_dtype dtype)
{
    return dtype == EBB_F32 || dtype == EBB_BF16 || dtype == EBB_F16;
}

static struct part *part_of(struct merge *m, const struct ebb_tensor_info *base)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->parts[i].base == base) return &m->parts[i];
    return NULL;
}

/* A part for each tensor of the base; every weight of the model must be among them. */
static enum ebb_status create_parts(struct merge *m, bool same_dtype, enum ebb_dtype dtype)
{
    m->count = ebb_safetensors_count(m->base);
    m->parts = (struct part *)ebb_mem_alloc(m->ctx, (size_t)m->count * sizeof *m->parts);
    m->tensors =
        (struct ebb_tensor_source *)ebb_mem_alloc(m->ctx, (size_t)m->count * sizeof *m->tensors);
    if (!m->parts || !m->tensors) return EBB_NO_MEMORY;
    for (int64_t i = 0; i < m->count; i++) {
        struct part *part = &m->parts[i];
        part->merge = m;
        part->base = ebb_safetensors_at(m->base, i);
        part->dtype = same_dtype || !is_float(part->base->dtype) ? part->base->dtype : dtype;
    }
    for (int64_t i = 0; i < m->weights.count; i++) {
        const struct ebb_weight *weight = &m->weights.items[i];
        const struct ebb_tensor_info *info;
        EBB_TRY(
            ebb_safetensors_want(m->ctx, m->base, weight->name, weight->rows, weight->cols, &info));
        part_of(m, info)->weight = weight;
    }
    return EBB_OK;
}

/* ---- what the adapter holds ------------------------------------------------------------------ */

/* "a, b, c, d and 7 more" */
struct names {
    struct ebb_str text;
    int64_t count;
};

static enum ebb_status add_name(struct ebb_ctx *ctx, struct names *names, const char *name)
{
    if (names->count++ >= NAMES_SHOWN) return EBB_OK;
    return ebb_str_addf(ctx, &names->text, "%s'%s'", names->count > 1 ? ", " : "", name);
}

static const char *names_end(struct ebb_ctx *ctx, struct names *names)
{
    if (names->count > NAMES_SHOWN)
        (void)ebb_str_addf(ctx, &names->text, " and %lld more",
                           (long long)(names->count - NAMES_SHOWN));
    return names->text.data ? names->text.data : "";
}

static enum ebb_status find_pair(struct merge *m, struct part *part, struct names *missing)
{
    for (int i = 0; i < 2; i++) {
        char *name = ebb_adapter_tensor_name(m->ctx, part->weight, i ? 'B' : 'A');
        if (!name) return EBB_NO_MEMORY;
        const struct ebb_tensor_info *info = ebb_safetensors_find(m->low, name);
        enum ebb_status status = info ? EBB_OK : add_name(m->ctx, missing, name);
        if (i)
            part->b = info;
        else
            part->a = info;
        ebb_mem_free(m->ctx, name);
        EBB_TRY(status);
    }
    m->adapted++;
    return EBB_OK;
}

static enum ebb_status check_missing(struct merge *m)
{
    struct names missing = {{0}, 0};
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; status == EBB_OK && i < m->count; i++)
        if (m->parts[i].weight && ebb_adapter_has(&m->adapter, m->parts[i].weight))
            status = find_pair(m, &m->parts[i], &missing);
    if (status == EBB_OK && missing.count > 0)
        status = EBB_FAIL(m->ctx, EBB_BAD_FILE,
                          "'%s/" ADAPTER_FILE
                          "' lacks %lld of the %lld tensors that its target_modules and the model "
                          "'%s' ask for: %s",
                          m->adapter_dir, (long long)missing.count, (long long)(2 * m->adapted),
                          m->model_dir, names_end(m->ctx, &missing));
    ebb_str_free(m->ctx, &missing.text);
    return status;
}

static bool is_used(const struct merge *m, const struct ebb_tensor_info *info)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->parts[i].a == info || m->parts[i].b == info) return true;
    return false;
}

static enum ebb_status check_unused(struct merge *m)
{
    struct names unused = {{0}, 0};
    enum ebb_status status = EBB_OK;
    int64_t count = ebb_safetensors_count(m->low);
    for (int64_t i = 0; status == EBB_OK && i < count; i++) {
        const struct ebb_tensor_info *info = ebb_safetensors_at(m->low, i);
        if (!is_used(m, info)) status = add_name(m->ctx, &unused, info->name);
    }
    if (status == EBB_OK && unused.count > 0)
        status =
            EBB_FAIL(m->ctx, EBB_BAD_FILE,
                     "'%s/" ADAPTER_FILE
                     "' holds %lld tensors that nothing in its target_modules and the model '%s' "
                     "uses, merging would drop them: %s",
                     m->adapter_dir, (long long)unused.count, m->model_dir,
                     names_end(m->ctx, &unused));
    ebb_str_free(m->ctx, &unused.text);
    return status;
}

static void show_shape(const struct ebb_tensor_info *info, char out[64])
{
    size_t at = 0;
    for (int d = 0; d < info->dims && at < 64; d++)
        at +=
            (size_t)snprintf(out + at, 64 - at, "%s%lld", d ? ", " : "", (long long)info->shape[d]);
    if (info->dims == 0) out[0] = 0;
}

static enum ebb_status check_matrix(struct merge *m, const struct part *part,
                                    const struct ebb_tensor_info *info, int64_t rows, int64_t cols)
{
    char shape[64];
    if (!is_float(info->dtype))
        return EBB_FAIL(m->ctx, EBB_BAD_FILE, "%s: tensor '%s' is %s, a float type is wanted",
                        info->file, info->name, ebb_dtype_name(info->dtype));
    if (info->dims == 2 && info->shape[0] == rows && info->shape[1] == cols) return EBB_OK;
    show_shape(info, shape);
    return EBB_FAIL(m->ctx, EBB_BAD_FILE,
                    "%s: tensor '%s' is [%s], but 'r' is %lld and the model's '%s' is [%lld, "
                    "%lld], which asks for [%lld, "
                    "%lld]\nthe adapter was made for another model than '%s'",
                    info->file, info->name, shape, (long long)m->adapter.rank, part->weight->name,
                    (long long)part->weight->rows, (long long)part->weight->cols, (long long)rows,
                    (long long)cols, m->model_dir);
}

/* Every pair is there and fits, and room for the largest is reserved. */
static enum ebb_status check_adapter(struct merge *m)
{
    int64_t rank = m->adapter.rank, rows = 0, cols = 0;
    EBB_TRY(check_missing(m));
    for (int64_t i = 0; i < m->count; i++) {
        const struct part *part = &m->parts[i];
        if (!part->a) continue;
        EBB_TRY(check_matrix(m, part, part->a, rank, part->weight->cols));
        EBB_TRY(check_matrix(m, part, part->b, part->weight->rows, rank));
        if (part->weight->rows > rows) rows = part->weight->rows;
        if (part->weight->cols > cols) cols = part->weight->cols;
    }
    EBB_TRY(check_unused(m));
    m->a = (float *)ebb_mem_alloc(m->ctx, (size_t)(rank * cols) * sizeof *m->a);
    m->b = (float *)ebb_mem_alloc(m->ctx, (size_t)(rank * rows) * sizeof *m->b);
    return m->a && m->b ? EBB_OK : EBB_NO_MEMORY;
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum ebb_status check_finite(struct merge *m, const struct part *part, const void *values,
                                    int64_t count)
{
    const uint16_t *half = (const uint16_t *)values;
    bool finite = true;
    uint16_t exponent = part->dtype == EBB_BF16 ? 0x7f80 : 0x7c00;
    if (part->dtype == EBB_F32)
        for (int64_t i = 0; i < count; i++) finite = finite && isfinite(((const float *)values)[i]);
    else
        for (int64_t i = 0; i < count; i++) finite = finite && (half[i] & exponent) != exponent;
    if (finite) return EBB_OK;
    return EBB_FAIL(m->ctx, EBB_FAILED,
                    "'%s' would hold values that are infinite or not a number in %s: %s",
                    part->base->name, ebb_dtype_name(part->dtype),
                    part->dtype == EBB_F16 ? "they are beyond 65504, or the base or the adapter is "
                                             "damaged\ntry:   save_dtype: bfloat16"
                                           : "the base or the adapter is damaged");
}

static void load_pair(struct merge *m, const struct part *part)
{
    int64_t rank = m->adapter.rank, rows = part->weight->rows, cols = part->weight->cols;
    if (m->loaded == part) return;
    ebb_tensor_copy(part->a, rank, cols, m->a, EBB_F32, cols);
    ebb_tensor_copy(part->b, rows, rank, m->b, EBB_F32, rank);
    m->loaded = part;
}

/* Rows of another dtype than they are written in. ebb_tensor_copy writes no float16. */
static enum ebb_status convert(struct merge *m, const struct part *part, int64_t row0, int64_t rows,
                               int64_t cols, void *out)
{
    if (part->dtype != EBB_F16) {
        ebb_tensor_copy_rows(part->base, row0, rows, cols, out, part->dtype, cols);
        return EBB_OK;
    }
    float *value = (float *)ebb_mem_alloc(m->ctx, (size_t)cols * sizeof *value);
    if (!value) return EBB_NO_MEMORY;
    for (int64_t r = 0; r < rows; r++) {
        uint16_t *to = (uint16_t *)out + r * cols;
        ebb_tensor_copy_rows(part->base, row0 + r, 1, cols, value, EBB_F32, cols);
        for (int64_t i = 0; i < cols; i++) to[i] = ebb_to_f16(value[i]);
    }
    ebb_mem_free(m->ctx, value);
    return EBB_OK;
}

static enum ebb_status fill(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows, void *out)
{
    const struct part *part = (const struct part *)user;
    const struct ebb_tensor_info *base = part->base;
    struct merge *m = part->merge;
    int64_t cols = 1;
    (void)ctx;
    for (int d = base->dims > 1 ? 1 : 0; d < base->dims; d++) cols *= base->shape[d];
    if (part->a) {
        load_pair(m, part);
        ebb_adapter_merge(&m->adapter, base, m->a, m->b, row0, rows, part->dtype, out);
    } else if (part->dtype == base->dtype) {
        int64_t row_bytes = cols * ebb_dtype_bytes(base->dtype);
        memcpy(out, (const char *)base->data + row0 * row_bytes, (size_t)(rows * row_bytes));
        return EBB_OK;
    } else {
        EBB_TRY(convert(m, part, row0, rows, cols, out));
    }
    return check_finite(m, part, out, rows * cols);
}

static enum ebb_status write_all(struct merge *m, enum ebb_dtype config_dtype, int64_t shard_bytes)
{
    for (int64_t i = 0; i < m->count; i++) {
        struct ebb_tensor_source *tensor = &m->tensors[i];
        const struct ebb_tensor_info *base = m->parts[i].base;
        tensor->name = base->name;
        tensor->dtype = m->parts[i].dtype;
        tensor->dims = base->dims;
        memcpy(tensor->shape, base->shape, sizeof tensor->shape);
        tensor->fill = fill;
        tensor->user = &m->parts[i];
    }
    EBB_TRY(ebb_dir_remove(m->ctx, m->temp)); /* what a killed process left */
    EBB_TRY(ebb_dir_create(m->ctx, m->temp));
    enum ebb_status status =
        ebb_safetensors_save_dir(m->ctx, m->temp, m->tensors, m->count, shard_bytes);
    if (status == EBB_OK)
        status = ebb_model_copy_side_files(m->ctx, m->model_dir, m->temp, config_dtype);
    if (status == EBB_OK) status = ebb_model_copy_chat_template(m->ctx, m->adapter_dir, m->temp);
    if (status == EBB_OK) {
        status = ebb_dir_commit(m->ctx, m->temp, m->out);
        /* Renamed, but perhaps not on disk: what is said to have failed isn't left there as a
         * model. */
        if (status != EBB_OK && !ebb_dir_exists(m->temp)) (void)ebb_dir_remove(m->ctx, m->out);
    }
    if (status != EBB_OK) (void)ebb_dir_remove(m->ctx, m->temp);
    return status;
}

static void merge_clear(struct merge *m)
{
    struct ebb_ctx *ctx = m->ctx;
    ebb_mem_free(ctx, m->a);
    ebb_mem_free(ctx, m->b);
    ebb_mem_free(ctx, m->tensors);
    ebb_mem_free(ctx, m->parts);
    ebb_safetensors_close(ctx, m->low);
    ebb_safetensors_close(ctx, m->base);
    ebb_adapter_config_clear(ctx, &m->adapter);
    ebb_weight_list_free(ctx, &m->weights);
    ebb_model_config_free(ctx, m->config);
    ebb_mem_free(ctx, m->temp);
    ebb_mem_free(ctx, m->out);
}

enum ebb_status ebb_merge_sharded(struct ebb_ctx *ctx, const char *model_dir,
                                  const char *adapter_dir, const char *out_dir, bool same_dtype,
                                  enum ebb_dtype dtype, int64_t shard_bytes)
{
    struct merge m = {.ctx = ctx, .model_dir = model_dir, .adapter_dir = adapter_dir};
    EBB_ASSERT((same_dtype || is_float(dtype)) && shard_bytes > 0);
    enum ebb_status status = settle_out(&m, out_dir);
    if (status == EBB_OK) status = open_inputs(&m);
    if (status == EBB_OK) status = create_parts(&m, same_dtype, dtype);
    if (status == EBB_OK) status = check_adapter(&m);
    if (status == EBB_OK) status = write_all(&m, same_dtype ? m.config->dtype : dtype, shard_bytes);
    if (status == EBB_OK)
        ebb_log(ctx, EBB_LOG_INFO, "merge", "folded %lld pairs of A and B into %lld tensors",
                (long long)m.adapted, (long long)m.count);
    merge_clear(&m);
    return status;
}

enum ebb_status ebb_merge(struct ebb_ctx *ctx, const char *model_dir, const char *adapter_dir,
                          const char *out_dir, bool same_dtype, enum ebb_dtype dtype)
{
    return ebb_merge_sharded(ctx, model_dir, adapter_dir, out_dir, same_dtype, dtype,
                             INT64_C(5) << 30);
}
