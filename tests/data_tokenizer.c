/* Tokenizers: ids equal to Hugging Face's for a small fixture and many variants of it, and every
 * refusal by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_golden.h"

#include <utf8proc.h>

#include "data/tokenizer_int.h"

static void every_variant_gives_the_ids_of_hugging_face(void **state)
{
    check_variants(*state, "tokenizer_small", 20);
}

static void encode(struct room *room, const struct ebb_tokenizer *tokenizer, const char *text,
                   unsigned flags, struct ebb_ids *ids)
{
    ids->count = 0;
    assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, text, strlen(text), flags, ids));
}

static void a_bytes_tokenizer_gives_one_id_a_byte(void **state)
{
    struct room *room = *state;
    struct ebb_str text = {0};
    struct ebb_tokenizer *tokenizer;
    struct ebb_ids ids = {0};
    int next = 256;
    assert_ok(room,
              ebb_str_addf(room->ctx, &text,
                           "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                           "false, \"use_regex\": false}, \"model\": {\"type\": \"BPE\", "
                           "\"merges\": [], \"vocab\": {"));
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        assert_ok(room, ebb_str_addf(room->ctx, &text, "%s\"\\u%04x\": %d", b == 0 ? "" : ", ",
                                     plain ? b : next++, b));
    }
    assert_ok(room, ebb_str_addf(room->ctx, &text,
                                 "}}, \"added_tokens\": [{\"id\": 256, \"content\": \"<eos>\", "
                                 "\"special\": true}]}"));
    room_write_bytes(room, "bytes/tokenizer.json", text.data, text.bytes);
    room_write(room, "bytes/config.json", "{\"eos_token_id\": [256, 3]}");
    assert_ok(room, ebb_tokenizer_load(room->ctx, room_path(room, "bytes"), &tokenizer));
    assert_int_equal(ebb_tokenizer_vocab_size(tokenizer), 257);
    assert_int_equal(ebb_tokenizer_eos(tokenizer), 256);
    encode(room, tokenizer, "h\xc3\xa9 <eos>\n", 0, &ids);
    const int32_t wanted[] = {'h', 0xc3, 0xa9, ' ', 256, '\n'};
    assert_int_equal(ids.count, 6);
    assert_memory_equal(ids.data, wanted, sizeof wanted);
    ebb_ids_free(room->ctx, &ids);
    ebb_str_free(room->ctx, &text);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void look_ups_find_text_and_ids(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    size_t bytes;
    assert_int_equal(ebb_tokenizer_eos(tokenizer), 0);
    assert_int_equal(ebb_tokenizer_bos(tokenizer), 1);
    assert_int_equal(ebb_tokenizer_pad(tokenizer), 2);
    assert_int_equal(ebb_tokenizer_unk(tokenizer), -1);
    for (int32_t id = 0; id < ebb_tokenizer_vocab_size(tokenizer); id++) {
        const char *text = ebb_tokenizer_text(tokenizer, id, &bytes);
        assert_non_null(text);
        assert_int_equal(ebb_tokenizer_find(tokenizer, text, bytes), id);
    }
    assert_int_equal(ebb_tokenizer_find(tokenizer, " the", 4) >= 0, true);
    assert_int_equal(ebb_tokenizer_find(tokenizer, "no such token", 13), -1);
    assert_null(ebb_tokenizer_text(tokenizer, -1, &bytes));
    assert_null(
        ebb_tokenizer_text(tokenizer, (int32_t)ebb_tokenizer_vocab_size(tokenizer), &bytes));
    assert_true(ebb_tokenizer_is_special(tokenizer, 0));
    assert_false(ebb_tokenizer_is_special(tokenizer, 50));
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void special_tokens_in_a_text_can_be_plain_text(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_ids ids = {0};
    struct ebb_str out = {0};
    encode(room, tokenizer, "a<|endoftext|>", 0, &ids);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.data[1], 0);
    encode(room, tokenizer, "a<|endoftext|>", EBB_ENCODE_LITERAL, &ids);
    assert_true(ids.count > 5);
    for (int64_t i = 0; i < ids.count; i++)
        assert_false(ebb_tokenizer_is_special(tokenizer, ids.data[i]));
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, true, &out));
    assert_string_equal(out.data, "a<|endoftext|>");
    ebb_str_free(room->ctx, &out);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_text_that_continues_gets_no_space_before_it(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    struct ebb_ids ids = {0};
    struct ebb_str out = {0};
    assert_ok(room, load_patch_text(room, "tokenizer_small",
                                    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}", &tokenizer));
    encode(room, tokenizer, "the tide", 0, &ids);
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, false, &out));
    assert_string_equal(out.data, " the tide");
    out.bytes = 0;
    encode(room, tokenizer, "the tide", EBB_ENCODE_CONTINUES, &ids);
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, false, &out));
    assert_string_equal(out.data, "the tide");
    ebb_str_free(room->ctx, &out);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void invalid_utf8_is_an_error_and_adds_nothing(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_ids ids = {0};
    encode(room, tokenizer, "abc", 0, &ids);
    int64_t before = ids.count;
    assert_failed(room, ebb_tokenizer_encode(room->ctx, tokenizer, "ab\xff", 3, 0, &ids),
                  EBB_BAD_FILE, "byte 2", "0xff", NULL);
    assert_failed(room, ebb_tokenizer_encode(room->ctx, tokenizer, "\xed\xa0\x80", 3, 0, &ids),
                  EBB_BAD_FILE, "byte 0", NULL);
    assert_int_equal(ids.count, before);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* Long words go through the heap, short ones are scanned: both must merge alike. "ab" repeated
 * has ties everywhere. */
