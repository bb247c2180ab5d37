/* What every op shares: views of tensors, the environment they run in, and the list of all ops
 * as data.
 *
 * An op is one line of a program: a struct of arguments that starts with its views (so that
 * checker, executor and planner can read what it touches without knowing it), followed by
 * constants. Ops never allocate and keep no state; what changes from step to step they read from
 * the step block (op/step.h).
 *
 * On a GPU an op's function runs on the thread that enqueues and only launches kernels on
 * env->stream; what it reads of env->step it reads there. Its views lie in device memory.
 *
 * Adding an op: op/x.h (contract), op/x_cpu.c, op/x_cuda.cu, tests/op_x.c, one row in op/list.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_H
#define EBB_OP_H

#include "base/context.h"
#include "base/number.h"
#include "device/device.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many of a view's rows hold data in a run: a program is planned for capacities and run with
 * fewer. */
enum ebb_extent {
    EBB_EXTENT_FIXED,  /* all of them */
    EBB_EXTENT_TOKENS, /* row i stands for token row0 + i: those below step->tokens */
    EBB_EXTENT_LABELS  /* row i stands for label row0 + i: those below step->labels */
};

/* A row-major matrix inside a tensor. Vectors are [1, n]. tensor < 0: the view is absent
 * ({.tensor = -1}). */
struct ebb_view {
    int32_t tensor;     /* index into the environment's bases */
    uint8_t dtype;      /* enum ebb_dtype */
    uint8_t extent;     /* enum ebb_extent */
    int64_t offset;     /* bytes from the tensor's start */
    int64_t rows, cols; /* capacity */
    int64_t stride;     /* elements from row to row, >= cols */
    int64_t row0;       /* token or label that row 0 stands for */
};

/* Libraries that ops call into; NULL: not needed. All borrowed. */
struct ebb_op_libs {
    struct ebb_matmul_lib *matmul;       /* op/matmul.h */
    struct ebb_attention_lib *attention; /* op/attention.h */
};

/* Environment of a run. All borrowed. */
struct ebb_op_env {
    struct ebb_ctx *ctx;
    void *const *base;           /* [tensors] where each tensor starts */
    const struct ebb_step *step; /* the host's copy: the same values as the block on the device */
    /* GPU: the host's copy of the documents' starts, [step->docs + 1]; NULL: it has none. */
    const int32_t *doc_starts;
    struct ebb_op_libs libs;
    void *stream; /* GPU stream, or NULL */
    int threads;  /* CPU: size of the OpenMP team */
};

/* How a GPU's attention runs (op/attention.h). {0}: by plain kernels. */
struct ebb_attention_way {
    bool library;       /* cuDNN, where it takes shape and type */
    bool deterministic; /* its backward: the same bits each time */
    int64_t kv_heads;   /* that a call takes at once; 0, or no divisor of a layer's: all */
    int64_t block;      /* deterministic backward: tokens of a piece of a long document */
};

/* What an op will run on, for everything that is decided beforehand. */
struct ebb_op_target {
    enum ebb_backend backend;
    int threads; /* CPU: size of the OpenMP team */
    struct ebb_attention_way attention;
};

static inline void *ebb_view_data(const struct ebb_op_env *env, const struct ebb_view *view)
{
    return view->tensor < 0 ? NULL : (char *)env->base[view->tensor] + view->offset;
}

/* Rows that hold data in this run. */
static inline int64_t ebb_view_rows(const struct ebb_op_env *env, const struct ebb_view *view)
{
    int64_t live = view->extent == EBB_EXTENT_TOKENS   ? env->step->tokens - view->row0
                   : view->extent == EBB_EXTENT_LABELS ? env->step->labels - view->row0
                                                       : view->rows;
    return live < 0 ? 0 : live < view->rows ? live : view->rows;
}

/* Bytes from the first element to behind the last one, at capacity. */
static inline int64_t ebb_view_span(const struct ebb_view *view)
{
    if (view->tensor < 0 || view->rows == 0) return 0;
    return ((view->rows - 1) * view->stride + view->cols) *
           ebb_dtype_bytes((enum ebb_dtype)view->dtype);
}

static inline struct ebb_view ebb_view_none(void)
{
    struct ebb_view view;
    memset(&view, 0, sizeof view);
    view.tensor = -1;
    return view;
}

/* Where a bf16 matrix lies that takes the place of an fp32 one: in the upper half of each of its
 * rows. With V columns element j begins at byte 2 V + 2 j of a row, which is column (V + j) / 2 of
 * the fp32 row and never before column j: who writes a row from its last column to its first has
 * read by then what a write destroys. */
static inline struct ebb_view ebb_view_upper_half(const struct ebb_view *f32)
{
    struct ebb_view half = *f32;
    half.dtype = EBB_BF16;
    half.offset += 2 * f32->cols;
    half.stride = 2 * f32->stride;
    return half;
}

/* ---- the list as data ---- */

enum { EBB_OP_VIEWS = 12 }; /* at most */

enum ebb_op {
#define X(name, views, access) EBB_OP_##name,
#include "op/list.h"
#undef X
    EBB_OP_COUNT
};

typedef enum ebb_status (*ebb_op_fn)(const struct ebb_op_env *env, const void *args);

struct ebb_op_info {
    const char *name;
    int views;          /* leading members of the argument struct that are views */
    const char *access; /* one letter a view: r reads, w writes, + reads and writes */
    size_t args_bytes;
    ebb_op_fn cpu;
};

const struct ebb_op_info *ebb_op_info(enum ebb_op op);
/* What runs the op on a backend; NULL: this build has nothing for it. */
ebb_op_fn ebb_op_function(enum ebb_op op, enum ebb_backend backend);

/* Calls of one op that a single call may take along: what fits the 4 KiB of a kernel's
 * arguments. */
enum { EBB_OP_MANY = 24 };

/* args[0 .. count - 1], up to EBB_OP_MANY: the same bits as one call after the other. */
typedef enum ebb_status (*ebb_op_many_fn)(const struct ebb_op_env *env, const void *const *args,
                                          int32_t count);

/* An op with a function for many calls. Beside its shared views no call may write what another
 * touches; the shared ones must be the same place in all. */
struct ebb_op_many {
    ebb_op_many_fn run;
    uint32_t shared; /* bit i: view i is shared */
};
/* NULL: there is none. */
const struct ebb_op_many *ebb_op_many(enum ebb_op op, enum ebb_backend backend);

#ifdef __cplusplus
}
#endif
#endif
