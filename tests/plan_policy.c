/* Policies: what each combination of memory keys means, the order of the ladder, and rules set
 * by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "plan/policy.h"

enum { LAYERS = 6, SLOTS = 3 };

static struct ebb_net net = {
    .layers = LAYERS,
    .slot_count = SLOTS,
    .slots = {{"x", 8, false}, {"o", 8, false}, {"x2", 8, true}},
};

struct ladder {
    struct ebb_ctx *ctx;
    struct ebb_policies policies;
    const char *what;
    bool last;
};

static int open_ladder(void **state)
{
    static struct ladder ladder;
    ladder.ctx = ebb_ctx_create();
    *state = &ladder;
    return ebb_policies_create(ladder.ctx, LAYERS, 0, EBB_POLICY_KEEP, &ladder.policies) == EBB_OK
               ? 0
               : -1;
}

static int close_ladder(void **state)
{
    struct ladder *l = *state;
    ebb_policies_free(l->ctx, &l->policies);
    int64_t left = ebb_mem_bytes_now(l->ctx);
    ebb_ctx_free(l->ctx);
    return left == 0 ? 0 : -1;
}

static void climb(struct ladder *l, enum ebb_auto checkpointing, enum ebb_auto offloading, int k)
{
    struct ebb_memory_keys keys = {checkpointing, offloading, NULL, 0, EBB_AUTO, EBB_AUTO};
    assert_int_equal(ebb_policies_ladder(l->ctx, &net, &keys, true, k, &l->policies, &l->what,
                                         &l->last),
                     EBB_OK);
}

/* Slots of a layer as letters: k keep, h host, r recompute. */
static void expect_layer(const struct ladder *l, int layer, const char *letters)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        char got = "khr"[l->policies.at[layer][slot]];
        if (got != letters[slot])
            fail_msg("layer %d slot %s: %c, want %c (%s)", layer, net.slots[slot].name, got,
                     letters[slot], l->what);
    }
}

static void expect_all(const struct ladder *l, const char *letters)
{
    for (int layer = 0; layer < LAYERS; layer++) expect_layer(l, layer, letters);
}

static void keys_set_by_hand_mean_one_thing(void **state)
{
    struct ladder *l = *state;
    climb(l, EBB_FALSE, EBB_FALSE, 0);
    expect_all(l, "kkk");
    assert_true(l->last);
    climb(l, EBB_TRUE, EBB_FALSE, 0);
    expect_all(l, "krr");
    assert_true(l->last);
    climb(l, EBB_TRUE, EBB_TRUE, 0);
    expect_all(l, "hrr");
    assert_true(l->last);
    /* TRL's meaning of offloading without checkpointing. */
    climb(l, EBB_FALSE, EBB_TRUE, 0);
    expect_all(l, "hhh");
    assert_true(l->last);
}

static void auto_begins_with_everything_kept_and_never_moves_before_it_must(void **state)
{
    struct ladder *l = *state;
    bool moved = false, remade_x = false;
    climb(l, EBB_AUTO, EBB_AUTO, 0);
    expect_all(l, "kkk");
    assert_false(l->last);
    for (int k = 1; !l->last; k++) {
        climb(l, EBB_AUTO, EBB_AUTO, k);
        assert_true(k < 32);
        bool moves = l->policies.at[0][0] == EBB_POLICY_HOST;
        bool remakes = l->policies.at[1][0] == EBB_POLICY_RECOMPUTE;
        /* The first layers passed forward twice come after the first moves. */
        if (remakes && !remade_x) assert_true(moved);
        moved = moved || moves;
        remade_x = remade_x || remakes;
    }
    assert_true(moved && remade_x);
}

static void offloading_forbidden_leaves_only_steps_that_do_not_move(void **state)
{
    struct ladder *l = *state;
    l->last = false;
    for (int k = 0; !l->last; k++) {
        climb(l, EBB_AUTO, EBB_FALSE, k);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int slot = 0; slot < SLOTS; slot++)
                assert_int_not_equal(l->policies.at[layer][slot], EBB_POLICY_HOST);
    }
}

