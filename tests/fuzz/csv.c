/* Fuzz target: CSV, or TSV where the input begins with a tab. Rows and fields
 * lie in the text, in order; rows written with quotes around all fields read as
 * the same fields. SPDX-License-Identifier: Apache-2.0 */
#include "data/csv.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

/* Adds [+=] the row's fields as one row of quoted ones. Returns their number.
 */
static int64_t write_row(struct ebb_ctx *ctx, struct ebb_span text,
                         char separator, struct ebb_str *out) {
  struct ebb_csv row = {text.data, text.bytes, 0, separator};
  struct ebb_str scratch = {0};
  struct ebb_csv_field field;
  int64_t count = 0;
  for (;; count++) {
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_csv_field(ctx, &row, &scratch, &field)));
    if (!field.there)
      break;
    FUZZ_CHECK(field.text.bytes <= text.bytes);
    if (count > 0)
      FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, &separator, 1)));
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, "\"", 1)));
    for (size_t i = 0; i < field.text.bytes; i++) {
      const char *c = &field.text.data[i];
      if (*c == '"')
        FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, c, 1)));
      FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, c, 1)));
    }
    FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, "\"", 1)));
  }
  FUZZ_CHECK(fuzz_succeeded(ctx, ebb_str_add(ctx, out, "\n", 1)));
  ebb_str_free(ctx, &scratch);
  return count;
}

/* All rows of `text`, written anew into `out`. False where a quote stays open.
 */
static bool write_rows(struct ebb_ctx *ctx, const char *text, size_t bytes,
                       char separator, struct ebb_str *out) {
  struct ebb_csv csv = {text, bytes, 0, separator};
  struct ebb_span row;
  const char *last = text;
  enum ebb_csv_found found;
  while ((found = ebb_csv_row(&csv, &row)) == EBB_CSV_ROW) {
    FUZZ_CHECK(row.data >= last && row.data + row.bytes <= text + bytes);
    FUZZ_CHECK(row.bytes > 0 && csv.at <= bytes);
    FUZZ_CHECK(ebb_csv_line(text, (size_t)(row.data - text)) >= 1);
    FUZZ_CHECK(write_row(ctx, row, separator, out) > 0);
    last = row.data + row.bytes;
  }
  return found == EBB_CSV_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct ebb_ctx *ctx = fuzz_open();
  char separator = bytes > 0 && data[0] == '\t' ? '\t' : ',';
  char *text = (char *)malloc(bytes + (bytes == 0));
  struct ebb_str once = {0}, twice = {0};
  FUZZ_CHECK(text != NULL);
  if (bytes > 0)
    memcpy(text, data, bytes);
  if (write_rows(ctx, text, bytes, separator, &once)) {
    FUZZ_CHECK(write_rows(ctx, once.data == NULL ? "" : once.data, once.bytes,
                          separator, &twice));
    FUZZ_CHECK(once.bytes == twice.bytes);
    FUZZ_CHECK(once.bytes == 0 ||
               memcmp(once.data, twice.data, once.bytes) == 0);
  }
  ebb_str_free(ctx, &once);
  ebb_str_free(ctx, &twice);
  free(text);
  fuzz_close(ctx);
  return 0;
}
