/* What trainer.c and evaluate.c share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAINER_INT_H
#define EBB_TRAINER_INT_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is there something to read? Leaves it there. -1: never. */
bool ebb_stop_wanted(int stop_fd);

#ifdef __cplusplus
}
#endif
#endif
