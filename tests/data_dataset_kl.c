/* KTO's data: answers beside answers of other prompts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "data/dataset_int.h"

/* What a sample is expected to be: ids with a '*' before those that are trained. */
struct expected {
    const char *text;
    uint8_t kind;
    int64_t record;
};

/* Sample i: `prompts[i]` tokens 10 i, 10 i + 1, ..., then answers[i] tokens 100 + 10 i, ... */
static struct ebb_dataset *make(struct ebb_ctx *ctx, const int64_t *prompts, const int64_t *answers,
                                int64_t count)
{
    int32_t ids[256];
    int64_t lengths[16], used = 0;
    struct ebb_dataset *set;
    for (int64_t i = 0; i < count; i++) {
        lengths[i] = prompts[i] + answers[i];
        for (int64_t k = 0; k < lengths[i]; k++)
            ids[used++] = (int32_t)(10 * i + (k < prompts[i] ? k : 100 + k - prompts[i]));
    }
    assert_int_equal(ebb_dataset_from_ids(ctx, ids, lengths, prompts, count, &set), EBB_OK);
    return set;
}

static void show(const struct ebb_dataset *set, int64_t sample, char text[256])
{
    size_t used = 0;
    text[0] = 0;
    for (int64_t i = 0; i < ebb_dataset_length(set, sample); i++)
        used += (size_t)snprintf(text + used, 256 - used, "%s%s%d", i ? " " : "",
                                 ebb_dataset_is_trained(set, sample, i) ? "*" : "",
                                 (int)ebb_dataset_ids(set, sample)[i]);
}

static void expect(const struct ebb_dataset *set, const struct expected *want, int64_t count)
{
    char text[256];
    int64_t tokens = 0, longest = 0;
    assert_int_equal(set->count, count);
    assert_int_equal(set->group, 2);
    for (int64_t i = 0; i < count; i++) {
        show(set, i, text);
        assert_string_equal(text, want[i].text);
        assert_int_equal(set->desirable[i], want[i].kind);
        assert_int_equal(set->records[i], want[i].record);
        int64_t length = ebb_dataset_length(set, i);
        tokens += length;
        longest = length > longest ? length : longest;
    }
    assert_int_equal(set->tokens, tokens);
    assert_int_equal(set->longest, longest);
}

/* Makes answers with verdicts of a data set. */
static void judge(struct ebb_ctx *ctx, struct ebb_dataset *set, const uint8_t *verdicts)
{
    set->desirable = (uint8_t *)ebb_mem_alloc(ctx, (size_t)set->count);
    memcpy(set->desirable, verdicts, (size_t)set->count);
}

static void finish(struct ebb_ctx *ctx, struct ebb_dataset *from, struct ebb_dataset *with)
{
    ebb_dataset_free(ctx, from);
    ebb_dataset_free(ctx, with);
    assert_int_equal(ebb_mem_bytes_now(ctx), 0);
    ebb_ctx_free(ctx);
}

static void each_answer_is_followed_by_its_prompt_with_the_next_answer(void **state)
{
    static const struct expected want[] = {{"0 1 *100 *101", 1, 1},
                                           {"0 1 *110", EBB_DATASET_KL, 1},
                                           {"10 *110", 0, 2},
                                           {"10 *120 *121 *122", EBB_DATASET_KL, 2},
                                           {"20 21 22 *120 *121 *122", 1, 3},
                                           {"20 21 22 *100 *101", EBB_DATASET_KL, 3}};
    const int64_t prompts[] = {2, 1, 3}, answers[] = {2, 1, 3};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_dataset *from = make(ctx, prompts, answers, 3), *with;
    (void)state;
    judge(ctx, from, (const uint8_t[]){1, 0, 1});
    from->chat = true;
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 0, &with), EBB_OK);
    expect(with, want, 6);
    assert_string_equal(with->format, from->format);
    assert_int_equal(with->record_count, from->record_count);
    assert_true(with->chat);
    assert_int_equal(with->labels, 2 + 1 + 1 + 3 + 3 + 2);
    finish(ctx, from, with);
}

/* A pair's two answers are a good and a bad one; the next answer of the same side is another
 * prompt's. */
static void pairs_are_a_desirable_and_an_undesirable_answer(void **state)
{
    static const struct expected want[] = {
        {"0 *100", 1, 1},       {"0 *120 *121", EBB_DATASET_KL, 1},
        {"10 *110 *111", 0, 2}, {"10 *130", EBB_DATASET_KL, 2},
        {"20 *120 *121", 1, 3}, {"20 *100", EBB_DATASET_KL, 3},
        {"30 *130", 0, 4},      {"30 *110 *111", EBB_DATASET_KL, 4}};
    const int64_t prompts[] = {1, 1, 1, 1}, answers[] = {1, 2, 2, 1};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_dataset *from = make(ctx, prompts, answers, 4), *with;
    (void)state;
    from->group = 2;
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 0, &with), EBB_OK);
    expect(with, want, 8);
    finish(ctx, from, with);
}

