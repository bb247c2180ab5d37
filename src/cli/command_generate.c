/* `ebb generate`: continue a prompt, streaming to stdout.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/generate.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "recipe/fit.h"

enum { PROMPT_CHUNK = 512 }; /* tokens of a prompt that are read at a time, at most */

struct prompts {
    char **texts; /* [count] owned */
    size_t count, room;
};

static enum ebb_status add_prompt(struct ebb_cli *cli, struct prompts *prompts, const char *text,
                                  size_t bytes)
{
    if (memchr(text, 0, bytes))
        return EBB_FAIL(cli->ctx, EBB_BAD_FILE, "a prompt holds a NUL character");
    if (ebb_text_utf8_valid(text, bytes) != bytes)
        return EBB_FAIL(cli->ctx, EBB_BAD_FILE, "a prompt is not UTF-8: byte %zu of prompt %zu",
                        ebb_text_utf8_valid(text, bytes) + 1, prompts->count + 1);
    if (prompts->count == prompts->room) {
        size_t room = prompts->room ? 2 * prompts->room : 16;
        char **bigger = ebb_mem_realloc(cli->ctx, prompts->texts, room * sizeof *bigger);
        if (bigger == NULL) return EBB_NO_MEMORY;
        prompts->texts = bigger;
        prompts->room = room;
    }
    char *copy = ebb_mem_strndup(cli->ctx, text, bytes);
    if (copy == NULL) return EBB_NO_MEMORY;
    prompts->texts[prompts->count++] = copy;
    return EBB_OK;
}

static void free_prompts(struct ebb_cli *cli, struct prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) ebb_mem_free(cli->ctx, prompts->texts[i]);
    ebb_mem_free(cli->ctx, prompts->texts);
}

/* All of stdin, as one prompt without the newline at its end, or line by line. */
static enum ebb_status split_input(struct ebb_cli *cli, const struct ebb_str *input, bool lines,
                                   struct prompts *prompts)
{
    const char *text = input->data ? input->data : "";
    size_t bytes = input->bytes;
    if (!lines)
        return add_prompt(cli, prompts, text,
                          bytes > 0 && text[bytes - 1] == '\n' ? bytes - 1 : bytes);
    while (bytes > 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t line = end ? (size_t)(end - text) : bytes;
        if (line > 0) EBB_TRY(add_prompt(cli, prompts, text, line));
        line += end != NULL;
        text += line;
        bytes -= line;
    }
    if (prompts->count == 0)
        return EBB_FAIL(cli->ctx, EBB_BAD_CONFIG, "standard input holds no prompt");
    return EBB_OK;
}

