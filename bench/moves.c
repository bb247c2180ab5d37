/* What moving costs: training steps of one model where slots go to host memory and where the same
 * slots stay on the device, everything else being made again in both; in turns, in one process.
 *
 *   bench_moves MODEL_DIR SLOTS [TOKENS] [STEPS]
 *
 * SLOTS is a list with commas ("x", "x,qkv,o,x2"); TOKENS (8192) of one document make a step, each
 * with its successor as target: LoRA of rank 16 on all linear layers, bfloat16, AdamW, gradients
 * clipped, on a GPU. Both engines hold the weights, so there must be room for two. STEPS (8) pairs
 * are timed after two; the engine that goes first changes with each pair. Prints the medians, and
 * the median and the range of the pairs' ratios. Exit 1 if the first losses are not the same bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "kit.h"

enum { PAIRS_MAX = 200, WARM = 2, RULES = 8, RANK = 16 };

struct bench {
    struct ebb_ctx *ctx;
    const char *dir, *slots;
    int64_t tokens, pairs;
    struct ebb_batch batch;
    struct ebb_adapter_config adapter;
    struct ebb_policy_rule rules[2][RULES];
    int64_t rule_count;
    struct ebb_engine *engine[2]; /* 0: stays, 1: goes */
    uint64_t step[2];
    double seconds[2][PAIRS_MAX], ratio[PAIRS_MAX], first_loss[2];
};

static const char *const slot_names[] = {"x", "qkv", "o", "x2", "gate_up"};
enum { SLOT_NAMES = (int)(sizeof slot_names / sizeof slot_names[0]) };

static bool parse_slots(struct bench *b)
{
    char text[64];
    if ((size_t)snprintf(text, sizeof text, "%s", b->slots) >= sizeof text) return false;
    char *rest = text;
    for (char *name; (name = strtok_r(rest, ",", &rest)) != NULL;) {
        int slot = 0;
        while (slot < SLOT_NAMES && strcmp(slot_names[slot], name) != 0) slot++;
        if (slot == SLOT_NAMES || b->rule_count == RULES) return false;
        for (int i = 0; i < 2; i++)
            b->rules[i][b->rule_count] =
                (struct ebb_policy_rule){.last = -1,
                                         .slot = slot,
                                         .policy = i ? EBB_POLICY_HOST : EBB_POLICY_KEEP};
        b->rule_count++;
    }
    return b->rule_count > 0;
}

static enum ebb_status open_engine(struct bench *b, int i)
{
    const struct ebb_engine_request request = {
        .model_dir = b->dir,
        .new_adapter = &b->adapter,
        .train = true,
        .storage = EBB_BF16,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .capacity = {.tokens = b->tokens, .docs = 1, .doc_tokens = b->tokens},
        .memory = {.rules = b->rules[i], .rule_count = b->rule_count},
        .streams = true,
        .backend = EBB_BACKEND_CUDA,
        .seed = 1,
        .max_grad_norm = 1};
    EBB_TRY(ebb_engine_create(b->ctx, &request, &b->engine[i]));
    return ebb_engine_open(b->engine[i]);
}

static enum ebb_status open_bench(struct bench *b)
{
    struct ebb_model_config *config;
    EBB_TRY(ebb_model_config_load(b->ctx, b->dir, &config));
    enum ebb_status status = bench_batch_create(b->ctx, b->tokens, 1, config->vocab, 1, &b->batch);
    if (status == EBB_OK) status = bench_adapter(b->ctx, config, RANK, &b->adapter);
    ebb_model_config_free(b->ctx, config);
    for (int i = 0; status == EBB_OK && i < 2; i++) status = open_engine(b, i);
    return status;
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < 2; i++) ebb_engine_free(b->engine[i]);
    ebb_adapter_config_clear(b->ctx, &b->adapter);
    bench_batch_free(b->ctx, &b->batch);
    ebb_ctx_free(b->ctx);
}

static enum ebb_status run_step(struct bench *b, int i, double *seconds)
{
    double start = ebb_clock_seconds(), labels = (double)b->batch.labels;
    uint64_t step = ++b->step[i];
    ebb_engine_begin(b->engine[i]);
    EBB_TRY(ebb_engine_micro(b->engine[i], EBB_PROGRAM_TRAIN, &b->batch, step, 0));
    EBB_TRY(ebb_engine_update(b->engine[i], step, 1e-4, labels));
    *seconds = ebb_clock_seconds() - start;
    if (step == 1) b->first_loss[i] = ebb_engine_sums(b->engine[i]).loss / labels;
    return EBB_OK;
}

static enum ebb_status run_pairs(struct bench *b)
{
    for (int64_t k = -WARM; k < b->pairs; k++) {
        double seconds[2];
        int first = (int)(k & 1);
        EBB_TRY(run_step(b, first, &seconds[first]));
        EBB_TRY(run_step(b, 1 - first, &seconds[1 - first]));
        if (k < 0) continue;
        for (int i = 0; i < 2; i++) b->seconds[i][k] = seconds[i];
        b->ratio[k] = seconds[1] / seconds[0];
    }
    return EBB_OK;
}

static double gib(int64_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

static void print_result(struct bench *b)
{
    const struct ebb_plan *plan[2] = {ebb_engine_plan(b->engine[0]), ebb_engine_plan(b->engine[1])};
    double ratio = bench_median(b->ratio, b->pairs);
    printf("%s at %lld tokens, slots %s: stays %.4f s, %.2f GiB; goes %.4f s, %.2f GiB, moves %.2f "
           "GiB a step; %+.2f %% (pairs %+.2f to %+.2f); first loss %.6f, %s\n",
           b->dir, (long long)b->tokens, b->slots, bench_median(b->seconds[0], b->pairs),
           gib(plan[0]->device_bytes), bench_median(b->seconds[1], b->pairs),
           gib(plan[1]->device_bytes), gib(plan[1]->bytes_out + plan[1]->bytes_in),
           100 * (ratio - 1), 100 * (b->ratio[0] - 1), 100 * (b->ratio[b->pairs - 1] - 1),
           b->first_loss[1], b->first_loss[0] == b->first_loss[1] ? "the same" : "NOT THE SAME");
}

int main(int argc, char **argv)
{
    struct bench b = {.tokens = 8192, .pairs = 8};
    bool good = argc >= 3 && argc <= 5;
    if (good && argc > 3) good = ebb_text_int64(argv[3], &b.tokens) && b.tokens > 1;
    if (good && argc > 4)
        good = ebb_text_int64(argv[4], &b.pairs) && b.pairs > 0 && b.pairs <= PAIRS_MAX;
    b.dir = good ? argv[1] : NULL;
    b.slots = good ? argv[2] : NULL;
    if (!good || !parse_slots(&b)) {
        fprintf(stderr, "usage: bench_moves MODEL_DIR x,qkv,o,x2,gate_up [TOKENS] [STEPS]\n");
        return 2;
    }
    b.ctx = ebb_ctx_create();
    if (!b.ctx) return 1;
    enum ebb_status status = open_bench(&b);
    if (status == EBB_OK) status = run_pairs(&b);
    if (status == EBB_OK)
        print_result(&b);
    else
        fprintf(stderr, "bench_moves: %s\n", ebb_error_text(b.ctx));
    bool same = b.first_loss[0] == b.first_loss[1];
    close_bench(&b);
    return status == EBB_OK && same ? 0 : 1;
}
