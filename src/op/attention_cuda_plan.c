/* cuDNN: the library, and plans: graphs of attention that an engine has taken.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention_cudnn_graph_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/file.h"
#include "base/text.h"

enum {
    VERSION_LOWEST = 91800,
    PLANS_FIRST = 64, /* places; then twice as many whenever they are full */
    PLANS_FEW = 4,    /* building more is worth a line */
    CONFIGS = 8,      /* engines that are asked for */
    FORM = 1          /* of graphs: another one where ebb_cudnn_describe changes */
};

typedef cudnnBackendDescriptor_t descriptor;

struct plan {
    struct ebb_cudnn_key key;
    descriptor plan;
    int64_t workspace;
    descriptor *parts; /* what the plan was made of lives as long as it does; NULL: from a file */
    int parts_count;
};

struct ebb_cudnn {
    struct ebb_cudnn_library library;
    cudnnHandle_t handle; /* made by the first plan */
    char device[320];
    char *cache;
    int plans, places;
    struct plan *plan; /* [places]; they stay to the end, since the keys of a program are few */
};

const char *ebb_cudnn_version(const struct ebb_cudnn *dnn)
{
    return dnn->library.version;
}

int64_t ebb_cudnn_built(const struct ebb_cudnn *dnn)
{
    return dnn->plans;
}

struct ebb_ctx *ebb_cudnn_ctx(const struct ebb_cudnn *dnn)
{
    return dnn->library.ctx;
}

/* ---- the library ---- */

static const struct ebb_library_function functions[] = {
#define FUNCTION(name) {#name, offsetof(struct ebb_cudnn_calls, name)},
    EBB_CUDNN_CALLS(FUNCTION)
#undef FUNCTION
};

