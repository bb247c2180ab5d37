/* What the tokenizer's files share: one file per family of components.
 *
 *   tokenizer_load.c     tokenizer.json and its neighbours to the structures below
 *   tokenizer_piece.c    text on its way through the steps, and the places that it came from
 *   tokenizer_pattern.c  patterns            found in text: regular expressions, or as they stand
 *   tokenizer_normal.c   normalizers         text -> text
 *   tokenizer_split.c    pre-tokenizers      text -> words
 *   tokenizer_bpe.c      models              word -> ids (BPE), with the cache of words
 *   tokenizer_added.c    added tokens        found in text before and after normalizing
 *   tokenizer_post.c     post-processors     ids before and after a text
 *   tokenizer_decode.c   decoders            ids -> text
 *   tokenizer.c          the encoder that runs them in order, look-ups
 *
 * A tokenizer is byte-level (a word's symbols are bytes, and tokens are kept as the bytes that they
 * stand for) where its pre-tokenizer ends with ByteLevel; otherwise symbols are characters, as in
 * SentencePiece, and tokens are kept as the file writes them.
 *
 * A component is a row {type, keys it may have, reader} of its family's table; ebb_tok_read walks
 * the JSON, Sequences included, and refuses what has no row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_TOKENIZER_INT_H
#define EBB_DATA_TOKENIZER_INT_H

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include "base/json.h"
#include "data/json_scan.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_TOK_STEPS = 16, EBB_TOK_AROUND = 8, EBB_TOK_POINTS = 0x10000 };

enum ebb_tok_flag {
    EBB_TOK_THERE = 1,       /* the id has a token */
    EBB_TOK_ADDED = 2,       /* it stands in added_tokens */
    EBB_TOK_SPECIAL = 4,     /* ... with "special": true */
    EBB_TOK_RAW = 8,         /* of a byte-level vocabulary, but not written in the byte alphabet: no
                                merge makes it */
    EBB_TOK_VOCAB = 16,      /* it stands in model.vocab */
    EBB_TOK_NORMALIZED = 32, /* an added token that normalizing changed: `after` has its text */
};

struct ebb_tok_token {
    uint32_t start, bytes; /* in texts */
    unsigned flags;
};

/* Pairs of ids that merge. */
struct ebb_tok_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
    int32_t id;
};

struct ebb_tok_added {
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
    char *content; /* owned; what is looked for (normalized where the token says so) */
    size_t bytes;
};

/* Added tokens of one kind (matched before, or after normalizing), longest first per first byte. */
struct ebb_tok_added_set {
    struct ebb_tok_added *items;
    int32_t count;
    int32_t first[257]; /* items[first[b] .. first[b + 1]) begin with byte b */
};

/* What is looked for in text: {"Regex": ...} or {"String": ...}. */
struct ebb_tok_pattern {
    char *text; /* owned: as the file has it */
    size_t bytes;
    pcre2_code *code; /* owned; NULL: the text itself is found */
};

enum ebb_tok_normal_kind {
    EBB_TOK_FORM,
    EBB_TOK_PREPEND,
    EBB_TOK_REPLACE,
    EBB_TOK_STRIP,
    EBB_TOK_LOWERCASE
};

struct ebb_tok_normal {
    enum ebb_tok_normal_kind kind;
    bool compose, compat;           /* FORM: NFC: compose, NFD: neither, NFKC: both, NFKD: compat */
    bool left, right;               /* STRIP */
    struct ebb_tok_pattern pattern; /* REPLACE */
    char *content;                  /* PREPEND, REPLACE: owned */
    size_t content_bytes;
};

enum ebb_tok_behavior {
    EBB_TOK_ISOLATED,
    EBB_TOK_REMOVED,
    EBB_TOK_MERGED_WITH_PREVIOUS,
    EBB_TOK_MERGED_WITH_NEXT,
    EBB_TOK_CONTIGUOUS,
    EBB_TOK_BEHAVIOR_COUNT
};

enum ebb_tok_scheme { EBB_TOK_ALWAYS, EBB_TOK_FIRST, EBB_TOK_NEVER, EBB_TOK_SCHEME_COUNT };

enum ebb_tok_split_kind { EBB_TOK_PATTERN, EBB_TOK_PREFIX_SPACE, EBB_TOK_METASPACE };

struct ebb_tok_split {
    enum ebb_tok_split_kind kind;
    enum ebb_tok_behavior behavior;
    bool invert;
    struct ebb_tok_pattern pattern; /* METASPACE: what stands for a space */
    enum ebb_tok_scheme scheme;     /* METASPACE */
};

