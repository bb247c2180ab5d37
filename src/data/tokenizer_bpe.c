/* BPE: the vocabulary, the merges, and merging a word (Sennrich et al. 2016, arXiv 1508.07909).
 *
 * A word starts as one id per byte (byte-level) or per character; while there is a pair with a
 * merge, the one of lowest rank, leftmost, becomes one id. Short words are scanned for it, long
 * ones keep a heap: O(n log n) for a word of any length.
 *
 * A tokenizer in SentencePiece's manner has no pre-tokenizer: its word is the whole text. But where
 * no merge joins something to a following U+2581, which stands for a space, the text may be cut
 * before each of them without any change, and the parts are found in the cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "data/tokenizer_int.h"

enum {
    TOKEN_ID_LIMIT = 1 << 26, /* a file that names a higher id is broken, not big */
    WORD_SCANNED = 48,        /* bytes up to which a word is scanned rather than kept in a heap */
    CACHE_SLOTS = 1 << 15,
    CACHE_WORD = 64, /* bytes of the longest word that is cached */
    CACHE_KEYS = 1 << 19,
    CACHE_IDS = 1 << 18,
};
#define NO_RANK UINT32_MAX

/* ---- vocabulary ---- */

bool ebb_tok_from_alphabet(const struct ebb_tokenizer *tok, const char *text, size_t bytes,
                           char *out, size_t *out_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned point = (unsigned char)text[i];
        if (point >= 0x80) { /* the alphabet ends at U+0143: two bytes */
            if (point < 0xc2 || point > 0xc5 || i + 1 >= bytes) return false;
            point = (point & 0x1f) << 6 | ((unsigned char)text[++i] & 0x3f);
        }
        if (point >= sizeof tok->alphabet / sizeof tok->alphabet[0] || tok->alphabet[point] < 0)
            return false;
        out[count++] = (char)tok->alphabet[point];
    }
    *out_bytes = count;
    return true;
}

static bool text_is(const struct ebb_tokenizer *tok, int32_t id, const char *text, size_t bytes)
{
    const struct ebb_tok_token *token = &tok->tokens[id];
    return token->bytes == bytes && memcmp(tok->texts.data + token->start, text, bytes) == 0;
}

/* U+2581, SentencePiece's space */
static const char mark[] = "\xe2\x96\x81";
enum { MARK_BYTES = 3 };

static bool starts_marked(const char *text, size_t bytes)
{
    return bytes >= MARK_BYTES && memcmp(text, mark, MARK_BYTES) == 0;
}

static bool ends_marked(const char *text, size_t bytes)
{
    return bytes >= MARK_BYTES && memcmp(text + bytes - MARK_BYTES, mark, MARK_BYTES) == 0;
}

/* The slot of a text, or the free one where it would go. */
static uint64_t text_slot(const struct ebb_tokenizer *tok, const char *text, size_t bytes)
{
    uint64_t slot = ebb_hash_bytes(text, bytes) & tok->table_mask;
    while (tok->table[slot] >= 0 && !text_is(tok, tok->table[slot], text, bytes))
        slot = (slot + 1) & tok->table_mask;
    return slot;
}

int32_t ebb_tok_lookup(const struct ebb_tokenizer *tok, const char *text, size_t bytes)
{
    return tok->table[text_slot(tok, text, bytes)];
}

/* The same for what the model makes: added tokens are none of its business. */
static int32_t vocab_lookup(const struct ebb_tokenizer *tok, const char *text, size_t bytes)
{
    int32_t id = ebb_tok_lookup(tok, text, bytes);
    if (id < 0) return -1;
    return (tok->tokens[id].flags & (EBB_TOK_VOCAB | EBB_TOK_RAW)) == EBB_TOK_VOCAB ? id : -1;
}

static enum ebb_status bad_vocab(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok, size_t at,
                                 const char *what)
{
    return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: %s near byte %zu of it", tok->path, what, at);
}

struct vocab_entry {
    int32_t id;
    uint32_t start, bytes;
    unsigned flags;
};

struct vocab_list {
    struct vocab_entry *items;
    int64_t count, room;
    int32_t highest;
};

