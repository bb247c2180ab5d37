/* Attention forward and backward for bf16 through cuDNN's backend API, which is loaded at run time:
 * an alternative to the plain kernels of attention_cuda.cu with the same contract (attention.h).
 *
 * Two forms of graph. PLAIN: one document that fills the capacity, exactly as long as the graph.
 * RAGGED: several documents, each as long as a graph's slot at most; where they start comes from
 * offsets in device memory, so that one plan serves all lengths. Documents are put into slots of
 * 128, 512, 2048, 4096, 8192, ... tokens and go in calls of 1, 2, 4, 16, 64 or 256; what a call
 * lacks are documents of length 0, which read and write nothing. So the graphs that runs within a
 * capacity can ask for are few, and ebb_cudnn_prepare_* makes a plan of each before the first run.
 * Rows behind the live ones may hold anything, NaN too.
 *
 * Same numbers: forward always; backward with `deterministic`. Without, the library adds dQ's parts
 * atomically. A deterministic backward needs a partial dQ for each 128 or 256 keys, so a document
 * above `block` tokens goes in blocks: queries of block i with keys of block j <= i, with the whole
 * document's lse, parts summed in fp32 in ascending order of j (dq) and of i (dk, dv).
 *
 * Far rows. Where a row begins 2^31 elements or more behind the start of its matrix, backward of
 * cuDNN 9.19 computes wrong gradients and says nothing. So a call's matrices begin at its first
 * document and end within EBB_CUDNN_SPAN tokens of there; a longer document goes forward alone, and
 * backward in blocks.
 *
 * Which plan runs is part of the numbers. For one version of cuDNN and one kind of GPU it depends
 * on struct ebb_cudnn_key alone: it is the first engine of the library's own list that supports the
 * graph. Neither free memory, nor timing, nor what was built before, nor the cache has a say; an
 * engine that fails for another reason than lack of support is an error, never a reason to take the
 * next. The bits of a document are to depend on neither the documents beside it nor their number:
 * tests/op_attention_dnn.c holds the library to that.
 *
 * Threads: all calls on one object come from one thread. Runs only enqueue. A run whose plan was
 * not prepared builds it, which takes the host half a second (milliseconds from the cache).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ATTENTION_CUDNN_INT_H
#define EBB_OP_ATTENTION_CUDNN_INT_H

#include "op/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_cudnn;

struct ebb_cudnn_options {
    bool deterministic; /* backward */
    /* That a call takes at once: fewer need less workspace. 0: all; so too where it does not divide
     * a layer's, as in a second model beside the one that it was chosen for. */
    int64_t kv_heads;
    int64_t block;      /* deterministic backward: tokens; 0: 4096. Not deterministic: 65,536, of
                           documents that are longer than EBB_CUDNN_SPAN */
    bool exact;         /* no documents of length 0: more calls, each of a power of two */
};

static inline struct ebb_cudnn_options ebb_cudnn_options(const struct ebb_attention_way *way)
{
    struct ebb_cudnn_options options;
    memset(&options, 0, sizeof options);
    options.deterministic = way->deterministic;
    options.kv_heads = way->kv_heads;
    options.block = way->block;
    return options;
}

/* Loads libcudnn.so.9, at least 9.18; EBB_UNSUPPORTED says what is missing. The caller closes. */
enum ebb_status ebb_cudnn_open(struct ebb_ctx *ctx, struct ebb_cudnn **dnn);
void ebb_cudnn_close(struct ebb_cudnn *dnn); /* accepts NULL */
const char *ebb_cudnn_version(const struct ebb_cudnn *dnn); /* "cuDNN 9.19.0"; borrowed */
/* Plans are kept in files of this folder, which is made when one is written, and read from there.
 * NULL: no files. A plan's file is named by a hash of its first line: cuDNN's version, the GPU's
 * name and multiprocessors, the driver's version, the form of our graphs and a hash of the whole
 * key. What follows is the library's own text of the plan. A file that cannot be used is built
 * anew. */
enum ebb_status ebb_cudnn_set_cache(struct ebb_cudnn *dnn, const char *dir);

/* Does cuDNN take attention of this shape and type? `why` (may be NULL) gets a sentence where not.
 * This and the workspace are known without CUDA too. */
bool ebb_cudnn_takes(const struct ebb_attention_shape *shape, enum ebb_dtype dtype, char *why,
                     size_t why_bytes);
