/* `ebb data` for people.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/data_view.h"

enum { REFUSALS_SHOWN = 10 };

/* ---- samples --------------------------------------------------------------------------------- */

/* Text with control characters spelled out, so that data never steers a terminal. */
static enum ebb_status add_text(struct ebb_ctx *ctx, struct ebb_str *out, const char *text,
                                size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        /* U+0080 to U+009F, which terminals may obey too. */
        bool high = c == 0xc2 && i + 1 < bytes && (unsigned char)text[i + 1] < 0xa0;
        if (high)
            EBB_TRY(ebb_str_addf(ctx, out, "\\x%02x", (unsigned char)text[++i]));
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            EBB_TRY(ebb_str_addf(ctx, out, "\\x%02x", c));
        else
            EBB_TRY(ebb_str_add(ctx, out, text + i, 1));
    }
    return EBB_OK;
}

static enum ebb_status add_sample(const struct ebb_data_view *view,
                                  const struct ebb_data_sample *sample, struct ebb_str *out)
{
    struct ebb_ctx *ctx = view->cli->ctx;
    const char *open = view->color ? "\033[32m" : "⟦", *close = view->color ? "\033[0m" : "⟧";
    size_t begin = 0;
    for (int64_t i = 0; i < sample->count; i++) {
        const struct ebb_data_stretch *stretch = &sample->items[i];
        if (stretch->trained) EBB_TRY(ebb_str_addf(ctx, out, "%s", open));
        EBB_TRY(add_text(ctx, out, sample->text.data + begin, stretch->end - begin));
        if (stretch->trained) EBB_TRY(ebb_str_addf(ctx, out, "%s", close));
        begin = stretch->end;
    }
    bool ended = out->bytes > 0 && out->data[out->bytes - 1] == '\n';
    return ebb_str_addf(ctx, out, "%s", ended ? "" : "\n");
}

/* "34 tokens, 12 trained" */
static enum ebb_status add_counts(const struct ebb_data_view *view, int64_t sample,
                                  struct ebb_str *out)
{
    return ebb_str_addf(view->cli->ctx, out, "%" PRId64 " tokens, %" PRId64 " trained",
                        ebb_dataset_length(view->dataset, sample),
                        ebb_survey_targets(view->dataset, sample));
}

static enum ebb_status add_heading(const struct ebb_data_view *view, int64_t sample,
                                   struct ebb_str *out)
{
    struct ebb_ctx *ctx = view->cli->ctx;
    const struct ebb_dataset *set = view->dataset;
    EBB_TRY(ebb_str_addf(ctx, out, "== %s %" PRId64 " of %" PRId64 ": %s, record %" PRId64,
                         set->group == 2 ? "pair" : "sample", sample / set->group + 1,
                         set->count / set->group,
                         view->setup->train_sources.items[set->sources[sample]].path,
                         set->records[sample]));
    if (set->desirable)
        EBB_TRY(
            ebb_str_addf(ctx, out, ", %s", set->desirable[sample] ? "desirable" : "undesirable"));
    if (set->group == 1) {
        EBB_TRY(ebb_str_addf(ctx, out, ": "));
        EBB_TRY(add_counts(view, sample, out));
    }
    return ebb_str_addf(ctx, out, " ==\n");
}

static enum ebb_status add_shown(const struct ebb_data_view *view, struct ebb_str *out)
{
    struct ebb_ctx *ctx = view->cli->ctx;
    struct ebb_data_sample sample = {0};
    enum ebb_status status = EBB_OK;
    for (int64_t k = 0; status == EBB_OK && k < view->shown_count; k++) {
        status = add_heading(view, view->shown[k], out);
        for (int64_t i = 0; status == EBB_OK && i < view->dataset->group; i++) {
            int64_t at = view->shown[k] + i;
            const char *side = ebb_data_side(view->dataset, at);
            if (side) status = ebb_str_addf(ctx, out, "-- %s: ", side);
            if (side && status == EBB_OK) status = add_counts(view, at, out);
            if (side && status == EBB_OK) status = ebb_str_addf(ctx, out, " --\n");
            if (status == EBB_OK)
                status =
                    ebb_data_sample_read(ctx, view->dataset, view->setup->tokenizer, at, &sample);
            if (status == EBB_OK) status = add_sample(view, &sample, out);
        }
        if (status == EBB_OK) status = ebb_str_addf(ctx, out, "\n");
    }
    ebb_data_sample_free(ctx, &sample);
    return status;
}