static enum ebb_status vocab_add(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                 struct vocab_list *list, struct ebb_span text, int64_t id,
                                 unsigned flags)
{
    if (list->count == list->room) {
        int64_t room = list->room == 0 ? 4096 : list->room * 2;
        struct vocab_entry *grown = ebb_mem_realloc(ctx, list->items, (size_t)room * sizeof *grown);
        if (grown == NULL) return EBB_NO_MEMORY;
        list->items = grown;
        list->room = room;
    }
    if (tok->texts.bytes + text.bytes > UINT32_MAX)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: more than 4 GiB of tokens", tok->path);
    list->items[list->count++] =
        (struct vocab_entry){(int32_t)id, (uint32_t)tok->texts.bytes, (uint32_t)text.bytes, flags};
    if (id > list->highest) list->highest = (int32_t)id;
    return ebb_str_add(ctx, &tok->texts, text.data, text.bytes);
}

/* One "token": id. */
static enum ebb_status read_entry(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  struct ebb_scan *scan, struct ebb_str *scratch,
                                  struct ebb_str *plain, struct vocab_list *list)
{
    struct ebb_span text;
    bool found;
    int64_t id;
    EBB_TRY(ebb_scan_string(ctx, scan, scratch, &text, &found));
    if (!found || !ebb_scan_take(scan, ':') || !ebb_scan_int64(scan, &id))
        return bad_vocab(ctx, tok, scan->at, "model.vocab: expected \"token\": id");
    if (id < 0 || id >= TOKEN_ID_LIMIT)
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: model.vocab: id %lld is outside 0 .. %d", tok->path,
                        (long long)id, TOKEN_ID_LIMIT - 1);
    unsigned flags = EBB_TOK_THERE | EBB_TOK_VOCAB;
    if (!tok->byte_level) return vocab_add(ctx, tok, list, text, id, flags);
    plain->bytes = 0;
    EBB_TRY(ebb_str_add(ctx, plain, text.data, text.bytes)); /* room; then overwritten */
    size_t bytes;
    if (ebb_tok_from_alphabet(tok, text.data, text.bytes, plain->data, &bytes))
        return vocab_add(ctx, tok, list, (struct ebb_span){plain->data, bytes}, id, flags);
    return vocab_add(ctx, tok, list, text, id, flags | EBB_TOK_RAW);
}

static enum ebb_status read_entries(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    struct ebb_span vocab, struct vocab_list *list)
{
    struct ebb_scan scan = {vocab.data, vocab.bytes, 0};
    struct ebb_str scratch = {0}, plain = {0};
    enum ebb_status status = EBB_OK;
    bool taken = ebb_scan_take(&scan, '{');
    if (!taken) status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: model.vocab is not an object", tok->path);
    if (taken && ebb_scan_peek(&scan) != '}') {
        do status = read_entry(ctx, tok, &scan, &scratch, &plain, list);
        while (status == EBB_OK && ebb_scan_take(&scan, ','));
    }
    if (status == EBB_OK && (!ebb_scan_take(&scan, '}') || scan.at != scan.bytes))
        status = bad_vocab(ctx, tok, scan.at, "model.vocab: expected ',' or '}'");
    ebb_str_free(ctx, &scratch);
    ebb_str_free(ctx, &plain);
    return status;
}

static enum ebb_status read_added_entries(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                          const json_t *added, struct vocab_list *list)
{
    size_t i;
    const json_t *node;
    json_array_foreach(added, i, node)
    {
        const char *content;
        int64_t id;
        bool special;
        EBB_TRY(ebb_json_string(ctx, tok->path, node, "content", &content, NULL));
        EBB_TRY(ebb_json_int64(ctx, tok->path, node, "id", &id, NULL));
        EBB_TRY(ebb_tok_bool(ctx, tok, node, "special", false, &special));
        if (id < 0 || id >= TOKEN_ID_LIMIT)
            return EBB_FAIL(ctx, EBB_BAD_FILE,
                            "%s: added_tokens: '%s' has id %lld, outside 0 .. %d", tok->path,
                            content, (long long)id, TOKEN_ID_LIMIT - 1);
        struct ebb_span text = {content, json_string_length(json_object_get(node, "content"))};
        unsigned flags = EBB_TOK_THERE | EBB_TOK_ADDED | (special ? EBB_TOK_SPECIAL : 0u);
        EBB_TRY(vocab_add(ctx, tok, list, text, id, flags));
    }
    return EBB_OK;
}

static uint64_t table_room(int64_t count)
{
    uint64_t room = 1024;
    while (room < (uint64_t)count * 2) room *= 2;
    return room;
}

