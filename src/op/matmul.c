/* Matrix products: the library of either backend behind one name, and what is checked of arguments
 * before either sees them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul.h"

#include "op/matmul_int.h"

enum ebb_status ebb_matmul_lib_create(struct ebb_ctx *ctx, const struct ebb_op_target *target,
                                      struct ebb_matmul_lib **lib)
{
    return target->backend == EBB_BACKEND_CUDA ? ebb_matmul_cuda_create(ctx, lib)
                                               : ebb_matmul_cpu_create(ctx, target->threads, lib);
}

enum ebb_status ebb_matmul_lib_create_planned(struct ebb_ctx *ctx,
                                              const struct ebb_op_target *target,
                                              struct ebb_matmul_lib **lib)
{
    if (target->backend != EBB_BACKEND_CUDA) return ebb_matmul_lib_create(ctx, target, lib);
    *lib = ebb_mem_alloc(ctx, sizeof **lib);
    if (*lib == NULL) return EBB_NO_MEMORY;
    (*lib)->backend = target->backend;
    (*lib)->planned = ctx;
    return EBB_OK;
}

void ebb_matmul_lib_free(struct ebb_matmul_lib *lib)
{
    if (lib == NULL) return;
    if (lib->planned)
        ebb_mem_free(lib->planned, lib);
    else if (lib->backend == EBB_BACKEND_CUDA)
        ebb_matmul_cuda_free(lib);
    else
        ebb_matmul_cpu_free(lib);
}

const char *ebb_matmul_lib_version(struct ebb_matmul_lib *lib)
{
    if (lib->planned) return "cuBLASLt (not loaded)";
    return lib->backend == EBB_BACKEND_CUDA ? ebb_matmul_cuda_version(lib)
                                            : ebb_matmul_cpu_version(lib);
}

enum ebb_status ebb_matmul_scratch(struct ebb_matmul_lib *lib, const struct ebb_matmul *args,
                                   int64_t *bytes)
{
    if (lib->backend == EBB_BACKEND_CPU) return ebb_matmul_cpu_scratch(lib, args, bytes);
    *bytes = ebb_matmul_gpu_scratch(args);
    return EBB_OK;
}

/* ---- checks ---- */

static const char *form_name(int form)
{
    return form == EBB_MATMUL_NT ? "NT" : form == EBB_MATMUL_NN ? "NN" : "TN";
}

static enum ebb_status check_failed(struct ebb_ctx *ctx, const struct ebb_matmul *args,
                                    const char *what)
{
    return EBB_FAIL(ctx, EBB_FAILED,
                    "matmul %s: %s (a [%lld, %lld] %s, b [%lld, %lld] %s, y [%lld, %lld] %s)\n"
                    "this is a mistake in the program that was planned; please report it",
                    form_name(args->form), what, (long long)args->a.rows, (long long)args->a.cols,
                    ebb_dtype_name((enum ebb_dtype)args->a.dtype), (long long)args->b.rows,
                    (long long)args->b.cols, ebb_dtype_name((enum ebb_dtype)args->b.dtype),
                    (long long)args->y.rows, (long long)args->y.cols,
                    ebb_dtype_name((enum ebb_dtype)args->y.dtype));
}

enum ebb_status ebb_matmul_check(struct ebb_ctx *ctx, const struct ebb_matmul *args)
{
    const struct ebb_view *a = &args->a, *b = &args->b, *y = &args->y;
    if (args->form < EBB_MATMUL_NT || args->form > EBB_MATMUL_TN)
        return check_failed(ctx, args, "unknown form");
    if (a->tensor < 0 || b->tensor < 0 || y->tensor < 0)
        return check_failed(ctx, args, "a, b or y is absent");
    if (a->dtype != EBB_F32 && a->dtype != EBB_BF16)
        return check_failed(ctx, args, "a is neither fp32 nor bf16");
    if (b->dtype != a->dtype) return check_failed(ctx, args, "a and b differ in dtype");
    if (y->dtype != a->dtype && y->dtype != EBB_F32)
        return check_failed(ctx, args, "y has neither a's dtype nor fp32");
    int64_t m = args->form == EBB_MATMUL_TN ? a->cols : a->rows;
    int64_t k = args->form == EBB_MATMUL_TN ? a->rows : a->cols;
    int64_t b_k = args->form == EBB_MATMUL_NT ? b->cols : b->rows;
    int64_t n = args->form == EBB_MATMUL_NT ? b->rows : b->cols;
    if (k != b_k) return check_failed(ctx, args, "the inner sizes of a and b differ");
    if (y->rows != m || y->cols != n)
        return check_failed(ctx, args, "y's size is not that of the product");
    if (a->stride < a->cols || b->stride < b->cols || y->stride < y->cols) {
        return check_failed(ctx, args, "a stride is less than the columns");
    }
    if (args->bias.tensor >= 0 &&
        (args->bias.dtype != a->dtype || args->bias.cols != n || args->bias.rows != 1)) {
        return check_failed(ctx, args, "bias is not [1, N] of a's dtype");
    }
    if (args->add.tensor < 0) return EBB_OK;
    if (args->add.dtype != y->dtype || args->add.rows != m || args->add.cols != n ||
        args->add.stride < n) {
        return check_failed(ctx, args, "add does not have y's size and dtype");
    }
    if (args->accumulate) return check_failed(ctx, args, "add and accumulate exclude each other");
    return EBB_OK;
}

enum ebb_status ebb_matmul_check_run(const struct ebb_op_env *env, const struct ebb_matmul *args)
{
    if (!env->libs.matmul)
        return EBB_FAIL(env->ctx, EBB_FAILED, "matmul: the environment has no matmul library");
    EBB_TRY(ebb_matmul_check(env->ctx, args));
    const struct ebb_view *partner = args->form == EBB_MATMUL_TN ? &args->b : &args->y;
    int64_t live = ebb_view_rows(env, &args->a), other = ebb_view_rows(env, partner);
    if (live != other) {
        return EBB_FAIL(env->ctx, EBB_FAILED, "matmul %s: %lld live rows of a, %lld of %s",
                        form_name(args->form), (long long)live, (long long)other,
                        args->form == EBB_MATMUL_TN ? "b" : "y");
    }
    return EBB_OK;
}
