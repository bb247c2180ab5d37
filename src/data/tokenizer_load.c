/* Reading a tokenizer: tokenizer.json piece by piece, then the files that name its special tokens.
 *
 * The vocabulary and the merges, nearly all of the file, never become a JSON tree: a scanner reads
 * them where they stand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "data/tokenizer_int.h"

/* ---- components ---- */

enum ebb_status ebb_tok_refuse(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                               const char *what, const char *detail)
{
    return EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: %s %s is not offered", tok->path, what, detail);
}

enum ebb_status ebb_tok_bool(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                             const json_t *node, const char *key, bool fallback, bool *value)
{
    bool found;
    *value = fallback;
    return ebb_json_bool(ctx, tok->path, node, key, value, &found);
}

/* Is `name` one of the words? */
static bool has_word(const char *words, const char *name)
{
    size_t length = strlen(name);
    if (length == 0) return false;
    for (const char *at = words; (at = strstr(at, name)) != NULL; at++)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static enum ebb_status refuse_type(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                   const struct ebb_tok_family *family, const char *type)
{
    struct ebb_str offered = {0};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < family->count && status == EBB_OK; i++)
        status =
            ebb_str_addf(ctx, &offered, "%s%s", i == 0 ? "" : ", ", family->components[i].type);
    if (status == EBB_OK && family->sequence[0] != '\0')
        status = ebb_str_addf(ctx, &offered, ", Sequence");
    if (status == EBB_OK)
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: %s '%s' is not offered (offered: %s)",
                          tok->path, family->name, type, offered.data);
    ebb_str_free(ctx, &offered);
    return status;
}

static enum ebb_status read_sequence(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                     const struct ebb_tok_family *family, const json_t *node,
                                     int depth)
{
    const json_t *list = json_object_get(node, family->sequence);
    if (!json_is_array(list))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s Sequence has no list '%s'", tok->path,
                        family->name, family->sequence);
    if (depth > EBB_TOK_STEPS) return ebb_tok_refuse(ctx, tok, family->name, "nested so deeply");
    for (size_t i = 0; i < json_array_size(list); i++)
        EBB_TRY(ebb_tok_read(ctx, tok, family, json_array_get(list, i), depth + 1));
    return EBB_OK;
}

enum ebb_status ebb_tok_read(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                             const struct ebb_tok_family *family, const json_t *node, int depth)
{
    if (node == NULL || json_is_null(node)) return EBB_OK;
    const char *type;
    EBB_TRY(ebb_json_string(ctx, tok->path, node, "type", &type, NULL));
    if (family->sequence[0] != '\0' && strcmp(type, "Sequence") == 0)
        return read_sequence(ctx, tok, family, node, depth);
    for (size_t i = 0; i < family->count; i++) {
        const struct ebb_tok_component *component = &family->components[i];
        if (strcmp(component->type, type) != 0) continue;
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)node, key, value)
        {
            if (strcmp(key, "type") != 0 && !has_word(component->keys, key))
                return EBB_FAIL(ctx, EBB_UNSUPPORTED,
                                "%s: %s %s has the key '%s', which is not offered", tok->path,
                                family->name, type, key);
        }
        return component->read(ctx, tok, node);
    }
    return refuse_type(ctx, tok, family, type);
}

/* ---- the pieces of the file ---- */

enum top_piece { ADDED, NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, TOP_COUNT };

static const char *const top_names[TOP_COUNT] = {"added_tokens",   "normalizer", "pre_tokenizer",
                                                 "post_processor", "decoder",    "model"};

struct file_pieces {
    const char *data; /* borrowed: the whole file */
    size_t bytes;
    struct ebb_span top[TOP_COUNT];
    struct ebb_span vocab, merges;
    struct ebb_str model; /* the model's other keys, as an object of their own */
};

/* Says where the file is broken: the parser knows line and column. */
static enum ebb_status broken(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                              const struct file_pieces *pieces)
{
    json_t *json = NULL;
    EBB_TRY(ebb_json_parse(ctx, tok->path, 0, pieces->data, pieces->bytes, &json));
    json_decref(json);
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: not what a tokenizer.json looks like: an object with 'model' is wanted",
                    tok->path);
}

/* Calls for "key": value with the key's quotes in `key`. */
typedef enum ebb_status (*piece_fn)(struct ebb_ctx *ctx, struct file_pieces *pieces,
                                    struct ebb_span key, struct ebb_span value);

