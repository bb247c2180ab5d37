/* Where tests of whole models run, and how they reach an engine's memory there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_DEVICE_H
#define EBB_TRAIN_DEVICE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/engine.h"

/* EBB_TEST_BACKEND=cuda in the environment runs the same tests on the GPU. */
static inline enum ebb_backend kit_backend(void)
{
    const char *name = getenv("EBB_TEST_BACKEND");
    return name && strcmp(name, "cuda") == 0 ? EBB_BACKEND_CUDA : EBB_BACKEND_CPU;
}

/* EBB_TEST_PAGEABLE=1 runs them as if host memory could not be pinned. */
static inline bool kit_pageable(void)
{
    const char *text = getenv("EBB_TEST_PAGEABLE");
    return text && strcmp(text, "1") == 0;
}

/* Where engines keep their plans of attention: on a GPU each takes a while to make, and tests make
 * the same ones again and again. NULL: nowhere. tests/gpu.sh has a folder for all tests. */
static inline const char *kit_cache_dir(void)
{
    return getenv("EBB_TEST_CACHE");
}

/* Makes `count` fp32 elements of a view's row NaN, wherever the engine's memory is. */
static inline void kit_spoil(const struct ebb_engine *engine, const struct ebb_view *view,
                             int64_t row, int64_t count)
{
    char *at = (char *)ebb_engine_tensor(engine, view->tensor) + view->offset;
    float *values = (float *)malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = NAN;
    assert_int_equal(ebb_device_copy(ebb_engine_device(engine),
                                     at + row * view->stride * (int64_t)sizeof *values, values,
                                     count * (int64_t)sizeof *values),
                     EBB_OK);
    free(values);
}

#endif