/* An added token that the vocabulary has too must have the same id there. */
static enum ebb_status check_added(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                   const struct vocab_entry *entry, const char *text)
{
    char plain[256];
    size_t bytes = entry->bytes;
    if ((entry->flags & EBB_TOK_ADDED) == 0 || entry->bytes > sizeof plain) return EBB_OK;
    if (!tok->byte_level)
        memcpy(plain, text, bytes);
    else if (!ebb_tok_from_alphabet(tok, text, entry->bytes, plain, &bytes))
        return EBB_OK;
    int32_t id = ebb_tok_lookup(tok, plain, bytes);
    if (id < 0 || id == entry->id || (tok->tokens[id].flags & EBB_TOK_ADDED)) return EBB_OK;
    return EBB_FAIL(ctx, EBB_BAD_FILE,
                    "%s: added_tokens: '%.*s' has id %d here and %d in model.vocab", tok->path,
                    (int)entry->bytes, text, entry->id, id);
}

/* By id, and by text. The vocabulary comes first, so that merges find its tokens, not added ones
 * that look alike. */
static enum ebb_status place_entries(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                     const struct vocab_list *list)
{
    tok->size = (int64_t)list->highest + 1;
    uint64_t room = table_room(list->count);
    tok->tokens = ebb_mem_alloc(ctx, (size_t)tok->size * sizeof *tok->tokens);
    tok->table = ebb_mem_alloc(ctx, (size_t)room * sizeof *tok->table);
    if (tok->tokens == NULL || tok->table == NULL) return EBB_NO_MEMORY;
    tok->table_mask = room - 1;
    for (uint64_t i = 0; i < room; i++) tok->table[i] = -1;
    for (int pass = 0; pass < 2; pass++) { /* then those that no merge makes */
        for (int64_t i = 0; i < list->count; i++) {
            const struct vocab_entry *entry = &list->items[i];
            bool merged = (entry->flags & (EBB_TOK_ADDED | EBB_TOK_RAW)) == 0;
            if (merged != (pass == 0)) continue;
            struct ebb_tok_token *token = &tok->tokens[entry->id];
            const char *text = tok->texts.data + entry->start;
            EBB_TRY(check_added(ctx, tok, entry, text));
            if (token->flags != 0 && (entry->flags & EBB_TOK_ADDED) == 0)
                return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: model.vocab: two tokens have id %d",
                                tok->path, entry->id);
            if (token->flags & EBB_TOK_ADDED)
                return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: added_tokens: two tokens have id %d",
                                tok->path, entry->id);
            unsigned flags = token->flags;
            *token = (struct ebb_tok_token){entry->start, entry->bytes, entry->flags | flags};
            uint64_t slot = text_slot(tok, text, entry->bytes);
            if (tok->table[slot] < 0)
                tok->table[slot] = entry->id;
            else if (merged)
                return EBB_FAIL(ctx, EBB_BAD_FILE,
                                "%s: model.vocab: ids %d and %d are the same token", tok->path,
                                tok->table[slot], entry->id);
        }
    }
    return EBB_OK;
}

/* The ids of single bytes, and of single characters where a word begins with those. */
static enum ebb_status list_symbols(struct ebb_ctx *ctx, struct ebb_tokenizer *tok)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        char one = (char)b, name[6] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        tok->byte_ids[b] =
            tok->byte_level ? vocab_lookup(tok, &one, 1) : vocab_lookup(tok, name, sizeof name);
    }
    if (tok->byte_level) return EBB_OK;
    tok->point_ids = ebb_mem_alloc(ctx, EBB_TOK_POINTS * sizeof *tok->point_ids);
    if (tok->point_ids == NULL) return EBB_NO_MEMORY;
    for (int32_t i = 0; i < EBB_TOK_POINTS; i++) tok->point_ids[i] = -1;
    for (int32_t id = 0; id < tok->size; id++) {
        const struct ebb_tok_token *token = &tok->tokens[id];
        const char *text = tok->texts.data + token->start;
        int32_t point;
        if ((token->flags & EBB_TOK_VOCAB) == 0 || !ebb_tok_is_point(text, token->bytes)) continue;
        ebb_tok_read_point(text, &point);
        if (point < EBB_TOK_POINTS) tok->point_ids[point] = id;
    }
    return EBB_OK;
}

enum ebb_status ebb_tok_read_vocab(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   struct ebb_span vocab, const json_t *added)
{
    struct vocab_list list = {NULL, 0, 0, -1};
    enum ebb_status status = read_entries(ctx, tok, vocab, &list);
    if (status == EBB_OK) status = read_added_entries(ctx, tok, added, &list);
    if (status == EBB_OK && list.count == 0)
        status = EBB_FAIL(ctx, EBB_BAD_FILE, "%s: model.vocab is empty", tok->path);
    if (status == EBB_OK) status = place_entries(ctx, tok, &list);
    ebb_mem_free(ctx, list.items);
    return status == EBB_OK ? list_symbols(ctx, tok) : status;
}

