/* Rates of this machine: kept, found again, and used with a warning where they are old.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "recipe/machine.h"

struct test {
    struct ebb_ctx *ctx;
    char *cache;
    struct ebb_recipe_env env;
    struct ebb_machine machine;
    struct ebb_rates rates; /* to be kept */
    int warnings;
    char warning[512];
};

static void take_line(void *user, enum ebb_log_level level, const char *topic, const char *text)
{
    struct test *t = user;
    (void)topic;
    if (level > EBB_LOG_WARNING) return;
    t->warnings++;
    snprintf(t->warning, sizeof t->warning, "%s", text);
}

static void ok(struct test *t, enum ebb_status status)
{
    if (status != EBB_OK) fail_msg("%s (%s)", ebb_error_text(t->ctx), ebb_error_where(t->ctx));
}

static int open_test(void **state)
{
    static struct test test;
    struct test *t = &test;
    memset(t, 0, sizeof *t);
    t->ctx = ebb_ctx_create();
    ebb_ctx_set_log(t->ctx, take_line, t);
    ok(t, ebb_dir_create_temp(t->ctx, &t->cache));
    t->env = (struct ebb_recipe_env){.stop_fd = -1, .cache_home = t->cache};
    t->machine = (struct ebb_machine){.env = &t->env,
                                      .backend = EBB_BACKEND_CPU,
                                      .storage = EBB_BF16,
                                      .threads = 3};
    ok(t, ebb_machine_describe(t->ctx, &t->machine, &t->rates));
    t->rates.measured = true;
    t->rates.costs[EBB_COST_PRODUCT].flop = 1e-12;
    *state = t;
    return 0;
}

static int close_test(void **state)
{
    struct test *t = *state;
    ok(t, ebb_dir_remove(t->ctx, t->cache));
    ebb_mem_free(t->ctx, t->cache);
    assert_string_equal(ebb_error_text(t->ctx), "");
    int64_t left = ebb_mem_bytes_now(t->ctx);
    ebb_ctx_free(t->ctx);
    return left == 0 ? 0 : -1;
}

static void keep(struct test *t, char name[256])
{
    char *path;
    ok(t, ebb_machine_save_rates(t->ctx, &t->machine, &t->rates, &path));
    assert_non_null(path);
    snprintf(name, 256, "%s", path);
    ebb_mem_free(t->ctx, path);
}

static bool find(struct test *t, struct ebb_rates *rates)
{
    bool found = false;
    ok(t, ebb_machine_rates(t->ctx, &t->machine, rates, &found));
    return found;
}

static void a_machine_says_what_it_is(void **state)
{
    struct test *t = *state;
    assert_true(t->rates.device[0] != '\0');
    assert_true(strncmp(t->rates.versions, "Ebb " EBB_VERSION, 5) == 0);
    assert_non_null(strstr(t->rates.versions, "oneDNN"));
    assert_non_null(strstr(t->rates.versions, "3 threads"));
    assert_true(t->rates.storage == EBB_BF16);
    assert_int_equal(t->rates.threads, 3);
}

static void what_was_kept_is_found_by_type_and_threads(void **state)
{
    struct test *t = *state;
    char path[256];
    struct ebb_rates rates;
    assert_false(find(t, &rates));
    keep(t, path);
    assert_non_null(strstr(path, "/ebb/rates/"));
    assert_non_null(strstr(path, "-bfloat16-3t.json"));
    assert_true(find(t, &rates));
    assert_string_equal(rates.device, t->rates.device);
    assert_memory_equal(rates.costs, t->rates.costs, sizeof rates.costs);
    assert_true(rates.measured && t->warnings == 0);
    t->machine.threads = 2;
    assert_false(find(t, &rates));
    t->machine.threads = 3;
    t->machine.storage = EBB_F32;
    assert_false(find(t, &rates));
}

static void rates_of_another_library_are_used_with_one_warning(void **state)
{
    struct test *t = *state;
    char path[256];
    struct ebb_rates rates;
    snprintf(t->rates.versions, sizeof t->rates.versions, "Ebb 0.0.1, oneDNN 1.0");
    keep(t, path);
    for (int i = 0; i < 2; i++) assert_true(find(t, &rates));
    assert_true(rates.costs[EBB_COST_PRODUCT].flop > 0);
    assert_int_equal(t->warnings, 1);
    assert_non_null(strstr(t->warning, "measured with Ebb 0.0.1, oneDNN 1.0"));
    assert_non_null(strstr(t->warning, "'ebb probe' measures it again"));
}

static void a_broken_file_is_as_if_there_were_none(void **state)
{
    static const char *const texts[] = {"{\"device\": ", "{}", ""};
    struct test *t = *state;
    char path[256];
    struct ebb_rates rates;
    keep(t, path);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ok(t, ebb_file_write(t->ctx, path, texts[i], strlen(texts[i])));
        assert_false(find(t, &rates));
    }
    assert_int_equal(t->warnings, 1);
    assert_non_null(strstr(t->warning, path));
}

