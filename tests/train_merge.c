/* Merging: same logits as base and adapter, nothing else changed, and what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "train/merge.h"

/* A golden case, and a folder to write to. */
struct bench {
    struct kit_case c;
    char dir[64], out[96];
};

static void bench_open(struct bench *b, const char *name)
{
    kit_case_open(&b->c, name);
    snprintf(b->dir, sizeof b->dir, "/tmp/ebb_merge_XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->out, sizeof b->out, "%s/merged", b->dir);
}

static void bench_close(struct bench *b)
{
    kit_ok(b->c.ctx, ebb_dir_remove(b->c.ctx, b->dir), "remove");
    assert_int_equal(ebb_mem_bytes_now(b->c.ctx), 0);
    kit_case_close(&b->c);
}

static enum ebb_status merge(struct bench *b, bool same, enum ebb_dtype dtype)
{
    return ebb_merge(b->c.ctx, b->c.model_dir, b->c.adapter_dir, b->out, same, dtype);
}

static int64_t entries(struct bench *b, const char *dir)
{
    char **names;
    size_t count;
    kit_ok(b->c.ctx, ebb_dir_list(b->c.ctx, dir, &names, &count), dir);
    ebb_dir_list_free(b->c.ctx, names, count);
    return (int64_t)count;
}

/* The merge failed so, and beside `left` things that were there before nothing is in the folder. */
static void want_refusal(struct bench *b, enum ebb_status got, enum ebb_status wanted,
                         const char *part, int64_t left)
{
    const char *text = ebb_error_text(b->c.ctx);
    if (got != wanted || strstr(text, part) == NULL)
        fail_msg("got %s: \"%s\"\nwanted %s with \"%s\"", ebb_status_name(got), text,
                 ebb_status_name(wanted), part);
    ebb_error_clear(b->c.ctx);
    assert_int_equal(entries(b, b->dir), left);
}

static bool holds(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return ebb_file_exists(path);
}

/* ---- the same model -------------------------------------------------------------------------- */

/* Logits [T, V] of the case's first document; the caller frees. */
static float *logits_of(struct bench *b, const char *model_dir, const char *adapter_dir,
                        int64_t *count)
{
    struct ebb_numerics numerics = kit_numerics(EBB_F32);
    struct ebb_engine_request request = kit_request(&b->c, &numerics);
    const struct ebb_batch *batch = &b->c.batches[0][0]->batch;
    int64_t tokens = batch->doc_starts[1];
    const float *last;
    request.model_dir = model_dir;
    request.adapter_dir = adapter_dir;
    request.train = false;
    request.decode = true;
    request.capacity.cache_tokens = KIT_TOKENS;
    struct ebb_engine *engine = kit_engine(b->c.ctx, &request);
    int64_t vocab = ebb_engine_config(engine)->vocab;
    float *logits = (float *)malloc((size_t)(tokens * vocab) * sizeof *logits);
    for (int64_t t = 0; t < tokens; t++) {
        kit_ok(b->c.ctx, ebb_engine_decode(engine, batch->ids + t, 1, t, &last), "decode");
        memcpy(logits + t * vocab, last, (size_t)vocab * sizeof *last);
    }
    ebb_engine_free(engine);
    *count = tokens * vocab;
    return logits;
}

static double farthest(const float *a, const float *b, int64_t count)
{
    double far = 0;
    for (int64_t i = 0; i < count; i++) {
        double off = fabs((double)a[i] - (double)b[i]);
        if (!(off <= far)) far = off;
    }
    return far;
}

static void check_same_logits(const char *name)
{
    struct bench b;
    int64_t count, n;
    bench_open(&b, name);
    kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "merge");
    float *want = logits_of(&b, b.c.model_dir, b.c.adapter_dir, &count),
          *base = logits_of(&b, b.c.model_dir, NULL, &n);
    float *got = logits_of(&b, b.out, NULL, &n);
    assert_int_equal(n, count);
    double off = farthest(got, want, count), change = farthest(base, want, count);
    print_message("%s: merged %.2g from base and adapter, base alone %.2g\n", name, off, change);
    assert_true(off <= 1e-5 && change >= 0.1);
    free(want);
    free(base);
    free(got);
    bench_close(&b);
}

