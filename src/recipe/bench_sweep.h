/* What `ebb bench` measures, from its keys: a *sweep* of lengths or of budgets, and *modes*.
 *
 * A sweep trains one configuration again and again. Over lengths, each model and mode makes a
 * *series*: one *point* a length, in ascending order, until the first that does not fit. A mode is
 * a way to hold what the backward pass needs: kept on the device, moved to host memory, computed
 * again, or as the plan chooses within a budget. Over budgets, each model makes a series: the
 * plan's choice at one length, from the largest budget down to the first that does not do.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_BENCH_SWEEP_H
#define EBB_RECIPE_BENCH_SWEEP_H

#include "plot/results.h"
#include "recipe/options.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_BENCH_VALUES = 64, EBB_BENCH_MODES = 32, EBB_BENCH_MODELS = 16 };

struct ebb_bench_sweep {
    enum ebb_results_kind kind;
    int64_t values[EBB_BENCH_VALUES]; /* tokens, ascending; bytes, descending: as they are run */
    int count;
};

/* "length=1k:128k:x2", "length=1k:16k:+1k", "length=1k,3k", "budget=8GiB:64GiB:x2". EBB_BAD_CONFIG
 * with what is wrong and what is wanted; `where` says who wrote it. */
enum ebb_status ebb_bench_sweep_parse(struct ebb_ctx *ctx, const char *text, const char *where,
                                      struct ebb_bench_sweep *sweep);

struct ebb_bench_mode {
    char *name;     /* as the user wrote it; owned */
    int64_t budget; /* of the mode plan: bytes; 0: as the configuration has it */
};

struct ebb_bench_modes {
    struct ebb_bench_mode items[EBB_BENCH_MODES];
    int count;
};

/* The modes of `modes` and `budgets`. moves: there is device memory that something can be moved out
 * of, so that auto has the modes that do. The caller frees, after a failure too. */
enum ebb_status ebb_bench_modes_parse(struct ebb_ctx *ctx, struct ebb_options *options,
                                      const struct ebb_config *config, bool moves,
                                      struct ebb_bench_modes *modes);
void ebb_bench_modes_free(struct ebb_ctx *ctx, struct ebb_bench_modes *modes);
/* Whether the name's policies are what `plan` decides. */
bool ebb_bench_mode_plans(const char *name);
/* What a series of the mode is called: "checkpoint", "plan within 8 GiB". */
const char *ebb_bench_mode_text(const struct ebb_bench_mode *mode, char *out, size_t out_bytes);
/* Sets the keys that hold activations as the mode has them, whatever a file says of them, and the
 * budget where the mode has one. `options` are checked again afterwards. */
enum ebb_status ebb_bench_mode_set(struct ebb_options *options, const struct ebb_bench_mode *mode);

/* The next name of a list, of which commas within brackets are a part: borrowed from `at`, which
 * moves on; blanks around it are left away. False at the end. */
bool ebb_bench_next_name(const char **at, const char **name, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