static void write_version(size_t version, char *out, size_t bytes)
{
    snprintf(out, bytes, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* "libcudnn.so.9.14.0" is 91400; a file that does not tell is 0. */
static size_t version_of_file(const char *file)
{
    unsigned major, minor, patch;
    const char *name = strrchr(file, '/');
    if (sscanf(name != NULL ? name + 1 : file, "libcudnn.so.%u.%u.%u", &major, &minor, &patch) != 3)
        return 0;
    return (size_t)major * 10000 + minor * 100 + patch;
}

/* A call into a copy makes it load the parts it is made of, which stay: another copy would then get
 * those. So a file that tells its version is judged by that. */
static bool suits(const char *file, void *(*symbol)(void *handle, const char *name), void *handle,
                  char *found, size_t found_bytes)
{
    void *function = symbol(handle, "cudnnGetVersion");
    __typeof__(cudnnGetVersion) *version;
    size_t told = version_of_file(file);
    if (told > 0 && told < VERSION_LOWEST) {
        write_version(told, found, found_bytes);
        return false;
    }
    snprintf(found, found_bytes, "no cuDNN");
    if (function == NULL) return false;
    memcpy(&version, &function, sizeof version);
    write_version(version(), found, found_bytes);
    return version() >= VERSION_LOWEST;
}

static enum ebb_status open_file(struct ebb_cudnn *dnn)
{
    static const char hint[] = "install cuDNN 9.18 or newer, or activate a Python environment that "
                               "has it (pip install nvidia-cudnn-cu13); "
                               "attn_implementation: plain does without, slower, and device: cpu "
                               "needs none of it";
    static const struct ebb_library_version version = {.wanted = "9.18 or newer", .suits = suits};
    EBB_TRY(ebb_library_open_version(dnn->library.ctx, "libcudnn.so.9", hint, &version,
                                     &dnn->library.file));
    EBB_TRY(ebb_library_find(dnn->library.file, functions, sizeof functions / sizeof functions[0],
                             &dnn->library.calls));
    write_version(dnn->library.calls.cudnnGetVersion(), dnn->library.version,
                  sizeof dnn->library.version);
    return EBB_OK;
}

enum ebb_status ebb_cudnn_open(struct ebb_ctx *ctx, struct ebb_cudnn **dnn_out)
{
    struct ebb_cudnn *dnn = ebb_mem_alloc(ctx, sizeof *dnn);
    *dnn_out = NULL;
    if (dnn == NULL) return EBB_NO_MEMORY;
    dnn->library.ctx = ctx;
    enum ebb_status status = open_file(dnn);
    if (status != EBB_OK) {
        ebb_cudnn_close(dnn);
        return status;
    }
    *dnn_out = dnn;
    return EBB_OK;
}

static void drop_parts(struct ebb_cudnn *dnn, descriptor *parts, int count)
{
    /* In reverse: what was made of others goes first. */
    for (int i = count - 1; i >= 0; i--) dnn->library.calls.cudnnBackendDestroyDescriptor(parts[i]);
}

static void drop_plan(struct ebb_cudnn *dnn, struct plan *plan)
{
    if (plan->plan != NULL) dnn->library.calls.cudnnBackendDestroyDescriptor(plan->plan);
    drop_parts(dnn, plan->parts, plan->parts_count);
    ebb_mem_free(dnn->library.ctx, plan->parts);
    memset(plan, 0, sizeof *plan);
}

void ebb_cudnn_close(struct ebb_cudnn *dnn)
{
    if (dnn == NULL) return;
    for (int i = 0; i < dnn->plans; i++) drop_plan(dnn, &dnn->plan[i]);
    if (dnn->handle != NULL) dnn->library.calls.cudnnDestroy(dnn->handle);
    ebb_library_close(dnn->library.file);
    ebb_mem_free(dnn->library.ctx, dnn->plan);
    ebb_mem_free(dnn->library.ctx, dnn->cache);
    ebb_mem_free(dnn->library.ctx, dnn);
}

enum ebb_status ebb_cudnn_set_cache(struct ebb_cudnn *dnn, const char *dir)
{
    ebb_mem_free(dnn->library.ctx, dnn->cache);
    dnn->cache = NULL;
    if (dir == NULL) return EBB_OK;
    dnn->cache = ebb_mem_strdup(dnn->library.ctx, dir);
    return dnn->cache == NULL ? EBB_NO_MEMORY : EBB_OK;
}

enum ebb_status ebb_cudnn_check(struct ebb_cudnn_library *library, cudnnStatus_t status,
                                const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS) return EBB_OK;
    char text[1024] = "";
    library->calls.cudnnGetLastErrorString(text, sizeof text);
    return EBB_FAIL(library->ctx, EBB_DEVICE, "cuDNN failed at %s: %s; %s\n%s", what,
                    library->calls.cudnnGetErrorString(status), library->doing, text);
}

static enum ebb_status check(struct ebb_cudnn *dnn, cudnnStatus_t status, const char *what)
{
    return ebb_cudnn_check(&dnn->library, status, what);
}

static enum ebb_status make_handle(struct ebb_cudnn *dnn)
{
    if (dnn->handle != NULL) return EBB_OK;
    int ordinal = 0, driver = 0;
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDevice(&ordinal);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, ordinal);
    if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
    if (error != cudaSuccess)
        return EBB_FAIL(dnn->library.ctx, EBB_DEVICE, "the GPU cannot be asked for its name: %s",
                        cudaGetErrorString(error));
    snprintf(dnn->device, sizeof dnn->device, "%s, %d multiprocessors, driver %d", properties.name,
             properties.multiProcessorCount, driver);
    return check(dnn, dnn->library.calls.cudnnCreate(&dnn->handle), "the handle");
}

/* ---- plans ---- */

static void describe_key(const struct ebb_cudnn_key *key, char *out, size_t bytes)
{
    snprintf(out, bytes,
             "%s%s%s%s, batch %" PRId64 ", slot %" PRId64 ", heads %" PRId64 "/%" PRId64
             ", dim %" PRId64 ", strides q %" PRId64 " k %" PRId64 " v %" PRId64 " o %" PRId64
             " lse %" PRId64,
             key->ragged ? "ragged" : "plain", key->causal ? " causal" : "",
             key->backward ? " backward" : " forward", key->deterministic ? " deterministic" : "",
             key->batch, key->slot, key->heads, key->kv_heads, key->dim, key->stride[EBB_CUDNN_Q],
             key->stride[EBB_CUDNN_K], key->stride[EBB_CUDNN_V], key->stride[EBB_CUDNN_O],
             key->stride[EBB_CUDNN_LSE]);
}

