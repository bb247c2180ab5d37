/* Golden files of tokenizers: [{name, patch, special, cases: [{text, ids, decoded}]}], made by
 * tools/golden_tokenizer.py.
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

/* One case: ids, and the text that comes of them. */
static inline void check_case(struct room *room, const struct ebb_tokenizer *tokenizer,
                              struct ebb_encoder *encoder, const char *name, const json_t *item,
                              bool special)
{
    const json_t *text = json_object_get(item, "text"), *decoded = json_object_get(item, "decoded");
    const json_t *list = json_object_get(item, "ids");
    struct ebb_ids ids = {0}, wanted = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(list, i));
        assert_ok(room, ebb_ids_add(room->ctx, &wanted, &id, 1));
    }
    assert_ok(room, ebb_encode(room->ctx, encoder, json_string_value(text),
                               json_string_length(text), special ? EBB_ENCODE_SPECIAL : 0, &ids));
    bool same = ids.count == wanted.count &&
                (ids.count == 0 ||
                 memcmp(ids.data, wanted.data, (size_t)ids.count * sizeof *ids.data) == 0);
    if (!same) {
        print_error("%s: \"%s\"\n", name, json_string_value(text));
        print_ids("got   ", &ids);
        print_ids("wanted", &wanted);
    }
    assert_true(same);
    if (decoded == NULL) decoded = text;
    struct ebb_str out = {0};
    assert_ok(room, ebb_tokenizer_decode(room->ctx, tokenizer, ids.data, ids.count, false, &out));
    bool equal = out.bytes == json_string_length(decoded) &&
                 (out.bytes == 0 || memcmp(out.data, json_string_value(decoded), out.bytes) == 0);
    if (!equal)
        print_error("%s: decoded \"%s\" wanted \"%s\"\n", name, out.data,
                    json_string_value(decoded));
    assert_true(equal);
    ebb_str_free(room->ctx, &out);
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

#endif