static void long_words_merge_like_short_ones(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    struct ebb_ids short_ids = {0}, long_ids = {0};
    char text[400] = "";
    assert_ok(room,
              load_patch_text(
                  room, "tokenizer_small",
                  "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                  "\"use_regex\": false}, \"added_tokens\": []}",
                  &tokenizer));
    /* "qq" and "zz" merge with nothing in the fixture, so that the parts between stay apart. */
    for (int i = 0; i < 12; i++)
        strcat(text, i % 2 == 0 ? "the tide in the harbourqz" : "waterwaterwaterqz");
    for (char *at = text; *at != '\0';) {
        char *end = strstr(at, "qz") + 2;
        assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, at, (size_t)(end - at), 0,
                                             &short_ids));
        at = end;
    }
    encode(room, tokenizer, text, 0, &long_ids);
    assert_int_equal(long_ids.count, short_ids.count);
    assert_memory_equal(long_ids.data, short_ids.data,
                        (size_t)long_ids.count * sizeof *long_ids.data);
    ebb_ids_free(room->ctx, &short_ids);
    ebb_ids_free(room->ctx, &long_ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* More different words than the cache holds, three times over. */
static void a_full_cache_changes_no_id(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_encoder *encoder;
    struct ebb_ids ids = {0}, fresh = {0};
    char text[32];
    assert_ok(room, ebb_encoder_create(room->ctx, tokenizer, &encoder));
    for (int i = 0; i < 90000; i++) {
        snprintf(text, sizeof text, "tide%c%c%c", 'a' + i % 26, 'a' + i / 26 % 26,
                 'a' + i / 676 % 26);
        strcat(text, i / 17576 % 2 == 0 ? "out" : "in");
        ids.count = 0;
        assert_ok(room, ebb_encode(room->ctx, encoder, text, strlen(text), 0, &ids));
        if (i % 997 != 0) continue;
        encode(room, tokenizer, text, 0, &fresh);
        assert_int_equal(ids.count, fresh.count);
        assert_memory_equal(ids.data, fresh.data, (size_t)ids.count * sizeof *ids.data);
    }
    ebb_ids_free(room->ctx, &ids);
    ebb_ids_free(room->ctx, &fresh);
    ebb_encoder_free(room->ctx, encoder);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_long_word_takes_no_quadratic_time(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_ids ids = {0};
    size_t bytes = 2000000;
    char *text = malloc(bytes);
    memset(text, 'e', bytes);
    assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, text, bytes, 0, &ids));
    assert_true(ids.count > 1000);
    free(text);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_stream_never_ends_inside_a_character(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    const char *text = "a\xc3\xa9\xe6\xbd\xae\xf0\x9f\x98\x80 z<|endoftext|>";
    struct ebb_ids ids = {0};
    struct ebb_str out = {0};
    struct ebb_decode_stream stream = {0};
    encode(room, tokenizer, text, 0, &ids);
    bool held = false;
    for (int64_t i = 0; i < ids.count; i++) {
        assert_ok(room, ebb_decode_add(room->ctx, tokenizer, &stream, ids.data[i], false, &out));
        assert_int_equal(ebb_text_utf8_valid(out.data, out.bytes), out.bytes);
        held |= stream.held_count > 0;
    }
    assert_true(held); /* the fixture does split the emoji */
    assert_ok(room, ebb_decode_end(room->ctx, &stream, &out));
    assert_string_equal(out.data, text);
    ebb_str_free(room->ctx, &out);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* Bytes that can't become characters, as Rust's from_utf8_lossy replaces them. */
static void broken_bytes_become_replacement_characters(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    static const struct {
        const char *bytes, *wanted;
    } cases[] = {
        {"a\x80"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},
        {"\xf0\x9f\x98x", "\xef\xbf\xbdx"},
        {"\xe2\x82\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf5\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_ids ids = {0};
        struct ebb_str out = {0};
        for (const char *at = cases[i].bytes; *at != '\0'; at++) {
            int32_t id = ebb_tokenizer_find(tokenizer, at, 1);
            assert_ok(room, ebb_ids_add(room->ctx, &ids, &id, 1));
        }
        assert_ok(room,
                  ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, false, &out));
        assert_string_equal(out.data, cases[i].wanted);
        ebb_str_free(room->ctx, &out);
        ebb_ids_free(room->ctx, &ids);
    }
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void decoding_skips_special_tokens_and_shows_unknown_ids(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_str out = {0};
    int32_t ids[] = {1, ebb_tokenizer_find(tokenizer, "a", 1), 0, 100000, -5};
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids, 3, true, &out));
    assert_string_equal(out.data, "a");
    out.bytes = 0;
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids, 5, false, &out));
    assert_string_equal(out.data, "<|bos|>a<|endoftext|>\xef\xbf\xbd\xef\xbf\xbd");
    ebb_str_free(room->ctx, &out);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* The quick check may say no too often, never yes wrongly: for each character alone, behind a
 * letter, and behind itself. */
