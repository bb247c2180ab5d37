/* Which documents go together in cuDNN's attention, and the bytes reserved for them: rules that
 * need no GPU. Random capacities, and for each random documents within them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include "op_test.h"

enum { CASES = 3000, RUNS = 12, DOCS = 3000, FORMS = 256 };

struct world {
    uint64_t random;
    struct ebb_attention_shape shape;
    struct ebb_cudnn_options options;
    struct ebb_cudnn_frame frame;
    int64_t docs, longest, reserved; /* capacities; bytes */
    struct ebb_cudnn_form form[FORMS];
    int forms;
    /* a run */
    struct ebb_cudnn_input input;
    struct ebb_cudnn_sizes sizes;
    int32_t starts[DOCS + 1];
    uint8_t seen[DOCS];
    int64_t calls;
};

/* In [low, high]. */
static int64_t draw(struct world *w, int64_t low, int64_t high)
{
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return low + (int64_t)((z ^ (z >> 31)) % (uint64_t)(high - low + 1));
}

/* As many of each size as of twice that size; often a whole number of pieces. */
static int64_t draw_size(struct world *w, int64_t high)
{
    int64_t top = high;
    while (top > 1 && draw(w, 0, 2) > 0) top /= 2;
    int64_t size = draw(w, 1, top);
    return draw(w, 0, 2) == 0 && size > 1024 ? size / 1024 * 1024 : size;
}

static void draw_capacity(struct world *w)
{
    static const int64_t dims[] = {64, 80, 128}, blocks[] = {0, 128, 256, 1000, 4096};
    int64_t dim = dims[draw(w, 0, 2)], kv_heads = (int64_t)1 << draw(w, 0, 3);
    w->shape = (struct ebb_attention_shape){.heads = kv_heads * draw(w, 1, 7),
                                            .kv_heads = kv_heads,
                                            .qk_dim = dim,
                                            .v_dim = dim,
                                            .scale = 1};
    w->options = (struct ebb_cudnn_options){.deterministic = draw(w, 0, 1) == 1,
                                            .kv_heads = draw(w, 0, 1) * (kv_heads + 1) / 2,
                                            .block = blocks[draw(w, 0, 4)],
                                            .exact = draw(w, 0, 3) == 0};
    w->frame =
        (struct ebb_cudnn_frame){&w->shape, &w->options, draw_size(w, 1 << 18), draw(w, 0, 1) == 1};
    w->longest = draw(w, 0, 2) == 0 ? w->frame.rows : draw_size(w, w->frame.rows);
    w->docs = draw(w, 0, 3) == 0 ? 0 : draw_size(w, DOCS);
    w->reserved =
        ebb_cudnn_workspace(&w->shape, w->frame.rows, w->longest, w->frame.backward, &w->options);
}

static bool same_form(const struct ebb_cudnn_form *a, const struct ebb_cudnn_form *b)
{
    return a->batch == b->batch && a->slot == b->slot && a->ragged == b->ragged &&
           a->causal == b->causal && a->piece == b->piece;
}

static bool is_prepared(const struct world *w, const struct ebb_cudnn_form *form)
{
    for (int i = 0; i < w->forms; i++)
        if (same_form(&w->form[i], form)) return true;
    return false;
}

static enum ebb_status keep_form(void *user, const struct ebb_cudnn_form *form,
                                 const struct ebb_cudnn_docs *docs)
{
    struct world *w = user;
    assert_null(docs);
    assert_true(w->forms < FORMS);
    assert_false(is_prepared(w, form));
    w->form[w->forms++] = *form;
    return EBB_OK;
}