/* "1 sample", "2 samples". */
static enum ebb_status add_number(const struct ebb_data_view *view, int64_t count, const char *what,
                                  struct ebb_str *out)
{
    return ebb_str_addf(view->cli->ctx, out, "%" PRId64 " %s%s", count, what,
                        count == 1 ? "" : "s");
}

/* ---- the set --------------------------------------------------------------------------------- */

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static enum ebb_status add_sources(const struct ebb_data_view *view, struct ebb_str *out)
{
    const struct ebb_sources *sources = &view->setup->train_sources;
    for (int64_t s = 0; s < sources->count; s++) {
        const struct ebb_dataset_source *source = &sources->items[s];
        int64_t samples = 0, tokens = 0;
        for (int64_t i = 0; i < view->dataset->count; i++) {
            if (view->dataset->sources[i] != s) continue;
            samples++;
            tokens += ebb_dataset_length(view->dataset, i);
        }
        EBB_TRY(ebb_str_addf(view->cli->ctx, out, "%-9s%s, split %s: ", s == 0 ? "data" : "",
                             source->path, source->split));
        EBB_TRY(add_number(view, samples, "sample", out));
        EBB_TRY(ebb_str_addf(view->cli->ctx, out, ", "));
        EBB_TRY(add_number(view, tokens, "token", out));
        if (source->weight != 1)
            EBB_TRY(ebb_str_addf(view->cli->ctx, out, ", weight %g", source->weight));
        EBB_TRY(ebb_str_addf(view->cli->ctx, out, "\n"));
    }
    return EBB_OK;
}

/* Only what is not zero is worth reading. */
static enum ebb_status add_left_out(const struct ebb_data_view *view, struct ebb_str *out)
{
    const struct ebb_dataset *set = view->dataset;
    const struct {
        int64_t count;
        const char *what;
    } parts[] = {
        {set->dropped, "above max_length and dropped"},
        {set->truncated, "cut at max_length"},
        {set->refused, "refused"},
        {set->passed, "without an answer to train on"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].count > 0)
            EBB_TRY(ebb_str_addf(view->cli->ctx, out, "; %" PRId64 " (%.3g %%) %s", parts[i].count,
                                 percent(parts[i].count, set->record_count), parts[i].what));
    return EBB_OK;
}

static enum ebb_status add_totals(const struct ebb_data_view *view, struct ebb_str *out)
{
    struct ebb_ctx *ctx = view->cli->ctx;
    const struct ebb_dataset *set = view->dataset;
    EBB_TRY(ebb_str_addf(ctx, out, "%-9s%s%s\n", "format", set->format,
                         set->chat ? ", rendered with the chat template" : ""));
    EBB_TRY(ebb_str_addf(ctx, out, "%-9s%" PRId64 " read", "records", set->record_count));
    EBB_TRY(add_left_out(view, out));
    EBB_TRY(ebb_str_addf(ctx, out, "\n%-9s%" PRId64, "samples", set->count));
    if (set->group == 2) EBB_TRY(ebb_str_addf(ctx, out, " in %" PRId64 " pair%s", set->count / 2,
                                             set->count == 2 ? "" : "s"));
    EBB_TRY(ebb_str_addf(ctx, out,
                         ", %.4g tokens on average, the longest has %" PRId64
                         ", max_length is %" PRId64 "\n",
                         set->count > 0 ? (double)set->tokens / (double)set->count : 0,
                         set->longest, view->setup->max_length));
    EBB_TRY(ebb_str_addf(ctx, out, "%-9s%" PRId64 ", %" PRId64 " trained (%.3g %%)\n", "tokens",
                         set->tokens, set->labels, percent(set->labels, set->tokens)));
    return ebb_str_addf(ctx, out,
                        "%-9s%" PRId64 " of %" PRId64
                        " sample%s (%.3g %%) with a trained special token\n",
                        "ends", view->survey.ended, set->count, set->count == 1 ? "" : "s",
                        percent(view->survey.ended, set->count));
}

static enum ebb_status add_bar(const struct ebb_data_view *view, int64_t count, int64_t most,
                               struct ebb_str *out)
{
    int room = view->columns - 36;
    int length = (int)((double)count / (double)most * room + 0.5);
    if (length == 0 && count > 0) length = 1;
    if (length > 0) EBB_TRY(ebb_str_addf(view->cli->ctx, out, "  "));
    for (int i = 0; i < length; i++) EBB_TRY(ebb_str_add(view->cli->ctx, out, "#", 1));
    return ebb_str_addf(view->cli->ctx, out, "\n");
}

