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
/* What the run's second model is ("teacher", "reference"), and how the user calls it. */
const char *ebb_second_role(const struct ebb_setup *setup);
const char *ebb_second_name(const struct ebb_setup *setup);
/* Puts name and number of parameters into an object, where the engine has a second model; of a
 * saved teacher the name. False: no memory, or no object. */
bool ebb_second_json(const struct ebb_setup *setup, const struct ebb_engine *engine, json_t *json);

#ifdef __cplusplus
}
#endif
#endif