/* Sets *good to false where the text is not an object. */
static enum ebb_status each_member(struct ebb_ctx *ctx, struct file_pieces *pieces,
                                   struct ebb_span text, piece_fn fn, bool *good)
{
    struct ebb_scan scan = {text.data, text.bytes, 0};
    *good = false;
    if (!ebb_scan_take(&scan, '{')) return EBB_OK;
    if (ebb_scan_peek(&scan) != '}') {
        do {
            struct ebb_span key, value;
            if (ebb_scan_peek(&scan) != '"' || !ebb_scan_value(&scan, &key) ||
                !ebb_scan_take(&scan, ':') || !ebb_scan_value(&scan, &value))
                return EBB_OK;
            EBB_TRY(fn(ctx, pieces, key, value));
        } while (ebb_scan_take(&scan, ','));
    }
    *good = ebb_scan_take(&scan, '}') && ebb_scan_peek(&scan) == '\0' && scan.at == scan.bytes;
    return EBB_OK;
}

static bool key_is(struct ebb_span key, const char *name)
{
    size_t bytes = strlen(name);
    return key.bytes == bytes + 2 && memcmp(key.data + 1, name, bytes) == 0;
}

static enum ebb_status take_top(struct ebb_ctx *ctx, struct file_pieces *pieces,
                                struct ebb_span key, struct ebb_span value)
{
    (void)ctx;
    for (int i = 0; i < TOP_COUNT; i++)
        if (key_is(key, top_names[i])) pieces->top[i] = value;
    return EBB_OK;
}

static enum ebb_status take_model(struct ebb_ctx *ctx, struct file_pieces *pieces,
                                  struct ebb_span key, struct ebb_span value)
{
    if (key_is(key, "vocab"))
        pieces->vocab = value;
    else if (key_is(key, "merges"))
        pieces->merges = value;
    else {
        EBB_TRY(ebb_str_add(ctx, &pieces->model, pieces->model.bytes == 0 ? "{" : ",", 1));
        EBB_TRY(ebb_str_add(ctx, &pieces->model, key.data, key.bytes));
        EBB_TRY(ebb_str_add(ctx, &pieces->model, ":", 1));
        EBB_TRY(ebb_str_add(ctx, &pieces->model, value.data, value.bytes));
    }
    return EBB_OK;
}

static enum ebb_status find_pieces(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                   struct file_pieces *pieces)
{
    size_t valid = ebb_text_utf8_valid(pieces->data, pieces->bytes);
    if (valid != pieces->bytes)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s:%d: not UTF-8: byte 0x%02x at offset %zu", tok->path,
                        ebb_scan_line(pieces->data, valid), (unsigned char)pieces->data[valid],
                        valid);
    bool good;
    EBB_TRY(
        each_member(ctx, pieces, (struct ebb_span){pieces->data, pieces->bytes}, take_top, &good));
    if (!good || pieces->top[MODEL].data == NULL) return broken(ctx, tok, pieces);
    EBB_TRY(each_member(ctx, pieces, pieces->top[MODEL], take_model, &good));
    if (!good || pieces->model.bytes == 0) return broken(ctx, tok, pieces);
    return ebb_str_add(ctx, &pieces->model, "}", 1);
}

/* A piece as a tree; NULL where the file has none. A broken one is told by the whole file's
 * line. */
static enum ebb_status parse_piece(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                   const struct file_pieces *pieces, struct ebb_span text,
                                   json_t **json)
{
    *json = NULL;
    if (text.data == NULL) return EBB_OK;
    enum ebb_status status = ebb_json_parse(ctx, tok->path, 0, text.data, text.bytes, json);
    if (status != EBB_BAD_FILE) return status;
    ebb_error_clear(ctx);
    return broken(ctx, tok, pieces);
}

/* ---- the whole of tokenizer.json ---- */

static void fill_alphabet(struct ebb_tokenizer *tok)
{
    memset(tok->alphabet, 0xff, sizeof tok->alphabet);
    int next = 256; /* bytes that are no printable character of Latin-1 stand from U+0100 on */
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        tok->letters[b] = (int16_t)(printable ? b : next++);
        tok->alphabet[tok->letters[b]] = (int16_t)b;
    }
}

static enum ebb_status read_model(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  const struct file_pieces *pieces, const json_t *added)
{
    json_t *model;
    EBB_TRY(parse_piece(ctx, tok, pieces,
                        (struct ebb_span){pieces->model.data, pieces->model.bytes}, &model));
    const json_t *unk = json_object_get(model, "unk_token");
    char *unk_text = NULL;
    enum ebb_status status = EBB_OK;
    if (json_object_get(model, "type") == NULL)
        json_object_set_new(model, "type", json_string("BPE")); /* old files */
    status = ebb_tok_read(ctx, tok, ebb_tok_models(), model, 0);
    if (status == EBB_OK && json_is_string(unk) && json_string_length(unk) > 0) {
        unk_text = ebb_mem_strdup(ctx, json_string_value(unk));
        if (unk_text == NULL) status = EBB_NO_MEMORY;
    }
    json_decref(model);
    if (status == EBB_OK && (pieces->vocab.data == NULL || pieces->merges.data == NULL))
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: the model has no '%s'", tok->path,
                          pieces->vocab.data == NULL ? "vocab" : "merges");
    if (status == EBB_OK) status = ebb_tok_read_vocab(ctx, tok, pieces->vocab, added);
    if (status == EBB_OK) status = ebb_tok_read_merges(ctx, tok, pieces->merges);
    if (status == EBB_OK && unk_text != NULL) {
        tok->model_unk = ebb_tok_lookup(tok, unk_text, strlen(unk_text));
        if (tok->model_unk < 0 || (tok->tokens[tok->model_unk].flags & EBB_TOK_VOCAB) == 0)
            status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: unk_token '%s' is no token of model.vocab",
                              tok->path, unk_text);
    }
    ebb_mem_free(ctx, unk_text);
    return status;
}

