/* A folder of its own for each case: its name is *state.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_DIR_H
#define EBB_TRAIN_DIR_H

#include <stdio.h>
#include <stdlib.h>

#include "base/context.h"
#include "base/file.h"

static inline int train_dir_open(void **state)
{
    char *dir = (char *)malloc(64);
    if (!dir) return -1;
    snprintf(dir, 64, "/tmp/ebb_train_XXXXXX");
    *state = dir;
    return mkdtemp(dir) ? 0 : -1;
}

static inline int train_dir_close(void **state)
{
    struct ebb_ctx *ctx = ebb_ctx_create();
    int rc = ebb_dir_remove(ctx, (const char *)*state) == EBB_OK ? 0 : -1;
    ebb_ctx_free(ctx);
    free(*state);
    return rc;
}

#endif
