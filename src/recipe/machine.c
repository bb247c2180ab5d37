/* Rates of this machine: how they are called, where they lie, whether they still hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/machine.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "device/device_gpu_seen.h"
#include "op/attention.h"
#include "op/matmul.h"

static int threads_of(const struct ebb_machine *machine)
{
    return machine->threads > 0 ? machine->threads : ebb_cpu_count();
}

/* ---- what it is ---- */

static enum ebb_status add_matmul(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                  struct ebb_str *out)
{
    const struct ebb_op_target target = {.backend = machine->backend,
                                         .threads = threads_of(machine)};
    struct ebb_matmul_lib *lib;
    EBB_TRY(ebb_matmul_lib_create(ctx, &target, &lib));
    enum ebb_status status = ebb_str_addf(ctx, out, ", %s", ebb_matmul_lib_version(lib));
    ebb_matmul_lib_free(lib);
    return status;
}

/* cuDNN's, where a run of this type would have it for the commonest heads. */
static enum ebb_status add_attention(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                     struct ebb_str *out)
{
    const struct ebb_attention_shape shape = {.heads = 32,
                                              .kv_heads = 8,
                                              .qk_dim = 128,
                                              .v_dim = 128};
    struct ebb_attention_lib *lib;
    if (machine->backend == EBB_BACKEND_CPU) return EBB_OK;
    const struct ebb_attention_way way =
        ebb_attention_way(&shape, machine->storage, 4096, false, NULL, 0);
    if (!way.library) return EBB_OK;
    EBB_TRY(ebb_attention_lib_create(ctx, &way, NULL, &lib));
    enum ebb_status status = ebb_str_addf(ctx, out, ", %s", ebb_attention_lib_version(lib));
    ebb_attention_lib_free(lib);
    return status;
}

enum ebb_status ebb_machine_libraries(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                      struct ebb_str *out)
{
    EBB_TRY(add_matmul(ctx, machine, out));
    return add_attention(ctx, machine, out);
}

/* As rates have it. */
static void name_device(const struct ebb_backend_facts *facts, char out[EBB_RATES_DEVICE])
{
    size_t valid = ebb_text_utf8_valid(facts->name, strlen(facts->name));
    snprintf(out, EBB_RATES_DEVICE, "%.*s", (int)valid, facts->name);
}

enum ebb_status ebb_machine_describe(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                     struct ebb_rates *rates)
{
    struct ebb_backend_facts facts;
    struct ebb_str versions = {0};
    char why[EBB_BACKEND_WHY] = "the driver does not say what it is";
    if (!ebb_backend_facts(ctx, machine->backend, &facts)) {
        (void)ebb_backend_is_there(machine->backend, why, sizeof why);
        return EBB_FAIL(ctx, EBB_DEVICE, "device: %s is not to be had: %s\ntry:   device: cpu",
                        ebb_backend_name(machine->backend), why);
    }
    rates->storage = machine->storage;
    rates->threads = machine->backend == EBB_BACKEND_CPU ? threads_of(machine) : 0;
    name_device(&facts, rates->device);
    enum ebb_status status = ebb_str_addf(ctx, &versions, "Ebb %s%s%s", EBB_VERSION,
                                          facts.driver[0] ? ", driver " : "", facts.driver);
    if (status == EBB_OK) status = ebb_machine_libraries(ctx, machine, &versions);
    if (status == EBB_OK) snprintf(rates->versions, sizeof rates->versions, "%s", versions.data);
    ebb_str_free(ctx, &versions);
    return status;
}

void ebb_machine_tell_unused(struct ebb_ctx *ctx, const struct ebb_config *config, const char *root)
{
    char why[EBB_BACKEND_WHY];
    if (config->device != EBB_DEVICE_KEY_AUTO || config->gpu ||
        ebb_gpu_hidden(ebb_environment("CUDA_VISIBLE_DEVICES")) ||
        ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why) || !ebb_gpu_seen(root))
        return;
    ebb_warn_once(
        ctx, "device.auto",
        "device: auto takes the CPU, though this machine seems to have an NVIDIA GPU: %s; "
        "'device: cpu' where that is meant",
        why);
}

/* ---- where they are ---- */

/* "NVIDIA H200" as "nvidia-h200": letters, digits, and one '-' between. */
static void make_slug(const char *name, char *out, size_t room)
{
    size_t at = 0;
    for (; *name && at + 2 < room; name++) {
        if (isalnum((unsigned char)*name))
            out[at++] = (char)tolower((unsigned char)*name);
        else if (at > 0 && out[at - 1] != '-')
            out[at++] = '-';
    }
    while (at > 0 && out[at - 1] == '-') at--;
    out[at] = '\0';
}

