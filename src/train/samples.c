/* Samples: a list of prompts through the decode program.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/samples.h"

#include <inttypes.h>
#include <string.h>

#include "train/generate.h"
#include "train/trainer_int.h"

enum { PROMPT_SHOWN = 60, ANSWER_SHOWN = 240 }; /* bytes of a log line */

/* ---- the list -------------------------------------------------------------------------------- */

enum ebb_status ebb_samples_add(struct ebb_ctx *ctx, struct ebb_samples *samples, const char *text,
                                struct ebb_ids *ids, int32_t end_id)
{
    if (samples->count == samples->room) {
        int64_t room = samples->room ? 2 * samples->room : 8;
        struct ebb_sample_prompt *bigger =
            (struct ebb_sample_prompt *)ebb_mem_realloc(ctx, samples->items,
                                                        (size_t)room * sizeof *bigger);
        if (bigger == NULL) return EBB_NO_MEMORY;
        samples->items = bigger;
        samples->room = room;
    }
    char *copy = ebb_mem_strdup(ctx, text);
    if (copy == NULL) return EBB_NO_MEMORY;
    samples->items[samples->count++] = (struct ebb_sample_prompt){copy, *ids, end_id};
    memset(ids, 0, sizeof *ids);
    return EBB_OK;
}

void ebb_samples_free(struct ebb_ctx *ctx, struct ebb_samples *samples)
{
    for (int64_t i = 0; i < samples->count; i++) {
        ebb_mem_free(ctx, samples->items[i].text);
        ebb_ids_free(ctx, &samples->items[i].ids);
    }
    ebb_mem_free(ctx, samples->items);
    memset(samples, 0, sizeof *samples);
}

int64_t ebb_samples_cache_tokens(const struct ebb_samples *samples)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < samples->count; i++)
        if (samples->items[i].ids.count > longest) longest = samples->items[i].ids.count;
    return longest + samples->max_new_tokens - 1; /* the last token is never read back */
}

/* ---- answers --------------------------------------------------------------------------------- */

struct answer {
    struct ebb_ctx *ctx;
    struct ebb_str text;
    enum ebb_status status;
};

static void take_piece(void *user, const char *text, size_t bytes)
{
    struct answer *a = (struct answer *)user;
    if (a->status == EBB_OK) a->status = ebb_str_add(a->ctx, &a->text, text, bytes);
}

static bool stop_wanted(void *user)
{
    return ebb_stop_wanted(*(const int *)user);
}

static enum ebb_status add_answer(struct ebb_ctx *ctx, json_t *list, const char *prompt,
                                  const struct ebb_str *text,
                                  const struct ebb_generate_result *result)
{
    json_t *json = json_pack("{s:s, s:s%, s:I, s:b}", "prompt", prompt, "text",
                             text->data ? text->data : "", text->bytes, "num_tokens",
                             (json_int_t)result->new_tokens, "ended", (int)result->ended);
    if (json_array_append_new(list, json) == 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while keeping a sample");
}

static enum ebb_status run_one(struct ebb_ctx *ctx, struct ebb_engine *engine,
                               const struct ebb_samples *samples, int64_t i, int stop_fd,
                               json_t *list)
{
    const struct ebb_sample_prompt *prompt = &samples->items[i];
    struct answer a = {.ctx = ctx};
    struct ebb_generate_result result;
    struct ebb_generate_keys keys = {.max_new_tokens = samples->max_new_tokens,
                                     .top_p = 1,
                                     .repetition_penalty = 1,
                                     .end_ids = &prompt->end_id,
                                     .end_count = prompt->end_id >= 0,
                                     .interrupted = stop_wanted,
                                     .interrupted_user = &stop_fd};
    enum ebb_status status =
        ebb_generate_text(ctx, engine, samples->tokenizer, prompt->ids.data, prompt->ids.count,
                          &keys, take_piece, &a, NULL, &result);
    if (status == EBB_OK) status = a.status;
    if (status == EBB_OK && result.interrupted)
        status =
            EBB_FAIL(ctx, EBB_INTERRUPTED, "stopped by a signal at sample %" PRId64 " of %" PRId64,
                     i + 1, samples->count);
    if (status == EBB_OK) status = add_answer(ctx, list, prompt->text, &a.text, &result);
    ebb_str_free(ctx, &a.text);
    return status;
}

enum ebb_status ebb_samples_run(struct ebb_ctx *ctx, struct ebb_engine *engine,
                                const struct ebb_samples *samples, int stop_fd, json_t **list)
{
    *list = NULL;
    json_t *made = json_array();
    enum ebb_status status =
        made ? EBB_OK : EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory for samples");
    for (int64_t i = 0; status == EBB_OK && i < samples->count; i++)
        status = run_one(ctx, engine, samples, i, stop_fd, made);
    if (status != EBB_OK) {
        json_decref(made);
        return status;
    }
    *list = made;
    return EBB_OK;
}

/* ---- log ------------------------------------------------------------------------------------- */

/* Adds a text as a JSON string, so that it is one line; of a longer one the first `most` bytes. */
static enum ebb_status add_shown(struct ebb_ctx *ctx, struct ebb_str *out, const json_t *text,
                                 size_t most)
{
    size_t bytes = json_string_length(text);
    const char *data = json_string_value(text);
    bool cut = bytes > most;
    if (cut) bytes = ebb_text_utf8_valid(data, most); /* whole characters */
    json_t *part = json_stringn(data, bytes);
    if (part == NULL) return EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory for a log line");
    enum ebb_status status = ebb_json_text(ctx, part, 0, out);
    json_decref(part);
    return status == EBB_OK && cut ? ebb_str_addf(ctx, out, "...") : status;
}

enum ebb_status ebb_samples_log(struct ebb_ctx *ctx, int64_t step, const json_t *list)
{
    struct ebb_str line = {0};
    enum ebb_status status = EBB_OK;
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        line.bytes = 0;
        status = add_shown(ctx, &line, json_object_get(one, "prompt"), PROMPT_SHOWN);
        if (status == EBB_OK) status = ebb_str_addf(ctx, &line, " -> ");
        if (status == EBB_OK)
            status = add_shown(ctx, &line, json_object_get(one, "text"), ANSWER_SHOWN);
        if (status != EBB_OK) break;
        ebb_log(ctx, EBB_LOG_INFO, "samples", "sample after step %" PRId64 "  %s", step, line.data);
    }
    ebb_str_free(ctx, &line);
    return status;
}
