/* Small kernels around cuDNN's attention: where documents lie, and sums of bf16 parts in fp32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_int.h"

#include "op/cuda_int.cuh"

static __global__ void fill_docs_kernel(const int32_t *starts, struct ebb_cudnn_docs docs,
                                        struct ebb_cudnn_lengths to)
{
    int i = (int)threadIdx.x;
    if (i > docs.batch) return;
    /* Places behind the last document are where it ends. */
    bool is_there = i < docs.count;
    int doc = docs.from[is_there ? i : docs.count - 1];
    int32_t end = starts[doc + 1], start = is_there ? starts[doc] : end;
    for (int k = 0; k < EBB_CUDNN_DATA; k++)
        to.offsets[k][i] = (int64_t)(start - to.first) * to.stride[k];
    if (i == docs.batch) return;
    to.queries[i] = end - start;
    to.keys[i] = end - start;
}

static __global__ void fill_piece_kernel(int32_t queries, int32_t keys, struct ebb_cudnn_lengths to)
{
    int k = (int)threadIdx.x;
    if (k >= EBB_CUDNN_DATA) return;
    bool of_keys = k == EBB_CUDNN_K || k == EBB_CUDNN_V || k == EBB_CUDNN_DK || k == EBB_CUDNN_DV;
    to.offsets[k][0] = 0;
    to.offsets[k][1] = (of_keys ? keys : queries) * to.stride[k];
    if (k > 0) return;
    to.queries[0] = queries;
    to.keys[0] = keys;
}

static __global__ void add_kernel(float *sum, int64_t sum_stride, const ebb_bf16 *part,
                                  int64_t part_stride, int64_t rows, int64_t cols)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, i = at / cols, j = at % cols;
    if (i < rows) sum[i * sum_stride + j] += ebb_load(part + i * part_stride + j);
}

static __global__ void store_kernel(ebb_bf16 *to, int64_t to_stride, const float *sum,
                                    int64_t sum_stride, int64_t rows, int64_t cols)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, i = at / cols, j = at % cols;
    if (i < rows) ebb_store(to + i * to_stride + j, sum[i * sum_stride + j]);
}

int ebb_cudnn_fill_docs(const int32_t *doc_starts, const struct ebb_cudnn_docs *docs,
                        const struct ebb_cudnn_lengths *to, void *stream)
{
    /* One thread more than places. */
    int threads = (docs->batch + 32) / 32 * 32;
    fill_docs_kernel<<<1, threads, 0, (cudaStream_t)stream>>>(doc_starts, *docs, *to);
    return (int)cudaGetLastError();
}

int ebb_cudnn_fill_piece(int64_t queries, int64_t keys, const struct ebb_cudnn_lengths *to,
                         void *stream)
{
    fill_piece_kernel<<<1, 32, 0, (cudaStream_t)stream>>>((int32_t)queries, (int32_t)keys, *to);
    return (int)cudaGetLastError();
}

int ebb_cudnn_add(float *sum, int64_t sum_stride, const void *part, int64_t part_stride,
                  int64_t rows, int64_t cols, void *stream)
{
    add_kernel<<<ebb_blocks(ebb_ceil_div(rows * cols, 256)), 256, 0, (cudaStream_t)stream>>>(
        sum, sum_stride, (const ebb_bf16 *)part, part_stride, rows, cols);
    return (int)cudaGetLastError();
}

int ebb_cudnn_store(void *to, int64_t to_stride, const float *sum, int64_t sum_stride,
                    int64_t rows, int64_t cols, void *stream)
{
    store_kernel<<<ebb_blocks(ebb_ceil_div(rows * cols, 256)), 256, 0, (cudaStream_t)stream>>>(
        (ebb_bf16 *)to, to_stride, sum, sum_stride, rows, cols);
    return (int)cudaGetLastError();
}