static enum ebb_status read_prompts(struct ebb_cli *cli, const struct ebb_config *config,
                                    struct prompts *prompts)
{
    char buffer[16384];
    struct ebb_str input = {0};
    enum ebb_status status = EBB_OK;
    size_t bytes;
    if (config->prompt) return add_prompt(cli, prompts, config->prompt, strlen(config->prompt));
    while (status == EBB_OK && (bytes = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        status = ebb_str_add(cli->ctx, &input, buffer, bytes);
    if (status == EBB_OK && ferror(stdin))
        status = EBB_FAIL(cli->ctx, EBB_IO, "cannot read standard input");
    if (status == EBB_OK) status = split_input(cli, &input, config->prompt_lines, prompts);
    ebb_str_free(cli->ctx, &input);
    return status;
}

enum { NEW_TOKENS = 128 }; /* where max_new_tokens is auto */

static int64_t max_new_tokens(const struct ebb_config *config)
{
    return config->max_new_tokens == EBB_AUTO_INT ? NEW_TOKENS : config->max_new_tokens;
}

/* The capacity that the longest prompt needs. */
static enum ebb_status measure(struct ebb_setup *setup, const struct prompts *prompts)
{
    int64_t longest = 1;
    for (size_t i = 0; i < prompts->count; i++) {
        struct ebb_ids ids = {0};
        enum ebb_status status =
            ebb_tokenizer_encode(setup->ctx, setup->tokenizer, prompts->texts[i],
                                 strlen(prompts->texts[i]), EBB_ENCODE_PREFIX, &ids);
        if (ids.count > longest) longest = ids.count;
        ebb_ids_free(setup->ctx, &ids);
        EBB_TRY(status);
    }
    int64_t whole = longest + max_new_tokens(setup->config),
            positions = setup->model->max_positions;
    if (whole > positions && longest < positions)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "a prompt of %lld tokens and max_new_tokens %lld are more than the "
                        "model's %lld positions\n"
                        "where: %s\n"
                        "try:   max_new_tokens=%lld",
                        (long long)longest, (long long)max_new_tokens(setup->config),
                        (long long)positions, ebb_options_where(setup->options, "max_new_tokens"),
                        (long long)(positions - longest));
    if (whole > positions)
        return EBB_FAIL(setup->ctx, EBB_BAD_CONFIG,
                        "a prompt of %lld tokens is longer than the model's %lld positions",
                        (long long)longest, (long long)positions);
    struct ebb_capacity *capacity = &setup->request.capacity;
    capacity->cache_tokens = whole;
    capacity->tokens = longest < PROMPT_CHUNK ? longest : PROMPT_CHUNK;
    capacity->docs = 1;
    capacity->doc_tokens = capacity->tokens;
    return EBB_OK;
}

static void print_piece(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

static enum ebb_status continue_all(struct ebb_cli *cli, const struct ebb_config *config,
                                    struct ebb_setup *setup, struct ebb_engine *engine,
                                    const struct prompts *prompts)
{
    const char *stops[EBB_CLI_STOPS];
    struct ebb_generate_keys keys = {.max_new_tokens = max_new_tokens(config),
                                     .temperature = config->temperature,
                                     .top_p = config->top_p,
                                     .top_k = config->top_k,
                                     .repetition_penalty = config->repetition_penalty,
                                     .seed = (uint64_t)config->seed,
                                     .stops = stops};
    EBB_TRY(ebb_cli_stops(cli, config, stops, &keys.stop_count));
    for (size_t i = 0; i < prompts->count; i++) {
        struct ebb_generate_result result = {0};
        EBB_TRY(ebb_generate(cli->ctx, engine, setup->tokenizer, prompts->texts[i], &keys,
                             print_piece, NULL, &result));
        fputc('\n', stdout);
        fflush(stdout);
        ebb_log(cli->ctx, EBB_LOG_INFO, "generate",
                "%lld prompt tokens in %.2f s, %lld new tokens in %.2f s%s",
                (long long)result.prompt_tokens, result.prompt_seconds,
                (long long)result.new_tokens, result.seconds,
                result.ended || result.stopped ? "" : " (max_new_tokens)");
    }
    return EBB_OK;
}

static enum ebb_status generate(struct ebb_cli *cli, const struct ebb_config *config,
                                struct ebb_setup *setup, const struct prompts *prompts,
                                struct ebb_engine **engine)
{
    EBB_TRY(ebb_setup_tokenizer(setup));
    EBB_TRY(measure(setup, prompts));
    setup->request.decode = true;
    EBB_TRY(ebb_engine_create(cli->ctx, &setup->request, engine));
    EBB_TRY(ebb_fit_check(setup, *engine));
    EBB_TRY(ebb_engine_open(*engine));
    return continue_all(cli, config, setup, *engine, prompts);
}

enum ebb_status ebb_cli_generate(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    struct ebb_engine *engine = NULL;
    struct prompts prompts = {0};
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_GENERATE, &config, &options));
    struct ebb_setup *setup = ebb_mem_alloc(cli->ctx, sizeof *setup);
    enum ebb_status status = setup ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = ebb_setup_model(cli->ctx, options, &config, &cli->env, setup);
    if (status == EBB_OK) status = read_prompts(cli, &config, &prompts);
    if (status == EBB_OK) status = generate(cli, &config, setup, &prompts, &engine);
    ebb_engine_free(engine);
    free_prompts(cli, &prompts);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    ebb_options_free(options);
    return status;
}