static enum ebb_status read_component(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                      const struct file_pieces *pieces, enum top_piece piece,
                                      const struct ebb_tok_family *of)
{
    json_t *node;
    EBB_TRY(parse_piece(ctx, tok, pieces, pieces->top[piece], &node));
    enum ebb_status status = ebb_tok_read(ctx, tok, of, node, 0);
    if (piece == DECODER && node != NULL && !json_is_null(node)) tok->decoded = true;
    json_decref(node);
    return status;
}

/* A Metaspace for the text's beginning alone asks where its text came from, which normalizers
 * blur. */
static void decide_tracing(struct ebb_tokenizer *tok)
{
    for (int i = 0; i < tok->split_count; i++)
        if (tok->splits[i].kind == EBB_TOK_METASPACE && tok->splits[i].scheme == EBB_TOK_FIRST &&
            tok->normal_count > 0)
            tok->traces = true;
}

static enum ebb_status read_pieces(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   struct file_pieces *pieces)
{
    EBB_TRY(find_pieces(ctx, tok, pieces));
    json_t *added;
    EBB_TRY(parse_piece(ctx, tok, pieces, pieces->top[ADDED], &added));
    /* The pre-tokenizer says whether the vocabulary is one of bytes. */
    enum ebb_status status =
        read_component(ctx, tok, pieces, PRE_TOKENIZER, ebb_tok_pre_tokenizers());
    if (status == EBB_OK) status = read_model(ctx, tok, pieces, added);
    if (status == EBB_OK)
        status = read_component(ctx, tok, pieces, NORMALIZER, ebb_tok_normalizers());
    if (status == EBB_OK)
        status = read_component(ctx, tok, pieces, POST_PROCESSOR, ebb_tok_post_processors());
    if (status == EBB_OK) status = read_component(ctx, tok, pieces, DECODER, ebb_tok_decoders());
    decide_tracing(tok);
    if (status == EBB_OK) status = ebb_tok_read_added(ctx, tok, added);
    json_decref(added);
    return status;
}

static enum ebb_status read_file(struct ebb_ctx *ctx, struct ebb_tokenizer *tok)
{
    struct ebb_map map;
    EBB_TRY(ebb_map_open(ctx, tok->path, &map));
    struct file_pieces pieces = {0};
    tok->file_hash = ebb_hash_bytes(map.data, map.bytes);
    bool bom = map.bytes >= 3 && memcmp(map.data, "\xef\xbb\xbf", 3) == 0;
    pieces.data = map.data == NULL ? "" : (const char *)map.data + (bom ? 3 : 0);
    pieces.bytes = map.bytes - (bom ? 3 : 0);
    enum ebb_status status = read_pieces(ctx, tok, &pieces);
    ebb_str_free(ctx, &pieces.model);
    ebb_map_close(&map);
    return status;
}

/* ---- bos, eos, pad, unk ---- */

struct named_token {
    const char *
        name; /* in tokenizer_config.json and special_tokens_map.json: text, or {"content": text} */
    const char *id_name; /* in generation_config.json and config.json; NULL: none */
    int32_t *id;
};

/* Reads DIR/name where it is there; NULL otherwise. */
static enum ebb_status load_side(struct ebb_ctx *ctx, const char *dir, const char *name,
                                 json_t **json)
{
    *json = NULL;
    char *path = ebb_path_join(ctx, dir, name);
    if (path == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = ebb_file_exists(path) ? ebb_json_load(ctx, path, json) : EBB_OK;
    ebb_mem_free(ctx, path);
    return status;
}

static enum ebb_status name_by_text(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                    const char *file, const json_t *json,
                                    const struct named_token *named)
{
    const json_t *value = json_object_get(json, named->name);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (*named->id >= 0 || !json_is_string(value)) return EBB_OK;
    *named->id = ebb_tokenizer_find(tok, json_string_value(value), json_string_length(value));
    if (*named->id >= 0) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s '%s' is no token of %s", file, named->name,
                    json_string_value(value), tok->path);
}