/* The engines' configurations, best first. */
static int64_t ask_engines(struct ebb_cudnn *dnn, struct ebb_cudnn_graph *g,
                           descriptor configs[CONFIGS])
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    descriptor graph = ebb_cudnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph");
    ebb_cudnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle,
                  "the graph's handle");
    ebb_cudnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  g->ops_count, g->ops, "the graph's operations");
    ebb_cudnn_finish(g, graph, "the graph");
    descriptor choice =
        ebb_cudnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the choice of an engine");
    ebb_cudnn_set_part(g, choice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph,
                       "the choice of an engine");
    ebb_cudnn_set(g, choice, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode,
                  "the choice of an engine");
    ebb_cudnn_finish(g, choice, "the choice of an engine");
    for (int i = 0; i < CONFIGS; i++)
        configs[i] = ebb_cudnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine");
    if (g->status == EBB_OK)
        g->status =
            check(dnn,
                  dnn->library.calls.cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                              CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                              CONFIGS, &count, configs),
                  "the choice of an engine");
    return g->status == EBB_OK ? count : 0;
}

static enum ebb_status read_workspace(struct ebb_cudnn *dnn, struct plan *plan)
{
    int64_t count = 0;
    return check(dnn,
                 dnn->library.calls.cudnnBackendGetAttribute(
                     plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                     &count, &plan->workspace),
                 "a plan's workspace");
}

/* An engine that does not support a graph never does. Any other failure (memory, a missing file)
 * may be gone the next time: taking the next engine then would change the numbers. */
static bool never_takes(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING ||
        status == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)
        return false;
    int category = CUDNN_STATUS_CATEGORY((int)status);
    return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

/* The first engine that takes the graph. */
static void make_plan(struct ebb_cudnn *dnn, struct ebb_cudnn_graph *g, struct plan *plan)
{
    descriptor configs[CONFIGS];
    struct ebb_cudnn_calls *calls = &dnn->library.calls;
    int64_t count = ask_engines(dnn, g, configs);
    for (int64_t i = 0; i < count && g->status == EBB_OK; i++) {
        descriptor made = ebb_cudnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan");
        ebb_cudnn_set_part(g, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i], "a plan");
        ebb_cudnn_set(g, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle,
                      "the handle");
        if (g->status != EBB_OK) return;
        cudnnStatus_t status = calls->cudnnBackendFinalize(made);
        if (never_takes(status)) continue;
        g->status = check(dnn, status, "a plan");
        if (g->status != EBB_OK) return;
        plan->plan = made;
        g->all_count--; /* it is the plan's own */
        g->status = read_workspace(dnn, plan);
        return;
    }
    char text[512] = "";
    if (g->status != EBB_OK) return;
    calls->cudnnGetLastErrorString(text, sizeof text);
    g->status = EBB_FAIL(dnn->library.ctx, EBB_UNSUPPORTED,
                         "%s has no engine for it among %" PRId64 " proposed: %s; %s\n"
                         "try:   attn_implementation: plain",
                         dnn->library.version, count, dnn->library.doing, text);
}

static enum ebb_status build_plan(struct ebb_cudnn *dnn, struct plan *plan)
{
    struct ebb_cudnn_graph *g = ebb_mem_alloc(dnn->library.ctx, sizeof *g);
    if (g == NULL) return EBB_NO_MEMORY;
    g->library = &dnn->library;
    g->key = &plan->key;
    ebb_cudnn_describe(g);
    if (g->status == EBB_OK) make_plan(dnn, g, plan);
    enum ebb_status status = g->status;
    if (status == EBB_OK) {
        size_t bytes = (size_t)g->all_count * sizeof(descriptor);
        plan->parts = ebb_mem_alloc(dnn->library.ctx, bytes);
        if (plan->parts == NULL) status = EBB_NO_MEMORY;
    }
    if (status == EBB_OK) {
        memcpy(plan->parts, g->all, (size_t)g->all_count * sizeof(descriptor));
        plan->parts_count = g->all_count;
    } else {
        drop_parts(dnn, g->all, g->all_count);
    }
    ebb_mem_free(dnn->library.ctx, g);
    return status;
}

