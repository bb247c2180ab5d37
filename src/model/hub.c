/* Where a model lies: a directory, or a Hub id in the local Hugging Face cache.
 *
 * The cache (huggingface_hub, "Understand caching"): HUB/models--org--name/refs/main holds a
 * commit's name, and HUB/models--org--name/snapshots/COMMIT that commit's files. HUB is
 * HF_HUB_CACHE, or HF_HOME/hub, or ~/.cache/huggingface/hub.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "model/init.h"

/* "org/name" or "name" of letters, digits, '-', '_' and '.', neither part starting with a dot or
 * dash. */
static bool is_hub_id(const char *text)
{
    int slashes = 0;
    bool start = true;
    for (const char *c = text; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                      (*c >= '0' && *c <= '9') || *c == '_';
        if (*c == '/') {
            if (start || ++slashes > 1) return false;
            start = true;
            continue;
        }
        if (!letter && (start || (*c != '-' && *c != '.'))) return false;
        start = false;
    }
    return !start;
}

/* The cache's folder, or NULL with *status EBB_OK where nothing says where it is. */
static char *hub_dir(struct ebb_ctx *ctx, const struct ebb_hub_env *env, enum ebb_status *status)
{
    char *dir = NULL;
    *status = EBB_OK;
    if (env && env->hf_hub_cache && env->hf_hub_cache[0])
        dir = ebb_mem_strdup(ctx, env->hf_hub_cache);
    else if (env && env->hf_home && env->hf_home[0])
        dir = ebb_path_join(ctx, env->hf_home, "hub");
    else if (env && env->home && env->home[0])
        dir = ebb_path_join(ctx, env->home, ".cache/huggingface/hub");
    else
        return NULL;
    if (dir == NULL) *status = EBB_NO_MEMORY;
    return dir;
}

/* "HUB/models--org--name"; the caller frees. */
static char *model_dir(struct ebb_ctx *ctx, const char *hub, const char *id)
{
    const char *slash = strchr(id, '/');
    if (slash == NULL) return ebb_mem_format(ctx, "%s/models--%s", hub, id);
    return ebb_mem_format(ctx, "%s/models--%.*s--%s", hub, (int)(slash - id), id, slash + 1);
}

/* The commit that refs/main names, without the line's end. */
static enum ebb_status read_ref(struct ebb_ctx *ctx, const char *path, char **commit)
{
    struct ebb_map map;
    EBB_TRY(ebb_map_open(ctx, path, &map));
    size_t bytes = 0;
    while (bytes < map.bytes && map.data[bytes] > ' ' && map.data[bytes] != '/') bytes++;
    *commit = bytes ? ebb_mem_strndup(ctx, (const char *)map.data, bytes) : NULL;
    enum ebb_status status = EBB_OK;
    if (bytes == 0)
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: must hold the name of a commit", path);
    else if (*commit == NULL)
        status = EBB_NO_MEMORY;
    ebb_map_close(&map);
    return status;
}

/* *dir stays NULL where the cache does not have the model. */
static enum ebb_status find_snapshot(struct ebb_ctx *ctx, const char *model, char **dir)
{
    enum ebb_status status = EBB_NO_MEMORY;
    char *commit = NULL, *snapshot = NULL, *config = NULL;
    char *ref = ebb_path_join(ctx, model, "refs/main");
    if (ref == NULL) return EBB_NO_MEMORY;
    if (!ebb_file_exists(ref)) {
        ebb_mem_free(ctx, ref);
        return EBB_OK;
    }
    status = read_ref(ctx, ref, &commit);
    if (status != EBB_OK) goto out;
    status = EBB_NO_MEMORY;
    snapshot = ebb_mem_format(ctx, "%s/snapshots/%s", model, commit);
    config = snapshot ? ebb_path_join(ctx, snapshot, "config.json") : NULL;
    if (config == NULL) goto out;
    status = EBB_OK;
    if (ebb_file_exists(config)) {
        *dir = snapshot;
        snapshot = NULL;
    }
out:
    ebb_mem_free(ctx, ref);
    ebb_mem_free(ctx, commit);
    ebb_mem_free(ctx, snapshot);
    ebb_mem_free(ctx, config);
    return status;
}

enum ebb_status ebb_model_find(struct ebb_ctx *ctx, const char *name_or_path,
                               const struct ebb_hub_env *env, char **dir)
{
    enum ebb_status status;
    *dir = NULL;
    if (ebb_dir_exists(name_or_path)) {
        *dir = ebb_mem_strdup(ctx, name_or_path);
        return *dir ? EBB_OK : EBB_NO_MEMORY;
    }
    if (ebb_file_exists(name_or_path))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG,
                        "'%s' is a file; a model is a directory with config.json and weights",
                        name_or_path);
    if (!is_hub_id(name_or_path))
        return EBB_FAIL(ctx, EBB_BAD_CONFIG, "there is no model directory '%s'", name_or_path);
    char *hub = hub_dir(ctx, env, &status);
    char *model = hub ? model_dir(ctx, hub, name_or_path) : NULL;
    if (hub && model == NULL) status = EBB_NO_MEMORY;
    if (status == EBB_OK && model) status = find_snapshot(ctx, model, dir);
    if (status == EBB_OK && *dir == NULL)
        status = EBB_FAIL(ctx, EBB_BAD_CONFIG,
                          "model '%s' is neither a directory nor in the Hugging Face cache "
                          "('%s')\ndownload it: hf download "
                          "%s",
                          name_or_path, hub ? hub : "no HF_HUB_CACHE, HF_HOME or HOME is set",
                          name_or_path);
    ebb_mem_free(ctx, hub);
    ebb_mem_free(ctx, model);
    return status;
}