static enum ebb_status add_lengths(const struct ebb_data_view *view, struct ebb_str *out)
{
    const struct ebb_survey *survey = &view->survey;
    int64_t most = 1;
    for (int i = 0; i < survey->bucket_count; i++)
        if (survey->buckets[i].samples > most) most = survey->buckets[i].samples;
    EBB_TRY(ebb_str_addf(view->cli->ctx, out, "\n%17s %8s %7s\n", "tokens", "samples", "share"));
    for (int i = 0; i < survey->bucket_count; i++) {
        const struct ebb_survey_bucket *bucket = &survey->buckets[i];
        EBB_TRY(ebb_str_addf(view->cli->ctx, out,
                             "%7" PRId64 " - %7" PRId64 " %8" PRId64 " %5.1f %%", bucket->low,
                             bucket->high, bucket->samples,
                             percent(bucket->samples, view->dataset->count)));
        EBB_TRY(add_bar(view, bucket->samples, most, out));
    }
    return EBB_OK;
}

static enum ebb_status add_rows(const struct ebb_data_view *view, struct ebb_str *out)
{
    struct ebb_ctx *ctx = view->cli->ctx;
    const struct ebb_loader_facts *facts = ebb_loader_describe(view->setup->train);
    const struct ebb_config *config = view->config;
    EBB_TRY(ebb_str_addf(ctx, out,
                         "\nmicro-batches  %" PRId64 " of at most %" PRId64
                         " tokens, on average %.3g %% full (packing: %s)\n",
                         facts->micros_per_epoch, facts->tokens_max, 100 * facts->fill,
                         config->packing ? "true" : "false"));
    EBB_TRY(
        ebb_str_addf(ctx, out, "packed into rows of %" PRId64 " tokens:\n", view->survey.capacity));
    for (int i = 0; i < EBB_SURVEY_STRATEGIES; i++) {
        const struct ebb_survey_rows *rows = &view->survey.rows[i];
        const char *mark = config->packing && config->packing_strategy == i ? "*" : " ";
        if (!rows->possible)
            EBB_TRY(ebb_str_addf(ctx, out,
                                 " %s %-10s not possible: samples are longer than a row\n", mark,
                                 rows->name));
        else
            EBB_TRY(ebb_str_addf(ctx, out,
                                 " %s %-10s %8" PRId64 " row%s, %5.1f %% full, %" PRId64
                                 " piece%s\n",
                                 mark, rows->name, rows->rows, rows->rows == 1 ? " " : "s",
                                 100 * rows->fill, rows->pieces, rows->pieces == 1 ? "" : "s"));
    }
    return EBB_OK;
}

static enum ebb_status add_refusals(const struct ebb_data_view *view, struct ebb_str *out)
{
    struct ebb_ctx *ctx = view->cli->ctx;
    const struct ebb_dataset *set = view->dataset;
    int64_t shown = set->refused < REFUSALS_SHOWN ? set->refused : REFUSALS_SHOWN;
    if (shown == 0) return EBB_OK;
    EBB_TRY(ebb_str_addf(ctx, out, "\nrefused:\n"));
    for (int64_t i = 0; i < shown; i++) {
        EBB_TRY(ebb_str_addf(ctx, out, "  "));
        EBB_TRY(add_text(ctx, out, set->refusals[i].text, strlen(set->refusals[i].text)));
        EBB_TRY(ebb_str_addf(ctx, out, "\n"));
    }
    if (set->refused == shown) return EBB_OK;
    return ebb_str_addf(ctx, out, "  and %" PRId64 " more\n", set->refused - shown);
}

static enum ebb_status add_all(const struct ebb_data_view *view, struct ebb_str *out)
{
    EBB_TRY(add_shown(view, out));
    EBB_TRY(add_sources(view, out));
    EBB_TRY(add_totals(view, out));
    EBB_TRY(add_lengths(view, out));
    if (view->setup->train) EBB_TRY(add_rows(view, out));
    return add_refusals(view, out);
}

enum ebb_status ebb_data_print_text(const struct ebb_data_view *view)
{
    struct ebb_str out = {0};
    enum ebb_status status = add_all(view, &out);
    if (status == EBB_OK) ebb_cli_print(&out);
    ebb_str_free(view->cli->ctx, &out);
    return status;
}