static void merged_logits_are_those_of_base_and_adapter(void **state)
{
    (void)state;
    check_same_logits("llama3_lora");
    check_same_logits("qwen2_lora_rslora");
    check_same_logits("mistral_lora");
}

/* ---- tensors and files ----------------------------------------------------------------------- */

static struct ebb_safetensors *open_dir(struct bench *b, const char *dir)
{
    struct ebb_safetensors *set;
    kit_ok(b->c.ctx, ebb_safetensors_open_dir(b->c.ctx, dir, &set), dir);
    return set;
}

/* llama3 has a tied head: the embedding is the head, and LoRA touches neither. */
static void what_the_adapter_does_not_touch_stays_byte_by_byte(void **state)
{
    struct bench b;
    int64_t same = 0, projections = 0;
    (void)state;
    bench_open(&b, "llama3_lora");
    kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "merge");
    struct ebb_safetensors *base = open_dir(&b, b.c.model_dir), *merged = open_dir(&b, b.out);
    assert_int_equal(ebb_safetensors_count(base), ebb_safetensors_count(merged));
    for (int64_t i = 0; i < ebb_safetensors_count(base); i++) {
        const struct ebb_tensor_info *was = ebb_safetensors_at(base, i),
                                     *is = ebb_safetensors_find(merged, was->name);
        assert_non_null(is);
        assert_true(is->dtype == was->dtype && is->bytes == was->bytes);
        bool equal = memcmp(was->data, is->data, (size_t)was->bytes) == 0,
             projection = strstr(was->name, "_proj");
        assert_true(equal != projection);
        same += equal;
        projections += projection;
    }
    assert_int_equal(projections, 3 * 7);
    assert_int_equal(same, 1 + 3 * 2 + 1);
    assert_null(ebb_safetensors_find(merged, "lm_head.weight"));
    ebb_safetensors_close(b.c.ctx, base);
    ebb_safetensors_close(b.c.ctx, merged);
    bench_close(&b);
}

static void the_result_is_a_model_directory_without_adapter_files(void **state)
{
    struct bench b;
    struct ebb_model_config *config;
    (void)state;
    bench_open(&b, "llama3_lora");
    kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "merge");
    assert_int_equal(entries(&b, b.dir), 1); /* nothing temporary is left */
    assert_int_equal(entries(&b, b.out), 3);
    assert_true(holds(b.out, "config.json") && holds(b.out, "generation_config.json") &&
                holds(b.out, "model.safetensors"));
    kit_ok(b.c.ctx, ebb_model_config_load(b.c.ctx, b.out, &config), "config");
    assert_int_equal(config->dtype, EBB_F32);
    ebb_model_config_free(b.c.ctx, config);
    bench_close(&b);
}

/* Rounded once: the forced type's bits are those of the fp32 result. */
static void a_forced_dtype_is_the_fp32_result_rounded_once(void **state)
{
    static const enum ebb_dtype types[] = {EBB_BF16, EBB_F16};
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct bench b;
        struct ebb_model_config *config;
        char other[128];
        bench_open(&b, "qwen2_lora_rslora");
        snprintf(other, sizeof other, "%s/other", b.dir);
        kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "merge");
        kit_ok(b.c.ctx, ebb_merge(b.c.ctx, b.c.model_dir, b.c.adapter_dir, other, false, types[t]),
               "merge");
        struct ebb_safetensors *wide = open_dir(&b, b.out), *narrow = open_dir(&b, other);
        for (int64_t i = 0; i < ebb_safetensors_count(wide); i++) {
            const struct ebb_tensor_info *w = ebb_safetensors_at(wide, i),
                                         *n = ebb_safetensors_find(narrow, w->name);
            assert_true(n && n->dtype == types[t] && n->bytes * 2 == w->bytes);
            for (int64_t k = 0; k < n->bytes / 2; k++) {
                float value;
                uint16_t bits;
                memcpy(&value, (const char *)w->data + 4 * k, sizeof value);
                memcpy(&bits, (const char *)n->data + 2 * k, sizeof bits);
                assert_int_equal(bits, t == 0 ? ebb_to_bf16(value) : ebb_to_f16(value));
            }
        }
        ebb_safetensors_close(b.c.ctx, wide);
        ebb_safetensors_close(b.c.ctx, narrow);
        kit_ok(b.c.ctx, ebb_model_config_load(b.c.ctx, other, &config), "config");
        assert_int_equal(config->dtype, types[t]);
        ebb_model_config_free(b.c.ctx, config);
        bench_close(&b);
    }
}