static void text_that_passes_the_quick_check_is_in_nfc(void **state)
{
    (void)state;
    for (utf8proc_int32_t point = 1; point < 0x110000; point++) {
        if (point >= 0xd800 && point <= 0xdfff) continue;
        char one[5], text[12];
        one[utf8proc_encode_char(point, (utf8proc_uint8_t *)one)] = '\0';
        snprintf(text, sizeof text, "%s%s%s", one, "e", one);
        if (!ebb_tok_is_nfc(text, strlen(text))) continue;
        utf8proc_uint8_t *normal = utf8proc_NFC((const utf8proc_uint8_t *)text);
        if (strcmp((char *)normal, text) != 0) print_error("U+%04X\n", (unsigned)point);
        assert_string_equal((char *)normal, text);
        free(normal);
    }
    assert_false(ebb_tok_is_nfc("e\xcc\x81", 3)); /* e and an acute */
    assert_false(
        ebb_tok_is_nfc("\xea\xb0\x80\xe1\x86\xa8", 6));  /* a syllable and a final consonant */
    assert_false(ebb_tok_is_nfc("\xcc\x95\xcc\x96", 4)); /* two marks out of order */
    assert_false(ebb_tok_is_nfc("\xe0\xa7\x87\xe0\xa6\xbe", 6)); /* two Bengali vowel signs */
    assert_true(ebb_tok_is_nfc("\xe6\xbd\xae \xf0\x9f\x98\x80 \xd0\x92", 11));
}