static enum ebb_status name_by_id(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                  const char *file, const json_t *json,
                                  const struct named_token *named)
{
    if (named->id_name == NULL || *named->id >= 0) return EBB_OK;
    const json_t *value = json_object_get(json, named->id_name);
    if (json_is_array(value)) value = json_array_get(value, 0);
    if (!json_is_number(value)) return EBB_OK;
    double id = json_number_value(value);
    if (id >= 0 && id < (double)tok->size && id == floor(id) &&
        tok->tokens[(int64_t)id].flags != 0) {
        *named->id = (int32_t)id;
        return EBB_OK;
    }
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s %.15g is no token of %s", file, named->id_name, id,
                    tok->path);
}

/* tokenizer.json decides what stands around a text, as in transformers since version 5; older ones
 * made it anew from these keys for some classes, which is worth a word where it differs. */
static void compare_side(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok, const json_t *config,
                         const char *key, int count)
{
    const json_t *add = json_object_get(config, key);
    if (!json_is_boolean(add) || json_is_true(add) == (count > 0)) return;
    ebb_warn_once(
        ctx, key,
        "tokenizer_config.json has %s: %s, but the post_processor of %s says otherwise and "
        "counts (change it there)",
        key, json_is_true(add) ? "true" : "false", tok->path);
}

static enum ebb_status read_names(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const char *dir)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "config.json"};
    const struct named_token names[] = {{"bos_token", "bos_token_id", &tok->bos},
                                        {"eos_token", "eos_token_id", &tok->eos},
                                        {"pad_token", "pad_token_id", &tok->pad},
                                        {"unk_token", NULL, &tok->unk}};
    for (int f = 0; f < 4; f++) {
        json_t *json;
        EBB_TRY(load_side(ctx, dir, files[f], &json));
        enum ebb_status status = EBB_OK;
        for (int i = 0; i < 4 && status == EBB_OK; i++)
            status = f < 2 ? name_by_text(ctx, tok, files[f], json, &names[i])
                           : name_by_id(ctx, tok, files[f], json, &names[i]);
        if (status == EBB_OK && f == 0) {
            compare_side(ctx, tok, json, "add_bos_token", tok->prefix_count);
            compare_side(ctx, tok, json, "add_eos_token", tok->suffix_count);
        }
        json_decref(json);
        EBB_TRY(status);
    }
    return EBB_OK;
}

/* ---- loading ---- */

static void *regex_alloc(size_t bytes, void *ctx)
{
    return ebb_mem_alloc(ctx, bytes);
}

static void regex_free(void *block, void *ctx)
{
    ebb_mem_free(ctx, block);
}

static enum ebb_status load_into(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const char *dir)
{
    tok->ctx = ctx;
    tok->bos = tok->eos = tok->pad = tok->unk = tok->model_unk = -1;
    fill_alphabet(tok);
    tok->path = ebb_path_join(ctx, dir, "tokenizer.json");
    if (tok->path == NULL) return EBB_NO_MEMORY;
    tok->memory = pcre2_general_context_create(regex_alloc, regex_free, ctx);
    if (tok->memory == NULL) return EBB_NO_MEMORY;
    EBB_TRY(read_file(ctx, tok));
    return read_names(ctx, tok, dir);
}

enum ebb_status ebb_tokenizer_load(struct ebb_ctx *ctx, const char *dir,
                                   struct ebb_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    struct ebb_tokenizer *tok = ebb_mem_alloc(ctx, sizeof *tok);
    if (tok == NULL) return EBB_NO_MEMORY;
    enum ebb_status status = load_into(ctx, tok, dir);
    if (status == EBB_OK)
        *tokenizer = tok;
    else
        ebb_tokenizer_free(ctx, tok);
    return status;
}

void ebb_tokenizer_free(struct ebb_ctx *ctx, struct ebb_tokenizer *tok)
{
    if (tok == NULL) return;
    for (int i = 0; i < EBB_TOK_STEPS; i++) {
        ebb_tok_pattern_free(ctx, &tok->normals[i].pattern);
        ebb_mem_free(ctx, tok->normals[i].content);
        ebb_tok_pattern_free(ctx, &tok->splits[i].pattern);
        ebb_tok_pattern_free(ctx, &tok->decodes[i].pattern);
        ebb_mem_free(ctx, tok->decodes[i].content);
    }
    ebb_tok_added_free(ctx, &tok->before);
    ebb_tok_added_free(ctx, &tok->after);
    ebb_str_free(ctx, &tok->texts);
    ebb_mem_free(ctx, tok->tokens);
    ebb_mem_free(ctx, tok->table);
    ebb_mem_free(ctx, tok->merges);
    ebb_mem_free(ctx, tok->point_ids);
    ebb_mem_free(ctx, tok->path);
    pcre2_general_context_free(tok->memory);
    ebb_mem_free(ctx, tok);
}
