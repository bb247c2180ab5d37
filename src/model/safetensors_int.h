/* What reading and writing safetensors share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_SAFETENSORS_INT_H
#define EBB_SAFETENSORS_INT_H

#include "base/text.h"
#include "model/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_SAFETENSORS_SINGLE "model.safetensors"
#define EBB_SAFETENSORS_INDEX  "model.safetensors.index.json"

const char *ebb_safetensors_dtype(enum ebb_dtype dtype); /* "F32", "BF16", ... */

#ifdef __cplusplus
}
#endif
#endif