/* Bytes of scratch for micro-batches of up to `tokens` tokens (args->q.rows) whose longest document
 * has up to `longest`; enough for any number of documents. The sizes behind it are those of cuDNN
 * 9.19's plans; a plan that wants more is an error that names both numbers. */
int64_t ebb_cudnn_workspace(const struct ebb_attention_shape *shape, int64_t tokens,
                            int64_t longest, bool backward,
                            const struct ebb_cudnn_options *options);
/* Makes or loads every plan that runs with these arguments can ask for: up to args->q.rows tokens
 * in up to `docs` documents (0: any number) of up to `longest` tokens. Needs the GPU but touches
 * none of the arguments' memory; only the views' rows and strides matter. What is there already
 * costs nothing, so layers that are alike may all ask. */
enum ebb_status ebb_cudnn_prepare_forward(struct ebb_cudnn *dnn,
                                          const struct ebb_cudnn_options *options, int64_t docs,
                                          int64_t longest,
                                          const struct ebb_attention_forward *args);
enum ebb_status ebb_cudnn_prepare_backward(struct ebb_cudnn *dnn,
                                           const struct ebb_cudnn_options *options, int64_t docs,
                                           int64_t longest,
                                           const struct ebb_attention_backward *args);
/* Plans that were built or loaded since the object was opened. */
int64_t ebb_cudnn_built(const struct ebb_cudnn *dnn);

/* `starts`: the host's copy of doc_starts, [docs + 1]. With NULL all documents are taken for as
 * long as the longest, which costs time where they are not and lets a document's bits depend on the
 * longest's slot. args->scratch has the workspace. */
enum ebb_status ebb_cudnn_forward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                  const struct ebb_cudnn_options *options, const int32_t *starts,
                                  const struct ebb_attention_forward *args);
enum ebb_status ebb_cudnn_backward(struct ebb_cudnn *dnn, const struct ebb_op_env *env,
                                   const struct ebb_cudnn_options *options, const int32_t *starts,
                                   const struct ebb_attention_backward *args);

/* ---- which graphs, and how many bytes: attention_slots.c, in every build ---- */

enum {
    EBB_CUDNN_BATCH = 256,  /* documents of a call at most */
    EBB_CUDNN_SPAN = 131072 /* tokens from the first document's start to the last one's end */
};

/* What decides beside the documents. */
struct ebb_cudnn_frame {
    const struct ebb_attention_shape *shape;
    const struct ebb_cudnn_options *options;
    int64_t rows; /* tokens: the capacity */
    bool backward;
};

/* A graph, but for the strides. */
struct ebb_cudnn_form {
    int64_t batch, slot; /* documents, and tokens of each at most (PLAIN: exactly) */
    bool ragged, causal; /* not ragged: PLAIN */
    bool piece;          /* blocks of a long document in backward: batch 1, causal on the diagonal,
                            not causal below it */
};

/* Which documents a call takes. */
struct ebb_cudnn_docs {
    int32_t count, batch;          /* batch - count places are for documents of length 0 */
    int32_t from[EBB_CUDNN_BATCH]; /* [count] documents */
};

/* The documents of a run. */
struct ebb_cudnn_input {
    const int32_t *starts; /* [docs + 1] or NULL: all as long as the longest */
    int64_t docs, longest;
};

typedef enum ebb_status (*ebb_cudnn_form_fn)(void *user, const struct ebb_cudnn_form *form,
                                             const struct ebb_cudnn_docs *docs);

/* Calls fn for each call of a run, in order. PLAIN: docs is NULL. Of a long document it tells once,
 * with the causal piece. */
enum ebb_status ebb_cudnn_split(const struct ebb_cudnn_frame *frame,
                                const struct ebb_cudnn_input *input, ebb_cudnn_form_fn fn,
                                void *user);
/* Calls fn, docs being NULL, once for each form that runs of up to `docs` documents (0: any number)
 * of up to `longest` tokens can meet. */
enum ebb_status ebb_cudnn_forms(const struct ebb_cudnn_frame *frame, int64_t docs, int64_t longest,
                                ebb_cudnn_form_fn fn, void *user);

enum {
    EBB_CUDNN_ALIGN = 256, /* of each part of the scratch */
    EBB_CUDNN_OFFSETS_BYTES = (EBB_CUDNN_BATCH + 1) * 8,
    EBB_CUDNN_LENGTHS_BYTES = EBB_CUDNN_BATCH * 4
};

