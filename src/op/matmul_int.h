/* What the files of matmul share: the two library objects' beginning, the ways of a product on a
 * GPU, and what matmul_cpu.c wants from oneDNN. matmul_dnnl.c is the only file that includes that
 * library's header; it serves the C interfaces of versions 2 and 3. Same thread rules as
 * op/matmul.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_MATMUL_INT_H
#define EBB_OP_MATMUL_INT_H

#include "op/matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Both libraries' objects begin with this. */
struct ebb_matmul_lib {
    enum ebb_backend backend;
    struct ebb_ctx *planned; /* there is no more of it: it was made for plans, with this context;
                                else NULL */
};

/* What holds for every number of live rows; EBB_FAILED names form and shapes. */
enum ebb_status ebb_matmul_check(struct ebb_ctx *ctx, const struct ebb_matmul *args);
/* That, and the live rows of a run. */
enum ebb_status ebb_matmul_check_run(const struct ebb_op_env *env, const struct ebb_matmul *args);

/* As op/matmul.h says, for one backend each. None of CUDA's needs a GPU before the first run. */
enum ebb_status ebb_matmul_cpu_create(struct ebb_ctx *ctx, int threads,
                                      struct ebb_matmul_lib **lib);
void ebb_matmul_cpu_free(struct ebb_matmul_lib *lib);
const char *ebb_matmul_cpu_version(struct ebb_matmul_lib *lib);
enum ebb_status ebb_matmul_cpu_scratch(struct ebb_matmul_lib *lib, const struct ebb_matmul *args,
                                       int64_t *bytes);
enum ebb_status ebb_matmul_cuda_create(struct ebb_ctx *ctx, struct ebb_matmul_lib **lib);
void ebb_matmul_cuda_free(struct ebb_matmul_lib *lib);
const char *ebb_matmul_cuda_version(struct ebb_matmul_lib *lib);
/* cuBLASLt's workspace: what NVIDIA recommends for Hopper. Any less would shut algorithms out. */
enum { EBB_MATMUL_CUDA_WORKSPACE = 32 << 20 };

/* ---- CUDA: ways of a product (matmul_gpu.c) ---- */

int64_t ebb_matmul_gpu_scratch(const struct ebb_matmul *args); /* bytes */

/* Products with a thin side, as adapters have them, have kernels of their own: NT and NN with at
 * most EBB_THIN_COLS columns of y, TN into fp32 with at most so many rows or columns of y. */
enum {
    EBB_THIN_WHOLE = 2048,     /* TN: with so many wide columns all rows are summed at once; else */
    EBB_THIN_PARTS = 64,       /* in at most so many parts, */
    EBB_THIN_PART_ROWS = 1024, /* of at least so many rows, */
    EBB_THIN_STEP = 128        /* of a multiple of so many */
};
/* By form, sizes, types and strides; whether addresses suit it too shows in a run. */
bool ebb_matmul_thin_takes(const struct ebb_matmul *args);
bool ebb_matmul_thin_first(const struct ebb_matmul *args); /* TN: a is the thin one, else b */
/* Rows of a part of a TN's sum, by the wide side's columns and the live rows. */
int64_t ebb_matmul_thin_part_rows(int64_t wide, int64_t rows);

/* A long sum over K, split by K alone: `parts` of `each`, then a `rest`. parts 1: it is not. */
struct ebb_matmul_split {
    int64_t parts, each, rest;
};
struct ebb_matmul_split ebb_matmul_split_of(const struct ebb_matmul *args);

/* ---- CUDA: kernels (matmul_cuda_thin.cu) ---- */

/* *taken false: it is not one of these, and nothing was launched. Live rows are not 0. */
enum ebb_status ebb_matmul_thin_cuda(const struct ebb_op_env *env, const struct ebb_matmul *args,
                                     bool *taken);
/* y (+)= alpha times the sum of parts [count][rows of y][columns], in their order; `rows` are
 * written, `capacity` rows lie from part to part. */
enum ebb_status ebb_matmul_add_parts_cuda(const struct ebb_op_env *env,
                                          const struct ebb_matmul *args, const float *parts,
                                          int64_t count, int64_t rows, int64_t capacity);

/* ---- oneDNN ---- */

/* y[m, n] = alpha sum over k of a[m, k] b[k, n], + bias[n], + y[m, n]. Strides are in elements, so
 * that a transposed operand is one whose row and column strides are swapped. Compared byte by byte:
 * start from zero bytes. */
struct ebb_dnnl_shape {
    int64_t m, n, k;
    int64_t a_row, a_col;
    int64_t b_row, b_col;
    int64_t y_row;
    float alpha;
    uint8_t in_dtype, y_dtype; /* enum ebb_dtype: of a, b and bias; of y */
    uint8_t bias, sum;         /* which terms there are; sum: + y */
};

struct ebb_dnnl_data {
    void *a, *b, *bias, *y, *scratch;
};

struct ebb_dnnl;
struct ebb_dnnl_product; /* a compiled product of one shape */

/* EBB_UNSUPPORTED, naming the package, where the library cannot be loaded. The caller frees. */
enum ebb_status ebb_dnnl_open(struct ebb_ctx *ctx, struct ebb_dnnl **dnnl);
void ebb_dnnl_close(struct ebb_dnnl *dnnl);                /* accepts NULL */
const char *ebb_dnnl_version(const struct ebb_dnnl *dnnl); /* "oneDNN 2.6.3, cpu isa 0x3ff" */
bool ebb_dnnl_has_bf16(const struct ebb_dnnl *dnnl);       /* bf16 products on this processor */

/* Both depend on the size of the caller's OpenMP team. */
enum ebb_status ebb_dnnl_scratch(struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *shape,
                                 int64_t *bytes);
enum ebb_status ebb_dnnl_product_create(struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *shape,
                                        struct ebb_dnnl_product **product);
int64_t ebb_dnnl_product_scratch(const struct ebb_dnnl_product *product);
const char *ebb_dnnl_product_kernel(
    const struct ebb_dnnl_product *product); /* the library's name for what it runs */
enum ebb_status ebb_dnnl_product_run(struct ebb_dnnl_product *product,
                                     const struct ebb_dnnl_data *data);
void ebb_dnnl_product_free(struct ebb_dnnl_product *product); /* accepts NULL */

/* Tests: from now on as on a processor without bf16 products. */
void ebb_matmul_lib_force_fp32(struct ebb_matmul_lib *lib);
/* Bytes that exactly the rows of `args` need, in the largest chunk. */
enum ebb_status ebb_matmul_scratch_now(struct ebb_matmul_lib *lib, const struct ebb_matmul *args,
                                       int64_t *bytes);
/* The library's name for the kernel that these arguments run, "" for no live rows. */
const char *ebb_matmul_kernel(const struct ebb_op_env *env, const struct ebb_matmul *args);

#ifdef __cplusplus
}
#endif
#endif