static void a_sharded_result_holds_the_same_tensors(void **state)
{
    struct bench b;
    char sharded[128], again[128];
    (void)state;
    bench_open(&b, "mistral_lora");
    snprintf(sharded, sizeof sharded, "%s/sharded", b.dir);
    snprintf(again, sizeof again, "%s/again", b.dir);
    kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "merge");
    kit_ok(b.c.ctx,
           ebb_merge_sharded(b.c.ctx, b.c.model_dir, b.c.adapter_dir, sharded, true, EBB_F32,
                             20000),
           "merge");
    assert_true(holds(sharded, "model.safetensors.index.json") &&
                !holds(sharded, "model.safetensors"));
    struct ebb_safetensors *one = open_dir(&b, b.out), *many = open_dir(&b, sharded);
    assert_int_equal(ebb_safetensors_count(one), ebb_safetensors_count(many));
    for (int64_t i = 0; i < ebb_safetensors_count(one); i++) {
        const struct ebb_tensor_info *x = ebb_safetensors_at(one, i),
                                     *y = ebb_safetensors_find(many, x->name);
        assert_true(y && x->bytes == y->bytes && memcmp(x->data, y->data, (size_t)x->bytes) == 0);
    }
    ebb_safetensors_close(b.c.ctx, one);
    ebb_safetensors_close(b.c.ctx, many);
    /* A sharded base is as good a base. */
    kit_ok(b.c.ctx, ebb_merge(b.c.ctx, sharded, b.c.adapter_dir, again, true, EBB_F32), "merge");
    assert_true(holds(again, "model.safetensors"));
    bench_close(&b);
}

/* ---- where it may go ------------------------------------------------------------------------- */

static void put(struct bench *b, const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    kit_ok(b->c.ctx, ebb_file_write(b->c.ctx, path, text, strlen(text)), path);
}

static void an_output_that_holds_something_is_refused(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, "llama3_lora");
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, b.out), "create");
    put(&b, b.out, "config.json", "{}");
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_CONFIG,
                 "/merged' holds a model already ('config.json')", 1);
    assert_int_equal(entries(&b, b.out), 1);
    kit_ok(b.c.ctx, ebb_dir_remove(b.c.ctx, b.out), "remove");
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, b.out), "create");
    put(&b, b.out, "model-00001-of-00002.safetensors", "");
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_CONFIG,
                 "holds a model already ('model-00001-of-00002", 1);
    kit_ok(b.c.ctx, ebb_dir_remove(b.c.ctx, b.out), "remove");
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, b.out), "create");
    put(&b, b.out, "notes.txt", "mine");
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_CONFIG,
                 "/merged' is not empty ('notes.txt')", 1);
    assert_true(holds(b.out, "notes.txt"));
    kit_ok(b.c.ctx, ebb_dir_remove(b.c.ctx, b.out), "remove");
    put(&b, b.dir, "merged", "a file");
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_CONFIG, "/merged' is a file", 1);
    want_refusal(&b,
                 ebb_merge(b.c.ctx, b.c.model_dir, b.c.adapter_dir, b.c.model_dir, true, EBB_F32),
                 EBB_BAD_CONFIG, "holds a model already", 1);
    bench_close(&b);
}

