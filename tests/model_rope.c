/* Rotary tables: the frequencies and angles that transformers has, to float32 rounding.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_test.h"

#include <math.h>

#include "model/rope.h"

struct kind {
    const char *name;
    int64_t head_dim;
    struct ebb_rope rope;
};

/* 0.1 ln 4 + 1, and (0.1 ln 40 + 1) / (0.05 ln 40 + 1). */
static const struct kind kinds[] = {
    {"plain", 64, {.kind = EBB_ROPE_DEFAULT, .theta = 1e4, .attention_factor = 1}},
    {"linear", 128, {.kind = EBB_ROPE_LINEAR, .theta = 1e5, .factor = 4, .attention_factor = 1}},
    {"llama3",
     64,
     {.kind = EBB_ROPE_LLAMA3,
      .theta = 5e5,
      .factor = 32,
      .low_freq_factor = 1,
      .high_freq_factor = 4,
      .original_max_positions = 8192,
      .attention_factor = 1}},
    {"yarn",
     128,
     {.kind = EBB_ROPE_YARN,
      .theta = 1e6,
      .factor = 4,
      .original_max_positions = 32768,
      .beta_fast = 32,
      .beta_slow = 1,
      .attention_factor = 1.138629436111989,
      .truncate = true}},
    {"yarn_exact",
     128,
     {.kind = EBB_ROPE_YARN,
      .theta = 1e4,
      .factor = 40,
      .original_max_positions = 4096,
      .beta_fast = 24,
      .beta_slow = 2,
      .attention_factor = 1.1557219901962608,
      .truncate = false}},
};

/* From tools/golden_rope.py: kind, dimension, inverse frequency, cosine and sine at position
 * 100000. */
static const struct {
    const char *kind;
    int i;
    float inv_freq, cosine, sine;
} golden[] = {
    {"plain", 0, 1.00000000f, -0.999360800f, 0.0357487984f},
    {"plain", 1, 0.749894202f, 0.923086524f, -0.384592384f},
    {"plain", 10, 0.0562341288f, 0.999287009f, -0.0377550125f},
    {"plain", 16, 0.00999999978f, 0.562379062f, 0.826879561f},
    {"plain", 21, 0.00237137382f, -0.0528458394f, -0.998602688f},
    {"plain", 31, 0.000133352150f, 0.718714893f, 0.695304871f},
    {"linear", 0, 0.250000000f, 0.700757742f, -0.713399351f},
    {"linear", 1, 0.208840638f, 0.321476549f, -0.946917534f},
    {"linear", 21, 0.00571893295f, 0.992390037f, 0.123134293f},
    {"linear", 32, 0.000790569466f, -0.869241893f, -0.494387001f},
    {"linear", 42, 0.000130824774f, 0.869746983f, 0.493497938f},
    {"linear", 63, 2.99271255e-06f, 0.955551624f, 0.294823945f},
    {"llama3", 0, 1.00000000f, -0.999360800f, 0.0357487984f},
    {"llama3", 1, 0.663601279f, -0.965515971f, -0.260343760f},
    {"llama3", 10, 0.0165604409f, -0.911146343f, -0.412082940f},
    {"llama3", 16, 0.000429556705f, 0.517706931f, -0.855558038f},
    {"llama3", 21, 5.68723226e-06f, 0.842589259f, 0.538556695f},
    {"llama3", 31, 9.41830649e-08f, 0.999955654f, 0.00941816717f},
    {"yarn", 0, 1.00000000f, -1.13790166f, 0.0407046340f},
    {"yarn", 1, 0.805842221f, -0.813932955f, 0.796235025f},
    {"yarn", 21, 0.0107460786f, 1.11957061f, 0.207457364f},
    {"yarn", 32, 0.000602941145f, -0.937267482f, -0.646534383f},
    {"yarn", 42, 2.88695483e-05f, -1.10191393f, 0.286815047f},
    {"yarn", 63, 3.10234441e-07f, 1.13808155f, 0.0353185385f},
    {"yarn_exact", 0, 1.00000000f, -1.15498328f, 0.0413156748f},
    {"yarn_exact", 1, 0.865964353f, -0.00785899255f, 1.15569532f},
    {"yarn_exact", 21, 0.0486967526f, 1.13112557f, 0.237167552f},
    {"yarn_exact", 32, 0.00488611870f, 0.108730860f, -1.15059590f},
    {"yarn_exact", 42, 5.92843462e-05f, 1.08375883f, -0.401447415f},
    {"yarn_exact", 63, 2.88695469e-06f, 1.10789371f, 0.329036266f},
};

static const struct kind *find(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (strcmp(kinds[k].name, name) == 0) return &kinds[k];
    fail_msg("no kind %s", name);
    return NULL;
}

static void tables_agree_with_transformers(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof golden / sizeof golden[0]; g++) {
        const struct kind *kind = find(golden[g].kind);
        float inv_freq[64], row[128];
        ebb_rope_inv_freq(&kind->rope, kind->head_dim, inv_freq);
        ebb_rope_table(&kind->rope, kind->head_dim, 100000, 1, row);
        int i = golden[g].i;
        float got[] = {inv_freq[i], row[i], row[i + kind->head_dim / 2]};
        float want[] = {golden[g].inv_freq, golden[g].cosine, golden[g].sine};
        for (int n = 0; n < 3; n++)
            if (fabsf(got[n] - want[n]) > 1.2e-7f * fmaxf(fabsf(want[n]), n == 0 ? 0 : 1))
                fail_msg("%s, dimension %d, number %d: %.9g, transformers has %.9g", kind->name, i,
                         n, (double)got[n], (double)want[n]);
    }
}

static void the_first_position_is_the_attention_factor(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        float row[128];
        int64_t half = kinds[k].head_dim / 2;
        ebb_rope_table(&kinds[k].rope, kinds[k].head_dim, 0, 1, row);
        for (int64_t i = 0; i < half; i++) {
            assert_true(row[i] == (float)kinds[k].rope.attention_factor);
            assert_true(row[i + half] == 0);
        }
    }
}

static void a_table_equals_its_rows_made_one_by_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int64_t d = kinds[k].head_dim;
        float table[7 * 128], row[128];
        ebb_rope_table(&kinds[k].rope, d, 4090, 7, table);
        for (int64_t t = 0; t < 7; t++) {
            ebb_rope_table(&kinds[k].rope, d, 4090 + t, 1, row);
            assert_memory_equal(table + t * d, row, (size_t)d * sizeof *row);
        }
    }
}

static void a_table_of_no_positions_writes_nothing(void **state)
{
    (void)state;
    float row[64] = {0};
    ebb_rope_table(&kinds[0].rope, 64, 5, 0, row);
    for (int i = 0; i < 64; i++) assert_true(row[i] == 0);
}

static void equal_ends_of_yarns_range_do_not_divide_by_zero(void **state)
{
    (void)state;
    /* Two positions of pretraining: both ends of the range fall below the first dimension. */
    struct ebb_rope rope = kinds[3].rope;
    float inv_freq[64];
    rope.original_max_positions = 2;
    ebb_rope_inv_freq(&rope, 128, inv_freq);
    for (int i = 0; i < 64; i++) assert_true(isfinite(inv_freq[i]) && inv_freq[i] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_agree_with_transformers),
        cmocka_unit_test(the_first_position_is_the_attention_factor),
        cmocka_unit_test(a_table_equals_its_rows_made_one_by_one),
        cmocka_unit_test(a_table_of_no_positions_writes_nothing),
        cmocka_unit_test(equal_ends_of_yarns_range_do_not_divide_by_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
