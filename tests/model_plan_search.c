/* The search for policies: beside every table of a small model, within its budgets, never slower
 * with more memory, and quick for a deep one.
 *
 * Nothing runs here: plans are written and forecast. Rates are made up, so that a layer's work and
 * its moves stand in a ratio that each case chooses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_test.h"

#include <math.h>
#include <time.h>

#include "model/decoder.h"

enum { LAYERS = 4, TOKENS = 512, SETS = 5, MORE_TABLES = 400, DEEP = 80 };

/* A decoder that can be planned. */
struct planned {
    struct room *room;
    struct ebb_model_config *config;
    struct ebb_weight_list weights;
    struct ebb_adapter_config adapter;
    struct ebb_net *net;
    struct ebb_plan_request request;
    struct ebb_rates rates;
};

static void open_planned(struct room *room, int layers, int width, int ffn, int vocab,
                         int64_t tokens, int64_t tile, struct planned *p)
{
    static char targets[][16] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                 "gate_proj", "up_proj", "down_proj"};
    char text[600], path[256];
    memset(p, 0, sizeof *p);
    p->room = room;
    snprintf(text, sizeof text,
             "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 32768, "
             "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
             "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
             width, ffn, layers, width / 16 < 8 ? 4 : width / 128, width / 16 < 8 ? 2 : 4, vocab);
    room_write(room, "config.json", text, strlen(text));
    ROOM_OK(room, ebb_model_config_load_file(room->ctx, room_path(room, "config.json", path),
                                             &p->config));
    ROOM_OK(room, ebb_weight_list_create(room->ctx, p->config, &p->weights));
    p->adapter.rank = 8;
    p->adapter.alpha = 16;
    p->adapter.target_count = (int)(sizeof targets / sizeof targets[0]);
    for (int i = 0; i < p->adapter.target_count; i++) p->adapter.targets[i] = targets[i];
    struct ebb_plan_request *r = &p->request;
    r->capacity = (struct ebb_capacity){.tokens = tokens, .docs = 1, .doc_tokens = tokens};
    struct ebb_decoder_options options = {.storage = EBB_BF16,
                                          .train = true,
                                          .adapter = &p->adapter,
                                          .capacity = r->capacity,
                                          .host_rows = true};
    ROOM_OK(room, ebb_decoder_create(room->ctx, p->config, &p->weights, &options, &p->net));
    r->net = p->net;
    r->numerics = (struct ebb_numerics){.storage = EBB_BF16,
                                        .tile_tokens = tile,
                                        .head_chunk = 128,
                                        .threads = 1,
                                        .backend = "cpu",
                                        .attention = {.deterministic = true}};
    const struct ebb_op_target target = ebb_numerics_target(&r->numerics);
    ROOM_OK(room, ebb_matmul_lib_create(room->ctx, &target, &r->matmul));
    r->optimizer = (struct ebb_optimizer_keys){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    r->programs[EBB_PROGRAM_TRAIN] = r->programs[EBB_PROGRAM_UPDATE] = true;
    r->streams = true;
    r->rates = &p->rates;
}

static void close_planned(struct planned *p)
{
    ebb_matmul_lib_free(p->request.matmul);
    ebb_decoder_free(p->room->ctx, p->net);
    ebb_weight_list_free(p->room->ctx, &p->weights);
    ebb_model_config_free(p->room->ctx, p->config);
}

static struct ebb_plan *make_plan(const struct planned *p, const struct ebb_plan_request *request)
{
    struct ebb_plan *plan;
    ROOM_OK(p->room, ebb_plan_create(p->room->ctx, request, &plan));
    assert_true(plan->forecast.known);
    return plan;
}

/* A budget that is a little too small for everything to stay. */
static int64_t less_than_all(const struct planned *p)
{
    struct ebb_plan *plan = make_plan(p, &p->request);
    const int64_t bytes = plan->device_bytes - 1000000;
    ebb_plan_free(p->room->ctx, plan);
    return bytes;
}