static void what_is_not_offered_is_refused_by_name(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *patch, *part, *other;
    } cases[] = {
        {"{\"model\": {\"type\": \"WordPiece\"}}", "model 'WordPiece'", "BPE"},
        {"{\"model\": {\"dropout\": 0.1}}", "dropout", "BPE"},
        {"{\"model\": {\"continuing_subword_prefix\": \"##\"}}", "continuing_subword_prefix",
         "BPE"},
        {"{\"model\": {\"end_of_word_suffix\": \"</w>\"}}", "end_of_word_suffix", "BPE"},
        {"{\"model\": {\"novelty\": 1}}", "'novelty'", "BPE"},
        {"{\"normalizer\": {\"type\": \"StripAccents\"}}", "normalizer 'StripAccents'", "NFC"},
        {"{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "
         "{\"type\": \"Precompiled\"}]}}",
         "normalizer 'Precompiled'", "Sequence"},
        {"{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(a)\"}, "
         "\"content\": \"$1\"}}",
         "groups ('$')", "Replace"},
        {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}}", "pre_tokenizer 'Whitespace'",
         "ByteLevel, Digits, Metaspace, Split"},
        {"{\"pre_tokenizer\": null}", "decoder ByteLevel without a ByteLevel", "tokenizer.json"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
         "\"ByteLevel\"}, {\"type\": \"Metaspace\", \"replacement\": \"_\"}]}}",
         "after ByteLevel", "pre_tokenizer"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
         "\"ByteLevel\"}, {\"type\": "
         "\"Digits\", \"individual_digits\": true}]}}",
         "after ByteLevel", "pre_tokenizer"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"wild\": 1}}", "'wild'", "ByteLevel"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"\": 1}}", "key ''", "ByteLevel"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": "
         "\"Sideways\"}}",
         "Sideways", "Split"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}, "
         "\"behavior\": \"Isolated\"}}",
         "'&&'", "[a&&b]"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a[b]]\"}, "
         "\"behavior\": \"Isolated\"}}",
         "'['", "[a[b]]"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}+\"}, "
         "\"behavior\": "
         "\"Isolated\"}}",
         "'}+'", "{1,3}+"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?m:.)\"}, "
         "\"behavior\": \"Isolated\"}}",
         "options", "(?m:.)"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\Qa\"}, "
         "\"behavior\": \"Isolated\"}}",
         "escape", "\\Qa"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, "
         "\"behavior\": \"Isolated\"}}",
         "parenthesis", "(a"},
        {"{\"post_processor\": {\"type\": \"BertProcessing\"}}", "post_processor 'BertProcessing'",
         "TemplateProcessing"},
        {"{\"decoder\": {\"type\": \"CTC\"}}", "decoder 'CTC'", "ByteLevel"},
        {"{\"decoder\": {\"type\": \"ByteFallback\"}}", "decoder ByteFallback",
         "with a ByteLevel pre_tokenizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_tokenizer *tokenizer;
        assert_failed(room, load_patch_text(room, "tokenizer_small", cases[i].patch, &tokenizer),
                      EBB_UNSUPPORTED, cases[i].part, cases[i].other, "tokenizer.json", NULL);
        assert_null(tokenizer);
    }
}

static void broken_content_is_a_bad_file(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *patch, *part;
    } cases[] = {
        {"{\"model\": {\"vocab\": {}, \"merges\": []}, \"added_tokens\": []}",
         "model.vocab is empty"},
        {"{\"model\": {\"vocab\": {\"a\": 1, \"b\": 1}, \"merges\": []}, \"added_tokens\": []}",
         "two tokens have id 1"},
        {"{\"model\": {\"vocab\": {\"a\": -4}, \"merges\": []}}", "-4"},
        {"{\"model\": {\"vocab\": {\"a\": 99999999999}, \"merges\": []}}", "99999999999"},
        {"{\"model\": {\"vocab\": {\"a\": 1.5}, \"merges\": []}}", "model.vocab"},
        {"{\"model\": {\"vocab\": [1], \"merges\": []}}", "model.vocab is not an object"},
        {"{\"model\": {\"merges\": {}}}", "model.merges is not a list"},
        {"{\"model\": {\"merges\": [\"ab\"]}}", "model.merges"},
        {"{\"model\": {\"merges\": [[\"a\"]]}}", "model.merges"},
        {"{\"model\": {\"merges\": [\"Q Q\"]}}", "model.merges[0]: 'Q' and 'Q'"},
        {"{\"added_tokens\": [{\"content\": \"x\"}]}", "'id'"},
        {"{\"added_tokens\": [{\"id\": 1000, \"content\": \"What\"}]}", "has id 1000 here"},
        {"{\"added_tokens\": [{\"id\": 700, \"content\": \"x1\"}, {\"id\": 700, \"content\": "
         "\"x2\"}]}",
         "two tokens have id 700"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\"}}", "no 'pattern'"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\"}}", "no list 'pretokenizers'"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": 3}}", "use_regex"},
        {"{\"model\": {\"unk_token\": \"<none>\"}}", "unk_token '<none>'"},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
         "{\"id\": \"q\"}}]}}",
         "'ids' for 'q'"},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}}",
         "no sequence A"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_tokenizer *tokenizer;
        assert_failed(room, load_patch_text(room, "tokenizer_small", cases[i].patch, &tokenizer),
                      EBB_BAD_FILE, cases[i].part, "tokenizer.json", NULL);
        assert_null(tokenizer);
    }
}