/* ---- merges ---- */

static const struct ebb_tok_merge *find_merge(const struct ebb_tokenizer *tok, int32_t left,
                                              int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = (pair * 0x9e3779b97f4a7c15u >> 20) & tok->merges_mask;
    while (tok->merges[slot].pair != pair) {
        if (tok->merges[slot].pair == UINT64_MAX) return NULL;
        slot = (slot + 1) & tok->merges_mask;
    }
    return &tok->merges[slot];
}

/* The later of two equal pairs counts, as in Hugging Face's reader. */
static void put_merge(struct ebb_tokenizer *tok, int32_t left, int32_t right, uint32_t rank,
                      int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = (pair * 0x9e3779b97f4a7c15u >> 20) & tok->merges_mask;
    while (tok->merges[slot].pair != UINT64_MAX && tok->merges[slot].pair != pair)
        slot = (slot + 1) & tok->merges_mask;
    tok->merges[slot] = (struct ebb_tok_merge){pair, rank, id};
}

/* A side of a merge: its bytes go behind those already in `joined`. */
static enum ebb_status merge_side(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                  struct ebb_span text, struct ebb_str *joined, int32_t *id)
{
    size_t start = joined->bytes, bytes;
    *id = -1;
    EBB_TRY(ebb_str_add(ctx, joined, text.data, text.bytes));
    bytes = text.bytes;
    if (tok->byte_level &&
        !ebb_tok_from_alphabet(tok, text.data, text.bytes, joined->data + start, &bytes))
        return EBB_OK;
    joined->bytes = start + bytes;
    *id = vocab_lookup(tok, joined->data + start, bytes);
    return EBB_OK;
}

/* "left right" or ["left", "right"]; *found is false where it is neither. */
static enum ebb_status read_pair(struct ebb_ctx *ctx, struct ebb_scan *scan,
                                 struct ebb_str scratch[2], struct ebb_span sides[2], bool *found)
{
    if (!ebb_scan_take(scan, '[')) {
        EBB_TRY(ebb_scan_string(ctx, scan, &scratch[0], &sides[0], found));
        if (!*found) return EBB_OK;
        const char *space = memchr(sides[0].data, ' ', sides[0].bytes);
        *found = space != NULL;
        if (!*found) return EBB_OK;
        size_t left = (size_t)(space - sides[0].data);
        sides[1] = (struct ebb_span){space + 1, sides[0].bytes - left - 1};
        sides[0].bytes = left;
        return EBB_OK;
    }
    EBB_TRY(ebb_scan_string(ctx, scan, &scratch[0], &sides[0], found));
    if (!*found) return EBB_OK;
    *found = ebb_scan_take(scan, ',');
    if (!*found) return EBB_OK;
    EBB_TRY(ebb_scan_string(ctx, scan, &scratch[1], &sides[1], found));
    *found = *found && ebb_scan_take(scan, ']');
    return EBB_OK;
}

static enum ebb_status read_merge(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                  struct ebb_scan *scan, struct ebb_str scratch[3], uint32_t rank)
{
    struct ebb_span sides[2];
    bool found = false;
    EBB_TRY(read_pair(ctx, scan, scratch, sides, &found));
    if (!found)
        return bad_vocab(ctx, tok, scan->at, "model.merges: expected \"a b\" or [\"a\", \"b\"]");
    int32_t left, right;
    struct ebb_str *joined = &scratch[2];
    joined->bytes = 0;
    EBB_TRY(merge_side(ctx, tok, sides[0], joined, &left));
    EBB_TRY(merge_side(ctx, tok, sides[1], joined, &right));
    int32_t id = left < 0 || right < 0 ? -1 : vocab_lookup(tok, joined->data, joined->bytes);
    if (id < 0)
        return EBB_FAIL(
            ctx, EBB_BAD_FILE,
            "%s: model.merges[%u]: '%.*s' and '%.*s' or what they make is no token of model.vocab",
            tok->path, rank, (int)sides[0].bytes, sides[0].data, (int)sides[1].bytes,
            sides[1].data);
    put_merge(tok, left, right, rank, id);
    if (starts_marked(sides[1].data, sides[1].bytes) && !ends_marked(sides[0].data, sides[0].bytes))
        tok->cuts = false;
    return EBB_OK;
}

static int64_t count_merges(struct ebb_span merges)
{
    struct ebb_scan scan = {merges.data, merges.bytes, 1};
    struct ebb_span value;
    int64_t count = 0;
    while (ebb_scan_value(&scan, &value)) {
        count++;
        if (!ebb_scan_take(&scan, ',')) break;
    }
    return count;
}

