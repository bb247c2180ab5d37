/* The byte tokenizer on disk: what `ebb init --tokenizer bytes` writes.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/init_int.h"

#define EOS "<|endoftext|>"
#define BOS "<|begin|>"

/* GPT-2's alphabet: printable Latin-1 characters stand for themselves, other bytes for U+0100,
 * U+0101, ... in order. */
static unsigned symbol_of(unsigned byte, unsigned *others)
{
    bool printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    return printable ? byte : 0x100 + (*others)++;
}

/* {symbol: byte}; NULL when out of memory. */
static json_t *vocabulary(void)
{
    json_t *vocab = json_object();
    unsigned others = 0;
    for (unsigned byte = 0; vocab && byte < 256; byte++) {
        unsigned c = symbol_of(byte, &others);
        char text[3] = {(char)c, 0, 0};
        if (c >= 0x80) {
            text[0] = (char)(0xc0 | (c >> 6));
            text[1] = (char)(0x80 | (c & 0x3f));
        }
        if (json_object_set_new(vocab, text, json_integer((json_int_t)byte)) != 0) {
            json_decref(vocab);
            return NULL;
        }
    }
    return vocab;
}

static json_t *special(int id, const char *text)
{
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", text,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 0);
}

static json_t *tokenizer_json(void)
{
    return json_pack("{s:s, s:n, s:n, s:[o, o], s:n, s:o, s:n, s:o, s:{s:s, s:n, s:n, s:n, s:n, "
                     "s:b, s:b, s:b, s:o, s:[]}}",
                     "version", "1.0", "truncation", "padding", "added_tokens",
                     special(EBB_BYTES_EOS, EOS), special(EBB_BYTES_BOS, BOS), "normalizer",
                     "pre_tokenizer", byte_level(), "post_processor", "decoder", byte_level(),
                     "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                     "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0,
                     "vocab", vocabulary(), "merges");
}

static json_t *tokenizer_config(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:b}", "tokenizer_class",
                     "PreTrainedTokenizerFast", "bos_token", BOS, "eos_token", EOS, "pad_token",
                     EOS, "add_bos_token", 0, "add_eos_token", 0, "clean_up_tokenization_spaces",
                     0);
}

static enum ebb_status save(struct ebb_ctx *ctx, const char *dir, const char *name, json_t *json)
{
    char *path = ebb_path_join(ctx, dir, name);
    enum ebb_status status = EBB_NO_MEMORY;
    if (path && json == NULL)
        status = EBB_FAIL(ctx, EBB_NO_MEMORY, "out of host memory while writing '%s'", path);
    else if (path)
        status = ebb_json_save(ctx, path, json);
    ebb_mem_free(ctx, path);
    json_decref(json);
    return status;
}

/* Of each message: the begin token, who says it, a newline, what is said, the end token, a newline.
 */
static const char chat_template[] = "{%- for message in messages -%}\n"
                                    "    {{- bos_token + message['role'] + '\\n' -}}\n"
                                    "    {%- if message['role'] == 'assistant' -%}\n"
                                    "        {%- generation -%}\n"
                                    "            {{- message['content'] + eos_token -}}\n"
                                    "        {%- endgeneration -%}\n"
                                    "    {%- else -%}\n"
                                    "        {{- message['content'] + eos_token -}}\n"
                                    "    {%- endif -%}\n"
                                    "    {{- '\\n' -}}\n"
                                    "{%- endfor -%}\n"
                                    "{%- if add_generation_prompt -%}\n"
                                    "    {{- bos_token + 'assistant\\n' -}}\n"
                                    "{%- endif -%}\n";

static enum ebb_status save_template(struct ebb_ctx *ctx, const char *dir)
{
    char *path = ebb_path_join(ctx, dir, "chat_template.jinja");
    enum ebb_status status = EBB_NO_MEMORY;
    if (path) status = ebb_file_write(ctx, path, chat_template, strlen(chat_template));
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_model_write_bytes_tokenizer(struct ebb_ctx *ctx, const char *dir)
{
    EBB_TRY(ebb_dir_create(ctx, dir));
    EBB_TRY(save(ctx, dir, "tokenizer.json", tokenizer_json()));
    EBB_TRY(save(ctx, dir, "tokenizer_config.json", tokenizer_config()));
    return save_template(ctx, dir);
}
