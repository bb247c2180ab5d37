/* Tokenizers as Hugging Face's `tokenizer.json` describes them: text to token ids and back.
 *
 * A model directory is read, never guessed at: every component of the file is looked up in a table
 * of the types that Ebb computes, and one that is not there is EBB_UNSUPPORTED naming the component
 * and the file. Offered: model BPE over bytes (byte-level) or over characters with byte fallback
 * and unk_token (SentencePiece's manner: Llama 2, Mistral, Gemma); normalizers null, NFC, NFD,
 * NFKC, NFKD, Prepend, Replace, Strip, Lowercase, Sequence; pre-tokenizers null, ByteLevel (last of
 * its list), Split (Regex and String, every behaviour), Digits, Metaspace, Sequence;
 * post-processors null, ByteLevel, TemplateProcessing, Sequence; decoders null, ByteLevel, Replace,
 * ByteFallback, Fuse, Strip, Metaspace, Sequence; added tokens with every flag.
 *
 * Text is UTF-8. A caller with untrusted bytes checks them first (ebb_text_utf8_valid); invalid
 * UTF-8 is EBB_BAD_FILE with the byte's place. Nothing is replaced or dropped, which is why a byte
 * or character without a token (and no unk_token) is an error too. NUL is a character like any
 * other.
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

/* Of what decides its ids: the bytes of tokenizer.json, and the ids that the other files name. */
uint64_t ebb_tokenizer_hash(const struct ebb_tokenizer *tokenizer);
/* The highest id plus one: a model needs at least as many rows in its embedding. */
int64_t ebb_tokenizer_vocab_size(const struct ebb_tokenizer *tokenizer);
/* -1: the files name none. */
int32_t ebb_tokenizer_bos(const struct ebb_tokenizer *tokenizer);
int32_t ebb_tokenizer_eos(const struct ebb_tokenizer *tokenizer);
int32_t ebb_tokenizer_pad(const struct ebb_tokenizer *tokenizer);
int32_t ebb_tokenizer_unk(const struct ebb_tokenizer *tokenizer);
/* The bytes an id stands for (part of a character, possibly), in a byte-level tokenizer; in others
 * the token as the file writes it. NULL for an id that has no token. Borrowed, not
 * NUL-terminated. */
const char *ebb_tokenizer_text(const struct ebb_tokenizer *tokenizer, int32_t id, size_t *bytes);
/* Appends [+=] the token as tokenizer.json writes it ("Ġthe", "▁the", "<0x0A>"); nothing for
 * an id that has no token. */
enum ebb_status ebb_tokenizer_piece(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                    int32_t id, struct ebb_str *out);
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
    EBB_ENCODE_CONTINUES = 8, /* goes on after another text: no space is put before it
                                 (add_prefix_space, Prepend, Metaspace) */
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

/* The bytes [start, stop) of the text that a token stands for. Where a normalizer changed the text:
 * the character that it replaced (a space that became U+2581), the last of several that Replace
 * replaced, all that a form made into something else (the two of an NFC "é"); tokens of parts of
 * that have the same offsets. What a step puts before a character (a space before the text) counts
 * to this character. Empty, start == stop, for what the post-processor adds: 0 before the text, its
 * length after it. Offsets are in bytes and may fall into a character; ByteLevel's trim_offsets has
 * no say. Widened to whole characters they are those of Hugging Face, but where a form changed the
 * text. */
struct ebb_offset {
    int64_t start, stop;
};
/* A growable array of them, as struct ebb_ids. */
struct ebb_offsets {
    struct ebb_offset *data; /* NULL while empty */
    int64_t count;
    int64_t room;
};
void ebb_offsets_free(struct ebb_ctx *ctx, struct ebb_offsets *offsets);
/* ebb_encode with an offset an id; slower, for people to look at. */
enum ebb_status ebb_encode_offsets(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                   const char *text, size_t bytes, unsigned flags,
                                   struct ebb_ids *out, struct ebb_offsets *offsets);
/* ebb_encode for one text, with an encoder of its own. */
enum ebb_status ebb_tokenizer_encode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const char *text, size_t bytes, unsigned flags,
                                     struct ebb_ids *out);

/* ---- ids to text ---- */

/* Text that arrives token by token. {0} is a fresh stream. Bytes of a character that is not
 * whole yet are held back, so that `out` never ends inside one; what can't become a character
 * turns into U+FFFD, as in transformers. */
struct ebb_decode_stream {
    const struct ebb_tokenizer *tokenizer; /* borrowed, from the first token on */
    unsigned char held[4];
    int held_count;
    bool begun;          /* a token has passed */
    bool start_done;     /* a decoder's Strip is past the text's beginning */
    int64_t start_taken; /* characters that it took there */
    int64_t stop_held;   /* characters that it takes if the text ends here */
};
/* Appends [+=] to `out`. With `skip_special`, special tokens add nothing. An id without a token
 * (a model's vocabulary may be larger than the tokenizer's) becomes U+FFFD. */
enum ebb_status ebb_decode_add(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                               struct ebb_decode_stream *stream, int32_t id, bool skip_special,
                               struct ebb_str *out);
/* The end of the stream: what is held back becomes U+FFFD. */
enum ebb_status ebb_decode_end(struct ebb_ctx *ctx, struct ebb_decode_stream *stream,
                               struct ebb_str *out);
/* All of it in one call: equal to Hugging Face's. In a byte-level tokenizer an added token's text
 * is its content, in others it goes through the decoder like every token. Where byte tokens are no
 * UTF-8 together, all of them turn into U+FFFD, while a stream has shown the characters that were
 * whole. */
enum ebb_status ebb_tokenizer_decode(struct ebb_ctx *ctx, const struct ebb_tokenizer *tokenizer,
                                     const int32_t *ids, int64_t count, bool skip_special,
                                     struct ebb_str *out);

#ifdef __cplusplus
}
#endif
#endif
