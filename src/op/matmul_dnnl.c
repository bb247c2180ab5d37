/* oneDNN, loaded when the first matmul is planned: its 40 to 55 MB cost nothing to commands that do
 * not compute.
 *
 * Every function comes through one table. The C interface changed from version 2 to 3 in four
 * places, each of which has one function here with both variants: how a memory descriptor is held,
 * how a matmul is described, how the sum post-op is appended, and where a factor goes (version 2
 * has it as a constant of the primitive, applied after the bias; version 3 reads it from memory and
 * applies it before the bias).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/matmul_int.h"

#include <stdio.h>
#include <string.h>

#if defined(__has_include)
#if __has_include("oneapi/dnnl/dnnl.h")
#include "oneapi/dnnl/dnnl.h"
#else
#include "dnnl.h"
#endif
#else
#include "dnnl.h"
#endif

#include "base/library.h"

/* clang-format off */
#if DNNL_VERSION_MAJOR == 2
#define DNNL_FILE    "libdnnl.so.2"
#define DNNL_PACKAGE "libdnnl2"
#define DNNL_WANTED  "2.*"
#define DNNL_FUNCTIONS_OF_VERSION(X) \
    X(memory_desc_init_by_strides) X(matmul_desc_init) X(primitive_desc_create) \
    X(primitive_attr_set_output_scales)
#elif DNNL_VERSION_MAJOR == 3
#define DNNL_FILE    "libdnnl.so.3"
#define DNNL_PACKAGE "libdnnl3"
#define DNNL_WANTED  "3.*"
#define DNNL_FUNCTIONS_OF_VERSION(X) \
    X(memory_desc_create_with_strides) X(memory_desc_destroy) X(matmul_primitive_desc_create) \
    X(primitive_attr_set_scales_mask)
#else
#error "oneDNN 2 or 3 is needed"
#endif

#define DNNL_FUNCTIONS(X) \
    X(version) X(get_effective_cpu_isa) X(engine_create) X(engine_destroy) X(stream_create) \
    X(stream_destroy) X(stream_wait) X(memory_desc_get_size) X(memory_create) X(memory_destroy) \
    X(memory_set_data_handle) X(primitive_attr_create) X(primitive_attr_destroy) \
    X(primitive_attr_set_scratchpad_mode) X(primitive_attr_set_post_ops) X(post_ops_create) \
    X(post_ops_destroy) X(post_ops_append_sum) X(post_ops_append_binary) \
    X(primitive_desc_query) X(primitive_desc_query_md) X(primitive_desc_destroy) \
    X(primitive_create) X(primitive_execute) X(primitive_destroy) \
    DNNL_FUNCTIONS_OF_VERSION(X)
/* clang-format on */

struct dnnl_table {
#define X(name) __typeof__(dnnl_##name) *name;
    DNNL_FUNCTIONS(X)
#undef X
};

struct ebb_dnnl {
    struct ebb_ctx *ctx;
    struct ebb_library *library;
    struct dnnl_table f;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool has_bf16;
    char version[64];
};

/* a, b, bias and y as the library describes them. */
enum { MD_A, MD_B, MD_BIAS, MD_Y, MD_COUNT };

enum { ARGS_MAX = 8 };

struct ebb_dnnl_product {
    struct ebb_dnnl *dnnl;
    dnnl_primitive_t primitive;
    char kernel[48];
    int64_t scratch_bytes;
    float alpha; /* version 3 reads it from here at every run */
    int args;
    dnnl_exec_arg_t arg[ARGS_MAX];
    uint8_t source[ARGS_MAX]; /* which pointer each argument takes at a run: enum source */
};

enum source { FROM_A, FROM_B, FROM_BIAS, FROM_Y, FROM_SCRATCH, FROM_PRODUCT };

#if DNNL_VERSION_MAJOR == 2
#define MD_POINTER(md) (&(md))
typedef const dnnl_memory_desc_t *md_pointer;
#else
#define MD_POINTER(md) (md)
typedef const_dnnl_memory_desc_t md_pointer;
#endif

struct product_parts {
    dnnl_memory_desc_t md[MD_COUNT];
    bool has[MD_COUNT];
    dnnl_post_ops_t post_ops;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    bool bias_last; /* the bias is a post-op, because a factor would reach it otherwise; slow, and
                       hardly ever used */
};

