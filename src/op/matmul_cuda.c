/* Matrix products on the GPU through cuBLASLt, loaded at run time.
 *
 * cuBLASLt thinks in columns: a row-major [R, C] matrix is a column-major [C, R] one, so y^T =
 * b^T a^T is what it computes.
 *
 * One algorithm serves a *key*: form, the two sizes that are not rows of tokens, types, strides,
 * alignment and terms. It is asked for at a number of rows that is always the same, without split-K
 * (its parts are added in an order that depends on sizes), and checked for each other number when
 * that first runs; long sums are split by K alone (matmul_gpu.c). So a row's result depends on
 * neither how many other rows there are nor what the budget made of the program.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul.h"

#include <stdio.h>
#include <string.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "base/library.h"
#include "op/matmul_int.h"

enum {
    KEYS = 512, /* more than the products of one plan; the one unused for the longest goes */
    CANDIDATES = 16,
    CHOICE_ROWS = 4096, /* rows at which an algorithm is asked for */
    ALIGN_BEST = 16     /* bytes; more makes no difference to any kernel */
};

/* X(function): what is used of the library. */
#define CALLS(X)                                                                                   \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)

struct calls {
#define MEMBER(name) __typeof__(name) *name;
    CALLS(MEMBER)
#undef MEMBER
};

/* Compared byte by byte: start from zero bytes. `m` and `k` are 0 where they count tokens. */
struct key {
    int64_t m, n, k;
    int64_t a_stride, b_stride, y_stride, add_stride;
    int64_t batch, a_step, b_step, y_step; /* so many products, elements from one to the next */
    uint8_t form, in_dtype, y_dtype, bias, add;
    uint8_t a_align, b_align, y_align, add_align;
    uint8_t rest[7];
};

struct entry {
    struct key key;
    uint64_t used;
    int64_t rows; /* the last number that the algorithm was checked for */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, y;
    cublasLtMatmulAlgo_t algorithm;
};

struct cuda_lib {
    struct ebb_matmul_lib head;
    struct ebb_ctx *ctx;
    struct ebb_library *file;
    struct calls calls;
    cublasLtHandle_t handle; /* made by the first run */
    char version[96];
    uint64_t clock;
    int entries;
    struct entry entry[KEYS];
};

static struct cuda_lib *cuda_of(struct ebb_matmul_lib *lib)
{
    EBB_ASSERT(lib->backend == EBB_BACKEND_CUDA);
    return (struct cuda_lib *)lib;
}

/* ---- the library ----------------------------------------------------------------------------- */

static const struct ebb_library_function functions[] = {
#define FUNCTION(name) {#name, offsetof(struct calls, name)},
    CALLS(FUNCTION)
#undef FUNCTION
};

static enum ebb_status open_file(struct cuda_lib *lib)
{
    char name[32], hint[160], wanted[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    snprintf(wanted, sizeof wanted, "%d.*", CUBLAS_VER_MAJOR);
    snprintf(hint, sizeof hint,
             "install cuBLAS of CUDA %d, or activate the Python environment whose PyTorch brings "
             "it; device: cpu needs none of it",
             CUBLAS_VER_MAJOR);
    EBB_TRY(ebb_library_open(lib->ctx, name, hint, &lib->file));
    EBB_TRY(ebb_library_find(lib->file, functions, sizeof functions / sizeof functions[0],
                             &lib->calls));
    size_t version = lib->calls.cublasLtGetVersion();
    snprintf(lib->version, sizeof lib->version, "cuBLASLt %zu.%zu.%zu", version / 10000,
             version / 100 % 100, version % 100);
    if (version / 10000 == CUBLAS_VER_MAJOR) return EBB_OK;
    return ebb_library_refuse(lib->file, lib->version, wanted, hint);
}

enum ebb_status ebb_matmul_cuda_create(struct ebb_ctx *ctx, struct ebb_matmul_lib **lib_out)
{
    struct cuda_lib *lib = ebb_mem_alloc(ctx, sizeof *lib);
    *lib_out = NULL;
    if (lib == NULL) return EBB_NO_MEMORY;
    lib->head.backend = EBB_BACKEND_CUDA;
    lib->ctx = ctx;
    enum ebb_status status = open_file(lib);
    if (status != EBB_OK) {
        ebb_matmul_cuda_free(&lib->head);
        return status;
    }
    *lib_out = &lib->head;
    return EBB_OK;
}

static void clear_entry(struct cuda_lib *lib, struct entry *entry)
{
    cublasLtMatrixLayout_t layouts[] = {entry->a, entry->b, entry->c, entry->y};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i] != NULL) lib->calls.cublasLtMatrixLayoutDestroy(layouts[i]);
    if (entry->desc != NULL) lib->calls.cublasLtMatmulDescDestroy(entry->desc);
    memset(entry, 0, sizeof *entry);
}

