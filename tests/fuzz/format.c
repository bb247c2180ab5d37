/* Fuzz target: one record, as JSON, through its format. The first byte picks
 * the format by name or leaves it to the record's keys, the second what is
 * trained. Parts and samples are in order and end in the text; ids have a mark
 * each. SPDX-License-Identifier: Apache-2.0 */
#include "data/format.h"

#include <string.h>

#include "fuzz.h"

static const char *const names[] = {NULL,
                                    NULL,
                                    "messages",
                                    "sharegpt",
                                    "preference",
                                    "unpaired",
                                    "prompt_completion",
                                    "alpaca",
                                    "alpaca_chat",
                                    "tokenized",
                                    "text"};
enum { NAMES = sizeof names / sizeof names[0] };

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% "
    "if m.tool_calls %}"
    "{{ m.tool_calls|tojson }}{% endif %}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

static void check_rendering(const struct ebb_rendering *out) {
  size_t last = 0;
  FUZZ_CHECK(out->samples >= 0 && out->samples <= 2);
  if (out->tokenized) {
    FUZZ_CHECK((size_t)out->ids.count == out->marks.bytes);
    return;
  }
  for (int64_t i = 0; i < out->count; i++) {
    FUZZ_CHECK(out->items[i].end >= last &&
               out->items[i].end <= out->text.bytes);
    last = out->items[i].end;
  }
  for (int64_t s = 0; s < out->samples; s++)
    FUZZ_CHECK(out->part_ends[s] >= (s == 0 ? 0 : out->part_ends[s - 1]) &&
               out->part_ends[s] <= out->count);
}

static void render(struct ebb_ctx *ctx, const struct ebb_format_env *env,
                   const char *name, const struct ebb_format_record *record) {
  const struct ebb_format *format;
  struct ebb_rendering out = {0};
  if (!fuzz_succeeded(ctx, ebb_format_find(ctx, name, env, record, &format)))
    return;
  for (int i = 0; i < 2; i++) {
    ebb_rendering_clear(&out);
    if (fuzz_succeeded(ctx, format->render(ctx, env, record, &out)))
      check_rendering(&out);
  }
  ebb_rendering_free(ctx, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes < 2)
    return 0;
  struct ebb_ctx *ctx = fuzz_open();
  struct ebb_chat_template *chat;
  struct ebb_records records = {0};
  struct ebb_records_options options = {.path = "mem/a.jsonl"};
  json_t *json;
  fuzz_file("a.jsonl", data + 2, bytes - 2);
  FUZZ_CHECK(fuzz_succeeded(
      ctx, ebb_chat_template_create(ctx, "t.jinja", template_text,
                                    sizeof template_text - 1, &chat)));
  FUZZ_CHECK(fuzz_succeeded(
      ctx, ebb_chat_template_set_token(ctx, chat, "eos_token", "</s>")));
  struct ebb_format_env env = {
      .purpose = data[1] & 1 ? EBB_PURPOSE_PREFERENCE : EBB_PURPOSE_SFT,
      .text_field = "text",
      .chat = data[1] & 2 ? NULL : chat,
      .completion_only = (enum ebb_loss_part)(data[1] >> 2 & 3) % 3,
      .assistant_only = (enum ebb_loss_part)(data[1] >> 4 & 3) % 3,
      .last_turn_only = (data[1] & 64) != 0};
  if (fuzz_succeeded(ctx, ebb_records_open(ctx, &options, &records)))
    for (int64_t i = 0; i < records.count; i++) {
      if (!fuzz_succeeded(ctx, ebb_records_parse(ctx, &records, i, &json)))
        continue;
      struct ebb_format_record record = {&records, i, json};
      render(ctx, &env, names[data[0] % NAMES], &record);
      json_decref(json);
    }
  ebb_records_close(ctx, &records);
  ebb_chat_template_free(ctx, chat);
  fuzz_close(ctx);
  return 0;
}
