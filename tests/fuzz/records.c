/* Fuzz target: a file of records. The first byte says by which name it is
 * opened, and whether its columns and roles are renamed; the rest is the file.
 * An array whose records are all accepted is JSON as a whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/records.h"

#include <string.h>

#include "fuzz.h"

static const char *const names[] = {"a.jsonl", "a.json",   "a.csv",
                                    "a.tsv",   "a.csv.gz", "a.zst"};
enum { NAMES = sizeof names / sizeof names[0] };
static const char *const splits[] = {NULL, "train[:50%]", "train[1:3]",
                                     "train[50%:]"};
enum { SPLITS = sizeof splits / sizeof splits[0] };

static const char columns_text[] =
    "{prompt: q, completion: a, messages: m, role: who, content: says}";
static const char roles_text[] = "{user: [human, h], assistant: gpt}";

/* The number of records that were accepted. */
static int64_t parse_all(struct ebb_ctx *ctx,
                         const struct ebb_records *records) {
  int64_t good = 0;
  for (int64_t i = 0; i < records->count; i++) {
    json_t *json;
    char *name = ebb_records_name(ctx, records, i);
    FUZZ_CHECK(name != NULL &&
               ebb_text_utf8_valid(name, strlen(name)) == strlen(name));
    ebb_mem_free(ctx, name);
    bool parsed =
        fuzz_succeeded(ctx, ebb_records_parse(ctx, records, i, &json));
    FUZZ_CHECK(parsed == (json != NULL));
    FUZZ_CHECK(!parsed || json_is_object(json));
    json_decref(json);
    good += parsed;
  }
  return good;
}

static void check_array(struct ebb_ctx *ctx,
                        const struct ebb_records *records) {
  struct ebb_span text = records->files[0].text;
  json_t *json = NULL;
  FUZZ_CHECK(fuzz_succeeded(
      ctx, ebb_json_parse(ctx, "whole", 0, text.data, text.bytes, &json)));
  FUZZ_CHECK((int64_t)json_array_size(json) == records->span_count);
  json_decref(json);
}

static void check_records(struct ebb_ctx *ctx,
                          const struct ebb_records *records) {
  FUZZ_CHECK(records->file_count == 1 && records->count > 0);
  FUZZ_CHECK(records->first >= 0 &&
             records->first + records->count <= records->span_count);
  struct ebb_span all = records->files[0].text;
  const char *last = all.data;
  for (int64_t i = 0; i < records->span_count; i++) {
    struct ebb_span text = records->spans[i].text;
    FUZZ_CHECK(records->spans[i].file == 0);
    FUZZ_CHECK(text.data >= last &&
               text.data + text.bytes <= all.data + all.bytes);
    last = text.data + text.bytes;
  }
  bool all_good = parse_all(ctx, records) == records->span_count;
  if (all_good && records->files[0].kind == EBB_RECORDS_ARRAY)
    check_array(ctx, records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0)
    return 0;
  struct ebb_ctx *ctx = fuzz_open();
  struct ebb_yaml *columns, *roles;
  struct ebb_records records = {0};
  char path[32] = "mem/";
  const char *name = names[data[0] % NAMES];
  bool renamed = data[0] / NAMES % 2 != 0;
  memcpy(path + strlen(path), name, strlen(name) + 1);
  fuzz_file(name, data + 1, bytes - 1);
  FUZZ_CHECK(
      fuzz_succeeded(ctx, ebb_yaml_parse(ctx, "columns", columns_text,
                                         sizeof columns_text - 1, &columns)));
  FUZZ_CHECK(
      fuzz_succeeded(ctx, ebb_yaml_parse(ctx, "roles", roles_text,
                                         sizeof roles_text - 1, &roles)));
  struct ebb_records_options options = {
      .path = path,
      .split = splits[data[0] / (2 * NAMES) % SPLITS],
      .columns = renamed ? columns : NULL,
      .roles = renamed ? roles : NULL};
  if (fuzz_succeeded(ctx, ebb_records_open(ctx, &options, &records)))
    check_records(ctx, &records);
  ebb_records_close(ctx, &records);
  ebb_yaml_free(ctx, columns);
  ebb_yaml_free(ctx, roles);
  fuzz_close(ctx);
  return 0;
}
