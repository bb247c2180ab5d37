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

/* What an input embedding's rows are read from, where its table is not on the device: a file, or
 * memory where the engine is blank. */
struct ebb_engine_table {
    struct ebb_safetensors *set;        /* owned; or NULL */
    void *memory;                       /* owned; or NULL */
    struct ebb_tensor_info own;         /* of `memory` */
    const struct ebb_tensor_info *info; /* NULL: the table is on the device */
    int64_t cols;
};

struct ebb_engine {
    struct ebb_ctx *ctx;
    struct ebb_engine_request request;
    struct ebb_model_config *config;
    struct ebb_weight_list weights;
    struct ebb_model_config *teacher; /* NULL: none */
    struct ebb_weight_list teacher_weights;
    struct ebb_adapter_config adapter_config; /* rank 0: none */
    bool owns_adapter;                        /* loaded from adapter_dir, to be cleared */
    struct ebb_net *net;
    struct ebb_engine_table tables[2]; /* the model's, the teacher's */
    struct ebb_op_libs libs; /* owned */
    struct ebb_plan *plan;
    struct ebb_device *device;
    struct ebb_executor *executors[EBB_PROGRAM_COUNT];
    struct ebb_executor *first; /* the one whose tensors the host reads and writes */
    struct ebb_step step;
    struct ebb_step
        waiting[EBB_MICROS_MOST]; /* micro-batches that have been put for a run of TRAIN */
    int32_t waiting_count;
    struct ebb_sums sums; /* as they were after the last run */
    bool fresh;           /* the next run begins with sums of zero */
    bool no_gradients;    /* nothing was added to gradients since the sweep */
    float *logits;        /* [V] the host's copy of what a decode run ended with */
    int32_t *doc_starts;  /* [micros of a run][capacity docs + 1] the host's copy for GPU ops */
    double load_seconds;  /* that the weights took */
    struct ebb_profile *profile; /* NULL: none */
    int64_t refused;             /* bytes that the system did not pin, and was to */
    bool ready;           /* spaces are reserved and programs can run; no weights yet */
};

/* Blocks of rows that are staged in host memory have at most so many bytes. */
enum { EBB_ENGINE_BLOCK = 8 << 20 };
static inline int64_t ebb_engine_block_rows(int64_t row_bytes)
{
    return row_bytes < EBB_ENGINE_BLOCK ? EBB_ENGINE_BLOCK / (row_bytes > 0 ? row_bytes : 1) : 1;
}

/* ---- engine_reserve.c ---- */

/* The device, and both spaces at the plan's sizes. */
enum ebb_status ebb_engine_reserve(struct ebb_engine *engine);
/* Waits until the host space stands, and puts into the plan what of it is not pinned. */
enum ebb_status ebb_engine_settle_pins(struct ebb_engine *engine);

/* ---- engine.c, for engine_measure.c ---- */

/* Device, spaces, executors, and what libraries have to prepare. */
enum ebb_status ebb_engine_make_ready(struct ebb_engine *engine);
/* Where the input of a run's micro-batch `slot` begins: an address of the device. */
void *ebb_engine_input(const struct ebb_engine *engine, int32_t tensor, int32_t slot);
/* Runs a program with the step as it stands, and waits. */
enum ebb_status ebb_engine_run(struct ebb_engine *engine, enum ebb_program_kind kind);

/* ---- engine_rows.c: rows [row0, row0 + rows), the host's side contiguous ---- */

/* A view's elements as they are. */
enum ebb_status ebb_engine_get(const struct ebb_engine *engine, const struct ebb_view *view,
                               int64_t row0, int64_t rows, void *out);
enum ebb_status ebb_engine_put(struct ebb_engine *engine, const struct ebb_view *view, int64_t row0,
                               int64_t rows, const void *in);
/* The same as fp32. */
enum ebb_status ebb_engine_get_values(const struct ebb_engine *engine, const struct ebb_view *view,
                                      int64_t row0, int64_t rows, float *value);
enum ebb_status ebb_engine_put_values(struct ebb_engine *engine, const struct ebb_view *view,
                                      int64_t row0, int64_t rows, const float *value);
/* A parameter's exact values, and with them the copy that programs read. */
enum ebb_status ebb_engine_read_rows(const struct ebb_engine *engine, const struct ebb_param *param,
                                     int64_t row0, int64_t rows, float *value);
enum ebb_status ebb_engine_write_rows(struct ebb_engine *engine, const struct ebb_param *param,
                                      int64_t row0, int64_t rows, const float *value);
/* Columns [col0, col0 + cols) of a vector that is kept in two halves. */
enum ebb_status ebb_engine_write_part(struct ebb_engine *engine, const struct ebb_param *param,
                                      int64_t col0, int64_t cols, const float *value);
/* A tensor beside it of its shape: gradient, m, v. */
enum ebb_status ebb_engine_read_moment(const struct ebb_engine *engine,
                                       const struct ebb_param *param, int32_t tensor, int64_t row0,
                                       int64_t rows, float *value);
enum ebb_status ebb_engine_write_moment(struct ebb_engine *engine, const struct ebb_param *param,
                                        int32_t tensor, int64_t row0, int64_t rows,
                                        const float *value);

enum ebb_status ebb_engine_load_weights(struct ebb_engine *engine);
/* Of a blank engine: engine_blank.c. `net` and its weights are the engine's, or its teacher's. */
enum ebb_status ebb_engine_fill_weights(struct ebb_engine *engine, const struct ebb_net *net,
                                        const struct ebb_weight_list *weights);

/* ---- engine_table.c: input embeddings that stay in their files ---- */

/* Keeps the file of a weight that lies in no tensor open. `net` is the engine's, or its teacher's
 * part. */
enum ebb_status ebb_engine_open_table(struct ebb_engine *engine, const struct ebb_net *net,
                                      const struct ebb_weight *weight, const char *path);
/* The same of a table in memory, to be filled by the caller: *values [rows, cols] in the storage
 * type. */
enum ebb_status ebb_engine_make_table(struct ebb_engine *engine, const struct ebb_net *net,
                                      const struct ebb_weight *weight, void **values);
void ebb_engine_close_tables(struct ebb_engine *engine);
/* Tokens of a run's micro-batch `slot`: their ids and, where tables are not on the device, their
 * rows. `second`: the second model, if there is one, runs too. An id that is no row is EBB_FAILED.
 */
enum ebb_status ebb_engine_put_ids(struct ebb_engine *engine, int32_t slot, const int32_t *ids,
                                   int64_t count, bool second);
/* Rows of `count` tokens as zeros: before there are tables. */
void ebb_engine_clear_rows(struct ebb_engine *engine, int64_t count);
/* Rows [row0, row0 + rows) of a weight in the type that it is kept in, wherever it lies. */
enum ebb_status ebb_engine_get_weight(const struct ebb_engine *engine, const struct ebb_net *net,
                                      int64_t weight, int64_t row0, int64_t rows, void *out);
/* Rows of the model's own table as fp32, with the storage type's rounding. */
void ebb_engine_get_table_values(const struct ebb_engine *engine, int64_t row0, int64_t rows,
                                 float *value);

#ifdef __cplusplus
}
#endif
#endif