static void an_empty_directory_a_new_one_and_a_link_are_taken(void **state)
{
    struct bench b;
    char name[192], target[128];
    (void)state;
    bench_open(&b, "llama3_lora");
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, b.out), "create");
    kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "empty");
    snprintf(name, sizeof name, "%s/new/deeper//", b.dir);
    kit_ok(b.c.ctx, ebb_merge(b.c.ctx, b.c.model_dir, b.c.adapter_dir, name, true, EBB_F32), "new");
    assert_true(holds(name, "config.json"));
    snprintf(target, sizeof target, "%s/elsewhere", b.dir);
    snprintf(name, sizeof name, "%s/link", b.dir);
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, target), "create");
    assert_int_equal(symlink(target, name), 0);
    kit_ok(b.c.ctx, ebb_merge(b.c.ctx, b.c.model_dir, b.c.adapter_dir, name, true, EBB_F32),
           "link");
    assert_true(holds(target, "config.json"));
    assert_int_equal(entries(&b, b.dir), 4);
    bench_close(&b);
}

static void what_a_killed_merge_left_is_replaced(void **state)
{
    struct bench b;
    char left[128];
    (void)state;
    bench_open(&b, "llama3_lora");
    snprintf(left, sizeof left, "%s/.merged.merge-tmp", b.dir);
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, left), "create");
    put(&b, left, "model-00001-of-00009.safetensors", "half");
    kit_ok(b.c.ctx, merge(&b, true, EBB_F32), "merge");
    assert_int_equal(entries(&b, b.dir), 1);
    assert_int_equal(entries(&b, b.out), 3);
    bench_close(&b);
}

/* Returns whether the merge went through in spite of it. */
static bool with_failing_allocation(struct bench *b, int64_t nth)
{
    ebb_mem_fail_nth(b->c.ctx, nth, false);
    enum ebb_status status = merge(b, false, EBB_F16);
    ebb_mem_fail_nth(b->c.ctx, 0, false);
    assert_int_equal(status, status == EBB_OK ? EBB_OK : EBB_NO_MEMORY);
    assert_int_equal(entries(b, b->dir), status == EBB_OK ? 1 : 0);
    assert_int_equal(ebb_mem_bytes_now(b->c.ctx), 0);
    kit_ok(b->c.ctx, ebb_dir_remove(b->c.ctx, b->out), "remove");
    ebb_error_clear(b->c.ctx);
    return status == EBB_OK;
}

/* Some of the many, and each of the last ones, where files are moved into place. */
static void a_failed_allocation_leaves_nothing_behind(void **state)
{
    enum { STEP = 16 };
    struct bench b;
    int64_t nth = 1;
    (void)state;
    bench_open(&b, "llama3_lora");
    while (!with_failing_allocation(&b, nth)) nth += STEP;
    assert_true(nth > 10 * STEP);
    for (int64_t i = nth - STEP; !with_failing_allocation(&b, i); i++) assert_true(i < nth);
    bench_close(&b);
}

/* ---- adapters that do not fit ---------------------------------------------------------------- */

enum { MOST = 128 };

static enum ebb_status fill_from_info(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows,
                                      void *out)
{
    const struct ebb_tensor_info *info = (const struct ebb_tensor_info *)user;
    (void)ctx;
    ebb_tensor_copy_rows(info, row0, rows, info->shape[1], out, EBB_F32, info->shape[1]);
    return EBB_OK;
}

static enum ebb_status fill_huge(struct ebb_ctx *ctx, void *user, int64_t row0, int64_t rows,
                                 void *out)
{
    const struct ebb_tensor_info *info = (const struct ebb_tensor_info *)user;
    (void)ctx;
    (void)row0;
    for (int64_t i = 0; i < rows * info->shape[1]; i++) ((float *)out)[i] = 1e4f;
    return EBB_OK;
}

