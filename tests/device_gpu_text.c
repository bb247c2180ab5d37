/* What is said where a GPU is missing, full or lost.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device_gpu_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_missing(struct ebb_gpu_missing facts, const char *wanted)
{
    char text[512];
    facts.wanted = 13000;
    assert_non_null(strstr(ebb_gpu_missing_text(&facts, text, sizeof text), wanted));
    assert_null(strchr(text, '\n'));
}

static void each_way_of_having_no_gpu_is_told(void **state)
{
    (void)state;
    assert_missing((struct ebb_gpu_missing){0}, "there is no NVIDIA driver (libcuda.so.1)");
    assert_missing((struct ebb_gpu_missing){.amd = true}, "the AMD GPU of this machine is not");
    assert_missing((struct ebb_gpu_missing){.kernel_driver = true}, "docker run --gpus all");
    assert_missing((struct ebb_gpu_missing){.driver = 12040},
                   "serves CUDA 12.4, and this build needs 13.0 or newer: update the driver");
    assert_missing((struct ebb_gpu_missing){.driver = 13000, .none = true, .visible = ""},
                   "because CUDA_VISIBLE_DEVICES is ''");
    assert_missing((struct ebb_gpu_missing){.driver = 13000, .none = true, .visible = "7"},
                   "because CUDA_VISIBLE_DEVICES is '7': unset it");
    assert_missing((struct ebb_gpu_missing){.driver = 13000, .none = true}, "nvidia-smi -L");
    assert_missing((struct ebb_gpu_missing){.driver = 13000, .error = "it burns"},
                   "the GPU does not answer: it burns");
}

static void the_drivers_version_is_found_in_what_its_module_says(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC "
         "2024\n"
         "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
         "535.183.01"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  "
         "(dvs-builder@U22-I3-AM02-24-3)  Thu Aug 28 2025\nGCC version:  gcc 12.3.0\n",
         "580.159.04"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  590.44\n", "590.44"},
        {"NVRM version: of no known form\nGCC version:  gcc version 12.2.0\n", ""},
        {"gVisor 580.1\n", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[32] = "before", tight[8];
        bool found = ebb_gpu_driver_version(cases[i].text, out, sizeof out);
        assert_string_equal(out, cases[i].wanted);
        assert_int_equal(found, cases[i].wanted[0] != '\0');
        if (strlen(cases[i].wanted) >= sizeof tight)
            assert_false(ebb_gpu_driver_version(cases[i].text, tight, sizeof tight));
    }
}

static void users_of_the_gpu_are_named_the_largest_first(void **state)
{
    (void)state;
    char text[256];
    struct ebb_gpu_user users[6] = {{10, "small", 1 << 30}, {11, "python3", INT64_C(100) << 30},
                                    {12, "", 2 << 20},      {13, "unknown", -1},
                                    {14, "x", 0},           {15, "y", 3 << 20}};
    assert_string_equal(ebb_gpu_users_text(users, 0, text, sizeof text), "");
    assert_string_equal(ebb_gpu_users_text(users, 1, text, sizeof text),
                        "process 10 (small) uses 1 GiB");
    assert_string_equal(ebb_gpu_users_text(users, 2, text, sizeof text),
                        "processes use it: 11 (python3) 100 GiB, 10 (small) 1 GiB");
    assert_string_equal(ebb_gpu_users_text(users, 6, text, sizeof text),
                        "processes use it: 11 (python3) 100 GiB, 10 (small) 1 GiB, 15 (y) 3 MiB, "
                        "12 2 MiB and 2 more");
    assert_string_equal(ebb_gpu_users_text(&users[5], 1, text, sizeof text),
                        "process 13 (unknown)");
    for (size_t room = 1; room < 60; room++) {
        char small[64];
        memset(small, '#', sizeof small);
        ebb_gpu_users_text(users, 6, small, room);
        assert_true(strlen(small) < room && small[room] == '#');
    }
}

static void advice_for_a_lost_gpu_names_the_kernels_log(void **state)
{
    (void)state;
    assert_non_null(strstr(ebb_gpu_lost_advice(false), "start again"));
    assert_non_null(strstr(ebb_gpu_lost_advice(false), "'Xid'"));
    assert_non_null(strstr(ebb_gpu_lost_advice(true), "nvidia-smi -q"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_of_having_no_gpu_is_told),
        cmocka_unit_test(the_drivers_version_is_found_in_what_its_module_says),
        cmocka_unit_test(users_of_the_gpu_are_named_the_largest_first),
        cmocka_unit_test(advice_for_a_lost_gpu_names_the_kernels_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