enum ebb_status ebb_tok_read_merges(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    struct ebb_span merges)
{
    struct ebb_scan scan = {merges.data, merges.bytes, 0};
    if (!ebb_scan_take(&scan, '['))
        return EBB_FAIL(ctx, EBB_BAD_FILE, "%s: model.merges is not a list", tok->path);
    uint64_t room = table_room(count_merges(merges));
    tok->merges = ebb_mem_alloc(ctx, (size_t)room * sizeof *tok->merges);
    if (tok->merges == NULL) return EBB_NO_MEMORY;
    tok->merges_mask = room - 1;
    tok->cuts = !tok->byte_level && !tok->ignore_merges && vocab_lookup(tok, mark, MARK_BYTES) >= 0;
    for (uint64_t i = 0; i < room; i++) tok->merges[i].pair = UINT64_MAX;
    struct ebb_str scratch[3] = {{0}, {0}, {0}};
    enum ebb_status status = EBB_OK;
    uint32_t rank = 0;
    if (ebb_scan_peek(&scan) != ']') {
        do status = read_merge(ctx, tok, &scan, scratch, rank++);
        while (status == EBB_OK && ebb_scan_take(&scan, ','));
    }
    if (status == EBB_OK && (!ebb_scan_take(&scan, ']') || scan.at != scan.bytes))
        status = bad_vocab(ctx, tok, scan.at, "model.merges: expected ',' or ']'");
    for (int i = 0; i < 3; i++) ebb_str_free(ctx, &scratch[i]);
    return status;
}

/* ---- merging a word ---- */

static enum ebb_status word_reserve(struct ebb_ctx *ctx, struct ebb_tok_word *word, int64_t symbols)
{
    if (symbols <= word->room) return EBB_OK;
    if (symbols > INT32_MAX / 4)
        return EBB_FAIL(ctx, EBB_FAILED, "a word of %lld bytes is too long to tokenize",
                        (long long)symbols);
    int64_t room = symbols + symbols / 2;
    void **arrays[] = {(void **)&word->ids,   (void **)&word->previous, (void **)&word->next,
                       (void **)&word->ranks, (void **)&word->starts,   (void **)&word->stops,
                       (void **)&word->heap};
    /* Each merge puts at most two new pairs in the heap, and there are fewer merges than
     * symbols. */
    size_t sizes[] = {4, 4, 4, 4, 4, 4, 8 * 3};
    for (int i = 0; i < 7; i++) {
        void *grown = ebb_mem_realloc(ctx, *arrays[i], (size_t)room * sizes[i]);
        if (grown == NULL) {
            word->room = 0;
            return EBB_NO_MEMORY;
        }
        *arrays[i] = grown;
    }
    word->room = room;
    return EBB_OK;
}

void ebb_tok_word_free(struct ebb_ctx *ctx, struct ebb_encoder *encoder)
{
    struct ebb_tok_word *word = &encoder->word;
    ebb_mem_free(ctx, word->ids);
    ebb_mem_free(ctx, word->previous);
    ebb_mem_free(ctx, word->next);
    ebb_mem_free(ctx, word->ranks);
    ebb_mem_free(ctx, word->starts);
    ebb_mem_free(ctx, word->stops);
    ebb_mem_free(ctx, word->heap);
    struct ebb_tok_cache *cache = &encoder->cache;
    ebb_mem_free(ctx, cache->slots);
    ebb_mem_free(ctx, cache->keys);
    ebb_mem_free(ctx, cache->ids);
}

static uint32_t pair_rank(const struct ebb_tokenizer *tok, int32_t left, int32_t right)
{
    const struct ebb_tok_merge *merge = find_merge(tok, left, right);
    return merge == NULL ? NO_RANK : merge->rank;
}