struct edit {
    const char *drop;   /* tensors whose name holds this are left out */
    const char *rename; /* one of this whole name is called `as` */
    const char *as;
    const char *transpose; /* one of this name gets its shape turned round */
    const char *huge;      /* tensors whose name holds this are 1e4 throughout */
};

/* Writes the case's adapter with changes to DIR/adapter and makes it the case's. */
static void edit_adapter(struct bench *b, struct edit edit)
{
    struct ebb_safetensors *set;
    struct ebb_tensor_source tensors[MOST];
    int64_t count = 0;
    char path[700], to[700];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", b->c.adapter_dir);
    kit_ok(b->c.ctx, ebb_safetensors_open_file(b->c.ctx, path, &set), path);
    snprintf(to, sizeof to, "%s/adapter", b->dir);
    kit_ok(b->c.ctx, ebb_dir_create(b->c.ctx, to), to);
    snprintf(to, sizeof to, "%s/adapter/adapter_model.safetensors", b->dir);
    for (int64_t i = 0; i < ebb_safetensors_count(set); i++) {
        const struct ebb_tensor_info *info = ebb_safetensors_at(set, i);
        if (edit.drop && strstr(info->name, edit.drop)) continue;
        struct ebb_tensor_source *t = &tensors[count++];
        memset(t, 0, sizeof *t);
        t->name = edit.rename && strcmp(info->name, edit.rename) == 0 ? edit.as : info->name;
        t->dtype = EBB_F32;
        t->dims = 2;
        bool turned = edit.transpose && strcmp(info->name, edit.transpose) == 0;
        t->shape[0] = info->shape[turned];
        t->shape[1] = info->shape[!turned];
        t->fill =
            turned || (edit.huge && strstr(info->name, edit.huge)) ? fill_huge : fill_from_info;
        t->user = (void *)(uintptr_t)info;
    }
    kit_ok(b->c.ctx, ebb_safetensors_save_file(b->c.ctx, to, tensors, count, NULL), to);
    ebb_safetensors_close(b->c.ctx, set);
    snprintf(path, sizeof path, "%s/adapter_config.json", b->c.adapter_dir);
    snprintf(to, sizeof to, "%s/adapter/adapter_config.json", b->dir);
    kit_ok(b->c.ctx, ebb_file_copy(b->c.ctx, path, to), to);
    snprintf(b->c.adapter_dir, sizeof b->c.adapter_dir, "%s/adapter", b->dir);
}

static void missing_modules_are_named(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, "mistral_lora");
    edit_adapter(&b, (struct edit){.drop = "layers.1.mlp.up_proj"});
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE,
                 "lacks 2 of the 28 tensors that its target_modules and the model '", 1);
    bench_close(&b);
    bench_open(&b, "mistral_lora");
    edit_adapter(&b, (struct edit){.drop = "layers.1.mlp.up_proj.lora_B"});
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE,
                 "ask for: 'base_model.model.model.layers.1.mlp.up_proj.lora_B.weight'", 1);
    bench_close(&b);
    bench_open(&b, "mistral_lora");
    edit_adapter(&b, (struct edit){.drop = "lora_A"});
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE, "' and 10 more", 1);
    bench_close(&b);
}

static void tensors_that_nothing_uses_are_named(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, "llama3_lora"); /* seven modules in the file, two in the configuration */
    char path[700], to[700];
    edit_adapter(&b, (struct edit){.drop = NULL});
    snprintf(path, sizeof path, "%s/tests/golden/models/llama3_lora_qv/adapter/adapter_config.json",
             EBB_SOURCE_DIR);
    snprintf(to, sizeof to, "%s/adapter_config.json", b.c.adapter_dir);
    kit_ok(b.c.ctx, ebb_file_copy(b.c.ctx, path, to), to);
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE,
                 "holds 30 tensors that nothing in its target_modules", 1);
    (void)merge(&b, true, EBB_F32);
    want_refusal(&b, EBB_BAD_FILE, EBB_BAD_FILE,
                 "would drop them: 'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight', ",
                 1);
    bench_close(&b);
}