static void a_broken_file_is_told_by_line_and_column(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"model\": {\n \"vocab\": {\"a\": 0},\n \"merges\": [", "tokenizer.json:3:"},
        {"{\"model\": {\"type\": \"BPE\"}\n \"x\": 1}", "tokenizer.json:2:"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 18446744073709551621}, \"merges\": "
         "[]}}",
         "model.vocab: expected"}, /* 2^64 + 5 is not 5 */
        {"[]", "'model' is wanted"},
        {"{}", "'model' is wanted"},
        {"", "tokenizer.json:1:1"},
        {"{\"model\":\n\"\xff\"}", "tokenizer.json:2: not UTF-8: byte 0xff"},
        {"{\"normalizer\": {\"type\": nul},\n \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": "
         "0}, \"merges\": []}}",
         "tokenizer.json:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        room_write(room, "broken/tokenizer.json", cases[i].text);
        assert_failed(room, ebb_tokenizer_load(room->ctx, room_path(room, "broken"), &tokenizer),
                      EBB_BAD_FILE, cases[i].part, NULL);
    }
    assert_failed(room, ebb_tokenizer_load(room->ctx, room_path(room, "nowhere"), &tokenizer),
                  EBB_IO, "nowhere/tokenizer.json", NULL);
}

static void a_special_token_that_is_no_token_is_a_bad_file(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    assert_ok(room, load_patch_text(room, "tokenizer_small", "{}", &tokenizer));
    ebb_tokenizer_free(room->ctx, tokenizer);
    room_write(room, "patched/tokenizer_config.json", "{\"eos_token\": \"<nothing>\"}");
    assert_failed(room, ebb_tokenizer_load(room->ctx, room_path(room, "patched"), &tokenizer),
                  EBB_BAD_FILE, "tokenizer_config.json", "eos_token '<nothing>'", NULL);
    room_write(room, "patched/tokenizer_config.json", "{\"eos_token\": null}");
    room_write(room, "patched/generation_config.json", "{\"eos_token_id\": 99999}");
    assert_failed(room, ebb_tokenizer_load(room->ctx, room_path(room, "patched"), &tokenizer),
                  EBB_BAD_FILE, "generation_config.json", "99999", NULL);
    room_write(room, "patched/generation_config.json", "{\"eos_token_id\": 7}");
    assert_ok(room, ebb_tokenizer_load(room->ctx, room_path(room, "patched"), &tokenizer));
    assert_int_equal(ebb_tokenizer_eos(tokenizer), 7);
    assert_int_equal(ebb_tokenizer_bos(tokenizer), -1);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_byte_without_a_token_is_an_error_or_unk(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    struct ebb_ids ids = {0};
    assert_ok(room,
              load_patch_text(room, "tokenizer_small",
                              "{\"model\": {\"vocab\": {\"a\": 0, \"?\": 1}, \"merges\": []}, "
                              "\"added_tokens\": []}",
                              &tokenizer));
    assert_failed(room, ebb_tokenizer_encode(room->ctx, tokenizer, "ab", 2, 0, &ids), EBB_FAILED,
                  "byte 0x62", "unk_token", NULL);
    ebb_tokenizer_free(room->ctx, tokenizer);
    for (int fuse = 0; fuse < 2; fuse++) {
        char patch[256];
        snprintf(patch, sizeof patch,
                 "{\"model\": {\"vocab\": {\"a\": 0, \"?\": 1}, \"merges\": [], \"unk_token\": "
                 "\"?\", \"fuse_unk\": %s}, "
                 "\"added_tokens\": []}",
                 fuse ? "true" : "false");
        assert_ok(room, load_patch_text(room, "tokenizer_small", patch, &tokenizer));
        encode(room, tokenizer, "abca", 0, &ids);
        assert_int_equal(ids.count, fuse ? 3 : 4);
        assert_int_equal(ids.data[1], 1);
        ebb_tokenizer_free(room->ctx, tokenizer);
    }
    ebb_ids_free(room->ctx, &ids);
}

/* A pattern from a file that runs for ever is given up, with its name. */
static void a_hostile_pattern_is_given_up(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    struct ebb_ids ids = {0};
    assert_ok(
        room,
        load_patch_text(
            room, "tokenizer_small",
            "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
            "\"Split\", \"pattern\": {\"Regex\": \"(x+x+)+[yq]\"}, \"behavior\": \"Isolated\"}, "
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}]}}",
            &tokenizer));
    char text[64];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[40] = 'z';
    text[41] = '\0';
    assert_failed(room, ebb_tokenizer_encode(room->ctx, tokenizer, text, strlen(text), 0, &ids),
                  EBB_FAILED, "(x+x+)+[yq]", "gave up", NULL);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_tokenizer_is_shared_by_threads(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    const char *text = "The tide comes in, e\xcc\x81 and 12 boats go out<|endoftext|>.";
    struct ebb_ids wanted = {0};
    int wrong = 0;
    encode(room, tokenizer, text, 0, &wanted);
#pragma omp parallel num_threads(4) reduction(+ : wrong)
    {
        struct ebb_encoder *encoder;
        struct ebb_ids ids = {0};
        wrong += ebb_encoder_create(room->ctx, tokenizer, &encoder) != EBB_OK;
        for (int i = 0; i < 200 && wrong == 0; i++) {
            ids.count = 0;
            wrong += ebb_encode(room->ctx, encoder, text, strlen(text), 0, &ids) != EBB_OK;
            wrong += ids.count != wanted.count ||
                     memcmp(ids.data, wanted.data, (size_t)ids.count * sizeof *ids.data) != 0;
        }
        ebb_ids_free(room->ctx, &ids);
        ebb_encoder_free(room->ctx, encoder);
    }
    assert_int_equal(wrong, 0);
    ebb_ids_free(room->ctx, &wanted);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static enum ebb_status load_and_encode(struct room *room)
{
    struct ebb_tokenizer *tokenizer;
    struct ebb_ids ids = {0};
    EBB_TRY(ebb_tokenizer_load(room->ctx, room_path(room, "patched"), &tokenizer));
    enum ebb_status status =
        ebb_tokenizer_encode(room->ctx, tokenizer, "e\xcc\x81 the tide <|bos|>", 20, 3, &ids);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
    return status;
}

/* Each allocation fails once: an error every time, nothing lost (room_close counts). */
static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    assert_ok(room, load_patch_text(room, "tokenizer_small",
                                    "{\"normalizer\": {\"type\": \"NFC\"}}", &tokenizer));
    ebb_tokenizer_free(room->ctx, tokenizer);
    int64_t nth = 1;
    for (;; nth++) {
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = load_and_encode(room);
        ebb_mem_fail_nth(room->ctx, 0, false);
        if (status == EBB_OK && ebb_error_status(room->ctx) == EBB_OK) break;
        /* The JIT stack is the one thing that may be missing: matching then runs without it. */
        if (status != EBB_OK) assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        assert_true(nth < 10000);
    }
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(every_variant_gives_the_ids_of_hugging_face),
        ROOM_TEST(a_bytes_tokenizer_gives_one_id_a_byte),
        ROOM_TEST(look_ups_find_text_and_ids),
        ROOM_TEST(special_tokens_in_a_text_can_be_plain_text),
        ROOM_TEST(a_text_that_continues_gets_no_space_before_it),
        ROOM_TEST(invalid_utf8_is_an_error_and_adds_nothing),
        ROOM_TEST(long_words_merge_like_short_ones),
        ROOM_TEST(a_full_cache_changes_no_id),
        ROOM_TEST(a_long_word_takes_no_quadratic_time),
        ROOM_TEST(a_stream_never_ends_inside_a_character),
        ROOM_TEST(broken_bytes_become_replacement_characters),
        ROOM_TEST(decoding_skips_special_tokens_and_shows_unknown_ids),
        ROOM_TEST(text_that_passes_the_quick_check_is_in_nfc),
        ROOM_TEST(what_is_not_offered_is_refused_by_name),
        ROOM_TEST(broken_content_is_a_bad_file),
        ROOM_TEST(a_broken_file_is_told_by_line_and_column),
        ROOM_TEST(a_special_token_that_is_no_token_is_a_bad_file),
        ROOM_TEST(a_byte_without_a_token_is_an_error_or_unk),
        ROOM_TEST(a_hostile_pattern_is_given_up),
        ROOM_TEST(a_tokenizer_is_shared_by_threads),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
