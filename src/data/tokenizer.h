/* Tokenizers as Hugging Face's `tokenizer.json` describes them: text to token ids and back.
 *
 * A model directory is read, never guessed at: every component of the file is looked up in a table
 * of the types that Ebb computes, and one that is not there is EBB_UNSUPPORTED naming the component
 * and the file. Offered: model BPE over bytes (byte-level); normalizers null, NFC, NFD, NFKC, NFKD,
 * Sequence; pre-tokenizers ByteLevel (last of its list), Split (Regex and String, every behaviour),
 * Digits, Sequence; post-processors null, ByteLevel, TemplateProcessing, Sequence; decoder
 * ByteLevel or null; added tokens with every flag.
 *
 * Text is UTF-8. A caller with untrusted bytes checks them first (ebb_text_utf8_valid); invalid
 * UTF-8 is EBB_BAD_FILE with the byte's place. Nothing is replaced or dropped, which is why a byte
 * without a token (and no unk_token) is an error too. NUL is a character like any other.
 *
 * What stands around a text (BOS, EOS) is the post-processor's business alone; add_bos_token and
 * add_eos_token of tokenizer_config.json have no say, as in transformers 5, but a warning where
 * they differ.
 *
 * Threads: a tokenizer never changes after loading and may be shared. An encoder belongs to one
 * thread at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_TOKENIZER_H
#define EBB_DATA_TOKENIZER_H

#include "base/context.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_tokenizer;
struct ebb_encoder;

/* A growable array of token ids. {0} is a valid empty value. Owned by its holder; ebb_ids_free
 * returns it to {0}. */
struct ebb_ids {
    int32_t *data; /* NULL while empty */
    int64_t count;
    int64_t room;
};
enum ebb_status ebb_ids_add(struct ebb_ctx *ctx, struct ebb_ids *ids, const int32_t *data,
                            int64_t count);
void ebb_ids_free(struct ebb_ctx *ctx, struct ebb_ids *ids);

/* Reads DIR/tokenizer.json and, for the names of bos, eos, pad and unk, tokenizer_config.json,
 * special_tokens_map.json, and the ids in generation_config.json and config.json, in this order.
 * EBB_IO for a missing tokenizer.json, EBB_BAD_FILE, EBB_UNSUPPORTED. The caller frees, after
 * every encoder of it. */
enum ebb_status ebb_tokenizer_load(struct ebb_ctx *ctx, const char *dir,
                                   struct ebb_tokenizer **tokenizer);
void ebb_tokenizer_free(struct ebb_ctx *ctx, struct ebb_tokenizer *tokenizer); /* accepts NULL */

/* The highest id plus one: a model needs at least as many rows in its embedding. */
int64_t ebb_tokenizer_vocab_size(const struct ebb_tokenizer *tokenizer);
/* -1: the files name none. */
int32_t ebb_tokenizer_bos(const struct ebb_tokenizer *tokenizer);
int32_t ebb_tokenizer_eos(const struct ebb_tokenizer *tokenizer);
int32_t ebb_tokenizer_pad(const struct ebb_tokenizer *tokenizer);
int32_t ebb_tokenizer_unk(const struct ebb_tokenizer *tokenizer);
/* The bytes an id stands for (part of a character, possibly); NULL for an id that has no token.
 * Borrowed, not NUL-terminated. */
const char *ebb_tokenizer_text(const struct ebb_tokenizer *tokenizer, int32_t id, size_t *bytes);
/* The id whose text is exactly this, added tokens first; -1: none. */
int32_t ebb_tokenizer_find(const struct ebb_tokenizer *tokenizer, const char *text, size_t bytes);
bool ebb_tokenizer_is_special(const struct ebb_tokenizer *tokenizer, int32_t id);
/* How often the post-processor puts `id` before and after a text (BOS, EOS); for printing and
 * for avoiding doubles. */
int ebb_tokenizer_prefix_count(const struct ebb_tokenizer *tokenizer, int32_t id);
int ebb_tokenizer_suffix_count(const struct ebb_tokenizer *tokenizer, int32_t id);

/* ---- text to ids ---- */

enum {
    EBB_ENCODE_PREFIX = 1,    /* what the post-processor puts before a text (BOS) */
    EBB_ENCODE_SUFFIX = 2,    /* what it puts after a text (EOS, for the few tokenizers that do) */
    EBB_ENCODE_SPECIAL = 3,   /* both: transformers' add_special_tokens=True */
    EBB_ENCODE_LITERAL = 4,   /* "<|im_end|>" in the text is ordinary text, not the special token */
    EBB_ENCODE_CONTINUES = 8, /* goes on after another text: add_prefix_space adds none */
};

/* Working memory of one thread, with a cache of words already merged. */
enum ebb_status ebb_encoder_create(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                   struct ebb_encoder **encoder);
void ebb_encoder_free(struct ebb_ctx *ctx, struct ebb_encoder *encoder); /* accepts NULL */
/* Appends [+=] the text's ids to `out`. Special tokens in the text become their ids unless
 * EBB_ENCODE_LITERAL, as in transformers. Equal to Hugging Face's tokenizers up to the Unicode
 * version of character classes. */
enum ebb_status ebb_encode(struct ebb_ctx *ctx, struct ebb_encoder *encoder, const char *text,
                           size_t bytes, unsigned flags, struct ebb_ids *out);
/* The same for one text, with an encoder of its own. */
enum ebb_status ebb_tokenizer_encode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const char *text, size_t bytes, unsigned flags,
                                     struct ebb_ids *out);

/* ---- ids to text ---- */

/* Text that arrives token by token. {0} is a fresh stream. Bytes of a character that is not
 * whole yet are held back, so that `out` never ends inside one; what can't become a character
 * turns into U+FFFD, as in transformers. */
struct ebb_decode_stream {
    unsigned char held[4];
    int held_count;
};
/* Appends [+=] to `out`. With `skip_special`, special tokens add nothing. An id without a token
 * (a model's vocabulary may be larger than the tokenizer's) becomes U+FFFD. */
enum ebb_status ebb_decode_add(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                               struct ebb_decode_stream *stream, int32_t id, bool skip_special,
                               struct ebb_str *out);
/* The end of the stream: what is held back becomes U+FFFD. */
enum ebb_status ebb_decode_end(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                               struct ebb_str *out);
/* All of it in one call. An added token's text is its content. */
enum ebb_status ebb_tokenizer_decode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const int32_t *ids, int64_t count, bool skip_special,
                                     struct ebb_str *out);

#ifdef __cplusplus
}
#endif
#endif