void ebb_matmul_cuda_free(struct ebb_matmul_lib *head)
{
    struct cuda_lib *lib = cuda_of(head);
    for (int i = 0; i < lib->entries; i++) clear_entry(lib, &lib->entry[i]);
    if (lib->handle != NULL) lib->calls.cublasLtDestroy(lib->handle);
    ebb_library_close(lib->file);
    ebb_mem_free(lib->ctx, lib);
}

const char *ebb_matmul_cuda_version(struct ebb_matmul_lib *lib)
{
    return cuda_of(lib)->version;
}

static enum ebb_status check(struct cuda_lib *lib, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) return EBB_OK;
    return EBB_FAIL(lib->ctx, EBB_DEVICE, "cuBLASLt failed at %s: %s", what,
                    lib->calls.cublasLtGetStatusString(status));
}

/* ---- one key --------------------------------------------------------------------------------- */

static cudaDataType_t type_of(uint8_t dtype)
{
    return dtype == EBB_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

/* The largest power of two up to ALIGN_BEST that divides address and stride, in bytes. */
static uint8_t alignment(const void *data, int64_t stride, uint8_t dtype)
{
    uint64_t bits = (uint64_t)(uintptr_t)data |
                    (uint64_t)(stride * ebb_dtype_bytes((enum ebb_dtype)dtype)) | ALIGN_BEST;
    return (uint8_t)(bits & (~bits + 1));
}

/* So many products at once, and the elements from one's operands to the next one's. */
struct batch {
    int64_t count, a_step, b_step, y_step;
};

struct operands {
    const void *a, *b, *bias, *add;
    void *y, *workspace;
    int64_t workspace_bytes;
    int64_t rows; /* live */
};

static struct key key_of(const struct ebb_matmul *args, const struct operands *o,
                         const struct batch *batch)
{
    struct key key;
    memset(&key, 0, sizeof key);
    bool tn = args->form == EBB_MATMUL_TN;
    key.m = tn ? args->y.rows : 0;
    key.n = args->y.cols;
    key.k = tn ? 0 : args->a.cols;
    key.a_stride = args->a.stride;
    key.b_stride = args->b.stride;
    key.batch = batch->count;
    key.a_step = batch->a_step;
    key.b_step = batch->b_step;
    key.y_step = batch->y_step;
    key.y_stride = args->y.stride;
    key.form = (uint8_t)args->form;
    key.in_dtype = args->a.dtype;
    key.y_dtype = args->y.dtype;
    key.bias = o->bias != NULL;
    key.add = o->add != NULL;
    key.a_align = alignment(o->a, args->a.stride, args->a.dtype);
    key.b_align = alignment(o->b, args->b.stride, args->b.dtype);
    key.y_align = alignment(o->y, args->y.stride, args->y.dtype);
    if (o->add == NULL) return key;
    key.add_stride = args->accumulate ? args->y.stride : args->add.stride;
    key.add_align = alignment(o->add, key.add_stride, args->y.dtype);
    return key;
}

static enum ebb_status create_layout(struct cuda_lib *lib, uint8_t dtype, int64_t rows,
                                     int64_t cols, int64_t stride, cublasLtMatrixLayout_t *layout)
{
    return check(lib,
                 lib->calls.cublasLtMatrixLayoutCreate(layout, type_of(dtype), (uint64_t)rows,
                                                       (uint64_t)cols, stride),
                 "a matrix's layout");
}

static enum ebb_status set_desc(struct cuda_lib *lib, struct entry *entry,
                                cublasLtMatmulDescAttributes_t what, const void *value,
                                size_t bytes)
{
    return check(lib, lib->calls.cublasLtMatmulDescSetAttribute(entry->desc, what, value, bytes),
                 "a product's description");
}

static enum ebb_status set_batch(struct cuda_lib *lib, cublasLtMatrixLayout_t layout, int64_t batch,
                                 int64_t step)
{
    int32_t count = (int32_t)batch;
    EBB_TRY(check(lib,
                  lib->calls.cublasLtMatrixLayoutSetAttribute(layout,
                                                              CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                              &count, sizeof count),
                  "the number of products"));
    return check(lib,
                 lib->calls.cublasLtMatrixLayoutSetAttribute(
                     layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
                 "the way from product to product");
}

static enum ebb_status create_layouts(struct cuda_lib *lib, struct entry *entry)
{
    const struct key *key = &entry->key;
    int64_t rows = CHOICE_ROWS, n = key->n, k = key->k, m = key->m;
    if (key->form == EBB_MATMUL_TN) {
        EBB_TRY(create_layout(lib, key->in_dtype, n, rows, key->b_stride, &entry->b));
        EBB_TRY(create_layout(lib, key->in_dtype, m, rows, key->a_stride, &entry->a));
        EBB_TRY(create_layout(lib, key->y_dtype, n, m, key->y_stride, &entry->y));
        return create_layout(lib, key->y_dtype, n, m, key->add ? key->add_stride : key->y_stride,
                             &entry->c);
    }
    bool nt = key->form == EBB_MATMUL_NT;
    EBB_TRY(create_layout(lib, key->in_dtype, nt ? k : n, nt ? n : k, key->b_stride, &entry->b));
    EBB_TRY(create_layout(lib, key->in_dtype, k, rows, key->a_stride, &entry->a));
    EBB_TRY(create_layout(lib, key->y_dtype, n, rows, key->y_stride, &entry->y));
    return create_layout(lib, key->y_dtype, n, rows, key->add ? key->add_stride : key->y_stride,
                         &entry->c);
}

/* In cuBLASLt's view b comes first. */
static enum ebb_status describe(struct cuda_lib *lib, struct entry *entry)
{
    const struct key *key = &entry->key;
    cublasOperation_t first = key->form == EBB_MATMUL_NT ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->form == EBB_MATMUL_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
    EBB_TRY(check(lib,
                  lib->calls.cublasLtMatmulDescCreate(&entry->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "a product's description"));
    EBB_TRY(set_desc(lib, entry, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    EBB_TRY(set_desc(lib, entry, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (key->bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        cudaDataType_t type = type_of(key->in_dtype);
        EBB_TRY(set_desc(lib, entry, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        EBB_TRY(set_desc(lib, entry, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    }
    EBB_TRY(create_layouts(lib, entry));
    if (key->batch == 1) return EBB_OK;
    EBB_TRY(set_batch(lib, entry->a, key->batch, key->a_step));
    EBB_TRY(set_batch(lib, entry->b, key->batch, key->b_step));
    EBB_TRY(set_batch(lib, entry->c, key->batch, key->y_step));
    return set_batch(lib, entry->y, key->batch, key->y_step);
}

static enum ebb_status set_preference(struct cuda_lib *lib, cublasLtMatmulPreference_t preference,
                                      const struct key *key)
{
    struct {
        cublasLtMatmulPreferenceAttributes_t what;
        uint32_t value;
    } numbers[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_NONE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->b_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->a_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->add ? key->add_align : key->y_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->y_align},
    };
    uint64_t workspace = EBB_MATMUL_CUDA_WORKSPACE;
    EBB_TRY(check(lib,
                  lib->calls.cublasLtMatmulPreferenceSetAttribute(
                      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                      sizeof workspace),
                  "the workspace's size"));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        EBB_TRY(check(lib,
                      lib->calls.cublasLtMatmulPreferenceSetAttribute(preference, numbers[i].what,
                                                                      &numbers[i].value,
                                                                      sizeof numbers[i].value),
                      "a preference"));
    return EBB_OK;
}

static bool is_split(struct cuda_lib *lib, const cublasLtMatmulAlgo_t *algorithm)
{
    int32_t parts = 1;
    size_t written;
    cublasStatus_t status =
        lib->calls.cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                        &parts, sizeof parts, &written);
    return status != CUBLAS_STATUS_SUCCESS || parts > 1;
}

/* The first of the library's proposals that does not split the sum. */
static enum ebb_status choose(struct cuda_lib *lib, struct entry *entry)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int count = 0;
    EBB_TRY(check(lib, lib->calls.cublasLtMatmulPreferenceCreate(&preference), "a preference"));
    enum ebb_status status = set_preference(lib, preference, &entry->key);
    if (status == EBB_OK)
        status = check(lib,
                       lib->calls.cublasLtMatmulAlgoGetHeuristic(lib->handle, entry->desc, entry->b,
                                                                 entry->a, entry->c, entry->y,
                                                                 preference, CANDIDATES, results,
                                                                 &count),
                       "the choice of an algorithm");
    lib->calls.cublasLtMatmulPreferenceDestroy(preference);
    EBB_TRY(status);
    for (int i = 0; i < count; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || is_split(lib, &results[i].algo)) continue;
        entry->algorithm = results[i].algo;
        return EBB_OK;
    }
    return EBB_FAIL(lib->ctx, EBB_UNSUPPORTED,
                    "%s has no algorithm without split-K for a product of form %d, [*, %lld] from "
                    "%lld of %s",
                    lib->version, entry->key.form, (long long)entry->key.n,
                    (long long)(entry->key.k > 0 ? entry->key.k : entry->key.m),
                    ebb_dtype_name((enum ebb_dtype)entry->key.in_dtype));
}

static enum ebb_status find_entry(struct cuda_lib *lib, const struct key *key,
                                  struct entry **entry_out)
{
    int oldest = 0;
    lib->clock++;
    for (int i = 0; i < lib->entries; i++) {
        struct entry *entry = &lib->entry[i];
        if (memcmp(&entry->key, key, sizeof *key) == 0) {
            entry->used = lib->clock;
            *entry_out = entry;
            return EBB_OK;
        }
        if (entry->used < lib->entry[oldest].used) oldest = i;
    }
    if (lib->entries < KEYS) oldest = lib->entries++;
    struct entry *entry = &lib->entry[oldest];
    clear_entry(lib, entry);
    entry->key = *key;
    enum ebb_status status = describe(lib, entry);
    if (status == EBB_OK) status = choose(lib, entry);
    if (status != EBB_OK) {
        clear_entry(lib, entry); /* never found: no key is all zeros */
        return status;
    }
    entry->used = lib->clock;
    entry->rows = CHOICE_ROWS;
    *entry_out = entry;
    return EBB_OK;
}

/* The layouts whose columns count tokens get this run's number; the algorithm must serve it too. */
static enum ebb_status set_rows(struct cuda_lib *lib, struct entry *entry, int64_t rows)
{
    if (entry->rows == rows) return EBB_OK;
    bool tn = entry->key.form == EBB_MATMUL_TN;
    cublasLtMatrixLayout_t layouts[] = {entry->a, tn ? entry->b : entry->y, tn ? NULL : entry->c};
    uint64_t cols = (uint64_t)rows;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i] != NULL)
            EBB_TRY(check(lib,
                          lib->calls.cublasLtMatrixLayoutSetAttribute(layouts[i],
                                                                      CUBLASLT_MATRIX_LAYOUT_COLS,
                                                                      &cols, sizeof cols),
                          "a matrix's size"));
    cublasLtMatmulHeuristicResult_t result;
    EBB_TRY(
        check(lib,
              lib->calls.cublasLtMatmulAlgoCheck(lib->handle, entry->desc, entry->b, entry->a,
                                                 entry->c, entry->y, &entry->algorithm, &result),
              "the algorithm's check for another number of rows"));
    entry->rows = rows;
    return EBB_OK;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* A sum over no rows. */
static enum ebb_status empty_sum(struct cuda_lib *lib, const struct ebb_op_env *env,
                                 const struct ebb_matmul *args, const struct operands *o)
{
    size_t item = (size_t)ebb_dtype_bytes((enum ebb_dtype)args->y.dtype);
    if (args->accumulate) return EBB_OK;
    if (o->bias != NULL || o->add != NULL)
        return EBB_FAIL(lib->ctx, EBB_UNSUPPORTED,
                        "a product over no rows with a bias or a sum to add to");
    cudaError_t error =
        cudaMemset2DAsync(o->y, (size_t)args->y.stride * item, 0, (size_t)args->y.cols * item,
                          (size_t)args->y.rows, (cudaStream_t)env->stream);
    if (error == cudaSuccess) return EBB_OK;
    return EBB_FAIL(lib->ctx, EBB_DEVICE, "the GPU failed at an empty product: %s",
                    cudaGetErrorString(error));
}

static struct operands operands_of(const struct ebb_op_env *env, const struct ebb_matmul *args)
{
    struct operands o = {.a = ebb_view_data(env, &args->a),
                         .b = ebb_view_data(env, &args->b),
                         .bias = ebb_view_data(env, &args->bias),
                         .add = ebb_view_data(env, &args->add),
                         .y = ebb_view_data(env, &args->y),
                         .workspace = ebb_view_data(env, &args->scratch),
                         .rows = ebb_view_rows(env, &args->a)};
    if (args->accumulate) o.add = o.y;
    return o;
}

static enum ebb_status run_library(const struct ebb_op_env *env, const struct ebb_matmul *args,
                                   const struct batch *batch)
{
    struct cuda_lib *lib = cuda_of(env->libs.matmul);
    struct operands o = operands_of(env, args);
    if (lib->handle == NULL)
        EBB_TRY(check(lib, lib->calls.cublasLtCreate(&lib->handle), "its start on this GPU"));
    struct key key = key_of(args, &o, batch);
    struct entry *entry;
    EBB_TRY(find_entry(lib, &key, &entry));
    EBB_TRY(set_rows(lib, entry, o.rows));
    if (o.bias != NULL)
        EBB_TRY(set_desc(lib, entry, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o.bias, sizeof o.bias));
    float alpha = args->alpha, beta = o.add != NULL ? 1 : 0;
    return check(lib,
                 lib->calls.cublasLtMatmul(lib->handle, entry->desc, &alpha, o.b, entry->b, o.a,
                                           entry->a, &beta, o.add != NULL ? o.add : o.y, entry->c,
                                           o.y, entry->y, &entry->algorithm, o.workspace,
                                           EBB_MATMUL_CUDA_WORKSPACE, (cudaStream_t)env->stream),
                 "a product");
}

/* Moves a view along K. */
static void skip(struct ebb_view *view, int64_t elements, int64_t k, bool rows)
{
    view->offset += elements * ebb_dtype_bytes((enum ebb_dtype)view->dtype);
    if (rows)
        view->rows = k;
    else
        view->cols = k;
}

/* The parts of a long sum as products of their own, into fp32 behind the library's workspace. */
static enum ebb_status run_split(const struct ebb_op_env *env, const struct ebb_matmul *args,
                                 const struct ebb_matmul_split *split)
{
    bool nn = args->form == EBB_MATMUL_NN;
    int64_t rows = ebb_view_rows(env, &args->a), n = args->y.cols;
    int64_t b_step = nn ? split->each * args->b.stride : split->each;
    struct ebb_matmul part = *args;
    part.alpha = 1;
    part.y.tensor = args->scratch.tensor;
    part.y.dtype = EBB_F32;
    part.y.offset = args->scratch.offset + EBB_MATMUL_CUDA_WORKSPACE;
    part.y.stride = n;
    const struct batch batch = {split->parts, split->each, b_step, args->y.rows * n};
    const struct batch one = {.count = 1};
    const float *parts = (const float *)ebb_view_data(env, &part.y);
    skip(&part.a, 0, split->each, false);
    skip(&part.b, 0, split->each, nn);
    EBB_TRY(run_library(env, &part, &batch));
    if (split->rest > 0) {
        skip(&part.a, split->parts * split->each, split->rest, false);
        skip(&part.b, split->parts * b_step, split->rest, nn);
        part.y.offset += split->parts * args->y.rows * n * 4;
        EBB_TRY(run_library(env, &part, &one));
    }
    return ebb_matmul_add_parts_cuda(env, args, parts, split->parts + (split->rest > 0), rows,
                                     args->y.rows);
}

enum ebb_status ebb_matmul_cuda(const struct ebb_op_env *env, const struct ebb_matmul *args)
{
    EBB_TRY(ebb_matmul_check_run(env, args));
    struct cuda_lib *lib = cuda_of(env->libs.matmul);
    struct operands o = operands_of(env, args);
    const struct batch one = {.count = 1};
    bool tn = args->form == EBB_MATMUL_TN, taken;
    if (o.bias != NULL && args->a.dtype != args->y.dtype)
        return EBB_FAIL(env->ctx, EBB_UNSUPPORTED,
                        "matmul %s of bf16 into fp32 with a bias: cuBLASLt has none", lib->version);
    if (args->y.cols == 0 || (tn ? args->y.rows : o.rows) == 0) return EBB_OK;
    if ((tn ? o.rows : args->a.cols) == 0) return empty_sum(lib, env, args, &o);
    EBB_ASSERT(o.workspace != NULL && args->scratch.cols >= ebb_matmul_gpu_scratch(args));
    EBB_TRY(ebb_matmul_thin_cuda(env, args, &taken));
    if (taken) return EBB_OK;
    struct ebb_matmul_split split = ebb_matmul_split_of(args);
    return split.parts > 1 ? run_split(env, args, &split) : run_library(env, args, &one);
}