/* Products and attention at a flop a picosecond, memory at 3 TB/s; a move of a byte takes `link`
 * seconds. */
static void set_rates(struct planned *p, double link)
{
    for (int i = 0; i < EBB_COST_COUNT; i++)
        p->rates.costs[i] = (struct ebb_cost){1e-9, 1 / 3e12, 1e-12};
    p->rates.costs[EBB_COST_COPY_OUT].byte = p->rates.costs[EBB_COST_COPY_IN].byte = link;
}

/* ---- every table ----------------------------------------------------------------------------- */

/* Seconds of a byte that moves: hardly any, as long as work, and longer. */
static const double links[] = {1e-14, 3e-10, 3e-9};
static const char *const link_names[] = {"cheap moves", "moves as long as work", "dear moves"};
enum { LINKS = 3 };

struct table {
    double seconds[LINKS];
    int64_t device, host;
};

/* Policies of x, qkv, o, x2, gate_up. */
static const char *const sets[SETS] = {"kkkkk", "kkkkr", "khhkr", "hrhrr", "krkrr"};

static enum ebb_policy policy_of(char letter)
{
    return letter == 'k' ? EBB_POLICY_KEEP : letter == 'h' ? EBB_POLICY_HOST : EBB_POLICY_RECOMPUTE;
}

static void write_table(struct planned *p, const char policies[LAYERS][6], struct table *table)
{
    struct ebb_policy_rule rules[LAYERS * EBB_SLOTS];
    struct ebb_plan_request request = p->request;
    struct ebb_plan *plan;
    struct ebb_forecast forecast;
    const int32_t starts[] = {0, TOKENS};
    const struct ebb_forecast_load load = {1, TOKENS, 1, starts};
    int64_t count = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int slot = 0; slot < p->net->slot_count; slot++)
            rules[count++] = (struct ebb_policy_rule){.first = layer,
                                                      .last = layer,
                                                      .slot = slot,
                                                      .policy = policy_of(policies[layer][slot])};
    request.memory.rules = rules;
    request.memory.rule_count = count;
    request.rates = NULL;
    ROOM_OK(p->room, ebb_plan_create(p->room->ctx, &request, &plan));
    table->device = plan->device_bytes;
    table->host = plan->host_bytes;
    for (int i = 0; i < LINKS; i++) {
        set_rates(p, links[i]);
        ROOM_OK(p->room, ebb_forecast_step(p->room->ctx, plan, &p->rates, &load, &forecast));
        table->seconds[i] = forecast.seconds;
    }
    ebb_plan_free(p->room->ctx, plan);
}

/* All tables of the sets above, and some of any policies whatever. The caller frees. */
static struct table *write_tables(struct planned *p, int *count)
{
    int all = 1;
    uint32_t random = 12345;
    char policies[LAYERS][6] = {{0}};
    for (int layer = 0; layer < LAYERS; layer++) all *= SETS;
    struct table *tables = (struct table *)calloc((size_t)(all + MORE_TABLES), sizeof *tables);
    assert_non_null(tables);
    for (int i = 0; i < all; i++) {
        for (int layer = 0, rest = i; layer < LAYERS; layer++, rest /= SETS)
            memcpy(policies[layer], sets[rest % SETS], 6);
        write_table(p, (const char(*)[6])policies, &tables[i]);
    }
    for (int i = 0; i < MORE_TABLES; i++) {
        for (int layer = 0; layer < LAYERS; layer++)
            for (int slot = 0; slot < 5; slot++) {
                random = random * 1664525u + 1013904223u;
                policies[layer][slot] = "khr"[(random >> 16) % 3];
            }
        write_table(p, (const char(*)[6])policies, &tables[all + i]);
    }
    *count = all + MORE_TABLES;
    return tables;
}

/* The least time of those that fit; HUGE_VAL: none does. */
static double best_of(const struct table *tables, int count, int link, int64_t device, int64_t host)
{
    double best = HUGE_VAL;
    for (int i = 0; i < count; i++)
        if (tables[i].device <= device && (host == 0 || tables[i].host <= host))
            best = fmin(best, tables[i].seconds[link]);
    return best;
}

