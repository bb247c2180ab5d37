/* What attention_cuda_plan.c (the library, plans) and attention_cuda_graph.c (graphs) share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_OP_ATTENTION_CUDNN_GRAPH_INT_H
#define EBB_OP_ATTENTION_CUDNN_GRAPH_INT_H

#include <cudnn.h>

#include "base/library.h"
#include "op/attention_cudnn_int.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(function): what is used of the library. */
#define EBB_CUDNN_CALLS(X)                                                                         \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

struct ebb_cudnn_calls {
#define EBB_CUDNN_MEMBER(name) __typeof__(name) *name;
    EBB_CUDNN_CALLS(EBB_CUDNN_MEMBER)
#undef EBB_CUDNN_MEMBER
};

struct ebb_cudnn_library {
    struct ebb_ctx *ctx;
    struct ebb_library *file;
    struct ebb_cudnn_calls calls;
    char version[32];
    char doing[400]; /* the key at work, for messages */
};

/* Unique ids of a graph's tensors beside the data's, which are their numbers plus one. */
enum {
    EBB_CUDNN_ID_DELTA = 50, /* fp32 row sums of d_o o */
    EBB_CUDNN_ID_SUM,        /* fp32 dQ, where it is not deterministic */
    EBB_CUDNN_ID_SCALE = 100,
    EBB_CUDNN_ID_MASKED,
    EBB_CUDNN_ID_ONE,
    EBB_CUDNN_ID_QUERIES,
    EBB_CUDNN_ID_KEYS,
    EBB_CUDNN_ID_OFFSETS = 200, /* plus the data's number */
    EBB_CUDNN_ID_VIRTUAL = 1000
};

enum {
    EBB_CUDNN_OPS = 40,         /* of a graph */
    EBB_CUDNN_DESCRIPTORS = 160 /* of a graph, all kinds */
};

struct ebb_cudnn_graph {
    struct ebb_cudnn_library *library;
    const struct ebb_cudnn_key *key;
    enum ebb_status status;
    cudnnBackendDescriptor_t ops[EBB_CUDNN_OPS], all[EBB_CUDNN_DESCRIPTORS];
    int ops_count, all_count;
    int64_t next_id;
    cudnnBackendDescriptor_t queries, keys, masked; /* lengths (NULL if PLAIN) and -inf */
    cudnnBackendDescriptor_t offsets[EBB_CUDNN_DATA];
};

enum ebb_status ebb_cudnn_check(struct ebb_cudnn_library *library, cudnnStatus_t status,
                                const char *what);

/* Making descriptors, which go to graph->all: the first failure stays in graph->status, and what
 * follows does nothing. */
cudnnBackendDescriptor_t ebb_cudnn_make(struct ebb_cudnn_graph *graph,
                                        cudnnBackendDescriptorType_t type, const char *what);
void ebb_cudnn_set(struct ebb_cudnn_graph *graph, cudnnBackendDescriptor_t to,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *value, const char *what);
void ebb_cudnn_set_part(struct ebb_cudnn_graph *graph, cudnnBackendDescriptor_t to,
                        cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t part,
                        const char *what);
void ebb_cudnn_finish(struct ebb_cudnn_graph *graph, cudnnBackendDescriptor_t made,
                      const char *what);

/* Fills graph->ops for graph->key; library and key are set, the rest is zero. */
void ebb_cudnn_describe(struct ebb_cudnn_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