static void without_host_memory_offloading_is_refused(void **state)
{
    struct ladder *l = *state;
    struct ebb_memory_keys keys = {EBB_AUTO, EBB_TRUE, NULL, 0, EBB_AUTO, EBB_AUTO};
    enum ebb_status status =
        ebb_policies_ladder(l->ctx, &net, &keys, false, 0, &l->policies, &l->what, &l->last);
    assert_int_equal(status, EBB_BAD_CONFIG);
    assert_non_null(strstr(ebb_error_text(l->ctx), "host_memory_budget"));
}

static void rules_apply_in_order_over_their_layers(void **state)
{
    struct ladder *l = *state;
    const struct ebb_policy_rule rules[] = {
        {0, 3, 2, 0, EBB_POLICY_HOST},
        {0, -1, 0, 1, EBB_POLICY_KEEP},
        {4, -1, 0, 2, EBB_POLICY_HOST},
    };
    struct ebb_memory_keys keys = {EBB_AUTO, EBB_AUTO, rules, 3, EBB_AUTO, EBB_AUTO};
    assert_int_equal(ebb_policies_ladder(l->ctx, &net, &keys, true, 0, &l->policies, &l->what,
                                         &l->last),
                     EBB_OK);
    assert_true(l->last);
    expect_layer(l, 0, "hkr");
    expect_layer(l, 1, "rkr");
    expect_layer(l, 2, "hkr");
    expect_layer(l, 3, "rkr");
    expect_layer(l, 4, "kkh");
    expect_layer(l, 5, "kkh");
}

static void a_rule_beyond_the_model_is_refused_with_its_layers(void **state)
{
    struct ladder *l = *state;
    const struct ebb_policy_rule rule = {4, 9, 0, 0, EBB_POLICY_HOST};
    struct ebb_memory_keys keys = {EBB_AUTO, EBB_AUTO, &rule, 1, EBB_AUTO, EBB_AUTO};
    enum ebb_status status =
        ebb_policies_ladder(l->ctx, &net, &keys, true, 0, &l->policies, &l->what, &l->last);
    assert_int_equal(status, EBB_BAD_CONFIG);
    assert_string_equal(ebb_error_text(l->ctx),
                        "activations: layers 4-9, but the model has layers 0-5");
}

static void half_a_slot_that_is_read_whole_is_refused(void **state)
{
    struct ladder *l = *state;
    const struct ebb_policy_rule rule = {0, -1, 0, 0, EBB_POLICY_HALF};
    struct ebb_memory_keys keys = {EBB_AUTO, EBB_AUTO, &rule, 1, EBB_AUTO, EBB_AUTO};
    enum ebb_status status =
        ebb_policies_ladder(l->ctx, &net, &keys, true, 0, &l->policies, &l->what, &l->last);
    assert_int_equal(status, EBB_BAD_CONFIG);
    assert_non_null(strstr(ebb_error_text(l->ctx), "slot 'x' is read whole: host_half is for"));
}

static void policy_names_are_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < EBB_POLICY_COUNT; i++) {
        enum ebb_policy policy;
        assert_true(ebb_policy_parse(ebb_policy_name((enum ebb_policy)i), &policy));
        assert_int_equal(policy, i);
    }
    enum ebb_policy policy;
    assert_false(ebb_policy_parse("disk", &policy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_set_by_hand_mean_one_thing, open_ladder, close_ladder),
        cmocka_unit_test_setup_teardown(half_a_slot_that_is_read_whole_is_refused, open_ladder,
                                        close_ladder),
        cmocka_unit_test_setup_teardown(
            auto_begins_with_everything_kept_and_never_moves_before_it_must, open_ladder,
            close_ladder),
        cmocka_unit_test_setup_teardown(offloading_forbidden_leaves_only_steps_that_do_not_move,
                                        open_ladder, close_ladder),
        cmocka_unit_test_setup_teardown(without_host_memory_offloading_is_refused, open_ladder,
                                        close_ladder),
        cmocka_unit_test_setup_teardown(rules_apply_in_order_over_their_layers, open_ladder,
                                        close_ladder),
        cmocka_unit_test_setup_teardown(a_rule_beyond_the_model_is_refused_with_its_layers,
                                        open_ladder, close_ladder),
        cmocka_unit_test(policy_names_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