/* Scans for the best pair, `count` symbols in word->ids. Returns how many are left. */
static int64_t merge_short(const struct ebb_tokenizer *tok, struct ebb_tok_word *word,
                           int64_t count)
{
    int32_t *ids = word->ids;
    uint32_t *ranks = word->ranks;
    for (int64_t i = 0; i + 1 < count; i++) ranks[i] = pair_rank(tok, ids[i], ids[i + 1]);
    while (count > 1) {
        int64_t best = 0;
        for (int64_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        ids[best] = find_merge(tok, ids[best], ids[best + 1])->id;
        int64_t behind = count - best - 2;
        memmove(ids + best + 1, ids + best + 2, (size_t)behind * sizeof *ids);
        if (behind > 0)
            memmove(ranks + best + 1, ranks + best + 2, (size_t)(behind - 1) * sizeof *ranks);
        count--;
        if (best + 1 < count) ranks[best] = pair_rank(tok, ids[best], ids[best + 1]);
        if (best > 0) ranks[best - 1] = pair_rank(tok, ids[best - 1], ids[best]);
    }
    return count;
}

static void heap_push(struct ebb_tok_word *word, uint64_t value)
{
    int64_t at = word->heap_count++;
    while (at > 0 && word->heap[(at - 1) / 2] > value) {
        word->heap[at] = word->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    word->heap[at] = value;
}

static uint64_t heap_pop(struct ebb_tok_word *word)
{
    uint64_t top = word->heap[0], value = word->heap[--word->heap_count];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= word->heap_count) break;
        if (child + 1 < word->heap_count && word->heap[child + 1] < word->heap[child]) child++;
        if (word->heap[child] >= value) break;
        word->heap[at] = word->heap[child];
        at = child;
    }
    word->heap[at] = value;
    return top;
}

/* The pair that begins at `place` is new: its rank, and its place in the heap. */
static void word_rank(const struct ebb_tokenizer *tok, struct ebb_tok_word *word, int32_t place)
{
    int32_t next = word->next[place];
    word->ranks[place] = next < 0 ? NO_RANK : pair_rank(tok, word->ids[place], word->ids[next]);
    if (word->ranks[place] != NO_RANK)
        heap_push(word, (uint64_t)word->ranks[place] << 32 | (uint32_t)place);
}

static int64_t merge_long(const struct ebb_tokenizer *tok, struct ebb_tok_word *word, int64_t count,
                          bool traced)
{
    word->heap_count = 0;
    for (int32_t i = 0; i < count; i++) {
        word->previous[i] = i - 1;
        word->next[i] = i + 1 < count ? i + 1 : -1;
    }
    for (int32_t i = 0; i < count; i++) word_rank(tok, word, i);
    while (word->heap_count > 0) {
        uint64_t top = heap_pop(word);
        int32_t place = (int32_t)(uint32_t)top, next = word->next[place];
        if (word->ranks[place] != (uint32_t)(top >> 32)) continue; /* that pair is gone */
        word->ids[place] = find_merge(tok, word->ids[place], word->ids[next])->id;
        word->ranks[next] = NO_RANK;
        word->next[place] = word->next[next];
        if (traced) word->stops[place] = word->stops[next];
        if (word->next[place] >= 0) word->previous[word->next[place]] = place;
        word_rank(tok, word, place);
        if (word->previous[place] >= 0) word_rank(tok, word, word->previous[place]);
    }
    int64_t left = 0;
    for (int32_t place = 0; place >= 0; place = word->next[place]) {
        if (traced) {
            word->starts[left] = word->starts[place];
            word->stops[left] = word->stops[place];
        }
        word->ids[left++] = word->ids[place];
    }
    return left;
}

/* ---- the cache of words ---- */

enum ebb_status ebb_tok_cache_create(struct ebb_ctx *ctx, struct ebb_tok_cache *cache)
{
    cache->slots = ebb_mem_alloc(ctx, CACHE_SLOTS * sizeof *cache->slots);
    cache->keys = ebb_mem_alloc(ctx, CACHE_KEYS);
    cache->ids = ebb_mem_alloc(ctx, CACHE_IDS * sizeof *cache->ids);
    return cache->slots == NULL || cache->keys == NULL || cache->ids == NULL ? EBB_NO_MEMORY
                                                                             : EBB_OK;
}

static struct ebb_tok_cached *cache_slot(struct ebb_tok_cache *cache, const char *text,
                                         size_t bytes, uint64_t hash)
{
    uint64_t slot = hash & (CACHE_SLOTS - 1);
    for (;;) {
        struct ebb_tok_cached *cached = &cache->slots[slot];
        if (cached->hash == 0) return cached;
        if (cached->hash == hash && cached->key_bytes == bytes &&
            memcmp(cache->keys + cached->key, text, bytes) == 0)
            return cached;
        slot = (slot + 1) & (CACHE_SLOTS - 1);
    }
}

