/* What the op tests share: an environment with a few tensors, each between guard zones, and ways
 * to fill and compare.
 *
 *     struct op_test t;
 *     op_test_start(&t);
 *     struct ebb_view x = op_test_tensor(&t, EBB_BF16, rows, cols, stride);
 *     op_test_fill(&t, &x, -1, 1);
 *     ... args ... assert_int_equal(op_test_run(&t, EBB_OP_..., &args), EBB_OK);
 *     op_test_close(&t, &y, i, j, exact, 1e-5, 1e-6);
 *     op_test_end(&t);      checks that nothing outside the views' elements was written
 *
 * The ops run on the CPU, or, with EBB_TEST_BACKEND=cuda in the environment, on the GPU: tensors
 * are then in memory that both reach, and the same oracle judges both. Scratch comes from
 * op_test_scratch; a case about the CPU alone starts with op_test_cpu_only.
 *
 * With EBB_TEST_MEMORY=device too, an op works on blocks of device memory, one for each tensor and
 * exactly as large, so that tools like compute-sanitizer see an overrun. They get the tensors
 * before it runs and are copied back after it. With EBB_TEST_MEMORY=unwritten they get nothing but
 * the live rows of what the op reads, so that the tools see a read of what nobody wrote; cases
 * about what an op leaves alone then fail. (On the CPU the blocks start as NaN.) And with
 * EBB_TEST_MEMORY=faulty the blocks are too short by four bytes and get nothing, to see whether a
 * tool sees it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_TEST_H
#define EBB_OP_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op/op.h"

enum { OP_TEST_TENSORS = 24, OP_TEST_GUARD = 256 };

struct op_test {
    struct ebb_op_env env;
    struct ebb_op_target target;
    struct ebb_device *device; /* of the GPU; NULL on the CPU */
    struct ebb_step step;
    struct ebb_view view[OP_TEST_TENSORS]; /* of each tensor */
    void *base[OP_TEST_TENSORS];
    int64_t bytes[OP_TEST_TENSORS]; /* without guards */
    bool hidden[OP_TEST_TENSORS];   /* in memory that only the GPU reaches, without guards */
    struct ebb_device *apart;       /* whose blocks ops work on; NULL: on the tensors themselves */
    bool unwritten;                 /* blocks get only what the op reads */
    bool faulty;                    /* blocks get nothing, and lack their last bytes */
    void *block[OP_TEST_TENSORS];   /* with `apart` */
    int count;
    uint64_t random;
};

static inline void op_test_quiet(void *user, enum ebb_log_level level, const char *topic,
                                 const char *text)
{
    (void)user, (void)level, (void)topic, (void)text;
}

static inline bool op_test_on_gpu(void)
{
    const char *backend = getenv("EBB_TEST_BACKEND");
    return backend != NULL && strcmp(backend, "cuda") == 0;
}

/* Skips a case whose subject the GPU does not have. */
static inline void op_test_cpu_only(const char *why)
{
    if (!op_test_on_gpu()) return;
    print_message("skipped on the GPU: %s\n", why);
    skip();
}

/* The other way round. */
static inline void op_test_gpu_only(const char *why)
{
    if (op_test_on_gpu()) return;
    print_message("skipped on the CPU: %s\n", why);
    skip();
}

static inline void op_test_start(struct op_test *t)
{
    memset(t, 0, sizeof *t);
    t->env.ctx = ebb_ctx_create();
    assert_non_null(t->env.ctx);
    ebb_ctx_set_log(t->env.ctx, op_test_quiet, NULL);
    t->target.threads = 2;
    if (op_test_on_gpu()) {
        const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA, .threads = 2};
        t->target.backend = EBB_BACKEND_CUDA;
        if (ebb_device_create(t->env.ctx, &options, &t->device) != EBB_OK)
            fail_msg("%s", ebb_error_text(t->env.ctx));
    }
    const char *memory = getenv("EBB_TEST_MEMORY");
    t->unwritten = memory != NULL && strcmp(memory, "unwritten") == 0;
    t->faulty = memory != NULL && strcmp(memory, "faulty") == 0;
    if (t->unwritten || t->faulty || (memory != NULL && strcmp(memory, "device") == 0)) {
        const struct ebb_device_options options = {.threads = 1};
        t->apart = t->device;
        if (t->apart == NULL)
            assert_int_equal(ebb_device_create(t->env.ctx, &options, &t->apart), EBB_OK);
    }
    t->env.base = (void *const *)t->base;
    t->env.step = &t->step;
    t->env.threads = 2;
    t->step.seed = 7;
    t->step.step = 1;
    t->random = 12345;
}

struct op_test_call {
    const struct op_test *t;
    const struct ebb_op_env *env;
    enum ebb_op op;
    const void *args;
    enum ebb_status status;
};

