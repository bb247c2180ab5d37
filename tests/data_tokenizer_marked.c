/* Tokenizers in SentencePiece's manner (a space is U+2581, characters without a token are bytes):
 * ids, texts and offsets equal to Hugging Face's for a small fixture and many variants of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data_golden.h"

#include "data/tokenizer_int.h"

static struct ebb_tokenizer *load(struct room *room, const char *patch)
{
    struct ebb_tokenizer *tokenizer;
    assert_ok(room, load_patch_text(room, "tokenizer_marked", patch, &tokenizer));
    return tokenizer;
}

static void encode(struct room *room, const struct ebb_tokenizer *tokenizer, const char *text,
                   unsigned flags, struct ebb_ids *ids)
{
    ids->count = 0;
    assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, text, strlen(text), flags, ids));
}

static void assert_same_ids(const struct ebb_ids *a, const struct ebb_ids *b)
{
    assert_int_equal(a->count, b->count);
    if (a->count > 0) assert_memory_equal(a->data, b->data, (size_t)a->count * sizeof *a->data);
}

static void every_variant_gives_the_ids_of_hugging_face(void **state)
{
    check_variants(*state, "tokenizer_marked", 25);
}

/* model_max_length is 10^30 there. */
static void a_config_with_a_huge_integer_names_its_tokens(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer;
    assert_ok(room, ebb_tokenizer_load(room->ctx, EBB_SOURCE_DIR "/tests/golden/tokenizer_marked",
                                       &tokenizer));
    assert_int_equal(ebb_tokenizer_unk(tokenizer), 0);
    assert_int_equal(ebb_tokenizer_bos(tokenizer), 1);
    assert_int_equal(ebb_tokenizer_eos(tokenizer), 2);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* Cutting before each U+2581 is for speed alone. */
static void cutting_at_spaces_changes_no_id(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load(room, "{}");
    struct ebb_ids cut = {0}, whole = {0};
    static const char *const texts[] = {
        "the tide  comes   in \xe2\x96\x81\xe2\x96\x81 and goes \xe6\xbd\xae out, the same water",
        "   ",
        " a",
        "a ",
        "\xe2\x96\x81",
        "\xe2\x96",
        ""};
    assert_true(tokenizer->cuts);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (ebb_text_utf8_valid(texts[i], strlen(texts[i])) != strlen(texts[i])) continue;
        tokenizer->cuts = true;
        encode(room, tokenizer, texts[i], 0, &cut);
        tokenizer->cuts = false;
        encode(room, tokenizer, texts[i], 0, &whole);
        assert_same_ids(&cut, &whole);
    }
    ebb_ids_free(room->ctx, &cut);
    ebb_ids_free(room->ctx, &whole);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_merge_across_a_space_forbids_cutting(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer =
        load(room, "{\"model\": {\"vocab\": {\"<unk>\": 0, \"b\": 1, \"\xe2\x96\x81\": 2, "
                   "\"b\xe2\x96\x81\": 3}, \"merges\": [[\"b\", \"\xe2\x96\x81\"]]}, "
                   "\"post_processor\": null, \"added_tokens\": []}");
    struct ebb_ids ids = {0};
    assert_false(tokenizer->cuts);
    encode(room, tokenizer, "b b", 0, &ids);
    const int32_t wanted[] = {2, 3, 1};
    assert_int_equal(ids.count, 3);
    assert_memory_equal(ids.data, wanted, sizeof wanted);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_text_that_continues_gets_no_mark_before_it(void **state)
{
    struct room *room = *state;
    static const char *const patches[] = {
        "{}",
        "{\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
        "\"\xe2\x96\x81\"}}",
        "{\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
        "\"\xe2\x96\x81\", \"prepend_scheme\": \"first\", \"split\": false}}"};
    for (size_t i = 0; i < sizeof patches / sizeof patches[0]; i++) {
        struct ebb_tokenizer *tokenizer = load(room, patches[i]);
        struct ebb_ids ids = {0};
        struct ebb_str piece = {0};
        for (unsigned flags = 0; flags <= EBB_ENCODE_CONTINUES; flags += EBB_ENCODE_CONTINUES) {
            encode(room, tokenizer, "the tide", flags, &ids);
            piece.bytes = 0;
            assert_ok(room, ebb_tokenizer_piece(room->ctx, tokenizer, ids.data[0], &piece));
            assert_int_equal(memcmp(piece.data, "\xe2\x96\x81", 3) == 0, flags == 0);
        }
        ebb_str_free(room->ctx, &piece);
        ebb_ids_free(room->ctx, &ids);
        ebb_tokenizer_free(room->ctx, tokenizer);
    }
}

static void offsets_are_the_bytes_that_tokens_stand_for(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load_small(room);
    struct ebb_encoder *encoder;
    struct ebb_ids ids = {0};
    struct ebb_offsets offsets = {0};
    const char *text = "The tide\t\xe6\xbd\xae\xf0\x9f\x98\x80 12<|endoftext|>in caf\xc3\xa9";
    assert_ok(room, ebb_encoder_create(room->ctx, tokenizer, &encoder));
    assert_ok(room, ebb_encode_offsets(room->ctx, encoder, text, strlen(text), 0, &ids, &offsets));
    int64_t at = 0;
    for (int64_t i = 0; i < ids.count; i++) {
        size_t bytes;
        const char *token = ebb_tokenizer_text(tokenizer, ids.data[i], &bytes);
        assert_int_equal(offsets.data[i].start, at);
        at = offsets.data[i].stop;
        assert_int_equal(at - offsets.data[i].start, bytes);
        assert_memory_equal(text + offsets.data[i].start, token, bytes);
    }
    assert_int_equal(at, strlen(text));
    ebb_offsets_free(room->ctx, &offsets);
    ebb_ids_free(room->ctx, &ids);
    ebb_encoder_free(room->ctx, encoder);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* "e" and an acute become one character, whose bytes' tokens stand for both; what surrounds them
 * keeps its places. The ids are those without offsets, for every form. */
static void offsets_of_composed_characters_cover_their_parts(void **state)
{
    struct room *room = *state;
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *text = "ab e\xcc\x81\xcc\xa3 z \xea\xb0\x80\xe1\x86\xa8 \xef\xac\x81 q\xcc\x87";
    for (size_t f = 0; f < 4; f++) {
        char patch[128];
        snprintf(patch, sizeof patch, "{\"normalizer\": {\"type\": \"%s\"}}", forms[f]);
        struct ebb_tokenizer *tokenizer;
        struct ebb_encoder *encoder;
        struct ebb_ids ids = {0}, traced = {0};
        struct ebb_offsets offsets = {0};
        assert_ok(room, load_patch_text(room, "tokenizer_small", patch, &tokenizer));
        assert_ok(room, ebb_encoder_create(room->ctx, tokenizer, &encoder));
        encode(room, tokenizer, text, 0, &ids);
        assert_ok(room,
                  ebb_encode_offsets(room->ctx, encoder, text, strlen(text), 0, &traced, &offsets));
        assert_same_ids(&ids, &traced);
        for (int64_t i = 0; i < offsets.count && f == 0; i++) {
            int64_t start = offsets.data[i].start, stop = offsets.data[i].stop;
            if (start > 2 && start < 8) assert_int_equal(start, 3); /* the cluster as a whole */
            if (stop > 3 && stop < 9) assert_int_equal(stop, 8);
        }
        assert_int_equal(offsets.data[0].start, 0);
        assert_int_equal(offsets.data[offsets.count - 1].stop, strlen(text));
        ebb_offsets_free(room->ctx, &offsets);
        ebb_ids_free(room->ctx, &ids);
        ebb_ids_free(room->ctx, &traced);
        ebb_encoder_free(room->ctx, encoder);
        ebb_tokenizer_free(room->ctx, tokenizer);
    }
}

static void what_is_around_a_text_has_empty_offsets(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer =
        load(room,
             "{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
             "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}, "
             "{\"SpecialToken\": {\"id\": \"</s>\"}}], \"special_tokens\": {\"<s>\": {\"ids\": "
             "[1]}, \"</s>\": {\"ids\": [2]}}}}");
    struct ebb_encoder *encoder;
    struct ebb_ids ids = {0};
    struct ebb_offsets offsets = {0};
    assert_ok(room, ebb_encoder_create(room->ctx, tokenizer, &encoder));
    assert_ok(room, ebb_encode_offsets(room->ctx, encoder, "tide", 4, EBB_ENCODE_SPECIAL, &ids,
                                       &offsets));
    int64_t last = offsets.count - 1;
    assert_int_equal(ids.data[0], 1);
    assert_int_equal(offsets.data[0].start, 0);
    assert_int_equal(offsets.data[0].stop, 0);
    assert_int_equal(offsets.data[1].start, 0);
    assert_int_equal(ids.data[last], 2);
    assert_int_equal(offsets.data[last].start, 4);
    assert_int_equal(offsets.data[last].stop, 4);
    ebb_offsets_free(room->ctx, &offsets);
    ebb_ids_free(room->ctx, &ids);
    ebb_encoder_free(room->ctx, encoder);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* The text is one word: two million spaces, and two million letters. */
static void a_long_text_takes_no_quadratic_time(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load(room, "{}");
    struct ebb_ids ids = {0};
    size_t bytes = 2000000;
    char *text = malloc(bytes);
    for (int c = 0; c < 2; c++) {
        memset(text, c == 0 ? ' ' : 'e', bytes);
        ids.count = 0;
        assert_ok(room, ebb_tokenizer_encode(room->ctx, tokenizer, text, bytes, 0, &ids));
        assert_true(ids.count > 1000);
    }
    free(text);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* Characters are shown when their last byte is there; what can't become one, at the next token. */
static void a_stream_shows_characters_when_they_are_whole(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load(room, "{}");
    static const struct {
        unsigned char byte; /* 0: the token "e" */
        const char *shown;
    } steps[] = {{0xe6, ""},
                 {0xbd, ""},
                 {0xae, "\xe6\xbd\xae"},
                 {0, "e"},
                 {0xf0, ""},
                 {0x9f, ""},
                 {0, "\xef\xbf\xbd\xef\xbf\xbd"
                     "e"},
                 {0xff, "\xef\xbf\xbd"},
                 {0xc3, ""}};
    struct ebb_decode_stream stream = {0};
    struct ebb_str out = {0};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        char name[8];
        snprintf(name, sizeof name, steps[i].byte == 0 ? "e" : "<0x%02X>", steps[i].byte);
        int32_t id = ebb_tokenizer_find(tokenizer, name, strlen(name));
        assert_true(id >= 0);
        out.bytes = 0;
        assert_ok(room, ebb_decode_add(room->ctx, tokenizer, &stream, id, false, &out));
        assert_int_equal(out.bytes, strlen(steps[i].shown));
        if (out.bytes > 0) assert_memory_equal(out.data, steps[i].shown, out.bytes);
    }
    out.bytes = 0;
    assert_ok(room, ebb_decode_end(room->ctx, &stream, &out));
    assert_string_equal(out.data, "\xef\xbf\xbd");
    ebb_str_free(room->ctx, &out);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void decoding_skips_special_tokens(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer = load(room, "{}");
    struct ebb_ids ids = {0};
    struct ebb_str out = {0};
    encode(room, tokenizer, "the tide</s>", EBB_ENCODE_SPECIAL, &ids);
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, true, &out));
    assert_string_equal(out.data, "the tide");
    out.bytes = 0;
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, false, &out));
    assert_string_equal(out.data, "<s> the tide</s>");
    ebb_str_free(room->ctx, &out);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

/* ignore_merges asks the model's vocabulary, in which an added token may not be. */
static void an_added_token_is_no_word_of_the_model(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer =
        load(room, "{\"normalizer\": null, \"model\": {\"ignore_merges\": true}, \"added_tokens\": "
                   "[{\"id\": 900, \"content\": \"tide\", \"special\": true}]}");
    struct ebb_ids ids = {0};
    encode(room, tokenizer, "tide", 0, &ids);
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.data[0], 900);
    encode(room, tokenizer, "tide", EBB_ENCODE_LITERAL, &ids);
    for (int64_t i = 0; i < ids.count; i++) assert_int_not_equal(ids.data[i], 900);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

static void a_character_without_a_token_is_an_error_where_nothing_stands_in(void **state)
{
    struct room *room = *state;
    struct ebb_tokenizer *tokenizer =
        load(room, "{\"model\": {\"byte_fallback\": false, \"unk_token\": null}}");
    struct ebb_ids ids = {0};
    assert_failed(room, ebb_tokenizer_encode(room->ctx, tokenizer, "a\xe6\xbd\xae", 4, 0, &ids),
                  EBB_FAILED, "U+6F6E", "unk_token", NULL);
    assert_int_equal(ids.count, 0);
    ebb_ids_free(room->ctx, &ids);
    ebb_tokenizer_free(room->ctx, tokenizer);
}

#define MARKED(text)   "{\"pre_tokenizer\": {\"type\": \"Metaspace\", " text "}}"
#define DECODERS(text) "{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [" text "]}}"

static void what_is_wrong_is_told_by_name(void **state)
{
    struct room *room = *state;
    static const struct {
        const char *patch;
        enum ebb_status status;
        const char *part, *other;
    } cases[] = {
        {MARKED("\"replacement\": \"ab\""), EBB_BAD_FILE, "replacement", "one character"},
        {MARKED("\"split\": true"), EBB_BAD_FILE, "replacement", "Metaspace"},
        {MARKED("\"replacement\": \"_\", \"prepend_scheme\": \"last\""), EBB_UNSUPPORTED, "'last'",
         "prepend_scheme"},
        {MARKED("\"replacement\": \"_\", \"prepend_scheme\": \"always\", \"add_prefix_space\": "
                "false"),
         EBB_BAD_FILE, "add_prefix_space: false", "'always'"},
        {"{\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"\"}}", EBB_UNSUPPORTED,
         "normalizer Prepend", "nothing to prepend"},
        {"{\"normalizer\": {\"type\": \"Prepend\"}}", EBB_BAD_FILE, "'prepend'", "tokenizer.json"},
        {"{\"normalizer\": {\"type\": \"Replace\", \"content\": \"a\"}}", EBB_BAD_FILE,
         "no 'pattern'", "Replace"},
        {"{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[a&&b]\"}, "
         "\"content\": \"a\"}}",
         EBB_UNSUPPORTED, "normalizer pattern", "'&&'"},
        {DECODERS("{\"type\": \"Fuse\"}, {\"type\": \"ByteFallback\"}"), EBB_UNSUPPORTED,
         "decoder ByteFallback", "after Fuse"},
        {DECODERS("{\"type\": \"Fuse\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
                  "\"content\": \"b\"}"),
         EBB_UNSUPPORTED, "decoder Replace", "after Fuse"},
        {DECODERS("{\"type\": \"ByteFallback\"}, {\"type\": \"ByteFallback\"}"), EBB_UNSUPPORTED,
         "decoder ByteFallback", "behind another"},
        {DECODERS("{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}"),
         EBB_BAD_FILE, "start is -1", "Strip"},
        {DECODERS("{\"type\": \"Strip\", \"content\": \"\", \"start\": 1, \"stop\": 0}"),
         EBB_BAD_FILE, "content", "one character"},
        {DECODERS("{\"type\": \"WordPiece\"}"), EBB_UNSUPPORTED, "decoder 'WordPiece'",
         "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip, Sequence"},
        {"{\"model\": {\"merges\": [[\"th\", \"</s>x\"]]}}", EBB_BAD_FILE, "model.merges[0]",
         "no token of model.vocab"},
        {"{\"model\": {\"unk_token\": \"<none>\"}}", EBB_BAD_FILE, "unk_token '<none>'",
         "model.vocab"},
        {"{\"added_tokens\": [{\"id\": 1000, \"content\": \"in\"}]}", EBB_BAD_FILE,
         "has id 1000 here", "'in'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ebb_tokenizer *tokenizer;
        enum ebb_status status =
            load_patch_text(room, "tokenizer_marked", cases[i].patch, &tokenizer);
        if (status == EBB_OK) print_error("not refused: %s\n", cases[i].patch);
        assert_failed(room, status, cases[i].status, cases[i].part, cases[i].other,
                      "tokenizer.json", NULL);
        assert_null(tokenizer);
    }
}

static enum ebb_status load_encode_decode(struct room *room)
{
    struct ebb_tokenizer *tokenizer;
    struct ebb_encoder *encoder = NULL;
    struct ebb_ids ids = {0};
    struct ebb_offsets offsets = {0};
    struct ebb_str out = {0};
    EBB_TRY(ebb_tokenizer_load(room->ctx, room_path(room, "patched"), &tokenizer));
    enum ebb_status status = ebb_encoder_create(room->ctx, tokenizer, &encoder);
    if (status == EBB_OK)
        status = ebb_encode_offsets(room->ctx, encoder, "The e\xcc\x81 tide \xe6\xbd\xae<s>", 16, 3,
                                    &ids, &offsets);
    if (status == EBB_OK)
        status = ebb_encode(room->ctx, encoder, "the e\xcc\x81 tide \xe6\xbd\xae", 13, 3, &ids);
    if (status == EBB_OK)
        status = ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, false, &out);
    struct ebb_decode_stream stream = {0};
    for (int64_t i = 0; i < ids.count && status == EBB_OK; i++)
        status = ebb_decode_add(room->ctx, tokenizer, &stream, ids.data[i], false, &out);
    if (status == EBB_OK) status = ebb_decode_end(room->ctx, &stream, &out);
    ebb_str_free(room->ctx, &out);
    ebb_offsets_free(room->ctx, &offsets);
    ebb_ids_free(room->ctx, &ids);
    ebb_encoder_free(room->ctx, encoder);
    ebb_tokenizer_free(room->ctx, tokenizer);
    return status;
}

/* Each allocation fails once: an error every time, nothing lost (room_close counts). */
static void every_failed_allocation_is_an_error(void **state)
{
    struct room *room = *state;
    ebb_tokenizer_free(
        room->ctx,
        load(room,
             "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "
             "{\"type\": \"Lowercase\"}, {\"type\": \"Strip\"}, {\"type\": \"Replace\", "
             "\"pattern\": {\"Regex\": \"q+\"}, \"content\": \"k\"}]}, \"pre_tokenizer\": "
             "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": "
             "\"first\"}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
             "\"Replace\", \"pattern\": {\"Regex\": \"\xe2\x96\x81\"}, \"content\": \" \"}, "
             "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
             "\"content\": \" \", \"start\": 1, \"stop\": 1}]}}"));
    int64_t nth = 1;
    for (;; nth++) {
        ebb_mem_fail_nth(room->ctx, nth, false);
        enum ebb_status status = load_encode_decode(room);
        ebb_mem_fail_nth(room->ctx, 0, false);
        if (status == EBB_OK && ebb_error_status(room->ctx) == EBB_OK) break;
        /* The JIT stack is the one thing that may be missing: matching then runs without it. */
        if (status != EBB_OK) assert_int_equal(status, EBB_NO_MEMORY);
        ebb_error_clear(room->ctx);
        assert_true(nth < 10000);
    }
    assert_true(nth > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOM_TEST(every_variant_gives_the_ids_of_hugging_face),
        ROOM_TEST(a_config_with_a_huge_integer_names_its_tokens),
        ROOM_TEST(cutting_at_spaces_changes_no_id),
        ROOM_TEST(a_merge_across_a_space_forbids_cutting),
        ROOM_TEST(a_text_that_continues_gets_no_mark_before_it),
        ROOM_TEST(offsets_are_the_bytes_that_tokens_stand_for),
        ROOM_TEST(offsets_of_composed_characters_cover_their_parts),
        ROOM_TEST(what_is_around_a_text_has_empty_offsets),
        ROOM_TEST(a_long_text_takes_no_quadratic_time),
        ROOM_TEST(a_stream_shows_characters_when_they_are_whole),
        ROOM_TEST(decoding_skips_special_tokens),
        ROOM_TEST(an_added_token_is_no_word_of_the_model),
        ROOM_TEST(a_character_without_a_token_is_an_error_where_nothing_stands_in),
        ROOM_TEST(what_is_wrong_is_told_by_name),
        ROOM_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
