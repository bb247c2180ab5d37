/* What data a run reads: dataset_name, eval_dataset and `datasets` as sources of data/dataset.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_SOURCES_H
#define EBB_RECIPE_SOURCES_H

#include "data/dataset.h"
#include "recipe/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The data that is trained on, and the data that is measured. */
enum ebb_share { EBB_SHARE_TRAIN, EBB_SHARE_EVAL };

/* {0} is a valid empty value. */
struct ebb_sources {
    struct ebb_dataset_source *items; /* [count]; texts and trees are the configuration's */
    int64_t count;
    char **splits; /* [count] owned; what items[i].split points at */
};

enum { EBB_SOURCES = 4096 }; /* at most */

/* The sources of a share; none where the configuration names no data for it. What is measured are
 * those of eval_dataset, or else all of the training data's with dataset_test_split, with what
 * validation_split has cut off, or without either as they are: each record once, whatever its
 * weight. Checks everything about them that can be told without reading a file; errors name line
 * and column. The caller frees. */
enum ebb_status ebb_sources_create(struct ebb_ctx *ctx, struct ebb_options *options,
                                   const struct ebb_config *config, enum ebb_share share,
                                   struct ebb_sources *sources);
void ebb_sources_free(struct ebb_ctx *ctx, struct ebb_sources *sources);

#ifdef __cplusplus
}
#endif
#endif