static inline enum ebb_status op_test_call_on_queue(const struct ebb_queue_env *queue,
                                                    const void *user)
{
    const struct op_test_call *call = *(struct op_test_call *const *)user;
    struct ebb_op_env env = *call->env;
    env.stream = queue->stream;
    ((struct op_test_call *)call)->status =
        ebb_op_function(call->op, EBB_BACKEND_CUDA)(&env, call->args);
    return EBB_OK;
}

static inline enum ebb_status op_test_run_in(struct op_test *t, const struct ebb_op_env *env,
                                             enum ebb_op op, const void *args)
{
    if (t->device == NULL) return ebb_op_function(op, EBB_BACKEND_CPU)(env, args);
    struct op_test_call call = {t, env, op, args, EBB_OK}, *at = &call;
    enum ebb_status status =
        ebb_queue_launch(t->device, EBB_QUEUE_COMPUTE, op_test_call_on_queue, &at);
    enum ebb_status synced = ebb_device_sync(t->device);
    return call.status != EBB_OK ? call.status : status != EBB_OK ? status : synced;
}

/* Copies a view's tensor to its block or back. */
static inline void op_test_move_view(struct op_test *t, const struct ebb_view *view, bool back)
{
    char *host = (char *)t->base[view->tensor], *block = (char *)t->block[view->tensor];
    int64_t size = ebb_dtype_bytes((enum ebb_dtype)view->dtype), line = view->stride * size;
    if (!t->unwritten) {
        assert_int_equal(ebb_device_copy(t->apart, back ? host : block, back ? block : host,
                                         t->bytes[view->tensor]),
                         EBB_OK);
        return;
    }
    /* A view that is wrong on purpose. */
    if (line < 0 || view->offset + ebb_view_span(view) > t->bytes[view->tensor]) return;
    host += view->offset;
    block += view->offset;
    assert_int_equal(ebb_device_copy_rows(t->apart, back ? host : block, line, back ? block : host,
                                          line, view->cols * size, ebb_view_rows(&t->env, view)),
                     EBB_OK);
}

static inline void op_test_move(struct op_test *t, enum ebb_op op, const void *args, bool back)
{
    const struct ebb_op_info *info = ebb_op_info(op);
    const struct ebb_view *views = (const struct ebb_view *)args;
    if (t->faulty) return;
    for (int i = 0; i < info->views; i++) {
        int32_t tensor = views[i].tensor;
        if (tensor < 0 || tensor >= t->count || t->hidden[tensor]) continue;
        if (info->access[i] == 'r' ? !back : info->access[i] == '+' || back || !t->unwritten)
            op_test_move_view(t, &views[i], back);
    }
}

/* Runs an op and waits for it. */
static inline enum ebb_status op_test_run(struct op_test *t, enum ebb_op op, const void *args)
{
    /* A test may have its tensors elsewhere. */
    if (t->apart == NULL || t->env.base != (void *const *)t->base)
        return op_test_run_in(t, &t->env, op, args);
    struct ebb_op_env env = t->env;
    env.base = (void *const *)t->block;
    op_test_move(t, op, args, false);
    enum ebb_status status = op_test_run_in(t, &env, op, args);
    if (status == EBB_OK) op_test_move(t, op, args, true);
    return status;
}

static inline char *op_test_memory(struct op_test *t, size_t bytes)
{
    void *block = NULL;
    if (t->device == NULL || t->apart != NULL)
        block = aligned_alloc(64, bytes);
    else
        assert_int_equal(ebb_device_block_create(t->device, (int64_t)bytes, true, &block), EBB_OK);
    assert_non_null(block);
    return (char *)block;
}

/* A new tensor of garbage bytes; the view covers it from its start, all rows live. */
static inline struct ebb_view op_test_tensor(struct op_test *t, enum ebb_dtype dtype, int64_t rows,
                                             int64_t cols, int64_t stride)
{
    assert_true(t->count < OP_TEST_TENSORS && stride >= cols);
    int64_t bytes = rows * stride * ebb_dtype_bytes(dtype);
    size_t all = ((size_t)bytes + 2 * OP_TEST_GUARD + 63) / 64 * 64;
    char *memory = op_test_memory(t, all);
    memset(memory, 0xa5, all);
    struct ebb_view view = ebb_view_none();
    view.tensor = t->count;
    view.dtype = (uint8_t)dtype;
    view.rows = rows;
    view.cols = cols;
    view.stride = stride;
    t->base[t->count] = memory + OP_TEST_GUARD;
    if (t->apart != NULL)
        assert_int_equal(ebb_device_block_create(t->apart, bytes - (t->faulty && bytes > 4 ? 4 : 0),
                                                 false, &t->block[t->count]),
                         EBB_OK);
    t->bytes[t->count] = bytes;
    t->view[t->count] = view;
    t->count++;
    return view;
}