static dnnl_data_type_t dnnl_type(int dtype)
{
    return dtype == EBB_BF16 ? dnnl_bf16 : dnnl_f32;
}

static const char *status_text(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return "success";
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    case dnnl_unimplemented:
        return "unimplemented";
    default:
        return "runtime error";
    }
}

static enum ebb_status shape_failed(const struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *s,
                                    const char *what, dnnl_status_t status)
{
    enum ebb_status code = status == dnnl_out_of_memory   ? EBB_NO_MEMORY
                           : status == dnnl_unimplemented ? EBB_UNSUPPORTED
                                                          : EBB_FAILED;
    return EBB_FAIL(dnnl->ctx, code,
                    "%s: %s of a product failed: %s (%d)\nm %lld, n %lld, k %lld, strides a %lld "
                    "%lld, b %lld %lld, "
                    "y %lld, %s to %s, alpha %g, bias %d, sum %d",
                    dnnl->version, what, status_text(status), (int)status, (long long)s->m,
                    (long long)s->n, (long long)s->k, (long long)s->a_row, (long long)s->a_col,
                    (long long)s->b_row, (long long)s->b_col, (long long)s->y_row,
                    ebb_dtype_name((enum ebb_dtype)s->in_dtype),
                    ebb_dtype_name((enum ebb_dtype)s->y_dtype), (double)s->alpha, s->bias, s->sum);
}

/* ---- what differs between versions ---- */

static dnnl_status_t make_md(const struct ebb_dnnl *dnnl, dnnl_memory_desc_t *md, int64_t rows,
                             int64_t cols, int64_t row_stride, int64_t col_stride, int dtype)
{
    dnnl_dims_t dims = {rows, cols};
    dnnl_dims_t strides = {row_stride, col_stride};
#if DNNL_VERSION_MAJOR == 2
    return dnnl->f.memory_desc_init_by_strides(md, 2, dims, dnnl_type(dtype), strides);
#else
    return dnnl->f.memory_desc_create_with_strides(md, 2, dims, dnnl_type(dtype), strides);
#endif
}

static void free_mds(const struct ebb_dnnl *dnnl, struct product_parts *p)
{
#if DNNL_VERSION_MAJOR == 2
    (void)dnnl;
    (void)p;
#else
    for (int i = 0; i < MD_COUNT; i++) {
        if (p->has[i]) dnnl->f.memory_desc_destroy(p->md[i]);
    }
#endif
}

static dnnl_status_t set_alpha(const struct ebb_dnnl *dnnl, struct product_parts *p, float alpha)
{
    if (alpha == 1.0f) return dnnl_success;
#if DNNL_VERSION_MAJOR == 2
    return dnnl->f.primitive_attr_set_output_scales(p->attr, 1, 0, &alpha);
#else
    return dnnl->f.primitive_attr_set_scales_mask(p->attr, DNNL_ARG_SRC, 0);
#endif
}

static dnnl_status_t append_sum(const struct ebb_dnnl *dnnl, struct product_parts *p)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl->f.post_ops_append_sum(p->post_ops, 1.0f);
#else
    return dnnl->f.post_ops_append_sum(p->post_ops, 1.0f, 0, dnnl_data_type_undef);
#endif
}

static dnnl_status_t make_pd(const struct ebb_dnnl *dnnl, struct product_parts *p)
{
    bool bias = p->has[MD_BIAS] && !p->bias_last;
#if DNNL_VERSION_MAJOR == 2
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl->f.matmul_desc_init(&desc, &p->md[MD_A], &p->md[MD_B],
                                                    bias ? &p->md[MD_BIAS] : NULL, &p->md[MD_Y]);
    if (status != dnnl_success) return status;
    return dnnl->f.primitive_desc_create(&p->pd, &desc, p->attr, dnnl->engine, NULL);
#else
    return dnnl->f.matmul_primitive_desc_create(&p->pd, dnnl->engine, p->md[MD_A], p->md[MD_B],
                                                bias ? p->md[MD_BIAS] : NULL, p->md[MD_Y], p->attr);
#endif
}

/* ---- descriptors ---- */

