/* `ebb data`: what becomes of a data set.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/data_view.h"

enum { COLUMNS_USUAL = 80, COLUMNS_MIN = 50, COLUMNS_MAX = 100 };

/* ---- a sample as text ------------------------------------------------------------------------ */

static enum ebb_status close_stretch(struct ebb_ctx *ctx, struct ebb_data_sample *out, bool trained)
{
    size_t begin = out->count > 0 ? out->items[out->count - 1].end : 0;
    if (out->text.bytes == begin) return EBB_OK;
    if (out->count == 0 || out->items[out->count - 1].trained != trained) {
        if (out->count == out->room) {
            int64_t room = out->room ? 2 * out->room : 16;
            struct ebb_data_stretch *bigger =
                ebb_mem_realloc(ctx, out->items, (size_t)room * sizeof *bigger);
            if (bigger == NULL) return EBB_NO_MEMORY;
            out->items = bigger;
            out->room = room;
        }
        out->items[out->count++].trained = trained;
    }
    out->items[out->count - 1].end = out->text.bytes;
    return EBB_OK;
}

enum ebb_status ebb_data_sample_read(struct ebb_ctx *ctx, const struct ebb_dataset *dataset,
                                     const struct ebb_tokenizer *tokenizer, int64_t sample,
                                     struct ebb_data_sample *out)
{
    struct ebb_decode_stream stream = {0};
    const int32_t *ids = ebb_dataset_ids(dataset, sample);
    int64_t length = ebb_dataset_length(dataset, sample);
    out->text.bytes = 0;
    out->count = 0;
    for (int64_t i = 0; i < length; i++) {
        EBB_TRY(ebb_decode_add(ctx, tokenizer, &stream, ids[i], false, &out->text));
        EBB_TRY(close_stretch(ctx, out, ebb_survey_is_target(dataset, sample, i)));
    }
    EBB_TRY(ebb_decode_end(ctx, &stream, &out->text));
    return close_stretch(ctx, out, length > 0 && ebb_survey_is_target(dataset, sample, length - 1));
}

void ebb_data_sample_free(struct ebb_ctx *ctx, struct ebb_data_sample *sample)
{
    ebb_str_free(ctx, &sample->text);
    ebb_mem_free(ctx, sample->items);
    memset(sample, 0, sizeof *sample);
}

const char *ebb_data_side(const struct ebb_dataset *dataset, int64_t sample)
{
    if (dataset->group != 2) return NULL;
    return sample % 2 == 0 ? "chosen" : "rejected";
}

/* ---- which samples --------------------------------------------------------------------------- */

/* The first sample of a record, or -1. */
static int64_t find_record(const struct ebb_dataset *dataset, int64_t source, int64_t record)
{
    for (int64_t i = 0; i < dataset->count; i++)
        if (dataset->sources[i] == source && dataset->records[i] == record) return i;
    return -1;
}

static enum ebb_status show_record(struct ebb_data_view *view, int64_t record)
{
    bool found = false;
    for (int64_t s = 0; s < view->setup->train_sources.count; s++) {
        int64_t sample = find_record(view->dataset, s, record);
        if (sample < 0) continue;
        view->shown[view->shown_count++] = sample;
        found = true;
    }
    if (found) return EBB_OK;
    return EBB_FAIL(view->cli->ctx, EBB_BAD_CONFIG,
                    "there is no sample of record %lld: it is not in this split, or it was left "
                    "out\n"
                    "where: %s\n"
                    "try:   without 'records', which shows samples and says what was left out",
                    (long long)record, ebb_options_where(view->setup->options, "records"));
}

static int64_t count_words(const char *list)
{
    int64_t words = 1;
    for (const char *c = list; *c; c++) words += *c == ',';
    return words;
}

static enum ebb_status make_room(struct ebb_data_view *view, int64_t count)
{
    view->shown = ebb_mem_alloc(view->cli->ctx, (size_t)count * sizeof *view->shown);
    return view->shown ? EBB_OK : EBB_NO_MEMORY;
}

static enum ebb_status choose_records(struct ebb_data_view *view)
{
    const char *list = view->config->records;
    EBB_TRY(make_room(view, count_words(list) * view->setup->train_sources.count));
    for (const char *at = list;;) {
        char word[24];
        int64_t record = 0;
        at += strspn(at, " ");
        size_t bytes = strcspn(at, ", ");
        bool good = bytes > 0 && bytes < sizeof word;
        if (good) {
            memcpy(word, at, bytes);
            word[bytes] = 0;
            good = ebb_text_int64(word, &record) && record >= 1;
        }
        if (!good)
            return EBB_FAIL(view->cli->ctx, EBB_BAD_CONFIG,
                            "'records' wants numbers from 1, separated by commas\n"
                            "where: %s",
                            ebb_options_where(view->setup->options, "records"));
        EBB_TRY(show_record(view, record));
        at += bytes;
        at += strspn(at, " ");
        if (*at == 0) return EBB_OK;
        at++;
    }
}

