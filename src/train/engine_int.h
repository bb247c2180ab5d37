/* What engine.c (running) and engine_state.c (reading and writing parameters) share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_ENGINE_INT_H
#define EBB_ENGINE_INT_H

#include "model/safetensors.h"
#include "program/executor.h"
#include "train/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_engine {
    struct ebb_ctx *ctx;
    struct ebb_engine_request request;
    struct ebb_model_config *config;
    struct ebb_weight_list weights;
    struct ebb_adapter_config adapter_config; /* rank 0: none */
    bool owns_adapter;                        /* loaded from adapter_dir, to be cleared */
    struct ebb_net *net;
    struct ebb_matmul_lib *matmul;
    struct ebb_plan *plan;
    struct ebb_device *device;
    struct ebb_executor *executors[EBB_PROGRAM_COUNT];
    struct ebb_executor *first; /* the one whose tensors the host reads and writes */
    struct ebb_step step;
};

/* Row `row` of a parameter's exact fp32 value: [cols]. */
void ebb_engine_read_row(const struct ebb_engine *engine, const struct ebb_param *param,
                         int64_t row, float *value);
void ebb_engine_write_row(struct ebb_engine *engine, const struct ebb_param *param, int64_t row,
                          const float *value);
enum ebb_status ebb_engine_load_weights(struct ebb_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
