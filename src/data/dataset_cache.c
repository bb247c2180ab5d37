/* Tokenized data sets on disk: what describes one, and its file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset_cache.h"

#include <inttypes.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include "base/file.h"

/* ---- the description ---- */

/* A text with its length before it, so that no two lists of texts look alike. */
static enum ebb_status add_text(struct ebb_ctx *ctx, struct ebb_str *out, const char *text)
{
    return text == NULL ? ebb_str_addf(ctx, out, "-\n")
                        : ebb_str_addf(ctx, out, "%zu:%s\n", strlen(text), text);
}

static enum ebb_status add_yaml(struct ebb_ctx *ctx, struct ebb_str *out,
                                const struct ebb_yaml *node)
{
    if (node == NULL) return add_text(ctx, out, NULL);
    EBB_TRY(ebb_str_addf(ctx, out, "kind %d items %zu\n", (int)node->kind, node->count));
    EBB_TRY(add_text(ctx, out, node->text));
    for (size_t i = 0; i < node->count; i++) {
        EBB_TRY(add_text(ctx, out, node->items[i].key));
        EBB_TRY(add_yaml(ctx, out, &node->items[i]));
    }
    return EBB_OK;
}

/* The first number goes up whenever the same files and options come to make other samples, or a
 * file's layout changes, so that no version reads another's. Two libraries decide where words end
 * and what characters are the same. */