static void draw_run(struct world *w)
{
    int64_t docs = draw_size(w, w->docs > 0 ? w->docs : DOCS), left = w->frame.rows;
    if (draw(w, 0, 3) > 0) left = draw_size(w, left);
    w->input = (struct ebb_cudnn_input){w->starts, docs, 0};
    for (int64_t i = 0; i < docs; i++) {
        int64_t most = left < w->longest ? left : w->longest, rows = 0;
        if (most > 0 && draw(w, 0, 7) > 0) rows = draw(w, 0, 1) ? most : draw_size(w, most);
        if (i > 0 && docs > 4 && rows > 2 * w->frame.rows / docs) rows = draw_size(w, rows / 8 + 1);
        w->starts[i + 1] = w->starts[i] + (int32_t)rows;
        left -= rows;
        if (rows > w->input.longest) w->input.longest = rows;
    }
    bool blocks = w->options.deterministic || w->input.longest > EBB_CUDNN_SPAN;
    if (draw(w, 0, 5) == 0 && !blocks) w->input.starts = NULL;
    memset(w->seen, 0, sizeof w->seen);
}

/* What a run takes before the library's own workspace; the library gets the rest. */
static int64_t taken(const struct ebb_cudnn_sizes *s)
{
    const int64_t a = EBB_CUDNN_ALIGN;
    int64_t bytes[8] = {s->delta,   s->sum,      s->part[0],  s->part[1],
                        s->part[2], s->whole[0], s->whole[1], s->whole[2]};
    int64_t all = a - 1; /* a scratch that starts just behind a multiple */
    all += EBB_CUDNN_DATA * ((EBB_CUDNN_OFFSETS_BYTES + a - 1) / a * a);
    all += 2 * ((EBB_CUDNN_LENGTHS_BYTES + a - 1) / a * a);
    for (int i = 0; i < 8; i++) all += (bytes[i] + a - 1) / a * a;
    return all;
}

static void check_bytes(const struct world *w, const struct ebb_cudnn_form *form)
{
    const struct ebb_cudnn_sizes *s = &w->sizes;
    int64_t plan = ebb_cudnn_form_workspace(&w->frame, form);
    int64_t slots = form->batch * form->slot * s->heads;
    assert_true(plan <= s->plan && taken(s) + plan <= w->reserved);
    if (!w->frame.backward) return;
    assert_true(slots * 4 <= s->delta);
    if (!w->options.deterministic) assert_true(slots * w->shape.qk_dim * 4 <= s->sum);
}

static int64_t length(const struct world *w, int64_t doc)
{
    return w->starts[doc + 1] - w->starts[doc];
}

static enum ebb_status check_call(void *user, const struct ebb_cudnn_form *form,
                                  const struct ebb_cudnn_docs *docs)
{
    struct world *w = user;
    w->calls++;
    assert_true(is_prepared(w, form));
    check_bytes(w, form);
    if (form->piece) {
        struct ebb_cudnn_form other = *form;
        other.causal = !form->causal;
        assert_true(is_prepared(w, &other));
        assert_true(length(w, docs->from[0]) > form->slot);
    }
    if (!form->ragged) {
        assert_null(docs);
        assert_int_equal(w->input.longest, form->slot);
        for (int64_t i = 0; i < w->input.docs; i++) w->seen[i]++;
        return EBB_OK;
    }
    assert_int_equal(docs->batch, form->batch);
    assert_true(docs->count >= 1 && docs->count <= docs->batch);
    if (w->options.exact) assert_int_equal(docs->count, docs->batch);
    for (int32_t i = 0; i < docs->count; i++) {
        w->seen[docs->from[i]]++;
        assert_true(form->piece || length(w, docs->from[i]) <= form->slot);
    }
    if (docs->count > 1)
        assert_true(w->starts[docs->from[docs->count - 1] + 1] - w->starts[docs->from[0]] <=
                    EBB_CUDNN_SPAN);
    if (w->frame.backward && !form->piece) assert_true(length(w, docs->from[0]) <= EBB_CUDNN_SPAN);
    return EBB_OK;
}

static void check_run(struct world *w)
{
    w->sizes = ebb_cudnn_sizes(&w->frame, w->input.longest);
    assert_int_equal(ebb_cudnn_split(&w->frame, &w->input, check_call, w), EBB_OK);
    for (int64_t i = 0; i < w->input.docs; i++)
        if (length(w, i) > 0) assert_int_equal(w->seen[i], 1);
    int64_t less = ebb_cudnn_workspace(&w->shape, w->starts[w->input.docs], w->input.longest,
                                       w->frame.backward, &w->options);
    assert_true(less <= w->reserved);
}

