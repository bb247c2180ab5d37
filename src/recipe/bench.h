/* `ebb bench`: memory and speed of training over lengths or budgets (recipe/bench_sweep.h has the
 * words), as a file of results (plot/results.h) that grows point by point.
 *
 * Every point is measured in a process of its own (recipe/bench_point.h), so what one leaves behind
 * (memory that an allocator keeps, plans of libraries, a lost GPU) is not in the next one's
 * numbers, and one that crashes or that the system kills ends its series alone. What that costs is
 * a start of the program and of the device's driver, and of loading the model, a point.
 *
 * What is measured is in the file at once. The same command goes on where it was ended: a point
 * that is there is not measured again, nor anything beyond a length that did not fit. A file of
 * another configuration, device or model is refused. SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_BENCH_H
#define EBB_RECIPE_BENCH_H

#include "recipe/bench_point.h"
#include "recipe/bench_sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_BENCH_FILE "results.json"
#define EBB_BENCH_LOG  "bench.log"

/* A model of the sweep. */
struct ebb_bench_model {
    const char *name; /* as series have it */
    const char *path; /* what model_name_or_path would be; "": the configuration names an adapter */
};

/* Everything is borrowed. */
struct ebb_bench_request {
    struct ebb_options *options; /* of EBB_COMMAND_BENCH, checked */
    const struct ebb_config *config;
    const struct ebb_recipe_env *env;
    const char *output_dir;
    bool overwrite;
    const struct ebb_bench_model *models;
    int model_count;
    /* The command's own words, which children read again: `ebb COMMAND MODEL MODE BUDGET LENGTH
     * WORD...` writes one point as results on its standard output. */
    const char *child_command;
    char *const *words;
    int word_count;
};

/* EBB_INTERRUPTED after a signal, with what is measured in the file. The caller frees *results,
 * which is NULL after any failure. */
enum ebb_status ebb_bench_run(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                              struct ebb_results **results);

/* Adds a table of the points, and a line for each series that came to an end. */
enum ebb_status ebb_bench_table(struct ebb_ctx *ctx, const struct ebb_results *results,
                                struct ebb_str *out);
/* "sft, LoRA of rank 16": how the configuration trains. */
const char *ebb_bench_method(const struct ebb_config *config, char *out, size_t out_bytes);

/* ---- the file (recipe/bench_record.c) ---- */

/* What makes a sweep the same one: configuration without what the sweep varies, data, steps, and
 * hashes of the models' config.json. The caller owns it. */
enum ebb_status ebb_bench_setting(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                                  enum ebb_results_kind kind, json_t **setting);
/* EBB_BAD_CONFIG with the first thing that differs. Models that only one of both has do not
 * matter. `path` is for messages. */
enum ebb_status ebb_bench_same(struct ebb_ctx *ctx, const char *path, const json_t *kept,
                               const json_t *now);
/* The file as it is, or a new one. *setting's models are added to those that are there. */
enum ebb_status ebb_bench_open(struct ebb_ctx *ctx, const struct ebb_bench_request *request,
                               const struct ebb_bench_sweep *sweep, const char *path,
                               struct ebb_results **results);
/* By model and mode; a new one at the end. */
enum ebb_status ebb_bench_series(struct ebb_results *results, const char *model, const char *mode,
                                 struct ebb_results_series **series);
const struct ebb_results_point *ebb_bench_find(const struct ebb_results *results,
                                               const struct ebb_results_series *series,
                                               int64_t value);
/* Whether a value need not be tried: it is there, or at or beyond the end of a series that ended
 * for lack of memory. */
bool ebb_bench_is_done(const struct ebb_results *results, const struct ebb_results_series *series,
                       int64_t value);
enum ebb_status ebb_bench_save(const struct ebb_results *results, const char *path);

#ifdef __cplusplus
}
#endif
#endif