static enum ebb_status describe_program(struct ebb_ctx *ctx, struct ebb_str *out)
{
    char pcre2[64] = "", unicode[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    return ebb_str_addf(ctx, out,
                        "ebb data set 2\nebb %s\npcre2 %s unicode %s\nutf8proc %s unicode %s\n",
                        EBB_VERSION, pcre2, unicode, utf8proc_version(),
                        utf8proc_unicode_version());
}

static enum ebb_status describe_source(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                       int64_t index, struct ebb_str *out)
{
    const struct ebb_set_source *source = &job->sources[index];
    const struct ebb_dataset_source *wanted = source->wanted;
    struct ebb_set_weight weight = ebb_set_weight(wanted);
    /* Messages about refused records are kept too, and have the paths. */
    bool with_paths = job->options->max_bad_records > 0;
    EBB_TRY(ebb_str_addf(ctx, out, "records %016" PRIx64 " from %" PRId64 " count %" PRId64 "\n",
                         source->records.hash, source->records.first, source->record_count));
    for (int64_t i = 0; i < source->records.file_count; i++) {
        const struct ebb_record_file *file = &source->records.files[i];
        EBB_TRY(ebb_str_addf(ctx, out, "file kind %d separator %d bytes %zu\n", (int)file->kind,
                             (int)file->separator, file->text.bytes));
        if (with_paths) EBB_TRY(add_text(ctx, out, file->path));
    }
    EBB_TRY(ebb_str_addf(ctx, out, "format %s\n", source->format->name));
    EBB_TRY(add_text(ctx, out, source->env.text_field));
    EBB_TRY(ebb_str_addf(ctx, out, "weight %" PRId64 " %a", weight.whole, weight.share));
    if (weight.share > 0) EBB_TRY(ebb_str_addf(ctx, out, " seed %" PRIu64, job->options->seed));
    EBB_TRY(ebb_str_addf(ctx, out, "\n"));
    EBB_TRY(add_yaml(ctx, out, wanted->columns));
    return add_yaml(ctx, out, wanted->roles);
}

static enum ebb_status describe_options(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                        struct ebb_str *out)
{
    const struct ebb_dataset_options *options = job->options;
    EBB_TRY(
        ebb_str_addf(ctx, out, "tokenizer %016" PRIx64 "\n", ebb_tokenizer_hash(job->tokenizer)));
    if (options->chat != NULL)
        EBB_TRY(ebb_str_addf(ctx, out, "chat template %016" PRIx64 "\n",
                             ebb_chat_template_hash(options->chat, options->now)));
    /* Keys in the order they were given: a template may walk them. */
    if (options->chat_kwargs != NULL) EBB_TRY(ebb_json_text(ctx, options->chat_kwargs, 0, out));
    return ebb_str_addf(ctx, out,
                        "\npurpose %d\ncompletion_only %d\nassistant_only %d\nlast_turn_only %d\n"
                        "max_length %" PRId64 "\noverlong %d\ntruncation_side %d\n"
                        "keep_overlong %d\nmax_bad_records %" PRId64 "\n",
                        (int)options->purpose, (int)options->completion_only,
                        (int)options->assistant_only, options->last_turn_only, options->max_length,
                        (int)options->overlong, (int)options->truncation_side,
                        options->keep_overlong, options->max_bad_records);
}

static bool is_worth_it(const struct ebb_set_job *job)
{
    int64_t bytes = 0;
    for (int64_t s = 0; s < job->options->source_count; s++) {
        const struct ebb_records *records = &job->sources[s].records;
        for (int64_t i = 0; i < job->sources[s].record_count; i++)
            bytes += (int64_t)records->spans[records->first + i].text.bytes;
    }
    return bytes >= EBB_DATASET_CACHE_BYTES;
}

static enum ebb_status describe(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                struct ebb_str *out)
{
    EBB_TRY(describe_program(ctx, out));
    EBB_TRY(describe_options(ctx, job, out));
    for (int64_t i = 0; i < job->options->source_count; i++)
        EBB_TRY(describe_source(ctx, job, i, out));
    return EBB_OK;
}

enum ebb_status ebb_dataset_cache_open(struct ebb_ctx *ctx, const struct ebb_set_job *job,
                                       struct ebb_dataset_cache *cache)
{
    const char *dir = job->options->cache_dir;
    *cache = (struct ebb_dataset_cache){.job = job};
    if (dir == NULL || dir[0] == '\0' || !is_worth_it(job)) return EBB_OK;
    struct ebb_str *text = &cache->description;
    enum ebb_status status = describe(ctx, job, text);
    if (status == EBB_OK) {
        /* The second hash is of the text with its last byte gone and so is another function of it:
         * that byte is a newline, whatever the text. */
        uint64_t low = ebb_hash_bytes(text->data, text->bytes);
        uint64_t high = ebb_hash_bytes(text->data, text->bytes - 1);
        cache->path =
            ebb_mem_format(ctx, "%s/%016" PRIx64 "%016" PRIx64 ".ebbdata", dir, high, low);
        if (cache->path == NULL) status = EBB_NO_MEMORY;
    }
    if (status != EBB_OK) ebb_dataset_cache_close(ctx, cache);
    return status;
}

void ebb_dataset_cache_close(struct ebb_ctx *ctx, struct ebb_dataset_cache *cache)
{
    ebb_mem_free(ctx, cache->path);
    ebb_str_free(ctx, &cache->description);
    *cache = (struct ebb_dataset_cache){0};
}

/* ---- the file ---- */

enum section {
    DESCRIPTION,
    STARTS,
    LENGTHS,
    RECORDS,
    SOURCES,
    DESIRABLE,
    TRAINED,
    IDS,
    REFUSALS, /* texts, each with its NUL */
    SECTIONS
};

static const char magic[8] = "EBBDATA";
static const uint64_t byte_order = 0x0102030405060708u;

/* What the file begins with; the sections follow in their order. */
struct head {
    char magic[8];
    uint64_t byte_order;
    int64_t count, tokens, labels, longest, record_count, dropped, truncated, refused, passed;
    int64_t group, stored;
    int64_t chat, unpaired;
    int64_t bytes[SECTIONS];
    uint64_t hashes[SECTIONS];
    uint64_t hash; /* of the head before it */
};

static uint64_t head_hash(const struct head *head)
{
    return ebb_hash_bytes(head, offsetof(struct head, hash));
}

static int64_t refusal_count(int64_t refused)
{
    return refused < EBB_REFUSALS ? refused : EBB_REFUSALS;
}

/* Where each section of the data set lies in memory, but for the texts around them. */
static void point_at_sections(const struct ebb_dataset *set, void *places[SECTIONS])
{
    places[STARTS] = set->starts;
    places[LENGTHS] = set->lengths;
    places[RECORDS] = set->records;
    places[SOURCES] = set->sources;
    places[DESIRABLE] = set->desirable;
    places[TRAINED] = set->trained;
    places[IDS] = set->ids;
}

/* The sizes that follow from the counts. */
static void size_sections(int64_t count, int64_t stored, bool unpaired, int64_t bytes[SECTIONS])
{
    bytes[STARTS] = bytes[LENGTHS] = bytes[RECORDS] = count * (int64_t)sizeof(int64_t);
    bytes[SOURCES] = count * (int64_t)sizeof(int32_t);
    bytes[DESIRABLE] = unpaired ? count : 0;
    bytes[TRAINED] = (stored + 31) / 32 * (int64_t)sizeof(uint32_t);
    bytes[IDS] = stored * (int64_t)sizeof(int32_t);
}

/* ---- reading ---- */

/* The head, copied out; false for a file that is not one of ours, or damaged. */
static bool read_head(const struct ebb_map *map, struct head *head)
{
    if (map->bytes < sizeof *head) return false;
    memcpy(head, map->data, sizeof *head);
    if (memcmp(head->magic, magic, sizeof magic) != 0 || head->byte_order != byte_order ||
        head->hash != head_hash(head))
        return false;
    int64_t left = (int64_t)(map->bytes - sizeof *head), bytes[SECTIONS];
    if (head->count < 1 || head->count > left || head->stored < 1 || head->stored > left)
        return false;
    size_sections(head->count, head->stored, head->unpaired != 0, bytes);
    for (int i = 0; i < SECTIONS; i++) {
        if (i != DESCRIPTION && i != REFUSALS && head->bytes[i] != bytes[i]) return false;
        if (head->bytes[i] < 0 || head->bytes[i] > left) return false;
        left -= head->bytes[i];
    }
    return left == 0;
}

static bool sections_are_whole(const struct head *head, const unsigned char *data)
{
    for (int i = 0; i < SECTIONS; data += head->bytes[i++])
        if (head->hashes[i] != ebb_hash_bytes(data, (size_t)head->bytes[i])) return false;
    return true;
}

/* Hashes find accidents; this keeps a file that somebody made from leading out of the arrays. */
static bool set_is_sound(const struct ebb_dataset *set, const struct ebb_set_job *job)
{
    int64_t vocab = ebb_tokenizer_vocab_size(job->tokenizer), tokens = 0;
    for (int64_t i = 0; i < set->count; i++) {
        int64_t start = set->starts[i], length = set->lengths[i];
        if (start < 0 || length < 1 || start > set->stored || length > set->stored - start)
            return false;
        if (set->sources[i] < 0 || set->sources[i] >= job->options->source_count) return false;
        tokens += length;
    }
    for (int64_t i = 0; i < set->stored; i++)
        if (set->ids[i] < 0 || set->ids[i] >= vocab) return false;
    return tokens == set->tokens && set->group == job->group && set->count % set->group == 0;
}

static enum ebb_status read_refusals(struct ebb_ctx *ctx, const char *text, int64_t bytes,
                                     struct ebb_dataset *set, bool *good)
{
    *good = set->refused >= 0;
    if (set->refused <= 0) return EBB_OK;
    set->refusals = ebb_mem_alloc(ctx, EBB_REFUSALS * sizeof *set->refusals);
    if (set->refusals == NULL) return EBB_NO_MEMORY;
    const char *end = text + bytes;
    for (int64_t i = 0; i < refusal_count(set->refused); i++) {
        const char *stop = memchr(text, '\0', (size_t)(end - text));
        *good = *good && stop != NULL;
        if (!*good) return EBB_OK;
        set->refusals[i].text = ebb_mem_strdup(ctx, text);
        if (set->refusals[i].text == NULL) return EBB_NO_MEMORY;
        text = stop + 1;
    }
    return EBB_OK;
}

/* The data set of a file whose head and sections are whole. */
static enum ebb_status read_sections(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                                     const struct head *head, const unsigned char *data,
                                     struct ebb_dataset **dataset, bool *good)
{
    void *places[SECTIONS] = {0};
    EBB_TRY(ebb_dataset_create(ctx, head->count, head->stored, head->unpaired != 0, dataset));
    struct ebb_dataset *set = *dataset;
    set->tokens = head->tokens;
    set->labels = head->labels;
    set->longest = head->longest;
    set->record_count = head->record_count;
    set->dropped = head->dropped;
    set->truncated = head->truncated;
    set->refused = head->refused;
    set->passed = head->passed;
    set->group = head->group;
    set->chat = head->chat != 0;
    point_at_sections(set, places);
    const unsigned char *at = data;
    for (int i = 0; i < REFUSALS; at += head->bytes[i++])
        if (places[i] != NULL) memcpy(places[i], at, (size_t)head->bytes[i]);
    EBB_TRY(read_refusals(ctx, (const char *)at, head->bytes[REFUSALS], set, good));
    *good = *good && set_is_sound(set, cache->job);
    return EBB_OK;
}

/* `why`: what is wrong, or NULL. */
static enum ebb_status read_map(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                                const struct ebb_map *map, struct ebb_dataset **dataset,
                                const char **why)
{
    struct head head;
    const struct ebb_str *wanted = &cache->description;
    *why = "it is damaged, or no data set of this program";
    if (!read_head(map, &head)) return EBB_OK;
    const unsigned char *data = map->data + sizeof head;
    if (!sections_are_whole(&head, data)) return EBB_OK;
    if (head.bytes[DESCRIPTION] != (int64_t)wanted->bytes ||
        memcmp(data, wanted->data, wanted->bytes) != 0) {
        *why = "it holds another data set";
        return EBB_OK;
    }
    bool good = false;
    enum ebb_status status = read_sections(ctx, cache, &head, data, dataset, &good);
    if (status == EBB_OK && good) {
        *why = NULL;
        return EBB_OK;
    }
    ebb_dataset_free(ctx, *dataset);
    *dataset = NULL;
    return status;
}

enum ebb_status ebb_dataset_cache_read(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                                       struct ebb_dataset **dataset)
{
    struct ebb_map map;
    const char *why = NULL;
    *dataset = NULL;
    if (cache->path == NULL || !ebb_file_exists(cache->path)) return EBB_OK;
    enum ebb_status status = ebb_map_open(ctx, cache->path, &map);
    if (status == EBB_OK) {
        status = read_map(ctx, cache, &map, dataset, &why);
        ebb_map_close(&map);
    } else if (status != EBB_NO_MEMORY) {
        ebb_warn_once(ctx, "dataset_cache read", "the kept data set is not used: %s",
                      ebb_error_text(ctx));
        ebb_error_clear(ctx);
        return EBB_OK;
    }
    if (status == EBB_OK && why != NULL)
        ebb_warn_once(ctx, "dataset_cache damaged",
                      "the kept data set '%s' is not used: %s; it is made again", cache->path, why);
    if (*dataset != NULL) ebb_log(ctx, EBB_LOG_INFO, "data", "read from cache %s", cache->path);
    return status;
}

/* ---- writing ---- */

static enum ebb_status join_refusals(struct ebb_ctx *ctx, const struct ebb_dataset *set,
                                     struct ebb_str *out)
{
    for (int64_t i = 0; i < refusal_count(set->refused); i++) {
        const char *text = set->refusals[i].text;
        EBB_TRY(ebb_str_add(ctx, out, text, strlen(text) + 1));
    }
    return EBB_OK;
}

static void fill_head(const struct ebb_dataset *set, void *places[SECTIONS], struct head *head)
{
    memcpy(head->magic, magic, sizeof magic);
    head->byte_order = byte_order;
    head->count = set->count;
    head->tokens = set->tokens;
    head->labels = set->labels;
    head->longest = set->longest;
    head->record_count = set->record_count;
    head->dropped = set->dropped;
    head->truncated = set->truncated;
    head->refused = set->refused;
    head->passed = set->passed;
    head->group = set->group;
    head->stored = set->stored;
    head->chat = set->chat;
    head->unpaired = set->desirable != NULL;
    size_sections(set->count, set->stored, set->desirable != NULL, head->bytes);
    for (int i = 0; i < SECTIONS; i++)
        head->hashes[i] = ebb_hash_bytes(places[i], (size_t)head->bytes[i]);
    head->hash = head_hash(head);
}

static enum ebb_status write_file(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                                  const struct head *head, void *places[SECTIONS])
{
    struct ebb_writer *writer;
    EBB_TRY(ebb_dir_create(ctx, cache->job->options->cache_dir));
    EBB_TRY(ebb_writer_open(ctx, cache->path, &writer));
    enum ebb_status status = ebb_writer_write(writer, head, sizeof *head);
    for (int i = 0; i < SECTIONS && status == EBB_OK; i++)
        status = ebb_writer_write(writer, places[i], (size_t)head->bytes[i]);
    if (status == EBB_OK) return ebb_writer_commit(writer, NULL, NULL);
    ebb_writer_abort(writer);
    return status;
}

void ebb_dataset_cache_write(struct ebb_ctx *ctx, const struct ebb_dataset_cache *cache,
                             const struct ebb_dataset *dataset)
{
    if (cache->path == NULL) return;
    struct ebb_str refusals = {0};
    struct head head = {0};
    enum ebb_status status = join_refusals(ctx, dataset, &refusals);
    if (status == EBB_OK) {
        void *places[SECTIONS] = {cache->description.data};
        point_at_sections(dataset, places);
        places[REFUSALS] = refusals.data;
        head.bytes[DESCRIPTION] = (int64_t)cache->description.bytes;
        head.bytes[REFUSALS] = (int64_t)refusals.bytes;
        fill_head(dataset, places, &head);
        status = write_file(ctx, cache, &head, places);
    }
    ebb_str_free(ctx, &refusals);
    if (status == EBB_OK) {
        char size[32];
        int64_t bytes = (int64_t)sizeof head;
        for (int i = 0; i < SECTIONS; i++) bytes += head.bytes[i];
        ebb_log(ctx, EBB_LOG_INFO, "data", "kept in %s (%s)", cache->path,
                ebb_text_bytes(bytes, size, sizeof size));
        return;
    }
    const char *text = ebb_error_text(ctx);
    ebb_warn_once(ctx, "dataset_cache write",
                  "the tokenized data set is not kept, the next run tokenizes again: %.*s "
                  "(dataset_cache names another directory, or false for none)",
                  (int)strcspn(text, "\n"), text);
    ebb_error_clear(ctx);
}