static dnnl_status_t parts_mds(const struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *s,
                               struct product_parts *p)
{
    const struct {
        bool wanted;
        int64_t rows, cols, row, col;
        int dtype;
    } wanted[MD_COUNT] = {
        [MD_A] = {true, s->m, s->k, s->a_row, s->a_col, s->in_dtype},
        [MD_B] = {true, s->k, s->n, s->b_row, s->b_col, s->in_dtype},
        [MD_BIAS] = {s->bias, 1, s->n, s->n, 1, s->in_dtype},
        [MD_Y] = {true, s->m, s->n, s->y_row, 1, s->y_dtype},
    };
    for (int i = 0; i < MD_COUNT; i++) {
        if (!wanted[i].wanted) continue;
        dnnl_status_t status = make_md(dnnl, &p->md[i], wanted[i].rows, wanted[i].cols,
                                       wanted[i].row, wanted[i].col, wanted[i].dtype);
        if (status != dnnl_success) return status;
        p->has[i] = true;
    }
    return dnnl_success;
}

/* The sum comes first: kernels that accumulate in place want it so. */
static dnnl_status_t parts_attr(const struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *s,
                                struct product_parts *p)
{
    const struct dnnl_table *f = &dnnl->f;
    dnnl_status_t status = f->primitive_attr_create(&p->attr);
    if (status == dnnl_success)
        status = f->primitive_attr_set_scratchpad_mode(p->attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = set_alpha(dnnl, p, s->alpha);
    if (status == dnnl_success) status = f->post_ops_create(&p->post_ops);
    if (status == dnnl_success && s->sum) status = append_sum(dnnl, p);
    if (status == dnnl_success && p->bias_last) {
        status =
            f->post_ops_append_binary(p->post_ops, dnnl_binary_add, MD_POINTER(p->md[MD_BIAS]));
    }
    if (status == dnnl_success) status = f->primitive_attr_set_post_ops(p->attr, p->post_ops);
    return status;
}

static void parts_free(const struct ebb_dnnl *dnnl, struct product_parts *p)
{
    if (p->pd) dnnl->f.primitive_desc_destroy(p->pd);
    if (p->attr) dnnl->f.primitive_attr_destroy(p->attr);
    if (p->post_ops) dnnl->f.post_ops_destroy(p->post_ops);
    free_mds(dnnl, p);
}

static dnnl_status_t parts_make(const struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *s,
                                struct product_parts *p)
{
    memset(p, 0, sizeof *p);
    p->bias_last = s->bias && s->alpha != 1.0f;
    dnnl_status_t status = parts_mds(dnnl, s, p);
    if (status == dnnl_success) status = parts_attr(dnnl, s, p);
    if (status == dnnl_success) status = make_pd(dnnl, p);
    return status;
}

static int64_t parts_scratch(const struct ebb_dnnl *dnnl, const struct product_parts *p)
{
    md_pointer md = dnnl->f.primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0);
    return md ? (int64_t)dnnl->f.memory_desc_get_size(md) : 0;
}

enum ebb_status ebb_dnnl_scratch(struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *shape,
                                 int64_t *bytes)
{
    struct product_parts parts;
    dnnl_status_t status = parts_make(dnnl, shape, &parts);
    *bytes = status == dnnl_success ? parts_scratch(dnnl, &parts) : 0;
    parts_free(dnnl, &parts);
    return status == dnnl_success ? EBB_OK : shape_failed(dnnl, shape, "description", status);
}

/* ---- products ---- */

static dnnl_status_t add_arg(struct ebb_dnnl_product *product, int arg, md_pointer md,
                             enum source source)
{
    dnnl_memory_t memory = NULL;
    const struct ebb_dnnl *dnnl = product->dnnl;
    dnnl_status_t status = dnnl->f.memory_create(&memory, md, dnnl->engine, DNNL_MEMORY_NONE);
    if (status != dnnl_success) return status;
    EBB_ASSERT(product->args < ARGS_MAX);
    product->arg[product->args].arg = arg;
    product->arg[product->args].memory = memory;
    product->source[product->args] = (uint8_t)source;
    product->args++;
    return dnnl_success;
}

