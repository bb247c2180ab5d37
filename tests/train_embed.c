/* Input embeddings that are not on the device: a run that reads their rows from the model's file
 * has the bits of one with the table on the device, whatever the file's type, takes less memory by
 * exactly the table, and keeps the table where the rows do not fit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_dir.h"
#include "train_kit.h"
#include "train_modes.h"

#include <unistd.h>

#include "train/engine_int.h"

enum { CACHE = 80, PROMPT = 70 }; /* three tiles */

static const enum ebb_dtype file_types[] = {EBB_F32, EBB_BF16, EBB_F16};
enum { FILE_TYPES = (int)(sizeof file_types / sizeof file_types[0]) };

/* A request that can do everything, with the numerics that it borrows. */
struct setting {
    struct ebb_numerics numerics;
    struct ebb_engine_request request;
};

static void set(struct setting *s, const struct kit_case *c, enum ebb_dtype storage, bool tables)
{
    s->numerics = kit_numerics(storage);
    s->request = kit_request(c, &s->numerics);
    s->request.storage = storage;
    s->request.evaluate = s->request.decode = true;
    s->request.capacity.cache_tokens = CACHE;
    if (tables) kit_keep_tables(&s->request);
}

/* Bytes of one row a token of the model's embedding, and of the whole of it. */
static int64_t rows_bytes(const struct ebb_engine *engine)
{
    return KIT_TOKENS * ebb_engine_config(engine)->width *
           ebb_dtype_bytes(ebb_engine_plan(engine)->request.numerics.storage);
}

static int64_t table_bytes(const struct ebb_engine *engine)
{
    int64_t bytes = rows_bytes(engine) / KIT_TOKENS * ebb_engine_config(engine)->vocab;
    assert_int_equal(bytes % EBB_ALIGN_BYTES, 0);
    return bytes;
}

/* ---- same bits ------------------------------------------------------------------------------- */

/* Everything that a run says. */
struct words {
    struct ebb_sums train, eval;
    float *grads, *logits;
    char *file; /* the model as it is saved */
    size_t file_bytes;
    uint64_t weights;
};

static void free_words(struct words *w)
{
    free(w->grads);
    free(w->logits);
    free(w->file);
}

static void save(struct kit_case *c, struct ebb_engine *engine, enum ebb_dtype dtype,
                 const char *dir, struct words *w)
{
    char path[200];
    struct ebb_map map;
    kit_ok(c->ctx, ebb_engine_save_model(engine, dir, dtype), "save");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    kit_ok(c->ctx, ebb_map_open(c->ctx, path, &map), "saved model");
    w->file = (char *)malloc(map.bytes);
    w->file_bytes = map.bytes;
    memcpy(w->file, map.data, map.bytes);
    ebb_map_close(&map);
}

static uint64_t hash_weights(struct kit_case *c, const struct ebb_engine *engine)
{
    const struct ebb_weight_list *list = ebb_engine_weights(engine);
    const struct ebb_net *net = ebb_engine_net(engine);
    uint64_t hash = 0;
    for (int64_t i = 0; i < list->count; i++) {
        struct ebb_view view = ebb_decoder_weight(net, i);
        assert_int_equal(view.cols, list->items[i].cols);
        size_t bytes = (size_t)(list->items[i].rows * view.cols) *
                       (size_t)ebb_dtype_bytes((enum ebb_dtype)view.dtype);
        void *copy = malloc(bytes);
        kit_ok(c->ctx, ebb_engine_get_weight(engine, net, i, 0, list->items[i].rows, copy), "get");
        hash = 31 * hash + ebb_hash_bytes(copy, bytes);
        free(copy);
    }
    return hash;
}

static struct words listen(struct kit_case *c, const struct ebb_engine_request *request,
                           enum ebb_dtype dtype, const char *out)
{
    struct words w;
    struct ebb_engine *engine = kit_engine(c->ctx, request);
    const struct ebb_net *net = ebb_engine_net(engine);
    const struct kit_batch *b = c->batches[0][0];
    const float *logits;
    int32_t prompt[PROMPT];
    int64_t values, all;
    memset(&w, 0, sizeof w);
    assert_true(kit_has_rows(engine) == (request->host_budget == 0));
    ebb_engine_parameters(engine, &values, &all);
    w.grads = (float *)calloc((size_t)values, sizeof *w.grads);
    ebb_engine_begin(engine);
    kit_ok(c->ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &b->batch, 1, 0), "train");
    w.train = ebb_engine_sums(engine);
    float *at = w.grads;
    for (int32_t i = 0; i < net->param_count; i++) {
        kit_ok(c->ctx, ebb_engine_read_grad(engine, &net->params[i], at), "gradient");
        at += net->params[i].w.rows * net->params[i].w.cols;
    }
    ebb_engine_begin(engine);
    kit_ok(c->ctx, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &b->batch, 1, 0), "evaluate");
    w.eval = ebb_engine_sums(engine);
    for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 31 + 7) % 96;
    kit_ok(c->ctx, ebb_engine_decode(engine, prompt, PROMPT, 0, &logits), "decode");
    kit_ok(c->ctx, ebb_engine_decode(engine, prompt, 1, PROMPT, &logits), "decode one");
    size_t bytes = (size_t)ebb_engine_config(engine)->vocab * sizeof *w.logits;
    w.logits = (float *)malloc(bytes);
    memcpy(w.logits, logits, bytes);
    w.weights = hash_weights(c, engine);
    save(c, engine, dtype, out, &w);
    ebb_engine_free(engine);
    return w;
}

