/* A build: a program being written for one set of policies and capacities. The network's emitter
 * appends to it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_BUILD_H
#define EBB_BUILD_H

#include "op/attention.h"
#include "op/matmul.h"
#include "plan/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that decides a run's bits besides model, data and seed. Depends on model, method,
 * capacity and backend, never on the budget; written to run.json and checkpoints. */
struct ebb_numerics {
    enum ebb_dtype storage; /* F32 or BF16 */
    int64_t tile_tokens;    /* rows of a tile: norms, MLP and projections run tile by tile */
    int64_t head_chunk;     /* labels whose logits exist at a time */
    int threads;
    char backend[16]; /* "cpu", "cuda" */
    char matmul[96];  /* library and version */
    /* On the CPU nothing but deterministic, which is true. */
    struct ebb_attention_way attention;
    char attention_library[64]; /* and version; "": own kernels */
};

struct ebb_op_target ebb_numerics_target(const struct ebb_numerics *numerics);

struct ebb_capacity {
    int64_t tokens; /* of a micro-batch */
    int64_t docs;
    int64_t doc_tokens;   /* of the longest document */
    int64_t cache_tokens; /* of a generated sequence, prompt included; 0: no decode program */
};

/* When backward asks for the saved slots of the layer below the one that it works on. The earlier,
 * the more room they take, and the less it waits for them. */
enum ebb_prefetch {
    EBB_PREFETCH_NONE, /* not at all: each layer's at need */
    EBB_PREFETCH_LATE, /* behind attention, whose backward pass takes most room */
    EBB_PREFETCH_EARLY /* before attention, beside which much can come in */
};

enum { EBB_TILE_BUFFERS = 2 /* of a slot that moves tile by tile, but in torture */ };

struct ebb_build {
    struct ebb_ctx *ctx;
    struct ebb_program *program;
    struct ebb_matmul_lib *matmul;
    const struct ebb_numerics *numerics;
    struct ebb_capacity capacity; /* of a micro-batch */
    int32_t micros;               /* micro-batches that a run takes */
    int32_t micro;                /* whose part is being written; or EBB_MICRO_ALL */
    const struct ebb_policies *policies;
    bool streams; /* moves run on queues of their own; else on COMPUTE */
    enum ebb_prefetch prefetch;
    int ring;            /* buffers of a slot that leaves tile by tile */
    int weights_ahead;   /* groups of matrices that come in from host memory ahead of need */
    int32_t scratch;     /* what ops share at the moment; grows with need */
    int64_t saved_bytes; /* out: device bytes of slots that are kept */
};

/* ---- views ---- */

/* A matrix of a build: [rows, cols] in a tensor, either one row a token of the whole
 * micro-batch, or one tile's rows. */
struct ebb_matrix {
    int32_t tensor;
    enum ebb_dtype dtype;
    int64_t cols;   /* row stride in elements */
    int64_t offset; /* bytes from the tensor's start */
    bool tile;      /* holds one tile, the same place for each */
    int64_t every;  /* above 1: holds every so many-th tile, from the first on, and no other */
};

/* ---- micro-batches ---- */

/* What is appended from here on is micro-batch `micro`'s, or EBB_MICRO_ALL; returns whose it was.
 * New tensors of micro-batches behind the first have the number in their name. */
int32_t ebb_build_set_micro(struct ebb_build *build, int32_t micro);
/* Where the part of the current micro-batch begins in a persistent tensor of inputs that has
 * `bytes` for each (plan/net.h). */
int64_t ebb_build_input_offset(const struct ebb_build *build, int64_t bytes);

/* A new transient matrix; `tile`: numerics.tile_tokens rows (or fewer, if the capacity is), else
 * one row a token. */
enum ebb_status ebb_build_matrix(struct ebb_build *build, int64_t cols, enum ebb_dtype dtype,
                                 bool tile, const char *name, int64_t layer,
                                 struct ebb_matrix *matrix);
/* The same with `stride` elements from row to row, which the matrix counts as its columns; nothing
 * lies behind the last row's `cols`. */
enum ebb_status ebb_build_matrix_apart(struct ebb_build *build, int64_t cols, int64_t stride,
                                       enum ebb_dtype dtype, bool tile, const char *name,
                                       int64_t layer, struct ebb_matrix *matrix);
int64_t ebb_build_tiles(const struct ebb_build *build);
/* Columns [col0, col0 + cols) of tile t's rows. */
struct ebb_view ebb_matrix_tile(const struct ebb_build *build, const struct ebb_matrix *matrix,
                                int64_t t, int64_t col0, int64_t cols);
/* The same columns of all rows; the matrix is no tile. */
struct ebb_view ebb_matrix_all(const struct ebb_build *build, const struct ebb_matrix *matrix,
                               int64_t col0, int64_t cols);
/* Rows [row0, row0 + rows) and columns [col0, col0 + cols) of a persistent [*, stride] tensor;
 * fixed extent. */
struct ebb_view ebb_tensor_view(int32_t tensor, enum ebb_dtype dtype, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, int64_t stride);

/* ---- entries ---- */

/* Appends an op on COMPUTE. */
enum ebb_status ebb_build_op(struct ebb_build *build, enum ebb_op op, const void *args);
/* Appends a matmul; sets its scratch view, growing the scratch tensor. */
enum ebb_status ebb_build_matmul(struct ebb_build *build, struct ebb_matmul *args);
/* Appends a move on the queue of its kind, or on COMPUTE without streams. */
enum ebb_status ebb_build_move(struct ebb_build *build, enum ebb_entry_kind kind,
                               const struct ebb_move *move);
/* The same of rows whose home is a persistent host tensor: a plain copy, no stash object's. */
enum ebb_status ebb_build_copy(struct ebb_build *build, enum ebb_entry_kind kind,
                               struct ebb_view device, struct ebb_view host);
/* A view of the scratch tensor with room for `bytes`. */
struct ebb_view ebb_build_scratch(struct ebb_build *build, int64_t bytes);
/* From here on ops share another scratch tensor: the room of the one before it is free for others
 * behind its last use. For where needs differ much. */
enum ebb_status ebb_build_new_scratch(struct ebb_build *build);

/* ---- saved slots ---- */

/* Where one (layer, slot) lies while its step is being written. */
struct ebb_saved {
    struct ebb_matrix device; /* tensor -1: not on the device now */
    struct ebb_matrix host;   /* tensor -1: has no home */
    int64_t every;            /* above 1: only every so many-th tile has a home */
    int32_t object;           /* -1: none, the home is a persistent tensor, filled before the run */
};
void ebb_saved_clear(struct ebb_saved *saved);
/* Appends the move of tile t's rows (t < 0: all rows) from `from` to the slot's home, which is
 * made at first use. `last`: this ends it. */
enum ebb_status ebb_saved_out(struct ebb_build *build, struct ebb_saved *saved,
                              const struct ebb_matrix *from, int64_t t, bool last, const char *name,
                              int64_t layer);
/* Appends the move of tile t's rows (t < 0: all, tile by tile, into saved->device) back to `to`. */
enum ebb_status ebb_saved_in(struct ebb_build *build, const struct ebb_saved *saved,
                             const struct ebb_matrix *to, int64_t t);

#ifdef __cplusplus
}
#endif
#endif