/* One whose rows are tokens. */
static inline struct ebb_view op_test_token_rows(struct op_test *t, enum ebb_dtype dtype,
                                                 int64_t rows, int64_t cols, int64_t stride)
{
    struct ebb_view view = op_test_tensor(t, dtype, rows, cols, stride);
    view.extent = EBB_EXTENT_TOKENS;
    return view;
}

/* Some of a view's columns. */
static inline struct ebb_view op_test_columns(const struct ebb_view *all, int64_t first,
                                              int64_t count)
{
    struct ebb_view part = *all;
    part.offset += first * ebb_dtype_bytes((enum ebb_dtype)all->dtype);
    part.cols = count;
    return part;
}

/* Scratch that is too large to be pinned for every small case: on the GPU the host cannot look at
 * it, and there are no guards. */
static inline struct ebb_view op_test_workspace(struct op_test *t, int64_t bytes)
{
    struct ebb_device *device = t->apart != NULL ? t->apart : t->device;
    if (device == NULL) return op_test_tensor(t, EBB_U8, 1, bytes, bytes);
    struct ebb_view view = ebb_view_none();
    assert_true(t->count < OP_TEST_TENSORS);
    view.tensor = t->count;
    view.dtype = EBB_U8;
    view.rows = 1;
    view.cols = view.stride = bytes;
    assert_int_equal(ebb_device_block_create(device, bytes, false, &t->base[t->count]), EBB_OK);
    t->block[t->count] = t->base[t->count];
    t->bytes[t->count] = bytes;
    t->view[t->count] = view;
    t->hidden[t->count] = true;
    t->count++;
    return view;
}

/* What an op asks for beside its operands; absent where that is nothing. */
static inline struct ebb_view op_test_scratch(struct op_test *t, int64_t bytes)
{
    if (bytes == 0) return ebb_view_none();
    return t->apart != NULL ? op_test_workspace(t, bytes)
                            : op_test_tensor(t, EBB_U8, 1, bytes, bytes);
}

static inline void op_test_live(struct ebb_view *view, enum ebb_extent extent, int64_t row0)
{
    view->extent = (uint8_t)extent;
    view->row0 = row0;
}

/* Uniform in [0, 1). */
static inline double op_test_uniform(struct op_test *t)
{
    uint64_t z = t->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static inline void *op_test_at(const struct op_test *t, const struct ebb_view *view, int64_t i,
                               int64_t j)
{
    return (char *)ebb_view_data(&t->env, view) +
           (i * view->stride + j) * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
}

/* An element as a double, whatever its dtype. */
static inline double op_test_get(const struct op_test *t, const struct ebb_view *view, int64_t i,
                                 int64_t j)
{
    const void *at = op_test_at(t, view, i, j);
    switch ((enum ebb_dtype)view->dtype) {
    case EBB_F32: return (double)*(const float *)at;
    case EBB_BF16: return (double)ebb_from_bf16(*(const uint16_t *)at);
    case EBB_I32: return (double)*(const int32_t *)at;
    case EBB_U16: return (double)*(const uint16_t *)at;
    case EBB_U8: return (double)*(const uint8_t *)at;
    default: fail_msg("dtype %s", ebb_dtype_name((enum ebb_dtype)view->dtype)); return 0;
    }
}

static inline void op_test_set(struct op_test *t, const struct ebb_view *view, int64_t i, int64_t j,
                               double value)
{
    void *at = op_test_at(t, view, i, j);
    switch ((enum ebb_dtype)view->dtype) {
    case EBB_F32: *(float *)at = (float)value; break;
    case EBB_BF16: *(uint16_t *)at = ebb_to_bf16((float)value); break;
    case EBB_I32: *(int32_t *)at = (int32_t)value; break;
    case EBB_U16: *(uint16_t *)at = (uint16_t)value; break;
    case EBB_U8: *(uint8_t *)at = (uint8_t)value; break;
    default: fail_msg("dtype %s", ebb_dtype_name((enum ebb_dtype)view->dtype));
    }
}

/* Uniform values in [low, high), rounded to the view's dtype. */
static inline void op_test_fill(struct op_test *t, const struct ebb_view *view, double low,
                                double high)
{
    for (int64_t i = 0; i < view->rows; i++) {
        for (int64_t j = 0; j < view->cols; j++) {
            op_test_set(t, view, i, j, low + (high - low) * op_test_uniform(t));
        }
    }
}

static inline void op_test_zero(struct op_test *t, const struct ebb_view *view)
{
    op_test_fill(t, view, 0, 0);
}

/* The view's elements [rows, cols] as doubles; the caller frees with free(). */
static inline double *op_test_doubles(const struct op_test *t, const struct ebb_view *view)
{
    double *all = malloc((size_t)(view->rows * view->cols + 1) * sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < view->rows; i++) {
        for (int64_t j = 0; j < view->cols; j++)
            all[i * view->cols + j] = op_test_get(t, view, i, j);
    }
    return all;
}

/* All bytes of the view's tensor; op_test_same compares them later. The caller frees with
 * free(). */
static inline void *op_test_copy(const struct op_test *t, const struct ebb_view *view)
{
    size_t bytes = (size_t)t->bytes[view->tensor];
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, t->base[view->tensor], bytes);
    return copy;
}