static void check_types(struct kit_case *c, const char *dir, enum ebb_dtype file,
                        enum ebb_dtype storage)
{
    char out[100];
    struct setting table, rows;
    struct ebb_model_config *config;
    int64_t values, all;
    snprintf(out, sizeof out, "%s-saved", dir);
    set(&table, c, storage, true);
    set(&rows, c, storage, false);
    table.request.model_dir = rows.request.model_dir = dir;
    struct words want = listen(c, &table.request, file, out),
                 got = listen(c, &rows.request, file, out);
    assert_memory_equal(&want.train, &got.train, sizeof want.train);
    assert_memory_equal(&want.eval, &got.eval, sizeof want.eval);
    assert_true(isfinite(want.train.loss) && want.train.loss > 0);
    struct ebb_engine *engine;
    kit_ok(c->ctx, ebb_engine_create(c->ctx, &rows.request, &engine), "create");
    ebb_engine_parameters(engine, &values, &all);
    ebb_engine_free(engine);
    assert_memory_equal(want.grads, got.grads, (size_t)values * sizeof *want.grads);
    kit_ok(c->ctx, ebb_model_config_load(c->ctx, dir, &config), "config");
    assert_memory_equal(want.logits, got.logits, (size_t)config->vocab * sizeof *want.logits);
    ebb_model_config_free(c->ctx, config);
    assert_true(want.weights == got.weights);
    assert_int_equal(want.file_bytes, got.file_bytes);
    assert_memory_equal(want.file, got.file, want.file_bytes);
    free_words(&want);
    free_words(&got);
}

static void rows_have_the_bits_of_the_table_for_every_file_type(void **state)
{
    static const char *const cases[] = {"mistral_lora", "qwen3_lora"};
    for (int k = 0; k < 2; k++) {
        struct kit_case c;
        struct setting s;
        kit_case_open(&c, cases[k]);
        set(&s, &c, EBB_F32, false);
        struct ebb_engine *engine = kit_engine(c.ctx, &s.request);
        for (int f = 0; f < FILE_TYPES; f++) {
            char dir[96];
            snprintf(dir, sizeof dir, "%s/%s%d", (const char *)*state, cases[k], f);
            kit_ok(c.ctx, ebb_engine_save_model(engine, dir, file_types[f]), dir);
            check_types(&c, dir, file_types[f], EBB_F32);
            check_types(&c, dir, file_types[f], EBB_BF16);
        }
        ebb_engine_free(engine);
        assert_int_equal(ebb_mem_bytes_now(c.ctx), 0);
        kit_case_close(&c);
    }
}

/* Many documents of few tokens behind few of many: no row of an earlier micro-batch shows. */
static void what_ran_before_changes_no_bit(void **state)
{
    struct kit_case c;
    struct setting s;
    struct kit_batch full;
    int32_t ids[KIT_TOKENS];
    uint8_t mask[KIT_TOKENS];
    double first = 0;
    const float *logits;
    (void)state;
    kit_case_open(&c, "mistral_lora");
    kit_batch_begin(&full);
    for (int i = 0; i < KIT_TOKENS; i++) ids[i] = (i * 17 + 3) % 96;
    memset(mask, 1, sizeof mask);
    kit_batch_add(&full, ids, mask, KIT_TOKENS);
    set(&s, &c, EBB_BF16, false);
    struct ebb_engine *engine = kit_engine(c.ctx, &s.request);
    for (int i = 0; i < 3; i++) {
        ebb_engine_begin(engine);
        kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &c.batches[0][0]->batch, 1, 0),
               "evaluate");
        double loss = ebb_engine_sums(engine).loss;
        if (i == 0) first = loss;
        assert_memory_equal(&first, &loss, sizeof loss);
        if (i == 0)
            kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_TRAIN, &full.batch, 1, 1), "train");
        else
            kit_ok(c.ctx, ebb_engine_decode(engine, ids, CACHE, 0, &logits), "decode");
    }
    ebb_engine_free(engine);
    kit_case_close(&c);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct ebb_engine *create(struct kit_case *c, const struct ebb_engine_request *request)
{
    struct ebb_engine *engine;
    kit_ok(c->ctx, ebb_engine_create(c->ctx, request, &engine), "create");
    return engine;
}

