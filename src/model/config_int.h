/* What the files that read config.json share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_MODEL_CONFIG_INT_H
#define EBB_MODEL_CONFIG_INT_H

#include "base/json.h"
#include "model/family.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_JSON_SHOW = 96 };

/* A value as JSON text for a message, cut with "..." where long. Returns `out`. */
const char *ebb_json_show(const json_t *value, char out[EBB_JSON_SHOW]);
/* Is the value null, empty, or the number `neutral` (false 0, true 1)? NULL counts as null. */
bool ebb_json_is_neutral(const json_t *value, double neutral);
/* Refuses the first key of `keys` that is set. */
enum ebb_status ebb_json_refuse(struct ebb_ctx *ctx, const char *where, const json_t *json,
                                const struct ebb_refused_key *keys);

/* rope_theta with rope_scaling (transformers 4) or rope_parameters (transformers 5). */
enum ebb_status ebb_rope_read(struct ebb_ctx *ctx, const char *where, const json_t *json,
                              int64_t max_positions, struct ebb_rope *rope);

/* Sum of rows times columns over every weight; false where it does not fit into 2^56. */
bool ebb_weight_elements(const struct ebb_model_config *config, int64_t *elements);

#ifdef __cplusplus
}
#endif
#endif