/* Spread over the set, the first and the last included; of equal ones (weights) one. */
static enum ebb_status choose_spread(struct ebb_data_view *view)
{
    const struct ebb_dataset *dataset = view->dataset;
    int64_t groups = dataset->count / dataset->group, wanted = view->config->show_samples;
    if (wanted > groups) wanted = groups;
    EBB_TRY(make_room(view, wanted));
    for (int64_t k = 0; k < wanted; k++) {
        double step = wanted > 1 ? (double)(groups - 1) / (double)(wanted - 1) : 0;
        int64_t sample = (int64_t)(step * (double)k + 0.5) * dataset->group;
        int64_t last = view->shown_count > 0 ? view->shown[view->shown_count - 1] : -1;
        if (last >= 0 && dataset->sources[last] == dataset->sources[sample] &&
            dataset->records[last] == dataset->records[sample])
            continue;
        view->shown[view->shown_count++] = sample;
    }
    return EBB_OK;
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static bool wants_color(const struct ebb_config *config)
{
    const char *no = getenv("NO_COLOR");
    if (config->color != EBB_COLOR_KEY_AUTO) return config->color == EBB_COLOR_KEY_ALWAYS;
    return isatty(STDOUT_FILENO) && !(no && no[0]);
}

static int terminal_columns(void)
{
    struct winsize size = {0};
    const char *text = getenv("COLUMNS");
    int64_t columns = COLUMNS_USUAL;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    else if (text)
        (void)ebb_text_int64(text, &columns);
    if (columns < COLUMNS_MIN) columns = COLUMNS_MIN;
    return columns > COLUMNS_MAX ? COLUMNS_MAX : (int)columns;
}

/* ---- overlong samples ------------------------------------------------------------------------ */

/* What would stop training is no reason not to look at the data, which is how a max_length is
 * found. Only rows of whole samples cannot be shown then. */
static void keep_overlong(struct ebb_config *config)
{
    bool rows = config->packing && config->packing_strategy == EBB_PACKING_BFD;
    if (config->overlong == EBB_OVERLONG_ERROR && !rows)
        config->overlong = EBB_OVERLONG_KEEP;
}

static void warn_of_overlong(const struct ebb_data_view *view)
{
    const struct ebb_dataset *set = view->dataset;
    const struct ebb_config *config = view->config;
    int64_t limit = view->setup->max_length, count = 0;
    if (config->overlong != EBB_OVERLONG_KEEP || config->packing) return;
    for (int64_t i = 0; i < set->count; i++) count += ebb_dataset_length(set, i) > limit;
    if (count == 0) return;
    ebb_log(view->cli->ctx, EBB_LOG_WARNING, "data",
            "%lld of %lld samples %s above max_length %lld%s and would stop training: raise "
            "max_length, or set overlong: truncate or overlong: drop",
            (long long)count, (long long)set->count, count == 1 ? "is" : "are", (long long)limit,
            config->max_length == EBB_AUTO_INT ? " (what the model has positions for)" : "");
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum ebb_status show(struct ebb_data_view *view)
{
    const struct ebb_setup *setup = view->setup;
    bool rows = setup->purpose == EBB_PURPOSE_SFT;
    view->dataset = setup->train_set;
    warn_of_overlong(view);
    EBB_TRY(ebb_survey_make(view->cli->ctx, view->dataset, setup->tokenizer,
                            rows ? setup->max_length : 0, &view->survey));
    EBB_TRY(view->config->records ? choose_records(view) : choose_spread(view));
    view->color = wants_color(view->config);
    view->columns = terminal_columns();
    return view->config->json ? ebb_data_print_json(view) : ebb_data_print_text(view);
}

enum ebb_status ebb_cli_data(struct ebb_cli *cli)
{
    struct ebb_config config;
    struct ebb_options *options = NULL;
    EBB_TRY(ebb_cli_options(cli, EBB_COMMAND_DATA, &config, &options));
    keep_overlong(&config);
    struct ebb_setup *setup = ebb_mem_alloc(cli->ctx, sizeof *setup);
    struct ebb_data_view view = {.cli = cli, .config = &config, .setup = setup};
    enum ebb_status status = setup ? EBB_OK : EBB_NO_MEMORY;
    if (status == EBB_OK) status = ebb_setup_model(cli->ctx, options, &config, &cli->env, setup);
    if (status == EBB_OK) status = ebb_setup_tokenizer(setup);
    if (status == EBB_OK) {
        setup->purpose =
            config.recipe == EBB_RECIPE_KEY_DPO ? EBB_PURPOSE_PREFERENCE : EBB_PURPOSE_SFT;
        status = ebb_setup_data(setup);
    }
    if (status == EBB_OK) status = show(&view);
    ebb_mem_free(cli->ctx, view.shown);
    if (setup) ebb_setup_free(setup);
    ebb_mem_free(cli->ctx, setup);
    ebb_options_free(options);
    return status;
}