/* Starts over when it is full: the words that matter are back soon. */
static void cache_put(struct ebb_tok_cache *cache, struct ebb_tok_cached *slot, const char *text,
                      size_t bytes, uint64_t hash, const int32_t *ids, int64_t count)
{
    if (cache->used > CACHE_SLOTS / 4 * 3 || cache->keys_used + bytes > CACHE_KEYS ||
        cache->ids_used + count > CACHE_IDS) {
        memset(cache->slots, 0, CACHE_SLOTS * sizeof *cache->slots);
        cache->used = 0;
        cache->keys_used = cache->ids_used = 0;
        slot = cache_slot(cache, text, bytes, hash);
    }
    *slot = (struct ebb_tok_cached){hash, cache->keys_used, cache->ids_used, (uint16_t)bytes,
                                    (uint16_t)count};
    memcpy(cache->keys + cache->keys_used, text, bytes);
    memcpy(cache->ids + cache->ids_used, ids, (size_t)count * sizeof *ids);
    cache->keys_used += (uint32_t)bytes;
    cache->ids_used += (uint32_t)count;
    cache->used++;
}

/* ---- a word to ids ---- */

static void put_symbol(struct ebb_tok_word *word, int64_t *count, int32_t id, size_t start,
                       size_t stop)
{
    word->ids[*count] = id;
    word->starts[*count] = (int32_t)start;
    word->stops[*count] = (int32_t)stop;
    ++*count;
}

/* The id of one byte or one character, or -1. */
static int32_t symbol_id(const struct ebb_tokenizer *tok, const char *text, size_t *bytes)
{
    *bytes = 1;
    if (tok->byte_level) return tok->byte_ids[(unsigned char)text[0]];
    int32_t point;
    *bytes = ebb_tok_read_point(text, &point);
    return point < EBB_TOK_POINTS ? tok->point_ids[point] : vocab_lookup(tok, text, *bytes);
}

static bool falls_back(const struct ebb_tokenizer *tok, const char *text, size_t bytes)
{
    if (!tok->byte_fallback || tok->byte_level) return false;
    for (size_t i = 0; i < bytes; i++)
        if (tok->byte_ids[(unsigned char)text[i]] < 0) return false;
    return true;
}

static enum ebb_status no_token(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                const char *text)
{
    int32_t point;
    if (tok->byte_level)
        return EBB_FAIL(ctx, EBB_FAILED,
                        "%s: the vocabulary has no token for byte 0x%02x, and no unk_token",
                        tok->path, (unsigned char)text[0]);
    ebb_tok_read_point(text, &point);
    return EBB_FAIL(ctx, EBB_FAILED,
                    "%s: the vocabulary has no token for U+%04X, and neither bytes nor unk_token",
                    tok->path, (unsigned)point);
}

/* A word's symbols. One without a token becomes its bytes' tokens (byte_fallback), else model_unk,
 * several in a row one of it with fuse_unk. An unk waits for the next token of a symbol, as in
 * Hugging Face's: bytes that stand between go before it. */
static enum ebb_status word_start(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  const char *text, size_t bytes, int64_t *count)
{
    const struct ebb_tokenizer *tok = encoder->tok;
    struct ebb_tok_word *word = &encoder->word;
    bool waiting = false;
    size_t unk_start = 0, unk_stop = 0, length;
    *count = 0;
    EBB_TRY(word_reserve(ctx, word, (int64_t)bytes));
    for (size_t at = 0; at < bytes; at += length) {
        int32_t id = symbol_id(tok, text + at, &length);
        if (id >= 0) {
            if (waiting) put_symbol(word, count, tok->model_unk, unk_start, unk_stop);
            waiting = false;
            put_symbol(word, count, id, at, at + length);
            continue;
        }
        if (falls_back(tok, text + at, length)) {
            for (size_t i = at; i < at + length; i++)
                put_symbol(word, count, tok->byte_ids[(unsigned char)text[i]], i, i + 1);
            continue;
        }
        if (tok->model_unk < 0) return no_token(ctx, tok, text + at);
        if (waiting && !tok->fuse_unk) put_symbol(word, count, tok->model_unk, unk_start, unk_stop);
        if (!waiting || !tok->fuse_unk) unk_start = at;
        unk_stop = at + length;
        waiting = true;
    }
    if (waiting) put_symbol(word, count, tok->model_unk, unk_start, unk_stop);
    return EBB_OK;
}

/* With the place of each id, past the cache, which keeps no places. */
static enum ebb_status trace_word(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  const struct ebb_tok_piece *piece, struct ebb_ids *out)
{
    const struct ebb_tok_word *word = &encoder->word;
    int64_t count;
    if (encoder->tok->ignore_merges) {
        int32_t id = vocab_lookup(encoder->tok, piece->data, piece->bytes);
        if (id >= 0)
            return ebb_tok_emit(ctx, encoder, id, ebb_tok_place_of(piece, 0, piece->bytes), out);
    }
    EBB_TRY(word_start(ctx, encoder, piece->data, piece->bytes, &count));
    count = merge_long(encoder->tok, &encoder->word, count, true);
    for (int64_t i = 0; i < count; i++) {
        struct ebb_tok_place place =
            ebb_tok_place_of(piece, (size_t)word->starts[i], (size_t)word->stops[i]);
        EBB_TRY(ebb_tok_emit(ctx, encoder, word->ids[i], place, out));
    }
    return EBB_OK;
}

