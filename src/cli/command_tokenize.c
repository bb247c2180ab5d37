/* `ebb tokenize`: lines of text to ids, or back.
 *
 * Lines are read as they come, so that the command can stand in a pipe that waits for each answer.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "data/tokenizer.h"
#include "model/init.h"

enum { READ_BYTES = 1 << 16 };

struct job {
    struct ebb_cli *cli;
    const struct ebb_config *config;
    struct ebb_tokenizer *tokenizer;
    struct ebb_encoder *encoder;
    struct ebb_ids ids;
    struct ebb_offsets offsets;
    struct ebb_str text; /* of the line that goes out */
    int64_t line;        /* from 1 */
};

static enum ebb_status print_line(struct job *job)
{
    EBB_TRY(ebb_str_add(job->cli->ctx, &job->text, "\n", 1));
    ebb_cli_print(&job->text);
    return EBB_OK;
}

/* Takes the reference. */
static enum ebb_status print_json(struct job *job, json_t *json)
{
    enum ebb_status status = json == NULL ? EBB_NO_MEMORY : EBB_OK;
    job->text.bytes = 0;
    if (status == EBB_OK) status = ebb_json_text(job->cli->ctx, json, 0, &job->text);
    json_decref(json);
    return status == EBB_OK ? print_line(job) : status;
}

/* ---- text to ids ---- */

static enum ebb_status print_ids(struct job *job)
{
    struct ebb_ctx *ctx = job->cli->ctx;
    job->text.bytes = 0;
    for (int64_t i = 0; i < job->ids.count; i++)
        EBB_TRY(ebb_str_addf(ctx, &job->text, i == 0 ? "%d" : " %d", job->ids.data[i]));
    return print_line(job);
}

static enum ebb_status print_pieces(struct job *job)
{
    json_t *ids = json_array(), *pieces = json_array(), *offsets = json_array();
    enum ebb_status status = EBB_OK;
    for (int64_t i = 0; i < job->ids.count && status == EBB_OK; i++) {
        const struct ebb_offset *offset = &job->offsets.data[i];
        job->text.bytes = 0;
        status = ebb_tokenizer_piece(job->cli->ctx, job->tokenizer, job->ids.data[i], &job->text);
        json_array_append_new(ids, json_integer(job->ids.data[i]));
        json_array_append_new(pieces, json_stringn(job->text.bytes == 0 ? "" : job->text.data,
                                                   job->text.bytes));
        json_array_append_new(offsets, json_pack("[II]", (json_int_t)offset->start,
                                                 (json_int_t)offset->stop));
    }
    json_t *json = json_pack("{sososo}", "ids", ids, "pieces", pieces, "offsets", offsets);
    if (status == EBB_OK) return print_json(job, json);
    json_decref(json);
    return status;
}

static enum ebb_status encode_line(struct job *job, const char *text, size_t bytes)
{
    struct ebb_ctx *ctx = job->cli->ctx;
    unsigned flags = job->config->add_special_tokens ? EBB_ENCODE_SPECIAL : 0;
    size_t valid = ebb_text_utf8_valid(text, bytes);
    if (valid != bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "standard input, line %" PRId64 ": byte %zu (0x%02x) is not UTF-8",
                        job->line, valid + 1, (unsigned char)text[valid]);
    job->ids.count = job->offsets.count = 0;
    EBB_TRY(ebb_encode_offsets(ctx, job->encoder, text, bytes, flags, &job->ids,
                               job->config->json ? &job->offsets : NULL));
    return job->config->json ? print_pieces(job) : print_ids(job);
}

/* ---- ids to text ---- */

static enum ebb_status add_id(struct job *job, int64_t id)
{
    struct ebb_ctx *ctx = job->cli->ctx;
    int64_t size = ebb_tokenizer_vocab_size(job->tokenizer);
    int32_t small = (int32_t)id;
    size_t bytes;
    if (id < 0 || id >= size || ebb_tokenizer_text(job->tokenizer, small, &bytes) == NULL)
        return EBB_FAIL(ctx, EBB_BAD_FILE,
                        "standard input, line %" PRId64 ": %" PRId64
                        " is no token of this tokenizer (the highest is %" PRId64 ")",
                        job->line, id, size - 1);
    return ebb_ids_add(ctx, &job->ids, &small, 1);
}

static enum ebb_status no_id(struct job *job, const char *text, size_t bytes)
{
    char quoted[48];
    snprintf(quoted, sizeof quoted, "%.*s", (int)(bytes < 40 ? bytes : 40), text);
    return EBB_FAIL(job->cli->ctx, EBB_BAD_FILE,
                    "standard input, line %" PRId64 ": '%s' is no token id", job->line, quoted);
}

/* Numbers with blanks between them. */
static enum ebb_status read_ids(struct job *job, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        char word[24];
        size_t length = 0;
        int64_t id;
        if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
            at++;
            continue;
        }
        while (at + length < bytes && strchr(" \t\r", text[at + length]) == NULL) length++;
        if (length == 0 || length >= sizeof word) return no_id(job, text + at, bytes - at);
        memcpy(word, text + at, length);
        word[length] = '\0';
        if (!ebb_text_int64(word, &id)) return no_id(job, word, length);
        EBB_TRY(add_id(job, id));
        at += length;
    }
    return EBB_OK;
}