enum ebb_tok_decode_kind {
    EBB_TOK_DECODE_REPLACE,
    EBB_TOK_DECODE_BYTES,
    EBB_TOK_DECODE_FUSE,
    EBB_TOK_DECODE_STRIP,
    EBB_TOK_DECODE_METASPACE
};

struct ebb_tok_decode {
    enum ebb_tok_decode_kind kind;
    struct ebb_tok_pattern pattern; /* REPLACE; STRIP and METASPACE: one character */
    char *content;                  /* REPLACE: owned */
    size_t content_bytes;
    int64_t start, stop; /* STRIP: characters at most */
    bool fused;          /* STRIP: behind Fuse, so of the whole text */
    bool drops_first;    /* METASPACE: the first token's spaces go */
};

struct ebb_tokenizer {
    struct ebb_ctx *ctx; /* borrowed: PCRE2's memory is counted there */
    char *path;          /* owned: of tokenizer.json */
    uint64_t file_hash;  /* of its bytes */
    pcre2_general_context *memory;
    int16_t alphabet[324]; /* code point of the byte alphabet -> byte, or -1 */
    int16_t letters[256];  /* the reverse */

    struct ebb_str texts;         /* all tokens' bytes */
    struct ebb_tok_token *tokens; /* [size] by id */
    int64_t size;
    int32_t *table; /* [table_size] hash of text -> id, -1: free */
    uint64_t table_mask;

    int32_t byte_ids[256];        /* of a byte, or of "<0x0A>" where not byte-level; -1: none */
    int32_t *point_ids;           /* [EBB_TOK_POINTS] of a character, or NULL where byte-level */
    struct ebb_tok_merge *merges; /* hash of pair -> merge */
    uint64_t merges_mask;
    bool ignore_merges; /* a word that is a token is not merged */
    bool fuse_unk;
    bool byte_fallback; /* a character without a token becomes its bytes' tokens */
    bool cuts;          /* no merge makes a token with U+2581 behind another character: a word may
                           be cut there, which changes nothing but lets the cache do its work */

    struct ebb_tok_normal normals[EBB_TOK_STEPS];
    int normal_count;
    struct ebb_tok_split splits[EBB_TOK_STEPS];
    int split_count;
    struct ebb_tok_decode decodes[EBB_TOK_STEPS];
    int decode_count;
    bool byte_level; /* a ByteLevel pre-tokenizer was seen, the last of its list */
    bool templated;  /* a TemplateProcessing was read */
    bool decoded;    /* a decoder was read */
    bool fused;      /* a Fuse was read */
    bool traces;     /* a step asks where its text came from */
    struct ebb_tok_added_set before, after; /* normalizing */
    int32_t prefix[EBB_TOK_AROUND], suffix[EBB_TOK_AROUND];
    int prefix_count, suffix_count;
    int32_t bos, eos, pad, unk;
    int32_t model_unk; /* the BPE model's unk_token, -1: none */
};

/* ---- components ---- */

struct ebb_tok_component {
    const char *type;
    const char *keys; /* "add_prefix_space trim_offsets": what may stand beside "type" */
    enum ebb_status (*read)(struct ebb_ctx *ctx, struct ebb_tokenizer *tok, const json_t *node);
};

struct ebb_tok_family {
    const char *name;     /* "pre_tokenizer" */
    const char *sequence; /* the key of a Sequence's list: "pretokenizers" */
    const struct ebb_tok_component *components;
    size_t count;
};

const struct ebb_tok_family *ebb_tok_normalizers(void);
const struct ebb_tok_family *ebb_tok_pre_tokenizers(void);
const struct ebb_tok_family *ebb_tok_models(void);
const struct ebb_tok_family *ebb_tok_post_processors(void);
const struct ebb_tok_family *ebb_tok_decoders(void);

/* Reads a component, or, where "type" is "Sequence", each of its list. JSON null is nothing. */
enum ebb_status ebb_tok_read(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                             const struct ebb_tok_family *family, const json_t *node, int depth);
/* EBB_UNSUPPORTED: "path: <what> <detail> is not offered". */
enum ebb_status ebb_tok_refuse(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                               const char *what, const char *detail);
/* A boolean that may be missing. */
enum ebb_status ebb_tok_bool(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                             const json_t *node, const char *key, bool fallback, bool *value);