static enum ebb_status run_word(struct ebb_ctx *ctx, struct ebb_encoder *encoder, const char *text,
                                size_t bytes, struct ebb_ids *out)
{
    const struct ebb_tokenizer *tok = encoder->tok;
    if (bytes == 1 && tok->byte_level && tok->byte_ids[(unsigned char)text[0]] >= 0)
        return ebb_ids_add(ctx, out, &tok->byte_ids[(unsigned char)text[0]], 1);
    struct ebb_tok_cached *slot = NULL;
    uint64_t hash = 0;
    if (bytes <= CACHE_WORD) {
        hash = ebb_hash_bytes(text, bytes) | 1u << 31; /* never 0 */
        slot = cache_slot(&encoder->cache, text, bytes, hash);
        if (slot->hash != 0)
            return ebb_ids_add(ctx, out, encoder->cache.ids + slot->ids, slot->ids_count);
    }
    if (tok->ignore_merges) {
        int32_t id = vocab_lookup(tok, text, bytes);
        if (id >= 0) return ebb_ids_add(ctx, out, &id, 1);
    }
    int64_t count;
    EBB_TRY(word_start(ctx, encoder, text, bytes, &count));
    count = bytes <= WORD_SCANNED ? merge_short(tok, &encoder->word, count)
                                  : merge_long(tok, &encoder->word, count, false);
    if (slot != NULL) cache_put(&encoder->cache, slot, text, bytes, hash, encoder->word.ids, count);
    return ebb_ids_add(ctx, out, encoder->word.ids, count);
}

/* The next U+2581 that has another character before it, or the end. */
static size_t next_cut(const char *text, size_t bytes, size_t from)
{
    size_t at = from;
    while (starts_marked(text + at, bytes - at)) at += MARK_BYTES;
    for (;;) {
        const char *found = memchr(text + at, mark[0], bytes - at);
        if (found == NULL) return bytes;
        at = (size_t)(found - text);
        if (starts_marked(text + at, bytes - at)) return at;
        at++;
    }
}

enum ebb_status ebb_tok_bpe_run(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                struct ebb_tok_piece word, struct ebb_ids *out)
{
    bool cuts = encoder->tok->cuts;
    for (size_t start = 0, stop; start < word.bytes; start = stop) {
        stop = cuts ? next_cut(word.data, word.bytes, start) : word.bytes;
        if (encoder->offsets != NULL) {
            struct ebb_tok_piece part = ebb_tok_piece_part(&word, start, stop);
            EBB_TRY(trace_word(ctx, encoder, &part, out));
        } else {
            EBB_TRY(run_word(ctx, encoder, word.data + start, stop - start, out));
        }
    }
    return EBB_OK;
}

/* ---- component ---- */

/* Absent, null and "" mean the same. */
static bool is_empty(const json_t *node, const char *key)
{
    const json_t *value = json_object_get(node, key);
    return value == NULL || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static enum ebb_status read_bpe(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node)
{
    bool found;
    double dropout = 0;
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "byte_fallback", false, &tok->byte_fallback));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "fuse_unk", false, &tok->fuse_unk));
    EBB_TRY(ebb_tok_bool(ctx, tok, node, "ignore_merges", false, &tok->ignore_merges));
    EBB_TRY(ebb_json_double(ctx, tok->path, node, "dropout", &dropout, &found));
    if (dropout != 0) return ebb_tok_refuse(ctx, tok, "model BPE", "with dropout");
    if (!is_empty(node, "continuing_subword_prefix"))
        return ebb_tok_refuse(ctx, tok, "model BPE", "with continuing_subword_prefix");
    if (!is_empty(node, "end_of_word_suffix"))
        return ebb_tok_refuse(ctx, tok, "model BPE", "with end_of_word_suffix");
    return EBB_OK;
}

static const struct ebb_tok_component components[] = {
    {"BPE",
     "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
     "ignore_merges",
     read_bpe},
};

static const struct ebb_tok_family family = {"model", "", components,
                                             sizeof components / sizeof components[0]};

const struct ebb_tok_family *ebb_tok_models(void)
{
    return &family;
}
