/* Golden files of tokenizers: [{name, patch, special, cases: [{text, ids, decoded, pieces,
 * offsets}]}], made by tools/golden_tokenizer.py. A case without a text is one of ids to decode.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_GOLDEN_H
#define EBB_DATA_GOLDEN_H

#include "data_test.h"

static inline void print_ids(const char *what, const struct ebb_ids *ids)
{
    print_error("%s:", what);
    for (int64_t i = 0; i < ids->count && i < 40; i++) print_error(" %d", ids->data[i]);
    print_error("\n");
}

/* A fixture of tests/golden with some of its keys replaced ("model": merged into), as a directory.
 */
static inline enum ebb_status load_patched(struct room *room, const char *fixture, json_t *patch,
                                           struct ebb_tokenizer **tokenizer)
{
    json_t *whole;
    const char *key;
    json_t *value;
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s/tokenizer.json", EBB_SOURCE_DIR, fixture);
    assert_int_equal(ebb_json_load(room->ctx, path, &whole), EBB_OK);
    json_object_foreach(patch, key, value)
    {
        if (strcmp(key, "model") == 0)
            json_object_update(json_object_get(whole, key), value);
        else
            json_object_set(whole, key, value);
    }
    assert_int_equal(ebb_dir_create(room->ctx, room_path(room, "patched")), EBB_OK);
    assert_int_equal(ebb_json_save(room->ctx, room_path(room, "patched/tokenizer.json"), whole),
                     EBB_OK);
    json_decref(whole);
    return ebb_tokenizer_load(room->ctx, room_path(room, "patched"), tokenizer);
}

static inline enum ebb_status load_patch_text(struct room *room, const char *fixture,
                                              const char *text, struct ebb_tokenizer **tokenizer)
{
    json_t *patch;
    assert_int_equal(ebb_json_parse(room->ctx, "patch", 0, text, strlen(text), &patch), EBB_OK);
    enum ebb_status status = load_patched(room, fixture, patch, tokenizer);
    json_decref(patch);
    return status;
}

static inline void check_decoded(struct room *room, const struct ebb_tokenizer *tokenizer,
                                 const char *name, const json_t *wanted, const struct ebb_ids *ids)
{
    struct ebb_str out = {0};
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids->data, ids->count, false, &out));
    bool equal = out.bytes == json_string_length(wanted) &&
                 (out.bytes == 0 || memcmp(out.data, json_string_value(wanted), out.bytes) == 0);
    if (!equal)
        print_error("%s: decoded \"%s\" wanted \"%s\"\n", name, out.data,
                    json_string_value(wanted));
    assert_true(equal);
    /* Token by token the same, but where bytes don't make UTF-8 in the end. */
    struct ebb_str streamed = {0};
    struct ebb_decode_stream stream = {0};
    for (int64_t i = 0; i < ids->count; i++)
        assert_ok(room,
                  ebb_decode_add(room->ctx, tokenizer, &stream, ids->data[i], false, &streamed));
    assert_ok(room, ebb_decode_end(room->ctx, &stream, &streamed));
    bool broken = strstr(json_string_value(wanted), "\xef\xbf\xbd") != NULL;
    equal = streamed.bytes == out.bytes &&
            (out.bytes == 0 || memcmp(streamed.data, out.data, out.bytes) == 0);
    if (!equal && !broken)
        print_error("%s: streamed \"%s\" wanted \"%s\"\n", name, streamed.data, out.data);
    assert_true(equal || broken);
    ebb_str_free(room->ctx, &streamed);
    ebb_str_free(room->ctx, &out);
}

static inline bool is_inside(const char *text, size_t bytes, int64_t at)
{
    return at > 0 && (size_t)at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80;
}