static void shapes_that_do_not_fit_the_base_are_refused(void **state)
{
    static const char name[] = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight";
    struct bench b;
    (void)state;
    bench_open(&b, "mistral_lora");
    edit_adapter(&b, (struct edit){.transpose = name});
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE,
                 "down_proj.lora_A.weight' is [48, 4], but 'r' is 4 and the model's "
                 "'model.layers.0.mlp.down_proj.weight' is [32, 48], which asks for [4, 48]",
                 1);
    bench_close(&b);
    /* qwen3's projections have other widths under the same names, in as many layers */
    bench_open(&b, "mistral_lora");
    snprintf(b.c.adapter_dir, sizeof b.c.adapter_dir, "%s/tests/golden/models/qwen3_lora/adapter",
             EBB_SOURCE_DIR);
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE,
                 "the adapter was made for another model", 0);
    bench_close(&b);
}

static void a_base_that_lacks_a_weight_or_an_adapter_without_files_is_refused(void **state)
{
    struct bench b;
    char path[700], to[700];
    (void)state;
    bench_open(&b,
               "llama3_lora"); /* three layers are wanted, and the file of another family has two */
    snprintf(to, sizeof to, "%s/base", b.dir);
    kit_ok(b.c.ctx, ebb_dir_create(b.c.ctx, to), to);
    snprintf(path, sizeof path, "%s/config.json", b.c.model_dir);
    snprintf(to, sizeof to, "%s/base/config.json", b.dir);
    kit_ok(b.c.ctx, ebb_file_copy(b.c.ctx, path, to), to);
    snprintf(path, sizeof path, "%s/tests/golden/models/mistral/model.safetensors", EBB_SOURCE_DIR);
    snprintf(to, sizeof to, "%s/base/model.safetensors", b.dir);
    kit_ok(b.c.ctx, ebb_file_copy(b.c.ctx, path, to), to);
    snprintf(b.c.model_dir, sizeof b.c.model_dir, "%s/base", b.dir);
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE, "tensor 'model.layers.2.", 1);
    snprintf(b.c.adapter_dir, sizeof b.c.adapter_dir, "%s", b.c.model_dir);
    want_refusal(&b, merge(&b, true, EBB_F32), EBB_BAD_FILE,
                 "is no adapter: it has no adapter_config.json", 1);
    bench_close(&b);
}

static void values_beyond_float16_are_refused(void **state)
{
    struct bench b;
    (void)state;
    bench_open(&b, "mistral_lora");
    edit_adapter(&b, (struct edit){.huge = "layers.1.self_attn.v_proj"});
    want_refusal(&b, merge(&b, false, EBB_F16), EBB_FAILED,
                 "'model.layers.1.self_attn.v_proj.weight' would hold values that are infinite or "
                 "not a number in float16",
                 1);
    kit_ok(b.c.ctx, merge(&b, false, EBB_BF16), "bfloat16 holds them");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_logits_are_those_of_base_and_adapter),
        cmocka_unit_test(what_the_adapter_does_not_touch_stays_byte_by_byte),
        cmocka_unit_test(the_result_is_a_model_directory_without_adapter_files),
        cmocka_unit_test(a_forced_dtype_is_the_fp32_result_rounded_once),
        cmocka_unit_test(a_sharded_result_holds_the_same_tensors),
        cmocka_unit_test(an_output_that_holds_something_is_refused),
        cmocka_unit_test(an_empty_directory_a_new_one_and_a_link_are_taken),
        cmocka_unit_test(what_a_killed_merge_left_is_replaced),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_behind),
        cmocka_unit_test(missing_modules_are_named),
        cmocka_unit_test(tensors_that_nothing_uses_are_named),
        cmocka_unit_test(shapes_that_do_not_fit_the_base_are_refused),
        cmocka_unit_test(a_base_that_lacks_a_weight_or_an_adapter_without_files_is_refused),
        cmocka_unit_test(values_beyond_float16_are_refused),
    };
    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