static int slots_with(const struct ebb_plan *plan, enum ebb_policy policy, int first_slot)
{
    int count = 0;
    for (int64_t layer = 0; layer < plan->policies.layers; layer++)
        for (int slot = first_slot; slot < plan->request.net->slot_count; slot++)
            count += plan->policies.at[layer][slot] == policy;
    return count;
}

static void expect_within_budgets(const struct ebb_plan *plan)
{
    const struct ebb_plan_request *request = &plan->request;
    assert_true(plan->fits);
    assert_true(plan->total_bytes <= request->device_budget);
    if (request->host_budget > 0) assert_true(plan->host_bytes <= request->host_budget);
}

/* Words say that something is made again where something is. */
static void expect_words(const struct ebb_plan *plan)
{
    const int again = slots_with(plan, EBB_POLICY_RECOMPUTE, 0);
    if ((strstr(plan->what, "made again") != NULL) != (again > 0))
        fail_msg("%d slots are made again: '%s'", again, plan->what);
}

/* Budgets from the least to the most that tables take. (At the least, the ladder decides.) */
static void compare_at_budgets(struct planned *p, const struct table *tables, int count, int link,
                               int64_t host)
{
    enum { BUDGETS = 16 };
    int64_t least = INT64_MAX, most = 0;
    double worst = -1, last = HUGE_VAL;
    for (int i = 0; i < count; i++) {
        if (host == 0 || tables[i].host <= host)
            least = tables[i].device < least ? tables[i].device : least;
        most = tables[i].device > most ? tables[i].device : most;
    }
    set_rates(p, links[link]);
    for (int i = 1; i < BUDGETS; i++) {
        struct ebb_plan_request request = p->request;
        request.device_budget = least + (most - least) * i / (BUDGETS - 1);
        request.host_budget = host;
        double best = best_of(tables, count, link, request.device_budget, host);
        struct ebb_plan *plan = make_plan(p, &request);
        expect_within_budgets(plan);
        expect_words(plan);
        if (plan->forecast.seconds > 1.03 * best || plan->forecast.seconds > 1.001 * last)
            fail_msg("%s, budget %lld: %.6g s (%s); the best table takes %.6g s, with less memory "
                     "it were %.6g s",
                     link_names[link], (long long)request.device_budget, plan->forecast.seconds,
                     plan->what, best, last);
        worst = fmax(worst, plan->forecast.seconds / best - 1);
        last = fmin(last, plan->forecast.seconds);
        ebb_plan_free(p->room->ctx, plan);
    }
    print_message("%s, %lld bytes of host: at most %.2f %% above the best table\n",
                  link_names[link], (long long)host, 100 * worst);
}

static void the_search_does_as_well_as_trying_all_tables(void **state)
{
    struct planned p;
    int count;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    struct table *tables = write_tables(&p, &count);
    int64_t most = 0;
    for (int i = 0; i < count; i++) most = tables[i].host > most ? tables[i].host : most;
    for (int link = 0; link < LINKS; link++) {
        compare_at_budgets(&p, tables, count, link, 0);
        compare_at_budgets(&p, tables, count, link, most / 4);
    }
    free(tables);
    close_planned(&p);
}

/* ---- what else holds ------------------------------------------------------------------------- */

static void what_fits_stays_on_the_device(void **state)
{
    struct planned p;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    set_rates(&p, 1e-12);
    struct ebb_plan_request request = p.request;
    struct ebb_plan *plan = make_plan(&p, &request);
    assert_int_equal(plan->rung, 0);
    assert_string_equal(plan->what, "everything stays on the device");
    request.device_budget = plan->device_bytes;
    ebb_plan_free(p.room->ctx, plan);
    plan = make_plan(&p, &request);
    assert_string_equal(plan->what, "everything stays on the device");
    ebb_plan_free(p.room->ctx, plan);
    request.device_budget--;
    plan = make_plan(&p, &request);
    expect_within_budgets(plan);
    assert_string_not_equal(plan->what, "everything stays on the device");
    assert_int_equal(plan->rung, 0); /* moves are cheap, and no time is lost */
    ebb_plan_free(p.room->ctx, plan);
    set_rates(&p, 3e-9);
    request.device_budget -= 1000000;
    plan = make_plan(&p, &request);
    expect_within_budgets(plan);
    assert_int_not_equal(plan->rung, 0);
    ebb_plan_free(p.room->ctx, plan);
    close_planned(&p);
}