/* Of what is put together; the samples themselves were cut when they were read. */
static void put_together_nothing_is_longer_than_max_length(void **state)
{
    static const struct expected want[] = {{"0 1 2 *100", 1, 1},
                                           {"0 1 2 *110", EBB_DATASET_KL, 1},
                                           {"10 *110 *111 *112", 1, 2},
                                           {"10 *120", EBB_DATASET_KL, 2},
                                           {"20 21 22 23 *120", 0, 3},
                                           {"20 21 22 23", EBB_DATASET_KL, 3}};
    const int64_t prompts[] = {3, 1, 4}, answers[] = {1, 3, 1};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_dataset *from = make(ctx, prompts, answers, 3), *with;
    (void)state;
    judge(ctx, from, (const uint8_t[]){1, 1, 0});
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 4, &with), EBB_OK);
    expect(with, want, 6);
    finish(ctx, from, with);
}

static void answers_to_the_same_prompt_are_passed_over(void **state)
{
    /* An answer that serves twice is stored twice. */
    static const struct expected want[] = {{"1 2 *10", 1, 1},
                                           {"1 2 *30 *31 *32 *33 *34", EBB_DATASET_KL, 1},
                                           {"1 2 *20", 0, 2},
                                           {"1 2 *30 *31 *32 *33 *34", EBB_DATASET_KL, 2},
                                           {"1 3 *30 *31 *32 *33 *34", 1, 3},
                                           {"1 3 *10", EBB_DATASET_KL, 3}};
    static const int32_t ids[] = {1, 2, 10, 1, 2, 20, 1, 3, 30, 31, 32, 33, 34};
    static const int64_t lengths[] = {3, 3, 7}, prompts[] = {2, 2, 2};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_dataset *from, *with;
    (void)state;
    assert_int_equal(ebb_dataset_from_ids(ctx, ids, lengths, prompts, 3, &from), EBB_OK);
    judge(ctx, from, (const uint8_t[]){1, 0, 1});
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 0, &with), EBB_OK);
    expect(with, want, 6);
    finish(ctx, from, with);
}

/* There is no other answer: it measures with its own. */
static void one_sample_alone_is_its_own_example(void **state)
{
    static const struct expected want[] = {{"0 1 *100", 1, 1}, {"0 1 *100", EBB_DATASET_KL, 1}};
    static const struct expected pair[] = {{"0 *100", 1, 1},
                                           {"0 *100", EBB_DATASET_KL, 1},
                                           {"10 *110", 0, 2},
                                           {"10 *110", EBB_DATASET_KL, 2}};
    const int64_t prompts[] = {2}, answers[] = {1}, ones[] = {1, 1};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_dataset *from = make(ctx, prompts, answers, 1), *with;
    (void)state;
    judge(ctx, from, (const uint8_t[]){1});
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 0, &with), EBB_OK);
    expect(with, want, 2);
    ebb_dataset_free(ctx, from);
    ebb_dataset_free(ctx, with);
    from = make(ctx, ones, ones, 2);
    from->group = 2;
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 0, &with), EBB_OK);
    expect(with, pair, 4);
    finish(ctx, from, with);
}

/* Nothing trained means that all of it is prompt, as everything trained means that there is none.
 */
static void samples_without_a_prompt_or_an_answer_stay_whole(void **state)
{
    static const struct expected want[] = {{"*100 *101", 1, 1},
                                           {"", EBB_DATASET_KL, 1},
                                           {"10 11", 0, 2},
                                           {"10 11 *100 *101", EBB_DATASET_KL, 2}};
    const int64_t prompts[] = {0, 2}, answers[] = {2, 0};
    struct ebb_ctx *ctx = ebb_ctx_create();
    struct ebb_dataset *from = make(ctx, prompts, answers, 2), *with;
    (void)state;
    judge(ctx, from, (const uint8_t[]){1, 0});
    assert_int_equal(ebb_dataset_add_kl(ctx, from, 0, &with), EBB_OK);
    expect(with, want, 4);
    finish(ctx, from, with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_answer_is_followed_by_its_prompt_with_the_next_answer),
        cmocka_unit_test(pairs_are_a_desirable_and_an_undesirable_answer),
        cmocka_unit_test(put_together_nothing_is_longer_than_max_length),
        cmocka_unit_test(answers_to_the_same_prompt_are_passed_over),
        cmocka_unit_test(one_sample_alone_is_its_own_example),
        cmocka_unit_test(samples_without_a_prompt_or_an_answer_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