static dnnl_status_t add_alpha_arg(struct ebb_dnnl_product *product)
{
#if DNNL_VERSION_MAJOR == 2
    (void)product;
    return dnnl_success;
#else
    if (product->alpha == 1.0f) return dnnl_success;
    const struct ebb_dnnl *dnnl = product->dnnl;
    dnnl_memory_desc_t md = NULL;
    dnnl_dims_t dims = {1};
    dnnl_dims_t strides = {1};
    dnnl_status_t status = dnnl->f.memory_desc_create_with_strides(&md, 1, dims, dnnl_f32, strides);
    if (status != dnnl_success) return status;
    status = add_arg(product, DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, md, FROM_PRODUCT);
    dnnl->f.memory_desc_destroy(md);
    return status;
#endif
}

static dnnl_status_t add_args(struct ebb_dnnl_product *product, const struct ebb_dnnl_shape *s,
                              const struct product_parts *p)
{
    dnnl_status_t status = add_arg(product, DNNL_ARG_SRC, MD_POINTER(p->md[MD_A]), FROM_A);
    if (status == dnnl_success)
        status = add_arg(product, DNNL_ARG_WEIGHTS, MD_POINTER(p->md[MD_B]), FROM_B);
    if (status == dnnl_success)
        status = add_arg(product, DNNL_ARG_DST, MD_POINTER(p->md[MD_Y]), FROM_Y);
    if (status == dnnl_success && s->bias) {
        int arg = p->bias_last ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(s->sum ? 1 : 0) | DNNL_ARG_SRC_1
                               : DNNL_ARG_BIAS;
        status = add_arg(product, arg, MD_POINTER(p->md[MD_BIAS]), FROM_BIAS);
    }
    if (status == dnnl_success) status = add_alpha_arg(product);
    if (status == dnnl_success && product->scratch_bytes > 0) {
        status =
            add_arg(product, DNNL_ARG_SCRATCHPAD,
                    product->dnnl->f.primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0),
                    FROM_SCRATCH);
    }
    return status;
}

enum ebb_status ebb_dnnl_product_create(struct ebb_dnnl *dnnl, const struct ebb_dnnl_shape *shape,
                                        struct ebb_dnnl_product **product)
{
    *product = NULL;
    struct ebb_dnnl_product *p = ebb_mem_alloc(dnnl->ctx, sizeof *p);
    if (!p) return EBB_NO_MEMORY;
    p->dnnl = dnnl;
    p->alpha = shape->alpha;
    struct product_parts parts;
    const char *what = "description";
    const char *kernel = "";
    dnnl_status_t status = parts_make(dnnl, shape, &parts);
    if (status == dnnl_success) {
        what = "compilation";
        p->scratch_bytes = parts_scratch(dnnl, &parts);
        if (dnnl->f.primitive_desc_query(parts.pd, dnnl_query_impl_info_str, 0, &kernel) !=
            dnnl_success)
            kernel = "";
        snprintf(p->kernel, sizeof p->kernel, "%s", kernel);
        status = dnnl->f.primitive_create(&p->primitive, parts.pd);
    }
    if (status == dnnl_success) status = add_args(p, shape, &parts);
    parts_free(dnnl, &parts);
    if (status != dnnl_success) {
        ebb_dnnl_product_free(p);
        return shape_failed(dnnl, shape, what, status);
    }
    *product = p;
    return EBB_OK;
}

int64_t ebb_dnnl_product_scratch(const struct ebb_dnnl_product *product)
{
    return product->scratch_bytes;
}

const char *ebb_dnnl_product_kernel(const struct ebb_dnnl_product *product)
{
    return product->kernel;
}

enum ebb_status ebb_dnnl_product_run(struct ebb_dnnl_product *product,
                                     const struct ebb_dnnl_data *data)
{
    const struct ebb_dnnl *dnnl = product->dnnl;
    void *const pointers[] = {data->a, data->b,       data->bias,
                              data->y, data->scratch, &product->alpha};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < product->args && status == dnnl_success; i++) {
        status =
            dnnl->f.memory_set_data_handle(product->arg[i].memory, pointers[product->source[i]]);
    }
    if (status == dnnl_success) {
        status = dnnl->f.primitive_execute(product->primitive, dnnl->stream, product->args,
                                           product->arg);
    }
    if (status == dnnl_success) status = dnnl->f.stream_wait(dnnl->stream);
    if (status == dnnl_success) return EBB_OK;
    return EBB_FAIL(dnnl->ctx, EBB_FAILED, "%s: a product failed while running ('%s'): %s (%d)",
                    dnnl->version, product->kernel, status_text(status), (int)status);
}

