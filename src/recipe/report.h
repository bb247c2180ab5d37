/* report_to and logging_dir: who else than metrics.jsonl gets a run's numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_REPORT_H
#define EBB_RECIPE_REPORT_H

#include "recipe/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Refuses names that nobody knows, and says what to do for those that Ebb does not serve itself. */
enum ebb_status ebb_report_check(struct ebb_ctx *ctx, struct ebb_options *options,
                                 const struct ebb_config *config);
/* Where event files go: logging_dir, or "runs" in output_dir; *dir is NULL where report_to asks for
 * none. The caller frees. */
enum ebb_status ebb_report_dir(struct ebb_ctx *ctx, const struct ebb_config *config, char **dir);
/* Removes the event files that earlier runs left in output_dir. */
enum ebb_status ebb_report_clear(struct ebb_ctx *ctx, const struct ebb_config *config);

#ifdef __cplusplus
}
#endif
#endif