/* The caller frees; NULL: nowhere. */
static enum ebb_status find_path(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                 const char *device, char **dir, char **path)
{
    char slug[96], threads[16] = "";
    *path = NULL;
    EBB_TRY(ebb_setup_cache(ctx, machine->env, "rates", dir));
    if (*dir == NULL) return EBB_OK;
    make_slug(device, slug, sizeof slug);
    if (machine->backend == EBB_BACKEND_CPU)
        snprintf(threads, sizeof threads, "-%dt", threads_of(machine));
    *path = ebb_mem_format(ctx, "%s/%s-%s%s.json", *dir, slug,
                           machine->storage == EBB_BF16 ? "bfloat16" : "float32", threads);
    return *path ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status read_rates(struct ebb_ctx *ctx, const char *path, struct ebb_rates *rates)
{
    json_t *json;
    EBB_TRY(ebb_json_load(ctx, path, &json));
    enum ebb_status status = ebb_rates_read(ctx, path, json, rates);
    json_decref(json);
    return status;
}

/* A file that cannot be used is as if it were not there. */
static enum ebb_status load_rates(struct ebb_ctx *ctx, const char *path, struct ebb_rates *rates,
                                  bool *found)
{
    if (path == NULL || !ebb_file_exists(path)) return EBB_OK;
    enum ebb_status status = read_rates(ctx, path, rates);
    *found = status == EBB_OK;
    if (status == EBB_OK || status == EBB_NO_MEMORY) return status;
    ebb_warn_once(ctx, "rates.file",
                  "what work costs here is not taken from its file: %s; 'ebb probe' measures it "
                  "again",
                  ebb_error_text(ctx));
    ebb_error_clear(ctx);
    return EBB_OK;
}

/* Whether rates are what they were looked for as: a file may have been copied or renamed. A warning
 * where not. */
static bool are_of(struct ebb_ctx *ctx, const struct ebb_machine *machine, const char *path,
                   const char *device, const struct ebb_rates *rates)
{
    static const char text[] = "what work costs here is not taken from '%s': it is of %s";
    char why[160];
    if (strcmp(rates->device, device) != 0) {
        snprintf(why, sizeof why, "'%s'", rates->device);
        ebb_warn_once(ctx, "rates.device", text, path, why);
        return false;
    }
    if (rates->storage != machine->storage) {
        snprintf(why, sizeof why, "%s, this run's type is %s", ebb_dtype_name(rates->storage),
                 ebb_dtype_name(machine->storage));
        ebb_warn_once(ctx, "rates.dtype", text, path, why);
        return false;
    }
    if (machine->backend != EBB_BACKEND_CPU || rates->threads == 0 ||
        rates->threads == threads_of(machine))
        return true;
    snprintf(why, sizeof why, "%d threads, this run has %d", rates->threads, threads_of(machine));
    ebb_warn_once(ctx, "rates.threads", text, path, why);
    return false;
}

static void warn_of_versions(struct ebb_ctx *ctx, const struct ebb_rates *here,
                             const struct ebb_rates *rates)
{
    if (strcmp(here->versions, rates->versions) != 0)
        ebb_warn_once(ctx, "rates.versions",
                      "what work costs here was measured with %s, now it is %s: forecasts may be "
                      "off; 'ebb probe' measures it again",
                      rates->versions, here->versions);
}

static bool from_data_sheet(const struct ebb_machine *machine, const char *device,
                            struct ebb_rates *rates)
{
    const struct ebb_gpu *gpu = machine->backend == EBB_BACKEND_CUDA ? ebb_gpu_find(device) : NULL;
    if (gpu == NULL) return false;
    ebb_gpu_rates(gpu, machine->storage, rates);
    return ebb_cost_known(&rates->costs[EBB_COST_PRODUCT]);
}

enum ebb_status ebb_machine_rates(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                  struct ebb_rates *rates, bool *found)
{
    struct ebb_backend_facts facts;
    struct ebb_rates here = {0};
    char *dir = NULL, *path = NULL, device[EBB_RATES_DEVICE];
    *found = false;
    if (!ebb_backend_facts(ctx, machine->backend, &facts)) return EBB_OK;
    name_device(&facts, device);
    enum ebb_status status = find_path(ctx, machine, device, &dir, &path);
    if (status == EBB_OK) status = load_rates(ctx, path, rates, found);
    if (status == EBB_OK && *found) *found = are_of(ctx, machine, path, device, rates);
    if (status == EBB_OK && *found) {
        /* Libraries are only loaded for this where there is something to compare. */
        status = ebb_machine_describe(ctx, machine, &here);
        if (status == EBB_OK) warn_of_versions(ctx, &here, rates);
    } else if (status == EBB_OK) {
        *found = from_data_sheet(machine, device, rates);
    }
    ebb_mem_free(ctx, dir);
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status write_rates(struct ebb_ctx *ctx, const char *path,
                                   const struct ebb_rates *rates)
{
    json_t *json = ebb_rates_json(rates);
    if (json == NULL) return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory for rates");
    enum ebb_status status = ebb_json_save(ctx, path, json);
    json_decref(json);
    return status;
}

enum ebb_status ebb_machine_save_rates(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                       const struct ebb_rates *rates, char **path)
{
    char *dir = NULL;
    enum ebb_status status = find_path(ctx, machine, rates->device, &dir, path);
    if (status == EBB_OK && *path) status = ebb_dir_create(ctx, dir);
    if (status == EBB_OK && *path) status = write_rates(ctx, *path, rates);
    ebb_mem_free(ctx, dir);
    if (status == EBB_OK) return EBB_OK;
    ebb_mem_free(ctx, *path);
    *path = NULL;
    return status;
}

enum ebb_status ebb_machine_keep_rates(struct ebb_ctx *ctx, const struct ebb_machine *machine,
                                       const struct ebb_rates *rates, char **path,
                                       char why[EBB_MACHINE_WHY])
{
    enum ebb_status status = ebb_machine_save_rates(ctx, machine, rates, path);
    why[0] = '\0';
    if (status == EBB_NO_MEMORY || (status == EBB_OK && *path)) return status;
    snprintf(why, EBB_MACHINE_WHY, "%s",
             status == EBB_OK ? "neither XDG_CACHE_HOME nor HOME says where" : ebb_error_text(ctx));
    ebb_warn_once(ctx, "rates.kept", "what was measured is not kept: %s", why);
    ebb_error_clear(ctx);
    return EBB_OK;
}
