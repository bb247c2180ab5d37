/* A second model beside the one that is trained: a teacher, or a reference.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_SECOND_H
#define EBB_RECIPE_SECOND_H

#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How errors name it. */
struct ebb_second {
    const char *key;    /* that names it */
    const char *role;   /* "teacher" */
    const char *model;  /* what the model beside it is: "student" */
    const char *method; /* what compares the two: "distillation compares" */
};

/* Finds the model `name` into setup->teacher_dir and its vocabulary into *vocab. Refuses an adapter
 * alone and a model that has other tokens than the setup's tokenizer; one without a tokenizer is
 * taken at its word. Warns where the data has longer documents than it was made for. */
enum ebb_status ebb_second_find(struct ebb_setup *setup, const struct ebb_second *second,
                                const char *name, int64_t *vocab);

#ifdef __cplusplus
}
#endif
#endif
