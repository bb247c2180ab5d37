/* What work costs on this machine: rates that `ebb probe` measured and kept, or those of a GPU's
 * data sheet.
 *
 * They are kept as "ebb/rates/DEVICE-DTYPE.json" in the user's cache, for the CPU with its threads
 * in the name. What was measured with another driver or library is still a better guess than a data
 * sheet, so it is used, with one warning.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RECIPE_MACHINE_H
#define EBB_RECIPE_MACHINE_H

#include "plan/rates.h"
#include "recipe/setup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose rates. */
struct ebb_machine {
    const struct ebb_recipe_env *env; /* borrowed */
    enum ebb_backend backend;
    enum ebb_dtype storage;
    int threads; /* of the CPU backend; 0: all */
};

/* Adds the libraries that compute there, each behind ", ", with versions: ", oneDNN 2.6.3, ...".
 * EBB_UNSUPPORTED, as a run would say it, where one cannot be loaded. */
enum ebb_status ebb_machine_libraries(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                      struct ebb_str *out);
/* rates->device, versions, threads and storage as they are here; the rest stays. EBB_DEVICE where
 * the backend has no device. */
enum ebb_status ebb_machine_describe(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                     struct ebb_rates *rates);
/* *found: there are any; rates->measured says whether by `ebb probe`. A file that cannot be used,
 * or that is of another device, type or number of threads, is a warning. */
enum ebb_status ebb_machine_rates(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                  struct ebb_rates *rates, bool *found);
/* Keeps them; they are described already. *path: where, the caller frees; NULL: there is no place
 * for a cache (neither XDG_CACHE_HOME nor HOME). */
enum ebb_status ebb_machine_save_rates(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                       const struct ebb_rates *rates, char **path);
/* The same, but what stands in the way is no error: *path is NULL then, `why` says what ("": they
 * are kept), and so does a warning. EBB_NO_MEMORY alone is returned. */
enum { EBB_MACHINE_WHY = 512 };
enum ebb_status ebb_machine_keep_rates(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                       const struct ebb_rates *rates, char **path,
                                       char why[EBB_MACHINE_WHY]);

/* One warning where `device: auto` became the CPU although the machine has an NVIDIA GPU, which
 * nobody hid (CUDA_VISIBLE_DEVICES): the driver is missing, or the build is one for the CPU. `root`
 * as ebb_gpu_seen() has it. */
void ebb_machine_tell_unused(struct ebb_ctx *ctx, const struct ebb_config *config,
                             const char *root);

#ifdef __cplusplus
}
#endif
#endif