/* Layer 0's input is home already, so of what goes to the host that slot is not. */
static void check_way(struct kit_case *c, const struct mode *mode, enum ebb_dtype storage)
{
    struct setting table, rows;
    set(&table, c, storage, true);
    set(&rows, c, storage, false);
    table.request.memory = rows.request.memory = mode->keys;
    table.request.memory.rules = rows.request.memory.rules = mode->rules;
    if (mode->keys.offload_params == EBB_AUTO) /* what moves fits no budget of the table's engine */
        table.request.memory.offload_params = EBB_FALSE;
    struct ebb_engine *a = create(c, &table.request), *b = kit_engine(c->ctx, &rows.request);
    const struct ebb_plan *want = ebb_engine_plan(a), *got = ebb_engine_plan(b);
    int64_t own = rows_bytes(b);
    bool away = want->policies.at[0][X] == EBB_POLICY_HOST;
    assert_false(kit_has_rows(a));
    assert_true(kit_has_rows(b));
    assert_int_equal(want->kind_bytes[EBB_KIND_WEIGHTS] - got->kind_bytes[EBB_KIND_WEIGHTS],
                     table_bytes(b));
    assert_int_equal(want->bytes_out - got->bytes_out, away ? own : 0);
    /* In for forward, and for backward instead of being made from the table. */
    bool again = got->policies.at[0][X] == EBB_POLICY_RECOMPUTE;
    assert_int_equal(got->bytes_in - want->bytes_in, again ? 2 * own : own);
    assert_int_equal(got->host_bytes, want->host_bytes + (away ? 0 : own));
    assert_int_equal(ebb_engine_usage(b).host_bytes, got->host_bytes);
    if (want->bytes_out == 0) /* else what moves ahead may lie elsewhere */
        assert_int_equal(want->device_bytes - got->device_bytes, table_bytes(b));
    ebb_engine_free(a);
    ebb_engine_free(b);
}

static void the_plan_is_smaller_by_the_table(void **state)
{
    static const struct mode keep = {"",
                                     {EBB_FALSE, EBB_FALSE, NULL, 0, EBB_AUTO, EBB_AUTO},
                                     {{0, 0, 0, 0, 0}}};
    struct kit_case c;
    (void)state;
    kit_case_open(&c, "mistral_lora");
    for (int storage = 0; storage < 2; storage++) {
        check_way(&c, &keep, storage ? EBB_BF16 : EBB_F32);
        for (int i = 0; i < MODES; i++) check_way(&c, &modes[i], storage ? EBB_BF16 : EBB_F32);
    }
    kit_case_close(&c);
}

static void expect_rows(struct kit_case *c, const struct ebb_engine_request *request, bool rows)
{
    struct ebb_engine *engine = create(c, request);
    assert_true(kit_has_rows(engine) == rows);
    ebb_engine_free(engine);
}

static void too_little_host_memory_keeps_the_table_on_the_device(void **state)
{
    struct kit_case c;
    struct setting s;
    (void)state;
    kit_case_open(&c, "mistral_lora");
    set(&s, &c, EBB_F32, false);
    struct ebb_engine *engine = create(&c, &s.request);
    int64_t own = rows_bytes(engine);
    assert_int_equal(ebb_engine_plan(engine)->host_bytes, own);
    ebb_engine_free(engine);
    s.request.host_budget = own;
    expect_rows(&c, &s.request, true);
    s.request.host_budget = own - 1;
    expect_rows(&c, &s.request, false);
    /* With what moves out beside it: all slots of all layers, but one home is the rows' own. */
    static const struct ebb_policy_rule qkv = {0, -1, 0, QKV, EBB_POLICY_HOST};
    s.request.memory = (struct ebb_memory_keys){EBB_AUTO, EBB_AUTO, &qkv, 1, EBB_AUTO, EBB_AUTO};
    s.request.host_budget = 0;
    engine = create(&c, &s.request);
    int64_t all = ebb_engine_plan(engine)->host_bytes;
    ebb_engine_free(engine);
    s.request.host_budget = all;
    expect_rows(&c, &s.request, true);
    s.request.host_budget = all - 1; /* fits, with the table on the device */
    engine = create(&c, &s.request);
    assert_false(kit_has_rows(engine));
    assert_true(ebb_engine_plan(engine)->fits);
    ebb_engine_free(engine);
    s.request.host_budget = own + 1; /* fits in no way: then what needs less of the device */
    engine = create(&c, &s.request);
    assert_true(kit_has_rows(engine));
    assert_false(ebb_engine_plan(engine)->fits);
    ebb_engine_free(engine);
    kit_case_close(&c);
}