/* ---- plans in files: a line that says what it is, then cuDNN's text ---- */

static char *cache_title(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key)
{
    return ebb_mem_format(dnn->library.ctx, "%s, %s, form %d, key %016" PRIx64 "\n",
                          dnn->library.version, dnn->device, FORM,
                          ebb_hash_bytes(key, sizeof *key));
}

static char *cache_path(struct ebb_cudnn *dnn, const char *title)
{
    char name[64];
    snprintf(name, sizeof name, "attention-%016" PRIx64 ".plan",
             ebb_hash_bytes(title, strlen(title)));
    return ebb_path_join(dnn->library.ctx, dnn->cache, name);
}

/* Leaves plan->plan NULL where the text is of no use. */
static void plan_from_text(struct ebb_cudnn *dnn, struct plan *plan, const char *text, size_t bytes)
{
    struct ebb_cudnn_calls *calls = &dnn->library.calls;
    descriptor made = NULL;
    if (calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made) !=
        CUDNN_STATUS_SUCCESS)
        return;
    cudnnStatus_t status = calls->cudnnBackendSetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                           CUDNN_TYPE_HANDLE, 1, &dnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            calls->cudnnBackendSetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                            CUDNN_TYPE_CHAR, (int64_t)bytes, text);
    if (status == CUDNN_STATUS_SUCCESS) status = calls->cudnnBackendFinalize(made);
    if (status == CUDNN_STATUS_SUCCESS) {
        int64_t count = 0;
        status = calls->cudnnBackendGetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &count, &plan->workspace);
    }
    if (status == CUDNN_STATUS_SUCCESS)
        plan->plan = made;
    else
        calls->cudnnBackendDestroyDescriptor(made);
}

static enum ebb_status load_plan(struct ebb_cudnn *dnn, struct plan *plan)
{
    struct ebb_map map = {0};
    char *title = cache_title(dnn, &plan->key);
    if (title == NULL) return EBB_NO_MEMORY;
    char *path = cache_path(dnn, title);
    enum ebb_status status = path == NULL ? EBB_NO_MEMORY : EBB_OK;
    if (status == EBB_OK && ebb_file_exists(path)) {
        size_t head = strlen(title);
        if (ebb_map_open(dnn->library.ctx, path, &map) != EBB_OK)
            ebb_error_clear(dnn->library.ctx);
        else if (map.bytes > head && memcmp(map.data, title, head) == 0)
            plan_from_text(dnn, plan, (const char *)map.data + head, map.bytes - head);
        ebb_map_close(&map);
    }
    ebb_mem_free(dnn->library.ctx, path);
    ebb_mem_free(dnn->library.ctx, title);
    return status;
}