/* "prepend_scheme", or the older "add_prefix_space", of a Metaspace (tokenizer_split.c). */
enum ebb_status ebb_tok_read_scheme(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    const json_t *node, const char *who,
                                    enum ebb_tok_scheme *scheme);

/* ---- vocabulary (tokenizer_bpe.c) ---- */

/* Text in the byte alphabet ("Ġthe") to bytes; false where a character is outside it. `out` has
 * room for `bytes`. */
bool ebb_tok_from_alphabet(const struct ebb_tokenizer *tok, const char *text, size_t bytes,
                           char *out, size_t *out_bytes);
/* Reads the vocabulary and makes room for the added tokens' ids. */
enum ebb_status ebb_tok_read_vocab(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   struct ebb_span vocab, const json_t *added);
enum ebb_status ebb_tok_read_merges(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                    struct ebb_span merges);
/* Of any token; -1: none. */
int32_t ebb_tok_lookup(const struct ebb_tokenizer *tok, const char *text, size_t bytes);

/* ---- added tokens (tokenizer_added.c) ---- */

/* After the normalizers. */
enum ebb_status ebb_tok_read_added(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                   const json_t *added);
void ebb_tok_added_free(struct ebb_ctx *ctx, struct ebb_tok_added_set *set);

/* The next added token. Matches are those of the text as it is: one may begin with white space that
 * the token before has swallowed, and counts all the same. Begins as {0}; false: none is left. */
struct ebb_tok_hit {
    size_t start, stop; /* with the white space that it swallows */
    size_t next;        /* where the next one is looked for */
    int32_t id;
};
bool ebb_tok_added_next(const struct ebb_tok_added_set *set, const char *text, size_t bytes,
                        bool literal, struct ebb_tok_hit *hit);
/* A token as Hugging Face writes it: an added one after normalizing, where the token says so. */
const char *ebb_tok_written(const struct ebb_tokenizer *tok, int32_t id, size_t *bytes);
/* Unicode's White_Space. */
bool ebb_tok_is_white(int32_t point);

/* ---- text on its way (tokenizer_piece.c) ---- */

/* The part of the original text that a byte stands for: the byte itself, or, where a step changed
 * the text, what was changed there. */
struct ebb_tok_place {
    size_t start, stop;
};

/* A part of the text, borrowed. */
struct ebb_tok_piece {
    const char *data;
    size_t bytes;
    const struct ebb_tok_place *places; /* [bytes], NULL: nobody asks */
};

/* Text that a step writes, with its places if its input has them. {0} is a valid empty value. */
struct ebb_tok_buffer {
    struct ebb_str text;
    struct ebb_tok_place *places; /* [room] owned */
    size_t room;
};

struct ebb_tok_piece ebb_tok_piece_part(const struct ebb_tok_piece *piece, size_t start,
                                        size_t stop);
/* Where piece[start .. stop) comes from, and the characters after and before a byte, or what is
 * empty at the beginning; {0, 0} where nobody asks for places. */
struct ebb_tok_place ebb_tok_place_of(const struct ebb_tok_piece *piece, size_t start, size_t stop);
struct ebb_tok_place ebb_tok_place_after(const struct ebb_tok_piece *piece, size_t at);
struct ebb_tok_place ebb_tok_place_before(const struct ebb_tok_piece *piece, size_t at);
void ebb_tok_buffer_clear(struct ebb_tok_buffer *buffer);
void ebb_tok_buffer_free(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer);
/* Adds piece[start .. stop) as it is. */
enum ebb_status ebb_tok_buffer_copy(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer,
                                    const struct ebb_tok_piece *piece, size_t start, size_t stop);
/* Adds a text that comes from `place` of what `piece` comes from. */
enum ebb_status ebb_tok_buffer_put(struct ebb_ctx *ctx, struct ebb_tok_buffer *buffer,
                                   const struct ebb_tok_piece *piece, struct ebb_tok_place place,
                                   const char *text, size_t bytes);
/* All of it, with places where `piece` has them. */
struct ebb_tok_piece ebb_tok_buffer_piece(const struct ebb_tok_buffer *buffer,
                                          const struct ebb_tok_piece *piece);
/* A character of valid UTF-8: its length and code point. */
size_t ebb_tok_read_point(const char *text, int32_t *point);
size_t ebb_tok_write_point(int32_t point, char out[4]);
/* Is this one character? */
bool ebb_tok_is_point(const char *text, size_t bytes);

/* ---- patterns (tokenizer_pattern.c) ---- */