static struct world *world_create(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = seed;
    return w;
}

static void runs_within_a_capacity_meet_only_what_was_prepared_and_reserved(void **state)
{
    (void)state;
    struct world *w = world_create(1);
    int64_t most = 0;
    for (int i = 0; i < CASES; i++) {
        draw_capacity(w);
        w->forms = 0;
        assert_int_equal(ebb_cudnn_forms(&w->frame, w->docs, w->longest, keep_form, w), EBB_OK);
        if (!w->options.exact && w->forms > most) most = w->forms;
        for (int k = 0; k < RUNS; k++) {
            draw_run(w);
            check_run(w);
        }
    }
    assert_true(w->calls > CASES * RUNS);
    assert_true(most <= 50); /* half a second each, once */
    free(w);
}

static void more_tokens_or_longer_documents_never_need_less(void **state)
{
    (void)state;
    struct world *w = world_create(2);
    for (int i = 0; i < 20 * CASES; i++) {
        draw_capacity(w);
        int64_t tokens = w->frame.rows + draw_size(w, 5000), longest = w->longest;
        longest += draw(w, 0, 1) * draw_size(w, 5000);
        int64_t more =
            ebb_cudnn_workspace(&w->shape, tokens, longest, w->frame.backward, &w->options);
        assert_true(more >= w->reserved);
    }
    free(w);
}

/* A call as a test of small inputs sees it. */
struct record {
    int count;
    struct ebb_cudnn_form form[16];
    struct ebb_cudnn_docs docs[16];
};

static enum ebb_status write_down(void *user, const struct ebb_cudnn_form *form,
                                  const struct ebb_cudnn_docs *docs)
{
    struct record *r = user;
    assert_true(r->count < 16);
    if (docs != NULL) r->docs[r->count] = *docs;
    r->form[r->count++] = *form;
    return EBB_OK;
}

static struct record record_of(const struct ebb_cudnn_options *options, int64_t rows, int64_t docs,
                               const int32_t *starts)
{
    const struct ebb_attention_shape shape = {
        .heads = 4, .kv_heads = 2, .qk_dim = 64, .v_dim = 64, .scale = 1};
    const struct ebb_cudnn_frame frame = {&shape, options, rows, true};
    struct ebb_cudnn_input input = {starts, docs, 0};
    struct record r;
    memset(&r, 0, sizeof r);
    for (int64_t i = 0; i < docs; i++)
        if (starts[i + 1] - starts[i] > input.longest) input.longest = starts[i + 1] - starts[i];
    assert_int_equal(ebb_cudnn_split(&frame, &input, write_down, &r), EBB_OK);
    return r;
}

static void five_short_documents_go_in_one_call_of_sixteen(void **state)
{
    (void)state;
    static const int32_t starts[] = {0, 10, 10, 110, 120, 248, 249};
    const struct ebb_cudnn_options padded = {.block = 0}, exact = {.exact = true};
    struct record r = record_of(&padded, 4096, 6, starts);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.form[0].batch, 16);
    assert_int_equal(r.form[0].slot, 128);
    assert_int_equal(r.docs[0].count, 5);
    assert_int_equal(r.docs[0].from[1], 2); /* document 1 has no tokens */
    r = record_of(&exact, 4096, 6, starts);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.form[0].batch, 4);
    assert_int_equal(r.form[1].batch, 1);
    assert_int_equal(r.docs[1].from[0], 5);
}

static void only_a_document_that_fills_the_capacity_is_plain(void **state)
{
    (void)state;
    static const int32_t lone[] = {0, 2048}, beside[] = {0, 0, 2048}, two[] = {0, 1024, 2048};
    const struct ebb_cudnn_options options = {.block = 0};
    struct record r = record_of(&options, 2048, 1, lone);
    assert_int_equal(r.count, 1);
    assert_false(r.form[0].ragged);
    assert_int_equal(r.form[0].slot, 2048);
    r = record_of(&options, 2048, 2, beside);
    assert_false(r.form[0].ragged);
    r = record_of(&options, 4096, 1, lone);
    assert_true(r.form[0].ragged);
    r = record_of(&options, 2048, 2, two);
    assert_int_equal(r.count, 1);
    assert_true(r.form[0].ragged);
    assert_int_equal(r.docs[0].count, 2);
}