static enum ebb_status plan_text(struct ebb_cudnn *dnn, const struct plan *plan,
                                 struct ebb_str *out)
{
    int64_t count = 0;
    EBB_TRY(check(dnn,
                  dnn->library.calls.cudnnBackendGetAttribute(
                      plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                      &count, NULL),
                  "a plan's text"));
    char *text = ebb_mem_alloc(dnn->library.ctx, (size_t)count + 1);
    if (text == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = check(dnn,
                                   dnn->library.calls.cudnnBackendGetAttribute(
                                       plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, count, &count, text),
                                   "a plan's text");
    if (status == EBB_OK) status = ebb_str_add(dnn->library.ctx, out, text, strlen(text));
    ebb_mem_free(dnn->library.ctx, text);
    return status;
}

static enum ebb_status write_plan(struct ebb_cudnn *dnn, const struct plan *plan)
{
    struct ebb_str all = {0};
    char *title = cache_title(dnn, &plan->key);
    char *path = title == NULL ? NULL : cache_path(dnn, title);
    enum ebb_status status = path == NULL ? EBB_NO_MEMORY : EBB_OK;
    if (status == EBB_OK) status = ebb_str_add(dnn->library.ctx, &all, title, strlen(title));
    if (status == EBB_OK) status = plan_text(dnn, plan, &all);
    if (status == EBB_OK) status = ebb_dir_create(dnn->library.ctx, dnn->cache);
    if (status == EBB_OK) status = ebb_file_write(dnn->library.ctx, path, all.data, all.bytes);
    ebb_str_free(dnn->library.ctx, &all);
    ebb_mem_free(dnn->library.ctx, path);
    ebb_mem_free(dnn->library.ctx, title);
    return status;
}

/* A plan that cannot be kept is a plan all the same. */
static void save_plan(struct ebb_cudnn *dnn, const struct plan *plan)
{
    if (write_plan(dnn, plan) == EBB_OK) return;
    ebb_warn_once(dnn->library.ctx, "attention-plans",
                  "attention's plans cannot be kept and will be built again next time: %s",
                  ebb_error_text(dnn->library.ctx));
    ebb_error_clear(dnn->library.ctx);
}

/* ---- finding and running ---- */

static void describe_work(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key)
{
    describe_key(key, dnn->library.doing, sizeof dnn->library.doing);
}

/* NULL: not there. */
static const struct plan *plan_of(const struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key)
{
    for (int i = 0; i < dnn->plans; i++)
        if (memcmp(&dnn->plan[i].key, key, sizeof *key) == 0) return &dnn->plan[i];
    return NULL;
}

static enum ebb_status make_place(struct ebb_cudnn *dnn)
{
    if (dnn->plans < dnn->places) return EBB_OK;
    int places = dnn->places > 0 ? dnn->places * 2 : PLANS_FIRST;
    struct plan *plan = ebb_mem_realloc(dnn->library.ctx, dnn->plan, (size_t)places * sizeof *plan);
    if (plan == NULL) return EBB_NO_MEMORY;
    dnn->plan = plan;
    dnn->places = places;
    return EBB_OK;
}

/* A plan for a key that has none: from its file and, if `build`, else anew. */
static enum ebb_status add_plan(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key, bool build)
{
    struct plan fresh = {.key = *key};
    describe_work(dnn, key);
    EBB_TRY(make_handle(dnn));
    EBB_TRY(make_place(dnn));
    if (dnn->cache != NULL) EBB_TRY(load_plan(dnn, &fresh));
    if (fresh.plan == NULL && build) {
        enum ebb_status status = build_plan(dnn, &fresh);
        if (status != EBB_OK) {
            drop_plan(dnn, &fresh);
            return status;
        }
        if (dnn->cache != NULL) save_plan(dnn, &fresh);
    }
    if (fresh.plan != NULL) dnn->plan[dnn->plans++] = fresh;
    return EBB_OK;
}

/* The plan of a key, whose workspace is no larger than this. */
static enum ebb_status find_plan(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key,
                                 int64_t workspace_bytes, const struct plan **plan_out)
{
    const struct plan *plan = plan_of(dnn, key);
    if (plan == NULL) EBB_TRY(add_plan(dnn, key, true));
    if (plan == NULL) plan = plan_of(dnn, key);
    *plan_out = plan;
    if (plan->workspace <= workspace_bytes) return EBB_OK;
    describe_work(dnn, key);
    return EBB_FAIL(dnn->library.ctx, EBB_UNSUPPORTED,
                    "%s wants %" PRId64 " bytes of workspace for attention and was given %" PRId64
                    ": %s\ntry:   attn_implementation: plain",
                    dnn->library.version, plan->workspace, workspace_bytes, dnn->library.doing);
}

enum ebb_status ebb_cudnn_prepare(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *keys,
                                  int count, int64_t workspace_bytes, const char *what)
{
    const struct plan *plan;
    int missing = 0;
    for (int i = 0; i < count; i++) {
        if (plan_of(dnn, &keys[i]) == NULL) EBB_TRY(add_plan(dnn, &keys[i], false));
        missing += plan_of(dnn, &keys[i]) == NULL;
    }
    if (missing > PLANS_FEW && dnn->cache != NULL)
        ebb_log(dnn->library.ctx, EBB_LOG_INFO, "attention",
                "building %d plans of the %s for this GPU, once (kept in %s)", missing, what,
                dnn->cache);
    else if (missing > PLANS_FEW)
        ebb_log(dnn->library.ctx, EBB_LOG_INFO, "attention",
                "building %d plans of the %s for this GPU", missing, what);
    for (int i = 0; i < count; i++) EBB_TRY(find_plan(dnn, &keys[i], workspace_bytes, &plan));
    return EBB_OK;
}

struct pack {
    int64_t ids[2 * EBB_CUDNN_DATA + 8];
    void *data[2 * EBB_CUDNN_DATA + 8];
    int64_t count;
};

static void pack_add(struct pack *pack, int64_t id, void *data)
{
    pack->ids[pack->count] = id;
    pack->data[pack->count++] = data;
}

static bool key_has(const struct ebb_cudnn_key *key, int which)
{
    return key->backward || which <= EBB_CUDNN_LSE;
}

static void fill_pack(struct pack *pack, const struct ebb_cudnn_key *key,
                      const struct ebb_cudnn_call *call, float numbers_of[3])
{
    for (int i = 0; i < EBB_CUDNN_DATA; i++) {
        if (!key_has(key, i)) continue;
        pack_add(pack, i + 1, call->data[i]);
        if (key->ragged) pack_add(pack, EBB_CUDNN_ID_OFFSETS + i, call->offsets[i]);
    }
    pack_add(pack, EBB_CUDNN_ID_SCALE, &numbers_of[0]);
    if (key->causal || key->ragged) pack_add(pack, EBB_CUDNN_ID_MASKED, &numbers_of[1]);
    if (key->backward) {
        pack_add(pack, EBB_CUDNN_ID_ONE, &numbers_of[2]);
        pack_add(pack, EBB_CUDNN_ID_DELTA, call->delta);
        if (!key->deterministic) pack_add(pack, EBB_CUDNN_ID_SUM, call->sum);
    }
    if (!key->ragged) return;
    pack_add(pack, EBB_CUDNN_ID_QUERIES, call->queries);
    pack_add(pack, EBB_CUDNN_ID_KEYS, call->keys);
}

static enum ebb_status execute(struct ebb_cudnn *dnn, const struct plan *plan,
                               const struct pack *pack, void *workspace)
{
    struct ebb_cudnn_calls *calls = &dnn->library.calls;
    descriptor made = NULL;
    cudnnStatus_t status =
        calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                 CUDNN_TYPE_INT64, pack->count, pack->ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                 CUDNN_TYPE_VOID_PTR, pack->count, pack->data);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                 CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = calls->cudnnBackendFinalize(made);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->cudnnBackendExecute(dnn->handle, plan->plan, made);
    enum ebb_status result = check(dnn, status, "running a plan");
    if (made != NULL) calls->cudnnBackendDestroyDescriptor(made);
    return result;
}

enum ebb_status ebb_cudnn_run(struct ebb_cudnn *dnn, const struct ebb_cudnn_key *key,
                              const struct ebb_cudnn_call *call, void *stream)
{
    const struct plan *plan;
    EBB_TRY(find_plan(dnn, key, call->workspace_bytes, &plan));
    describe_work(dnn, key);
    float numbers_of[3] = {call->scale, -INFINITY, 1};
    struct pack pack = {.count = 0};
    fill_pack(&pack, key, call, numbers_of);
    EBB_TRY(check(dnn, dnn->library.calls.cudnnSetStream(dnn->handle, (cudaStream_t)stream),
                  "the stream"));
    return execute(dnn, plan, &pack, call->workspace);
}