static void trained_and_tied_embeddings_stay_on_the_device(void **state)
{
    static const char *const cases[] = {"mistral", "llama3", "llama3_lora"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct kit_case c;
        struct setting s;
        kit_case_open(&c, cases[k]);
        set(&s, &c, EBB_F32, false);
        expect_rows(&c, &s.request, false);
        s.request.train = false; /* nothing is trained: only one that is the head has to stay */
        expect_rows(&c, &s.request, k == 0);
        kit_case_close(&c);
    }
}

/* ---- ids ------------------------------------------------------------------------------------- */

static void refuse(struct kit_case *c, enum ebb_status status, const char *text)
{
    assert_int_equal(status, EBB_FAILED);
    if (!strstr(ebb_error_text(c->ctx), text))
        fail_msg("'%s' has no '%s'", ebb_error_text(c->ctx), text);
    ebb_error_clear(c->ctx);
}

static void ids_that_are_no_row_are_refused(void **state)
{
    struct kit_case c;
    const float *logits;
    (void)state;
    kit_case_open(&c, "mistral_lora");
    for (int tables = 0; tables < 2; tables++) {
        struct setting s;
        set(&s, &c, EBB_F32, tables != 0);
        struct ebb_engine *engine = kit_engine(c.ctx, &s.request);
        int32_t vocab = (int32_t)ebb_engine_config(engine)->vocab, bad[2] = {1, vocab};
        struct kit_batch b = *c.batches[0][0];
        b.batch.ids = b.ids;
        b.ids[2] = -1;
        refuse(&c, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &b.batch, 1, 0),
               "token 2 has id -1, the embedding has 96 rows");
        refuse(&c, ebb_engine_decode(engine, bad, 2, 0, &logits),
               "token 1 has id 96, the embedding has 96 rows");
        ebb_engine_begin(engine);
        kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &c.batches[0][0]->batch, 1, 0),
               "after it");
        assert_true(ebb_engine_sums(engine).loss > 0);
        ebb_engine_free(engine);
    }
    kit_case_close(&c);
}

/* The model's folder may be saved over, or be gone, while a run reads from it. */
static void a_model_that_is_saved_over_is_still_read(void **state)
{
    struct kit_case c;
    struct setting s;
    char dir[96];
    double first = 0;
    kit_case_open(&c, "mistral_lora");
    set(&s, &c, EBB_F32, false);
    snprintf(dir, sizeof dir, "%s/over", (const char *)*state);
    struct ebb_engine *engine = kit_engine(c.ctx, &s.request);
    kit_ok(c.ctx, ebb_engine_save_model(engine, dir, EBB_F32), "copy");
    ebb_engine_free(engine);
    s.request.model_dir = dir;
    engine = kit_engine(c.ctx, &s.request);
    for (int i = 0; i < 3; i++) {
        if (i == 1) kit_ok(c.ctx, ebb_engine_save_model(engine, dir, EBB_BF16), "save over");
        if (i == 2) kit_ok(c.ctx, ebb_dir_remove(c.ctx, dir), "remove");
        ebb_engine_begin(engine);
        kit_ok(c.ctx, ebb_engine_micro(engine, EBB_PROGRAM_EVAL, &c.batches[0][0]->batch, 1, 0),
               "evaluate");
        double loss = ebb_engine_sums(engine).loss;
        if (i == 0) first = loss;
        assert_true(loss > 0 && memcmp(&loss, &first, sizeof loss) == 0);
    }
    ebb_engine_free(engine);
    kit_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_have_the_bits_of_the_table_for_every_file_type,
                                        train_dir_open, train_dir_close),
        cmocka_unit_test(what_ran_before_changes_no_bit),
        cmocka_unit_test(the_plan_is_smaller_by_the_table),
        cmocka_unit_test(too_little_host_memory_keeps_the_table_on_the_device),
        cmocka_unit_test(trained_and_tied_embeddings_stay_on_the_device),
        cmocka_unit_test(ids_that_are_no_row_are_refused),
        cmocka_unit_test_setup_teardown(a_model_that_is_saved_over_is_still_read, train_dir_open,
                                        train_dir_close),
    };
    return cmocka_run_group_tests_name("embeddings", tests, NULL, NULL);
}