static inline void op_test_restore(struct op_test *t, const struct ebb_view *view, const void *copy)
{
    memcpy(t->base[view->tensor], copy, (size_t)t->bytes[view->tensor]);
}

static inline bool op_test_same(const struct op_test *t, const struct ebb_view *view,
                                const void *copy)
{
    return memcmp(t->base[view->tensor], copy, (size_t)t->bytes[view->tensor]) == 0;
}

/* Half the distance between neighbours of the dtype around `exact`: what one correct rounding
 * may cost. */
static inline double op_test_rounding(enum ebb_dtype dtype, double exact)
{
    if (!isfinite(exact) || exact == 0) return 0;
    int exponent;
    frexp(exact, &exponent);
    return dtype == EBB_BF16 ? ldexp(1, exponent - 9) : ldexp(1, exponent - 25);
}

/* Element (i, j) is `exact`, give or take one rounding to its dtype, `relative` of it and
 * `absolute`. */
static inline void op_test_close(const struct op_test *t, const struct ebb_view *view, int64_t i,
                                 int64_t j, double exact, double relative, double absolute)
{
    double got = op_test_get(t, view, i, j);
    double bound =
        op_test_rounding((enum ebb_dtype)view->dtype, exact) + relative * fabs(exact) + absolute;
    if (!(fabs(got - exact) <= bound)) {
        fail_msg("element (%lld, %lld): got %.9g, wanted %.9g, off by %.3g, allowed %.3g",
                 (long long)i, (long long)j, got, exact, fabs(got - exact), bound);
    }
}

/* The whole view against `exact` [rows, cols]. */
static inline void op_test_all_close(const struct op_test *t, const struct ebb_view *view,
                                     const double *exact, double relative, double absolute)
{
    for (int64_t i = 0; i < view->rows; i++) {
        for (int64_t j = 0; j < view->cols; j++) {
            op_test_close(t, view, i, j, exact[i * view->cols + j], relative, absolute);
        }
    }
}

static inline void op_test_is_pattern(const unsigned char *at, int64_t bytes, int tensor,
                                      const char *where)
{
    for (int64_t i = 0; i < bytes; i++) {
        if (at[i] != 0xa5)
            fail_msg("tensor %d: byte %lld %s was written", tensor, (long long)i, where);
    }
}

/* Nothing before, behind or between the rows of tensor k was written. */
static inline void op_test_tensor_guards(const struct op_test *t, int k)
{
    const struct ebb_view *view = &t->view[k];
    const unsigned char *base = t->base[k];
    int64_t size = ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    if (t->hidden[k]) return;
    op_test_is_pattern(base - OP_TEST_GUARD, OP_TEST_GUARD, k, "of the guard before it");
    op_test_is_pattern(base + t->bytes[k], OP_TEST_GUARD, k, "of the guard behind it");
    for (int64_t i = 0; i < view->rows; i++) {
        op_test_is_pattern(base + (i * view->stride + view->cols) * size,
                           (view->stride - view->cols) * size, k, "behind a row's columns");
    }
}

static inline void op_test_guards(const struct op_test *t)
{
    for (int k = 0; k < t->count; k++) op_test_tensor_guards(t, k);
}

/* Checks and frees the newest tensor. */
static inline void op_test_drop_last(struct op_test *t)
{
    int k = --t->count;
    op_test_tensor_guards(t, k);
    if (t->hidden[k])
        ebb_device_block_free(t->apart != NULL ? t->apart : t->device, t->base[k]);
    else if (t->device == NULL || t->apart != NULL)
        free((char *)t->base[k] - OP_TEST_GUARD);
    else
        ebb_device_block_free(t->device, (char *)t->base[k] - OP_TEST_GUARD);
    if (t->apart != NULL && !t->hidden[k]) ebb_device_block_free(t->apart, t->block[k]);
    t->hidden[k] = false;
}

static inline void op_test_end(struct op_test *t)
{
    while (t->count > 0) op_test_drop_last(t);
    if (t->apart != t->device) ebb_device_free(t->apart);
    ebb_device_free(t->device);
    ebb_ctx_free(t->env.ctx);
}

#endif