void ebb_dnnl_product_free(struct ebb_dnnl_product *product)
{
    if (!product) return;
    const struct ebb_dnnl *dnnl = product->dnnl;
    for (int i = 0; i < product->args; i++) dnnl->f.memory_destroy(product->arg[i].memory);
    if (product->primitive) dnnl->f.primitive_destroy(product->primitive);
    ebb_mem_free(dnnl->ctx, product);
}

/* ---- sanitizers ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DNNL_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define DNNL_UNDER_ASAN 1
#endif
#if defined(DNNL_UNDER_ASAN)
/* Otherwise the search for leaks at exit crashes in the thread-local storage of libraries that were
 * loaded late. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "intercept_tls_get_addr=0";
}
#endif

/* ---- the library ---- */

static const struct ebb_library_function functions[] = {
#define X(name) {"dnnl_" #name, offsetof(struct dnnl_table, name)},
    DNNL_FUNCTIONS(X)
#undef X
};

static const char hint[] = "the CPU's matrix products need it: apt install " DNNL_PACKAGE;

static enum ebb_status load(struct ebb_dnnl *dnnl)
{
    EBB_TRY(ebb_library_open(dnnl->ctx, DNNL_FILE, hint, &dnnl->library));
    return ebb_library_find(dnnl->library, functions, sizeof functions / sizeof functions[0],
                            &dnnl->f);
}

/* Whether bf16 products exist here: the library says so only by refusing to describe one. */
static bool probe_bf16(struct ebb_dnnl *dnnl)
{
    struct ebb_dnnl_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.m = shape.n = shape.k = 64;
    shape.a_row = shape.b_row = shape.y_row = 64;
    shape.a_col = shape.b_col = 1;
    shape.alpha = 1.0f;
    shape.in_dtype = shape.y_dtype = EBB_BF16;
    struct product_parts parts;
    dnnl_status_t status = parts_make(dnnl, &shape, &parts);
    parts_free(dnnl, &parts);
    return status == dnnl_success;
}

enum ebb_status ebb_dnnl_open(struct ebb_ctx *ctx, struct ebb_dnnl **dnnl)
{
    *dnnl = NULL;
    struct ebb_dnnl *d = ebb_mem_alloc(ctx, sizeof *d);
    if (!d) return EBB_NO_MEMORY;
    d->ctx = ctx;
    enum ebb_status status = load(d);
    if (status != EBB_OK) goto out;
    const dnnl_version_t *v = d->f.version();
    snprintf(d->version, sizeof d->version, "oneDNN %d.%d.%d, cpu isa 0x%x", v->major, v->minor,
             v->patch, (unsigned)d->f.get_effective_cpu_isa());
    if (v->major != DNNL_VERSION_MAJOR) {
        status = ebb_library_refuse(d->library, d->version, DNNL_WANTED, hint);
        goto out;
    }
    dnnl_status_t made = d->f.engine_create(&d->engine, dnnl_cpu, 0);
    if (made == dnnl_success)
        made = d->f.stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (made != dnnl_success) {
        status = EBB_FAIL(ctx, EBB_FAILED, "%s: cannot make an engine for the CPU: %s (%d)",
                          d->version, status_text(made), (int)made);
        goto out;
    }
    d->has_bf16 = probe_bf16(d);
    *dnnl = d;
    d = NULL;
out:
    ebb_dnnl_close(d);
    return status;
}

void ebb_dnnl_close(struct ebb_dnnl *dnnl)
{
    if (!dnnl) return;
    if (dnnl->stream) dnnl->f.stream_destroy(dnnl->stream);
    if (dnnl->engine) dnnl->f.engine_destroy(dnnl->engine);
    ebb_library_close(dnnl->library);
    ebb_mem_free(dnnl->ctx, dnnl);
}

const char *ebb_dnnl_version(const struct ebb_dnnl *dnnl)
{
    return dnnl->version;
}

bool ebb_dnnl_has_bf16(const struct ebb_dnnl *dnnl)
{
    return dnnl->has_bf16;
}