/* Copied from another machine, or renamed: what it says of itself counts, not its name. */
static void rates_of_something_else_are_not_used(void **state)
{
    struct test *t = *state;
    struct ebb_rates rates;
    const struct ebb_rates own = t->rates;
    const struct {
        const char *device;
        enum ebb_dtype storage;
        int threads;
        const char *why;
    } others[] = {
        {"NVIDIA H200", EBB_BF16, 3, "it is of 'NVIDIA H200'"},
        {NULL, EBB_F32, 3, "it is of float32, this run's type is bfloat16"},
        {NULL, EBB_BF16, 7, "it is of 7 threads, this run has 3"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char path[256], right[256];
        t->rates = own;
        keep(t, right);
        if (others[i].device)
            snprintf(t->rates.device, sizeof t->rates.device, "%s", others[i].device);
        t->rates.storage = others[i].storage;
        t->rates.threads = others[i].threads;
        keep(t, path);
        if (rename(path, right) != 0) fail_msg("cannot rename %s", path);
        for (int k = 0; k < 2; k++) assert_false(find(t, &rates));
        assert_int_equal(t->warnings, (int)i + 1);
        if (!strstr(t->warning, others[i].why))
            fail_msg("'%s' does not say '%s'", t->warning, others[i].why);
    }
}

static void without_a_place_for_a_cache_nothing_is_kept(void **state)
{
    struct test *t = *state;
    struct ebb_rates rates;
    char *path;
    t->env.cache_home = NULL;
    ok(t, ebb_machine_save_rates(t->ctx, &t->machine, &t->rates, &path));
    assert_null(path);
    assert_false(find(t, &rates));
}

/* Minutes of measuring are not lost for want of a folder: who asked can still be shown them. */
static void what_cannot_be_kept_is_no_error(void **state)
{
    struct test *t = *state;
    char *path, *file = ebb_path_join(t->ctx, t->cache, "file"), why[EBB_MACHINE_WHY];
    ok(t, ebb_machine_keep_rates(t->ctx, &t->machine, &t->rates, &path, why));
    assert_non_null(path);
    assert_string_equal(why, "");
    ebb_mem_free(t->ctx, path);
    ok(t, ebb_file_write(t->ctx, file, "x", 1));
    t->env.cache_home = file; /* no folder can be made in it */
    ok(t, ebb_machine_keep_rates(t->ctx, &t->machine, &t->rates, &path, why));
    assert_null(path);
    assert_non_null(strstr(why, file));
    assert_int_equal(t->warnings, 1);
    assert_non_null(strstr(t->warning, "not kept: "));
    assert_non_null(strstr(t->warning, why));
    t->env.cache_home = NULL;
    ok(t, ebb_machine_keep_rates(t->ctx, &t->machine, &t->rates, &path, why));
    assert_null(path);
    assert_string_equal(why, "neither XDG_CACHE_HOME nor HOME says where");
    ebb_mem_free(t->ctx, file);
}

/* With CUDA_VISIBLE_DEVICES as given, in a machine whose devices are below `root`. */
static int told_in(struct test *t, const char *root, const char *visible,
                   enum ebb_device_key device, char *gpu)
{
    struct ebb_config *config = calloc(1, sizeof *config);
    assert_non_null(config);
    config->device = device;
    config->gpu = gpu;
    if (visible)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    struct ebb_ctx *ctx = ebb_ctx_create(); /* a warning is said once in each */
    ebb_ctx_set_log(ctx, take_line, t);
    t->warnings = 0;
    ebb_machine_tell_unused(ctx, config, root);
    ebb_ctx_free(ctx);
    free(config);
    return t->warnings;
}

static void a_gpu_that_auto_does_not_take_is_told(void **state)
{
    struct test *t = *state;
    char folder[512], file[600], name[] = "H200";
    if (ebb_backend_is_there(EBB_BACKEND_CUDA, NULL, 0)) skip();
    assert_int_equal(told_in(t, t->cache, NULL, EBB_DEVICE_KEY_AUTO, NULL), 0);
    snprintf(folder, sizeof folder, "%s/dev", t->cache);
    snprintf(file, sizeof file, "%s/nvidia0", folder);
    ok(t, ebb_dir_create(t->ctx, folder));
    ok(t, ebb_file_write(t->ctx, file, "", 0));
    assert_int_equal(told_in(t, t->cache, NULL, EBB_DEVICE_KEY_AUTO, NULL), 1);
    assert_non_null(strstr(t->warning, "device: auto takes the CPU"));
    char why[EBB_BACKEND_WHY];
    (void)ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why);
    assert_non_null(strstr(t->warning, why));
    assert_int_equal(told_in(t, t->cache, "0", EBB_DEVICE_KEY_AUTO, NULL), 1);
    /* As somebody wanted it. */
    assert_int_equal(told_in(t, t->cache, "", EBB_DEVICE_KEY_AUTO, NULL), 0);
    assert_int_equal(told_in(t, t->cache, "-1", EBB_DEVICE_KEY_AUTO, NULL), 0);
    assert_int_equal(told_in(t, t->cache, NULL, EBB_DEVICE_KEY_CPU, NULL), 0);
    assert_int_equal(told_in(t, t->cache, NULL, EBB_DEVICE_KEY_AUTO, name), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_test, close_test)
    const struct CMUnitTest tests[] = {
        TEST(a_machine_says_what_it_is),
        TEST(what_was_kept_is_found_by_type_and_threads),
        TEST(rates_of_another_library_are_used_with_one_warning),
        TEST(a_broken_file_is_as_if_there_were_none),
        TEST(rates_of_something_else_are_not_used),
        TEST(what_cannot_be_kept_is_no_error),
        TEST(without_a_place_for_a_cache_nothing_is_kept),
        TEST(a_gpu_that_auto_does_not_take_is_told),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