static void where_nothing_fits_the_smallest_of_the_ladder_comes_out(void **state)
{
    struct planned p;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    set_rates(&p, 1e-12);
    struct ebb_plan_request request = p.request;
    request.device_budget = 1;
    struct ebb_plan *plan = make_plan(&p, &request), *ladder;
    request.rates = NULL;
    ROOM_OK(p.room, ebb_plan_create(p.room->ctx, &request, &ladder));
    assert_false(plan->fits);
    assert_int_equal(plan->device_bytes, ladder->device_bytes);
    assert_string_equal(plan->what, ladder->what);
    assert_false(ladder->forecast.known);
    ebb_plan_free(p.room->ctx, ladder);
    ebb_plan_free(p.room->ctx, plan);
    close_planned(&p);
}

static void keys_by_hand_bind_the_search(void **state)
{
    struct planned p;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    set_rates(&p, 1e-14);
    struct ebb_plan_request request = p.request;
    request.device_budget = less_than_all(&p);
    request.memory.activation_offloading = EBB_FALSE;
    struct ebb_plan *plan = make_plan(&p, &request);
    expect_within_budgets(plan);
    assert_int_equal(slots_with(plan, EBB_POLICY_HOST, 0), 0);
    ebb_plan_free(p.room->ctx, plan);
    request.memory.activation_offloading = EBB_AUTO;
    request.memory.gradient_checkpointing = EBB_TRUE;
    plan = make_plan(&p, &request);
    expect_within_budgets(plan);
    assert_int_equal(slots_with(plan, EBB_POLICY_RECOMPUTE, 1), LAYERS * 4);
    ebb_plan_free(p.room->ctx, plan);
    close_planned(&p);
}

/* Moves that cost nothing would win: where their cost is not known the ladder decides, but for
 * searches in which nothing moves. */
static void moves_of_unknown_cost_are_not_taken_for_free(void **state)
{
    static const enum ebb_cost_class classes[] = {EBB_COST_COPY_OUT, EBB_COST_COPY_IN};
    struct planned p;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    for (int i = 0; i < 2; i++) {
        struct ebb_plan *plan, *ladder;
        set_rates(&p, 3e-9);
        struct ebb_plan_request request = p.request;
        request.device_budget = less_than_all(&p);
        p.rates.costs[classes[i]] = (struct ebb_cost){0, 0, 0};
        ROOM_OK(p.room, ebb_plan_create(p.room->ctx, &request, &plan));
        request.rates = NULL;
        ROOM_OK(p.room, ebb_plan_create(p.room->ctx, &request, &ladder));
        assert_string_equal(plan->what, ladder->what);
        assert_int_equal(plan->device_bytes, ladder->device_bytes);
        ebb_plan_free(p.room->ctx, ladder);
        ebb_plan_free(p.room->ctx, plan);
        request.rates = &p.rates;
        request.memory.activation_offloading = EBB_FALSE;
        ROOM_OK(p.room, ebb_plan_create(p.room->ctx, &request, &plan));
        expect_within_budgets(plan);
        assert_int_equal(slots_with(plan, EBB_POLICY_HOST, 0), 0);
        if (classes[i] == EBB_COST_COPY_OUT) assert_true(plan->forecast.known); /* rows come in */
        ebb_plan_free(p.room->ctx, plan);
    }
    close_planned(&p);
}

/* ---- what is pinned -------------------------------------------------------------------------- */

