/* How fast texts become ids on one core.
 *
 *   bench_tokenize MODEL_DIR FILE ROUNDS    each line of FILE is a text
 *
 * Prints one JSON object: bytes and ids of one round, seconds that loading took, and processor
 * seconds of every round after one to warm up.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/tokenizer.h"

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum ebb_status encode_all(struct ebb_ctx *ctx, struct ebb_encoder *encoder,
                                  const struct ebb_map *map, struct ebb_ids *ids, int64_t *count)
{
    const char *text = map->data == NULL ? "" : (const char *)map->data;
    size_t bytes = map->bytes;
    *count = 0;
    while (bytes > 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t line = end == NULL ? bytes : (size_t)(end - text);
        ids->count = 0;
        EBB_TRY(ebb_encode(ctx, encoder, text, line, EBB_ENCODE_SPECIAL, ids));
        *count += ids->count;
        line += end != NULL;
        text += line;
        bytes -= line;
    }
    return EBB_OK;
}

static enum ebb_status measure(struct ebb_ctx *ctx, const char *dir, const struct ebb_map *map,
                               int64_t rounds)
{
    struct ebb_tokenizer *tokenizer = NULL;
    struct ebb_encoder *encoder = NULL;
    struct ebb_ids ids = {0};
    int64_t count = 0;
    double start = ebb_clock_seconds();
    EBB_TRY(ebb_tokenizer_load(ctx, dir, &tokenizer));
    double load = ebb_clock_seconds() - start;
    enum ebb_status status = ebb_encoder_create(ctx, tokenizer, &encoder);
    if (status == EBB_OK) status = encode_all(ctx, encoder, map, &ids, &count);
    printf("{\"bytes\": %zu, \"ids\": %lld, \"load\": %.3f, \"rounds\": [", map->bytes,
           (long long)count, load);
    for (int64_t i = 0; i < rounds && status == EBB_OK; i++) {
        start = processor_seconds();
        status = encode_all(ctx, encoder, map, &ids, &count);
        printf("%s%.6f", i == 0 ? "" : ", ", processor_seconds() - start);
    }
    printf("]}\n");
    ebb_ids_free(ctx, &ids);
    ebb_encoder_free(ctx, encoder);
    ebb_tokenizer_free(ctx, tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    int64_t rounds;
    if (argc != 4 || !ebb_text_int64(argv[3], &rounds) || rounds < 1) {
        fprintf(stderr, "usage: bench_tokenize MODEL_DIR FILE ROUNDS\n");
        return 2;
    }
    struct ebb_ctx *ctx = ebb_ctx_create();
    if (ctx == NULL) return 1;
    struct ebb_map map = {0};
    enum ebb_status status = ebb_map_open(ctx, argv[2], &map);
    if (status == EBB_OK) status = measure(ctx, argv[1], &map, rounds);
    if (status != EBB_OK) fprintf(stderr, "bench_tokenize: %s\n", ebb_error_text(ctx));
    ebb_map_close(&map);
    ebb_ctx_free(ctx);
    return status == EBB_OK ? 0 : 1;
}