/* Offsets widened to whole characters, and tokens as they are written. */
static inline void check_places(struct room *room, const struct ebb_tokenizer *tokenizer,
                                struct ebb_encoder *encoder, const char *name, const json_t *item,
                                unsigned flags, const struct ebb_ids *ids)
{
    const json_t *pieces = json_object_get(item, "pieces");
    const json_t *places = json_object_get(item, "offsets");
    const char *text = json_string_value(json_object_get(item, "text"));
    size_t bytes = json_string_length(json_object_get(item, "text"));
    struct ebb_ids traced = {0};
    struct ebb_offsets offsets = {0};
    assert_ok(room, ebb_encode_offsets(room->ctx, encoder, text, bytes, flags, &traced, &offsets));
    assert_int_equal(traced.count, ids->count);
    assert_int_equal(offsets.count, ids->count);
    for (int64_t i = 0; i < ids->count; i++) {
        struct ebb_str piece = {0};
        assert_int_equal(traced.data[i], ids->data[i]);
        assert_ok(room, ebb_tokenizer_piece(room->ctx, tokenizer, ids->data[i], &piece));
        if (pieces != NULL)
            assert_string_equal(piece.data, json_string_value(json_array_get(pieces, (size_t)i)));
        ebb_str_free(room->ctx, &piece);
        if (places == NULL) continue;
        int64_t start = offsets.data[i].start, stop = offsets.data[i].stop;
        int64_t start_wanted = json_integer_value(json_array_get(places, 2 * (size_t)i));
        int64_t stop_wanted = json_integer_value(json_array_get(places, 2 * (size_t)i + 1));
        while (is_inside(text, bytes, start)) start--;
        while (is_inside(text, bytes, stop)) stop++;
        if (start != start_wanted || stop != stop_wanted)
            print_error("%s: \"%s\": token %lld is at %lld .. %lld, wanted %lld .. %lld\n", name,
                        text, (long long)i, (long long)start, (long long)stop,
                        (long long)start_wanted, (long long)stop_wanted);
        assert_int_equal(start, start_wanted);
        assert_int_equal(stop, stop_wanted);
    }
    ebb_offsets_free(room->ctx, &offsets);
    ebb_ids_free(room->ctx, &traced);
}

/* One case: ids, and the text that comes of them. */
static inline void check_case(struct room *room, const struct ebb_tokenizer *tokenizer,
                              struct ebb_encoder *encoder, const char *name, const json_t *item,
                              bool special)
{
    const json_t *text = json_object_get(item, "text"), *decoded = json_object_get(item, "decoded");
    const json_t *list = json_object_get(item, "ids");
    unsigned flags = special ? EBB_ENCODE_SPECIAL : 0;
    struct ebb_ids ids = {0}, wanted = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(list, i));
        assert_ok(room, ebb_ids_add(room->ctx, &wanted, &id, 1));
    }
    if (text != NULL) {
        assert_ok(room, ebb_encode(room->ctx, encoder, json_string_value(text),
                                   json_string_length(text), flags, &ids));
        bool same = ids.count == wanted.count &&
                    (ids.count == 0 ||
                     memcmp(ids.data, wanted.data, (size_t)ids.count * sizeof *ids.data) == 0);
        if (!same) {
            print_error("%s: \"%s\"\n", name, json_string_value(text));
            print_ids("got   ", &ids);
            print_ids("wanted", &wanted);
        }
        assert_true(same);
        check_places(room, tokenizer, encoder, name, item, flags, &ids);
    }
    check_decoded(room, tokenizer, name, decoded == NULL ? text : decoded, &wanted);
    ebb_ids_free(room->ctx, &ids);
    ebb_ids_free(room->ctx, &wanted);
}

static inline void check_cases(struct room *room, const struct ebb_tokenizer *tokenizer,
                               const json_t *variant)
{
    struct ebb_encoder *encoder;
    const json_t *cases = json_object_get(variant, "cases");
    assert_true(json_array_size(cases) > 0);
    assert_ok(room, ebb_encoder_create(room->ctx, tokenizer, &encoder));
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(room, tokenizer, encoder, json_string_value(json_object_get(variant, "name")),
                   json_array_get(cases, i), json_is_true(json_object_get(variant, "special")));
    ebb_encoder_free(room->ctx, encoder);
}

/* Every variant of tests/golden/FIXTURE.json. */
static inline void check_variants(struct room *room, const char *fixture, size_t at_least)
{
    json_t *golden;
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s.json", EBB_SOURCE_DIR, fixture);
    assert_ok(room, ebb_json_load(room->ctx, path, &golden));
    assert_true(json_array_size(golden) >= at_least);
    for (size_t i = 0; i < json_array_size(golden); i++) {
        struct ebb_tokenizer *tokenizer;
        json_t *variant = json_array_get(golden, i);
        assert_ok(room, load_patched(room, fixture, json_object_get(variant, "patch"), &tokenizer));
        check_cases(room, tokenizer, variant);
        ebb_tokenizer_free(room->ctx, tokenizer);
    }
    json_decref(golden);
}

#endif