/* {"ids": [...]}, as encoding writes it. */
static enum ebb_status read_json(struct job *job, const char *text, size_t bytes)
{
    struct ebb_ctx *ctx = job->cli->ctx;
    json_t *json;
    char name[64];
    snprintf(name, sizeof name, "standard input, line %" PRId64, job->line);
    int line = job->line > INT_MAX ? INT_MAX - 1 : (int)job->line - 1;
    EBB_TRY(ebb_json_parse(ctx, "standard input", line, text, bytes, &json));
    const json_t *list = json_object_get(json, "ids");
    enum ebb_status status = EBB_OK;
    if (!json_is_array(list))
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: an object with a list 'ids' is wanted", name);
    for (size_t i = 0; i < json_array_size(list) && status == EBB_OK; i++) {
        const json_t *id = json_array_get(list, i);
        status = json_is_integer(id)
                     ? add_id(job, json_integer_value(id))
                     : EBB_FAIL(ctx, EBB_BAD_FILE, "%s: ids[%zu] is no integer", name, i);
    }
    json_decref(json);
    return status;
}

static enum ebb_status decode_line(struct job *job, const char *text, size_t bytes)
{
    job->ids.count = 0;
    if (job->config->json)
        EBB_TRY(read_json(job, text, bytes));
    else
        EBB_TRY(read_ids(job, text, bytes));
    job->text.bytes = 0;
    EBB_TRY(ebb_tokenizer_decode(job->cli->ctx, job->tokenizer, job->ids.data, job->ids.count,
                                 job->config->skip_special_tokens, &job->text));
    if (!job->config->json) return print_line(job);
    return print_json(job, json_pack("{so}", "text",
                                     json_stringn(job->text.bytes == 0 ? "" : job->text.data,
                                                  job->text.bytes)));
}

/* ---- lines ---- */

static enum ebb_status run_line(struct job *job, const char *text, size_t bytes)
{
    job->line++;
    return job->config->decode ? decode_line(job, text, bytes) : encode_line(job, text, bytes);
}

/* The lines of `text`; what follows the last newline waits in `rest`. */
static enum ebb_status run_lines(struct job *job, const char *text, size_t bytes,
                                 struct ebb_str *rest)
{
    while (bytes > 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t length = end == NULL ? bytes : (size_t)(end - text);
        if (end == NULL || rest->bytes > 0) EBB_TRY(ebb_str_add(job->cli->ctx, rest, text, length));
        if (end == NULL) return EBB_OK;
        EBB_TRY(rest->bytes > 0 ? run_line(job, rest->data, rest->bytes)
                                : run_line(job, text, length));
        rest->bytes = 0;
        text += length + 1;
        bytes -= length + 1;
    }
    return EBB_OK;
}

static enum ebb_status run_input(struct job *job)
{
    struct ebb_ctx *ctx = job->cli->ctx;
    char buffer[READ_BYTES];
    struct ebb_str rest = {0};
    enum ebb_status status = EBB_OK;
    for (;;) {
        ssize_t bytes = read(STDIN_FILENO, buffer, sizeof buffer);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0)
            status = EBB_FAIL(ctx, EBB_IO, "cannot read standard input: %s", strerror(errno));
        if (bytes <= 0) break;
        status = run_lines(job, buffer, (size_t)bytes, &rest);
        if (status == EBB_OK && fflush(stdout) != 0)
            status = EBB_FAIL(ctx, EBB_IO, "cannot write to standard output: %s", strerror(errno));
        if (status != EBB_OK) break;
    }
    if (status == EBB_OK && rest.bytes > 0) status = run_line(job, rest.data, rest.bytes);
    ebb_str_free(ctx, &rest);
    return status;
}

static enum ebb_status tokenize(struct ebb_cli *cli, const struct ebb_config *config)
{
    struct ebb_ctx *ctx = cli->ctx;
    struct job job = {.cli = cli, .config = config};
    char *dir = NULL;
    enum ebb_status status = ebb_model_find(ctx, config->model_name_or_path, &cli->env.hub, &dir);
    if (status == EBB_OK) status = ebb_tokenizer_load(ctx, dir, &job.tokenizer);
    if (status == EBB_OK) status = ebb_encoder_create(ctx, job.tokenizer, &job.encoder);
    if (status == EBB_OK) status = run_input(&job);
    ebb_str_free(ctx, &job.text);
    ebb_ids_free(ctx, &job.ids);
    ebb_offsets_free(ctx, &job.offsets);
    ebb_encoder_free(ctx, job.encoder);
    ebb_tokenizer_free(ctx, job.tokenizer);
    ebb_mem_free(ctx, dir);
    return status;
}

enum ebb_status ebb_cli_tokenize(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_TOKENIZE, &config, &options));
    enum ebb_status status = tokenize(cli, &config);
    ebb_options_free(options);
    return status;
}
