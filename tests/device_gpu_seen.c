/* Whether a machine has an NVIDIA GPU, by files as kernels have them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_gpu_seen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

struct test {
    struct ebb_ctx *ctx;
    char *root;
};

static int open_test(void **state)
{
    static struct test test;
    test.ctx = ebb_ctx_create();
    assert_int_equal(ebb_dir_create_temp(test.ctx, &test.root), EBB_OK);
    *state = &test;
    return 0;
}

static int close_test(void **state)
{
    struct test *t = *state;
    assert_int_equal(ebb_dir_remove(t->ctx, t->root), EBB_OK);
    ebb_mem_free(t->ctx, t->root);
    ebb_ctx_free(t->ctx);
    return 0;
}

/* root/FOLDER/NAME with this text. */
static void put(struct test *t, const char *folder, const char *name, const char *text)
{
    char path[512], file[600];
    snprintf(path, sizeof path, "%s/%s", t->root, folder);
    snprintf(file, sizeof file, "%s/%s", path, name);
    assert_int_equal(ebb_dir_create(t->ctx, path), EBB_OK);
    assert_int_equal(ebb_file_write(t->ctx, file, text, strlen(text)), EBB_OK);
}

static void put_on_bus(struct test *t, const char *device, const char *vendor, const char *kind)
{
    char folder[256];
    snprintf(folder, sizeof folder, "sys/bus/pci/devices/%s", device);
    put(t, folder, "vendor", vendor);
    put(t, folder, "class", kind);
}

static void a_machine_without_one_has_none(void **state)
{
    struct test *t = *state;
    assert_false(ebb_gpu_seen(t->root));
    put(t, "dev", "null", "");
    put_on_bus(t, "0000:00:1f.3", "0x10de\n", "0x040300\n"); /* NVIDIA's sound */
    put_on_bus(t, "0000:01:00.0", "0x1002\n", "0x030000\n"); /* AMD's graphics */
    put_on_bus(t, "0000:02:00.0", "", "");
    assert_false(ebb_gpu_seen(t->root));
}

static void it_is_seen_with_a_driver(void **state)
{
    struct test *t = *state;
    put(t, "dev", "nvidia0", "");
    assert_true(ebb_gpu_seen(t->root));
}

static void it_is_seen_by_the_drivers_list(void **state)
{
    struct test *t = *state;
    put(t, "proc/driver/nvidia/gpus/0000:01:00.0", "information", "");
    assert_true(ebb_gpu_seen(t->root));
}

static void it_is_seen_on_the_bus_without_a_driver(void **state)
{
    struct test *t = *state;
    put_on_bus(t, "0000:01:00.0", "0x10de\n", "0x030200\n");
    assert_true(ebb_gpu_seen(t->root));
}

static void it_is_hidden_by_a_list_without_one(void **state)
{
    (void)state;
    assert_true(ebb_gpu_hidden("") && ebb_gpu_hidden("-1"));
    assert_false(ebb_gpu_hidden(NULL) || ebb_gpu_hidden("0") || ebb_gpu_hidden("GPU-1"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_test, close_test)
    const struct CMUnitTest tests[] = {
        TEST(a_machine_without_one_has_none),
        TEST(it_is_seen_with_a_driver),
        TEST(it_is_seen_by_the_drivers_list),
        TEST(it_is_seen_on_the_bus_without_a_driver),
        cmocka_unit_test(it_is_hidden_by_a_list_without_one),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