static void long_documents_go_in_blocks_only_if_deterministic(void **state)
{
    (void)state;
    static const int32_t starts[] = {0, 1000, 1100, 3000};
    const struct ebb_cudnn_options blocks = {.deterministic = true, .block = 512},
                                   whole = {.block = 512};
    struct record r = record_of(&blocks, 4096, 3, starts);
    assert_int_equal(r.count, 3);
    assert_true(r.form[0].piece && r.form[1].piece && !r.form[2].piece);
    assert_int_equal(r.form[0].slot, 512);
    assert_int_equal(r.docs[0].from[0], 0);
    assert_int_equal(r.docs[1].from[0], 2);
    assert_int_equal(r.docs[2].from[0], 1);
    const struct ebb_attention_shape shape = {
        .heads = 4, .kv_heads = 2, .qk_dim = 64, .v_dim = 64, .scale = 1};
    const struct ebb_cudnn_frame frame = {&shape, &blocks, 65536, true};
    assert_int_equal(ebb_cudnn_sizes(&frame, 512).plan, ebb_cudnn_sizes(&frame, 65536).plan);
    r = record_of(&whole, 4096, 3, starts);
    assert_int_equal(r.count, 2);
    assert_false(r.form[0].piece || r.form[1].piece);
}

static void what_would_be_far_from_its_call_goes_in_others(void **state)
{
    (void)state;
    static const int32_t spread[] = {0, 100, EBB_CUDNN_SPAN, EBB_CUDNN_SPAN + 100},
                         lone[] = {0, EBB_CUDNN_SPAN + 1024}, most[] = {0, EBB_CUDNN_SPAN};
    const struct ebb_cudnn_options options = {.block = 512};
    struct record r = record_of(&options, 1 << 18, 3, spread);
    assert_int_equal(r.count, 3);
    assert_int_equal(r.docs[0].count, 1);
    assert_int_equal(r.docs[1].from[0], 2);
    assert_int_equal(r.docs[2].from[0], 1);
    r = record_of(&options, EBB_CUDNN_SPAN + 1024, 1, lone);
    assert_int_equal(r.count, 1);
    assert_true(r.form[0].piece);
    assert_int_equal(r.form[0].slot, 65536);
    r = record_of(&options, EBB_CUDNN_SPAN, 1, most);
    assert_false(r.form[0].piece || r.form[0].ragged);
}

static void what_it_cannot_run_is_said(void **state)
{
    (void)state;
    char why[128];
    struct ebb_attention_shape s = {
        .heads = 4, .kv_heads = 2, .qk_dim = 64, .v_dim = 64, .scale = 1};
    assert_true(ebb_cudnn_takes(&s, EBB_BF16, why, sizeof why));
    assert_string_equal(why, "");
    assert_false(ebb_cudnn_takes(&s, EBB_F32, why, sizeof why));
    assert_string_equal(why, "it takes bf16 only");
    s.softcap = 30;
    assert_false(ebb_cudnn_takes(&s, EBB_BF16, why, sizeof why));
    assert_string_equal(why, "it has no softcap");
    s.softcap = 0;
    s.v_dim = 32;
    assert_false(ebb_cudnn_takes(&s, EBB_BF16, NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_within_a_capacity_meet_only_what_was_prepared_and_reserved),
        cmocka_unit_test(more_tokens_or_longer_documents_never_need_less),
        cmocka_unit_test(five_short_documents_go_in_one_call_of_sixteen),
        cmocka_unit_test(only_a_document_that_fills_the_capacity_is_plain),
        cmocka_unit_test(long_documents_go_in_blocks_only_if_deterministic),
        cmocka_unit_test(what_would_be_far_from_its_call_goes_in_others),
        cmocka_unit_test(what_it_cannot_run_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
