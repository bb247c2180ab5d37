/* Fuzz target: a file compressed with gzip or zstd, unpacked within a limit.
 * What stands in memory is not more than the limit, and the same each time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/unpack.h"

#include <string.h>

#include "fuzz.h"

static const int64_t limit = 1 << 20;

/* Above its limit a file takes no memory, and says so with this status. */
static bool unpack(struct ebb_ctx *ctx, const uint8_t *data, size_t bytes,
                   char **out, size_t *out_bytes) {
  enum ebb_status status =
      ebb_unpack(ctx, "a.gz", data, bytes, limit, out, out_bytes);
  FUZZ_CHECK((status == EBB_OK) == (*out != NULL));
  if (status != EBB_NO_MEMORY)
    return fuzz_succeeded(ctx, status);
  ebb_error_clear(ctx);
  return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct ebb_ctx *ctx = fuzz_open();
  char *text, *again;
  size_t text_bytes = 0, again_bytes = 0;
  FUZZ_CHECK(ebb_compression_name(ebb_compression_of(data, bytes)) != NULL);
  if (unpack(ctx, data, bytes, &text, &text_bytes)) {
    FUZZ_CHECK((int64_t)text_bytes <= limit);
    FUZZ_CHECK(unpack(ctx, data, bytes, &again, &again_bytes));
    FUZZ_CHECK(again_bytes == text_bytes);
    FUZZ_CHECK(text_bytes == 0 || memcmp(text, again, text_bytes) == 0);
    ebb_mem_free(ctx, again);
    ebb_mem_free(ctx, text);
  }
  /* What a decompressor keeps for itself is bounded too, whatever window a
   * stream asks for. */
  FUZZ_CHECK(ebb_mem_bytes_peak(ctx) < 64 * limit);
  fuzz_close(ctx);
  return 0;
}