/* What matching works with; belongs to one thread. */
struct ebb_tok_matcher {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};
enum ebb_status ebb_tok_matcher_create(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                       struct ebb_tok_matcher *matcher);
void ebb_tok_matcher_free(struct ebb_tok_matcher *matcher);

/* The text itself; an empty one is found everywhere. `who`: the family, for messages. */
enum ebb_status ebb_tok_pattern_literal(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                        const char *who, const char *text, size_t bytes,
                                        struct ebb_tok_pattern *pattern);
/* Oniguruma's syntax. */
enum ebb_status ebb_tok_pattern_regex(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                      const char *who, const char *text,
                                      struct ebb_tok_pattern *pattern);
/* "pattern": {"Regex": ...} or {"String": ...}. */
enum ebb_status ebb_tok_pattern_read(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                     const char *who, const json_t *node,
                                     struct ebb_tok_pattern *pattern);
/* A key whose value is one character. */
enum ebb_status ebb_tok_pattern_character(struct ebb_ctx *ctx, struct ebb_tokenizer *tok,
                                          const char *who, const json_t *node, const char *key,
                                          struct ebb_tok_pattern *pattern);
void ebb_tok_pattern_free(struct ebb_ctx *ctx, struct ebb_tok_pattern *pattern);

/* Calls for each match and for each part between, in order. */
typedef enum ebb_status (*ebb_tok_part_fn)(struct ebb_ctx *ctx, void *user, size_t start,
                                           size_t stop, bool match);
enum ebb_status ebb_tok_each_part(struct ebb_ctx *ctx, const struct ebb_tokenizer *tok,
                                  struct ebb_tok_matcher *matcher,
                                  const struct ebb_tok_pattern *pattern, const char *text,
                                  size_t bytes, ebb_tok_part_fn fn, void *user);

/* ---- the encoder ---- */

struct ebb_tok_cached {
    uint64_t hash; /* 0: free */
    uint32_t key, ids;
    uint16_t key_bytes, ids_count;
};

struct ebb_tok_cache {
    struct ebb_tok_cached *slots;
    char *keys;
    int32_t *ids;
    int64_t used;
    uint32_t keys_used, ids_used;
};

/* Symbols of the word that is being merged, as a list in arrays. */
struct ebb_tok_word {
    int32_t *ids, *previous, *next;
    uint32_t *ranks;         /* of the pair that begins here; UINT32_MAX: none */
    int32_t *starts, *stops; /* bytes of the word, where the encoder traces */
    uint64_t *heap;          /* rank << 32 | place */
    int64_t heap_count;
    int64_t room;
};

struct ebb_encoder {
    const struct ebb_tokenizer *tok;
    struct ebb_tok_matcher matcher;
    struct ebb_tok_buffer normal[2]; /* normalized text; steps go back and forth between the two */
    int32_t *points;                 /* [points_room] code points */
    int64_t points_room;
    struct ebb_str segment;                         /* of a form that is traced */
    struct ebb_tok_buffer rewritten[EBB_TOK_STEPS]; /* what pre-tokenizers write */
    struct ebb_tok_place *places;                   /* of the text as it came */
    size_t places_room;
    struct ebb_offsets *offsets; /* NULL: nobody asks for them */
    const char *first;           /* where the text's first piece begins, after normalizing */
    bool at_start;               /* nothing of the text was encoded yet, and it continues another */
    struct ebb_tok_word word;
    struct ebb_tok_cache cache;
};

/* Normalized text, borrowed until the next call; the input itself where nothing changes. */
enum ebb_status ebb_tok_normalize(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  struct ebb_tok_piece text, struct ebb_tok_piece *out);
/* True where NFC leaves the text alone for sure. */
bool ebb_tok_is_nfc(const char *text, size_t bytes);
/* Splits a piece into words, step after step, and encodes each. */
enum ebb_status ebb_tok_split_run(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int step,
                                  struct ebb_tok_piece piece, struct ebb_ids *out);
/* Appends a word's ids. */
enum ebb_status ebb_tok_bpe_run(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                struct ebb_tok_piece word, struct ebb_ids *out);
/* Appends an id that stands for the place. */
enum ebb_status ebb_tok_emit(struct ebb_ctx *ctx, struct ebb_encoder *encoder, int32_t id,
                             struct ebb_tok_place place, struct ebb_ids *out);
enum ebb_status ebb_tok_cache_create(struct ebb_ctx *ctx, struct ebb_tok_cache *cache);
void ebb_tok_word_free(struct ebb_ctx *ctx, struct ebb_encoder *encoder);

#ifdef __cplusplus
}
#endif
#endif