/* Bytes of what lies in the scratch, behind offsets and lengths; 0: not needed. */
struct ebb_cudnn_sizes {
    int64_t kv_heads, heads; /* of a call */
    int64_t block;           /* tokens */
    int64_t delta, sum;      /* struct ebb_cudnn_call says what they are */
    int64_t part[3];         /* bf16 dq, dk, dv of a block */
    int64_t whole[3];        /* fp32: dq of a block, dk and dv of a document */
    int64_t plan;            /* the library's own */
};
struct ebb_cudnn_sizes ebb_cudnn_sizes(const struct ebb_cudnn_frame *frame, int64_t longest);
/* The library's own for one form; never above sizes.plan of a run that meets it. */
int64_t ebb_cudnn_form_workspace(const struct ebb_cudnn_frame *frame,
                                 const struct ebb_cudnn_form *form);

/* ---- between attention_cuda_dnn.c (calls), _plan.c (plans) and _ragged.cu ---- */

/* Tensors of a graph that come from without. */
enum ebb_cudnn_tensor {
    EBB_CUDNN_Q,
    EBB_CUDNN_K,
    EBB_CUDNN_V,
    EBB_CUDNN_O,
    EBB_CUDNN_LSE,
    EBB_CUDNN_DO,
    EBB_CUDNN_DQ,
    EBB_CUDNN_DK,
    EBB_CUDNN_DV,
    EBB_CUDNN_DATA /* so many; each has rows of tokens, a stride and, if ragged, offsets */
};

/* Compared byte by byte: start from zero bytes. */
struct ebb_cudnn_key {
    int64_t batch, slot; /* documents, and tokens of each at most (PLAIN: exactly) */
    int64_t heads, kv_heads, dim;
    int64_t stride[EBB_CUDNN_DATA]; /* elements from token to token */
    uint8_t ragged, causal, backward, deterministic;
    uint8_t rest[4];
};

/* Device pointers of one call. */
struct ebb_cudnn_call {
    void *data[EBB_CUDNN_DATA];
    void *offsets[EBB_CUDNN_DATA]; /* int64 [batch + 1], elements */
    void *queries, *keys;          /* int32 [batch]: lengths */
    /* Backward's own; the library clears them. */
    float *delta; /* [batch, heads, slot]: row sums of d_o o */
    float *sum;   /* [batch, heads, slot, dim]: dq; NULL if deterministic */
    void *workspace;
    int64_t workspace_bytes;
    float scale;
};

struct ebb_ctx *ebb_cudnn_ctx(const struct ebb_cudnn *dnn); /* borrowed */

/* Makes plans for keys; none of them may want more workspace. `what` is for people. */
enum ebb_status ebb_cudnn_prepare(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *keys,
                                  int count, int64_t workspace_bytes, const char *what);
/* Runs the key's plan on a stream; builds it where it is new. */
enum ebb_status ebb_cudnn_run(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key,
                              const struct ebb_cudnn_call *call, void *stream);

struct ebb_cudnn_lengths {
    int32_t first; /* the token where the call's matrices begin */
    int64_t stride[EBB_CUDNN_DATA];
    int64_t *offsets[EBB_CUDNN_DATA];
    int32_t *queries, *keys;
};
/* Lengths and offsets (stride times start, counted from to->first) of these documents, one behind
 * the last; documents of length 0 start where the last one ends. */
int ebb_cudnn_fill_docs(const int32_t *doc_starts, const struct ebb_cudnn_docs *docs,
                        const struct ebb_cudnn_lengths *to, void *stream);
/* The same for one piece: all offsets 0, these lengths. */
int ebb_cudnn_fill_piece(int64_t queries, int64_t keys, const struct ebb_cudnn_lengths *to,
                         void *stream);
/* sum[i, j] += part[i, j], and to[i, j] = sum[i, j] as bf16. */
int ebb_cudnn_add(float *sum, int64_t sum_stride, const void *part, int64_t part_stride,
                  int64_t rows, int64_t cols, void *stream);
int ebb_cudnn_store(void *to, int64_t to_stride, const float *sum, int64_t sum_stride, int64_t rows,
                    int64_t cols, void *stream);

#ifdef __cplusplus
}
#endif
#endif