/* The least host memory, with what bounces taking `bounce` seconds a byte. */
static struct ebb_plan *plan_pinned(struct planned *p, int64_t device, int64_t pinned,
                                    double bounce)
{
    struct ebb_plan_request request = p->request;
    set_rates(p, 1e-12);
    p->rates.costs[EBB_COST_BOUNCE_OUT].byte = p->rates.costs[EBB_COST_BOUNCE_IN].byte = bounce;
    request.device_budget = device;
    request.pinned_budget = pinned;
    return make_plan(p, &request);
}

static void what_is_beyond_the_pinned_budget_is_pageable_and_forecast_so(void **state)
{
    struct planned p;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    set_rates(&p, 1e-12);
    const int64_t device = less_than_all(&p);
    struct ebb_plan *all = plan_pinned(&p, device, 0, 1e-12);
    assert_int_equal(all->pageable_bytes, 0);
    assert_true(all->host_bytes > 100000);
    /* As fast either way: the same plan. */
    struct ebb_plan *half = plan_pinned(&p, device, all->host_bytes / 2, 1e-12);
    assert_string_equal(half->what, all->what);
    assert_int_equal(half->host_bytes, all->host_bytes);
    assert_int_equal(half->pageable_bytes % 4096, 0);
    assert_true(ebb_plan_pinned(half) <= all->host_bytes / 2 &&
                ebb_plan_pinned(half) > all->host_bytes / 2 - 4096);
    /* As it turned out: the plan stays and its forecast follows. */
    const double before = half->forecast.seconds;
    p.rates.costs[EBB_COST_BOUNCE_OUT].byte = p.rates.costs[EBB_COST_BOUNCE_IN].byte = 1e-6;
    ROOM_OK(p.room, ebb_plan_set_pageable(p.room->ctx, half, half->host_bytes));
    assert_int_equal(ebb_plan_pinned(half), 0);
    assert_true(half->forecast.seconds > before + 1e-6 * (double)half->host_bytes);
    ROOM_OK(p.room, ebb_plan_set_pageable(p.room->ctx, half, 0));
    assert_true(half->forecast.seconds == all->forecast.seconds);
    ebb_plan_free(p.room->ctx, half);
    ebb_plan_free(p.room->ctx, all);
    close_planned(&p);
}

static void what_can_be_pinned_is_enough_where_the_rest_is_slow(void **state)
{
    struct planned p;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    set_rates(&p, 1e-12);
    const int64_t device = less_than_all(&p);
    struct ebb_plan *all = plan_pinned(&p, device, 0, 1e-12);
    const int64_t budget = all->host_bytes / 2;
    struct ebb_plan *slow = plan_pinned(&p, device, budget, 1e-6);
    expect_within_budgets(slow);
    assert_int_equal(slow->pageable_bytes, 0);
    assert_true(slow->host_bytes <= budget);
    assert_int_equal(slow->request.host_budget, 0); /* as was asked */
    /* What the keys bind to the host has to bounce. */
    struct ebb_plan_request request = p.request;
    const struct ebb_policy_rule rule = {.last = -1, .slot = 0, .policy = EBB_POLICY_HOST};
    request.memory.rules = &rule;
    request.memory.rule_count = 1;
    request.pinned_budget = 1;
    struct ebb_plan *bound = make_plan(&p, &request);
    assert_true(bound->host_bytes > 0);
    assert_int_equal(bound->pageable_bytes, bound->host_bytes);
    ebb_plan_free(p.room->ctx, bound);
    ebb_plan_free(p.room->ctx, slow);
    ebb_plan_free(p.room->ctx, all);
    close_planned(&p);
}

/* Every weight of a student is trained, beside a teacher: the state of one is away, and matrices
 * and rows of the other. */
static void open_distilled(struct planned *p)
{
    const struct ebb_decoder_options options = {.storage = EBB_BF16,
                                                .train = true,
                                                .capacity = p->request.capacity,
                                                .objective = {.kind = EBB_OBJECTIVE_DISTILL},
                                                .teacher = p->config,
                                                .teacher_weights = &p->weights,
                                                .host_rows = true};
    ebb_decoder_free(p->room->ctx, p->net);
    ROOM_OK(p->room, ebb_decoder_create(p->room->ctx, p->config, &p->weights, &options, &p->net));
    p->request.net = p->net;
    p->request.memory.offload_optimizer = p->request.memory.offload_params = EBB_TRUE;
}

/* State moves once a step, all else in each micro-batch. */
static void optimizer_state_is_the_last_to_be_pinned(void **state)
{
    struct planned p;
    int64_t state_end = 0, state_bytes = 0, other_bytes = 0;
    open_planned(*state, LAYERS, 64, 192, 256, TOKENS, 128, &p);
    open_distilled(&p);
    set_rates(&p, 1e-12);
    struct ebb_plan *plan = make_plan(&p, &p.request);
    for (int32_t i = 0; i < p.net->tensor_count; i++)
        if (plan->persistent[i].space == EBB_SPACE_HOST && p.net->unit_of[i] >= 0 &&
            p.net->units[p.net->unit_of[i]] == EBB_UNIT_OPTIMIZER) {
            const int64_t end = plan->persistent[i].offset + plan->persistent[i].bytes;
            state_bytes += plan->persistent[i].bytes;
            if (end > state_end) state_end = end;
        }
    for (int32_t i = 0; i < p.net->tensor_count; i++)
        if (plan->persistent[i].space == EBB_SPACE_HOST &&
            !(p.net->unit_of[i] >= 0 && p.net->units[p.net->unit_of[i]] == EBB_UNIT_OPTIMIZER)) {
            other_bytes += plan->persistent[i].bytes;
            assert_true(plan->persistent[i].offset >= state_end);
        }
    assert_true(state_bytes > 100000 && other_bytes > 100000);
    assert_true(state_end <= state_bytes + 256 * p.net->tensor_count);
    ebb_plan_free(p.room->ctx, plan);
    close_planned(&p);
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* How long one call may take, of CPU time; 0 where a sanitizer or a build without optimisation says
 * nothing. It takes 0.08 to 0.1 s on a quiet machine, and up to twice that where others wear out
 * the caches: what is to be found out is a search that writes many times as much. */
static double seconds_allowed(void)
{
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    return 0.3;
#else
    return 0;
#endif
}

static void a_deep_model_is_searched_quickly_and_always_alike(void **state)
{
    enum { RUNS = 4 };
    struct planned p;
    struct ebb_plan *plans[RUNS];
    double quickest = HUGE_VAL, allowed = seconds_allowed();
    open_planned(*state, DEEP, 4096, 14336, 32000, 8192, 4096, &p);
    p.request.numerics.head_chunk = 512;
    ebb_gpu_rates(ebb_gpu_find("H200"), EBB_BF16, &p.rates);
    struct ebb_plan_request request = p.request;
    request.device_budget = 60LL << 30;
    request.host_budget = 64LL << 30;
    for (int i = 0; i < RUNS; i++) {
        double began = cpu_seconds();
        plans[i] = make_plan(&p, &request);
        quickest = fmin(quickest, cpu_seconds() - began);
        expect_within_budgets(plans[i]);
        assert_int_not_equal(plans[i]->rung, 0);
        assert_string_equal(plans[i]->what, plans[0]->what);
        assert_true(plans[i]->forecast.seconds == plans[0]->forecast.seconds);
        for (int64_t layer = 0; layer < DEEP; layer++)
            assert_memory_equal(plans[i]->policies.at[layer], plans[0]->policies.at[layer],
                                (size_t)p.net->slot_count);
    }
    print_message("%d layers: %.0f ms of CPU time (%s)\n", DEEP, 1e3 * quickest, plans[0]->what);
    if (allowed > 0 && quickest > allowed)
        fail_msg("the search took %.0f ms, %.0f are allowed", 1e3 * quickest, 1e3 * allowed);
    for (int i = 0; i < RUNS; i++) ebb_plan_free(p.room->ctx, plans[i]);
    close_planned(&p);
}

/* A plan with so much memory is not slower than those with less, by more than a share. */
static void expect_as_fast(struct planned *p, const struct ebb_plan_request *request, double share,
                           double *last)
{
    struct ebb_plan *plan = make_plan(p, request);
    expect_within_budgets(plan);
    if (plan->forecast.seconds > (1 + share) * *last)
        fail_msg("%lld GiB, host %lld GiB: %.5f s (%s), with less it were %.5f s",
                 (long long)(request->device_budget >> 30), (long long)(request->host_budget >> 30),
                 plan->forecast.seconds, plan->what, *last);
    *last = fmin(*last, plan->forecast.seconds);
    ebb_plan_free(p->room->ctx, plan);
}

static void more_memory_never_costs_time(void **state)
{
    struct planned p;
    double last = HUGE_VAL;
    open_planned(*state, 32, 4096, 14336, 32000, 8192, 4096, &p);
    p.request.numerics.head_chunk = 512;
    ebb_gpu_rates(ebb_gpu_find("H200"), EBB_BF16, &p.rates);
    struct ebb_plan_request request = p.request;
    for (int64_t gib = 20; gib <= 48; gib += 2) {
        request.device_budget = gib << 30;
        expect_as_fast(&p, &request, 1e-3, &last);
    }
    close_planned(&p);
}

/* Host memory, too; the search is less exact there, where it is a little short of what the best
 * plan would take. */
static void more_host_memory_never_costs_time(void **state)
{
    struct planned p;
    double last = HUGE_VAL;
    open_planned(*state, 28, 3584, 18944, 152064, 32768, 4096, &p);
    p.request.numerics.head_chunk = 512;
    ebb_gpu_rates(ebb_gpu_find("H200"), EBB_BF16, &p.rates);
    struct ebb_plan_request request = p.request;
    request.device_budget = 4560LL << 20;
    for (int64_t gib = 48; gib <= 68; gib += 1) {
        request.host_budget = gib << 30;
        expect_as_fast(&p, &request, 1.5e-2, &last);
    }
    close_planned(&p);
}

/* ---- the order of micro-batches -------------------------------------------------------------- */

/* How often a run brings each byte of a host tensor in. */
static void expect_times_in(const struct ebb_plan *plan, int32_t tensor, int64_t times)
{
    const struct ebb_program *program = plan->programs[EBB_PROGRAM_TRAIN];
    int64_t bytes = 0, end = 0;
    for (int32_t e = 0; e < ebb_program_entries(program); e++) {
        const struct ebb_entry *entry = ebb_program_entry_at(program, e);
        const struct ebb_move *move = (const struct ebb_move *)ebb_program_args(program, entry);
        if (entry->kind != EBB_ENTRY_IN || move->host.tensor != tensor) continue;
        const int64_t span = ebb_view_span(&move->host);
        assert_int_equal(entry->micro, EBB_MICRO_ALL);
        bytes += span;
        if (move->host.offset + span > end) end = move->host.offset + span;
    }
    assert_true(end > 0);
    if (bytes != times * end)
        fail_msg("%s: %lld bytes come in, want %lld times %lld", plan->persistent[tensor].name,
                 (long long)bytes, (long long)times, (long long)end);
}

/* A layer's matrices of Llama 3.1 8B's size, by LoRA: 2048 tokens a micro-batch are less work than
 * the matrices take to come. */
static void matrices_come_in_once_for_all_micro_batches(void **state)
{
    struct planned p;
    open_planned(*state, 16, 4096, 14336, 32000, 2048, 2048, &p);
    p.request.numerics.head_chunk = 512;
    ebb_gpu_rates(ebb_gpu_find("H200"), EBB_BF16, &p.rates);
    struct ebb_plan_request request = p.request;
    request.device_budget = 4LL << 30;
    request.accumulation = 8;
    struct ebb_plan *best = make_plan(&p, &request);
    request.breadth_first = EBB_FALSE;
    struct ebb_plan *depth = make_plan(&p, &request);
    expect_within_budgets(best);
    expect_within_budgets(depth);
    assert_int_equal(best->micros, 8);
    assert_int_equal(ebb_plan_runs(best), 1);
    assert_int_equal(depth->micros, 1);
    assert_int_equal(ebb_plan_runs(depth), 8);
    assert_non_null(strstr(best->what, "layer by layer across 8 micro-batches"));
    assert_true(best->forecast.seconds < 0.6 * depth->forecast.seconds);
    /* Each layer's matrices come in for forward and for backward, the head's once for both. */
    int tensors = 0;
    for (int32_t t = 0; t < p.net->tensor_count; t++) {
        if (p.net->stands_in[t] || !ebb_policies_away(&best->policies, p.net->unit_of[t])) continue;
        expect_times_in(best, t, strcmp(best->persistent[t].name, "head") == 0 ? 1 : 2);
        tensors++;
    }
    assert_true(tensors > 4);
    ebb_plan_free(p.room->ctx, best);
    ebb_plan_free(p.room->ctx, depth);
    close_planned(&p);
}

/* Plans of deep models take long to write: fewer micro-batches then. */
static void a_deep_model_takes_fewer_micro_batches_at_once(void **state)
{
    struct planned p;
    open_planned(*state, DEEP, 512, 1024, 1024, 128, 128, &p);
    set_rates(&p, 3e-10);
    struct ebb_plan_request request = p.request;
    request.accumulation = 16;
    request.memory.offload_params = EBB_TRUE;
    struct ebb_plan *plan = make_plan(&p, &request);
    assert_int_equal(plan->micros, 8);
    ebb_plan_free(p.room->ctx, plan);
    request.breadth_first = EBB_TRUE;
    plan = make_plan(&p, &request);
    assert_int_equal(plan->micros, 16);
    ebb_plan_free(p.room->ctx, plan);
    close_planned(&p);
}

/* Where nothing is away there is nothing to gain. */
static void what_stays_on_the_device_needs_no_other_order(void **state)
{
    struct planned p;
    open_planned(*state, 8, 1024, 4096, 32000, 2048, 2048, &p);
    ebb_gpu_rates(ebb_gpu_find("H200"), EBB_BF16, &p.rates);
    struct ebb_plan_request request = p.request;
    request.accumulation = 8;
    struct ebb_plan *plan = make_plan(&p, &request);
    assert_int_equal(plan->micros, 1);
    const int64_t device = plan->device_bytes;
    ebb_plan_free(p.room->ctx, plan);
    request.breadth_first = EBB_TRUE;
    plan = make_plan(&p, &request);
    assert_int_equal(plan->micros, 8);
    assert_true(plan->device_bytes > device);
    ebb_plan_free(p.room->ctx, plan);
    close_planned(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_CASE(what_fits_stays_on_the_device),
        ROOM_CASE(where_nothing_fits_the_smallest_of_the_ladder_comes_out),
        ROOM_CASE(keys_by_hand_bind_the_search),
        ROOM_CASE(moves_of_unknown_cost_are_not_taken_for_free),
        ROOM_CASE(what_is_beyond_the_pinned_budget_is_pageable_and_forecast_so),
        ROOM_CASE(what_can_be_pinned_is_enough_where_the_rest_is_slow),
        ROOM_CASE(optimizer_state_is_the_last_to_be_pinned),
        ROOM_CASE(the_search_does_as_well_as_trying_all_tables),
        ROOM_CASE(a_deep_model_is_searched_quickly_and_always_alike),
        ROOM_CASE(more_memory_never_costs_time),
        ROOM_CASE(more_host_memory_never_costs_time),
        ROOM_CASE(matrices_come_in_once_for_all_micro_batches),
        ROOM_CASE(what_stays_on_the_device_needs_no_other_order),
        ROOM_CASE(a_deep_model_takes_fewer_micro_batches_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
