/* Unpacking: what compressors write comes back, and what is torn or damaged is an error with its
 * place.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/unpack.h"

enum { ROOM = 1 << 20 };

/* A packed file as it is made up. */
struct packed {
    unsigned char *data; /* [ROOM] */
    size_t bytes;
};

static int make_ctx(void **state)
{
    *state = ebb_ctx_create();
    return *state != NULL ? 0 : -1;
}

static int free_ctx(void **state)
{
    int64_t left = ebb_mem_bytes_now(*state);
    ebb_ctx_free(*state);
    return left == 0 ? 0 : -1;
}

static struct packed packed_create(void)
{
    return (struct packed){calloc(1, ROOM), 0};
}

static void add_bytes(struct packed *to, const void *data, size_t bytes)
{
    assert_true(to->bytes + bytes <= ROOM);
    memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
}

static void add_gzip(struct packed *to, const void *data, size_t bytes)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)bytes;
    stream.next_out = to->data + to->bytes;
    stream.avail_out = (uInt)(ROOM - to->bytes);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    to->bytes = ROOM - stream.avail_out;
    deflateEnd(&stream);
}

static void add_zstd(struct packed *to, const void *data, size_t bytes)
{
    ZSTD_CCtx *stream = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(stream, ZSTD_c_checksumFlag, 1);
    size_t got = ZSTD_compress2(stream, to->data + to->bytes, ROOM - to->bytes, data, bytes);
    assert_false(ZSTD_isError(got));
    to->bytes += got;
    ZSTD_freeCCtx(stream);
}

static void add_packed(struct packed *to, enum ebb_compression compression, const void *data,
                       size_t bytes)
{
    if (compression == EBB_COMPRESSION_GZIP)
        add_gzip(to, data, bytes);
    else
        add_zstd(to, data, bytes);
}

static enum ebb_status unpack(struct ebb_ctx *ctx, const struct packed *from, int64_t limit,
                              char **out, size_t *bytes)
{
    return ebb_unpack(ctx, "t.packed", from->data, from->bytes, limit, out, bytes);
}

static void assert_unpacks(struct ebb_ctx *ctx, const struct packed *from, const void *wanted,
                           size_t wanted_bytes)
{
    char *out;
    size_t bytes;
    if (unpack(ctx, from, 0, &out, &bytes) != EBB_OK) fail_msg("%s", ebb_error_text(ctx));
    assert_int_equal(bytes, wanted_bytes);
    assert_memory_equal(out, wanted, wanted_bytes);
    ebb_mem_free(ctx, out);
}

static void assert_fails(struct ebb_ctx *ctx, const struct packed *from, int64_t limit,
                         enum ebb_status wanted, const char *part)
{
    char *out;
    size_t bytes;
    enum ebb_status status = unpack(ctx, from, limit, &out, &bytes);
    if (status != wanted) fail_msg("%s: %s", ebb_status_name(status), ebb_error_text(ctx));
    if (strstr(ebb_error_text(ctx), part) == NULL)
        fail_msg("'%s' is not in '%s'", part, ebb_error_text(ctx));
    assert_null(out);
    ebb_error_clear(ctx);
}

/* Bytes that do not repeat, so that packed sizes are near the text's. */
static unsigned char *noise(size_t bytes)
{
    unsigned char *data = malloc(bytes);
    uint32_t x = 12345;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (unsigned char)(x >> 24);
    }
    return data;
}

static void compression_is_told_by_the_first_bytes(void **state)
{
    (void)state;
    struct packed gzip = packed_create(), zstd = packed_create();
    add_gzip(&gzip, "a", 1);
    add_zstd(&zstd, "a", 1);
    assert_int_equal(ebb_compression_of(gzip.data, gzip.bytes), EBB_COMPRESSION_GZIP);
    assert_int_equal(ebb_compression_of(zstd.data, zstd.bytes), EBB_COMPRESSION_ZSTD);
    assert_int_equal(ebb_compression_of("\x5a\x2a\x4d\x18", 4), EBB_COMPRESSION_ZSTD);
    assert_int_equal(ebb_compression_of(gzip.data, 1), EBB_COMPRESSION_NONE);
    assert_int_equal(ebb_compression_of(zstd.data, 3), EBB_COMPRESSION_NONE);
    assert_int_equal(ebb_compression_of("[{\"a\": 1}]", 10), EBB_COMPRESSION_NONE);
    assert_int_equal(ebb_compression_of("", 0), EBB_COMPRESSION_NONE);
    assert_string_equal(ebb_compression_name(EBB_COMPRESSION_GZIP), "gzip");
    assert_string_equal(ebb_compression_name(EBB_COMPRESSION_ZSTD), "zstd");
    free(gzip.data);
    free(zstd.data);
}

static void what_was_packed_comes_back(void **state)
{
    struct ebb_ctx *ctx = *state;
    static const size_t sizes[] = {0, 1, 2, 1000, 65535, 65536, 65537, 300000};
    unsigned char *data = noise(300000);
    char *letters = calloc(1, 300000);
    memset(letters, 'a', 300000);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
            struct packed random = packed_create(), plain = packed_create();
            add_packed(&random, (enum ebb_compression)c, data, sizes[i]);
            assert_unpacks(ctx, &random, data, sizes[i]);
            add_packed(&plain, (enum ebb_compression)c, letters, sizes[i]);
            assert_unpacks(ctx, &plain, letters, sizes[i]);
            free(random.data);
            free(plain.data);
        }
    free(data);
    free(letters);
}

static void members_and_frames_follow_each_other(void **state)
{
    struct ebb_ctx *ctx = *state;
    for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
        struct packed p = packed_create();
        add_packed(&p, (enum ebb_compression)c, "one ", 4);
        add_packed(&p, (enum ebb_compression)c, "", 0);
        add_packed(&p, (enum ebb_compression)c, "two ", 4);
        add_packed(&p, (enum ebb_compression)c, "three", 5);
        assert_unpacks(ctx, &p, "one two three", 13);
        free(p.data);
    }
}

static void zstd_frames_to_be_skipped_are_skipped(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct packed p = packed_create();
    add_bytes(&p, "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
    add_zstd(&p, "text", 4);
    add_bytes(&p, "\x5f\x2a\x4d\x18\x00\x00\x00\x00", 8);
    assert_unpacks(ctx, &p, "text", 4);
    free(p.data);
}

/* `zstd --long=31` has windows that libzstd refuses unless it is asked. */
static void a_zstd_window_above_128_mib_is_read(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct packed p = packed_create();
    /* A frame by hand: no content size, window 2^29, one raw block "hello", the last. */
    add_bytes(&p, "\x28\xb5\x2f\xfd\x00\x98\x29\x00\x00hello", 14);
    assert_unpacks(ctx, &p, "hello", 5);
    free(p.data);
}

static void zeros_behind_gzip_are_padding(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct packed p = packed_create();
    add_gzip(&p, "text", 4);
    add_bytes(&p, "\0\0\0\0\0\0\0", 7);
    assert_unpacks(ctx, &p, "text", 4);
    free(p.data);
}

static void what_stands_behind_the_end_is_an_error(void **state)
{
    struct ebb_ctx *ctx = *state;
    char where[64];
    struct packed gzip = packed_create(), zstd = packed_create();
    add_gzip(&gzip, "text", 4);
    snprintf(where, sizeof where,
             "t.packed: the gzip stream is corrupt at byte %zu of %zu: ", gzip.bytes,
             gzip.bytes + 9);
    add_bytes(&gzip, "\0\0garbage", 9);
    assert_fails(ctx, &gzip, 0, EBB_BAD_FILE, where);
    assert_fails(ctx, &gzip, 0, EBB_BAD_FILE, "not gzip any more");
    add_zstd(&zstd, "text", 4);
    add_bytes(&zstd, "garbage", 7);
    assert_fails(ctx, &zstd, 0, EBB_BAD_FILE, "t.packed: the zstd stream is corrupt at byte ");
    free(gzip.data);
    free(zstd.data);
}

/* Two members, cut behind every byte: an error, or, behind the first, its text. */
static void a_stream_cut_off_anywhere_is_an_error(void **state)
{
    struct ebb_ctx *ctx = *state;
    for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
        struct packed p = packed_create();
        add_packed(&p, (enum ebb_compression)c, "the first, the first, the first", 31);
        size_t first = p.bytes;
        add_packed(&p, (enum ebb_compression)c, "the second", 10);
        size_t shortest = c == EBB_COMPRESSION_GZIP ? 2 : 4;
        for (size_t cut = shortest; cut < p.bytes; cut++) {
            /* A block of its own, so that reading behind the end is seen. */
            struct packed torn = {malloc(cut), cut};
            memcpy(torn.data, p.data, cut);
            char where[96];
            snprintf(where, sizeof where, "stream ends too early, at byte %zu of the file", cut);
            if (cut == first)
                assert_unpacks(ctx, &torn, "the first, the first, the first", 31);
            else
                assert_fails(ctx, &torn, 0, EBB_BAD_FILE, where);
            free(torn.data);
        }
        free(p.data);
    }
}

static void a_changed_byte_is_found_or_harmless(void **state)
{
    struct ebb_ctx *ctx = *state;
    static const char text[] = "a text, a text, and one more text to be packed";
    for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
        struct packed p = packed_create();
        add_packed(&p, (enum ebb_compression)c, text, sizeof text);
        size_t found = 0;
        for (size_t at = 4; at < p.bytes; at++) {
            p.data[at] ^= 0x55;
            char *out;
            size_t bytes;
            enum ebb_status status = unpack(ctx, &p, 1 << 20, &out, &bytes);
            p.data[at] ^= 0x55;
            if (status == EBB_OK) { /* a time stamp, say */
                assert_int_equal(bytes, sizeof text);
                assert_memory_equal(out, text, sizeof text);
            }
            found += status == EBB_BAD_FILE;
            ebb_mem_free(ctx, out);
            ebb_error_clear(ctx);
        }
        assert_true(found > p.bytes / 2);
        free(p.data);
    }
}

/* 64 MiB of zeros pack to some KiB: the limit stops them before they are memory. */
static void a_bomb_stops_at_the_limit(void **state)
{
    struct ebb_ctx *ctx = *state;
    size_t bytes = (size_t)64 << 20;
    char *zeros = calloc(1, bytes);
    for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
        struct packed p = packed_create();
        add_packed(&p, (enum ebb_compression)c, zeros, bytes);
        assert_true(p.bytes < 100000);
        assert_fails(ctx, &p, 1 << 20, EBB_NO_MEMORY, "t.packed: unpacks to more than 1 MiB");
        assert_fails(ctx, &p, 1 << 20, EBB_NO_MEMORY, "unpack the file");
        assert_true(ebb_mem_bytes_peak(ctx) < 4 << 20);
        free(p.data);
    }
    free(zeros);
}

static void a_text_that_fills_the_limit_is_taken(void **state)
{
    struct ebb_ctx *ctx = *state;
    for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
        struct packed p = packed_create();
        add_packed(&p, (enum ebb_compression)c, "0123456789", 10);
        char *out;
        size_t bytes;
        assert_int_equal(unpack(ctx, &p, 10, &out, &bytes), EBB_OK);
        assert_int_equal(bytes, 10);
        ebb_mem_free(ctx, out);
        assert_fails(ctx, &p, 9, EBB_NO_MEMORY, "more than 9 B");
        free(p.data);
    }
}

static void what_is_not_compressed_is_refused(void **state)
{
    struct ebb_ctx *ctx = *state;
    struct packed p = {(unsigned char *)(uintptr_t) "plain", 5};
    assert_fails(ctx, &p, 0, EBB_UNSUPPORTED, "t.packed: not compressed with gzip or zstd");
}

static void every_failed_allocation_is_an_error(void **state)
{
    struct ebb_ctx *ctx = *state;
    char *letters = malloc(300000);
    memset(letters, 'b', 300000);
    for (int c = EBB_COMPRESSION_GZIP; c <= EBB_COMPRESSION_ZSTD; c++) {
        struct packed p = packed_create();
        add_packed(&p, (enum ebb_compression)c, letters, 300000);
        int64_t nth = 1;
        for (;; nth++) {
            char *out;
            size_t bytes;
            ebb_mem_fail_nth(ctx, nth, false);
            enum ebb_status status = unpack(ctx, &p, 0, &out, &bytes);
            ebb_mem_fail_nth(ctx, 0, false);
            ebb_mem_free(ctx, out);
            if (status == EBB_OK) break;
            assert_int_equal(status, EBB_NO_MEMORY);
            assert_int_equal(ebb_mem_bytes_now(ctx), 0);
            ebb_error_clear(ctx);
        }
        assert_true(nth > 3);
        free(p.data);
    }
    free(letters);
}

#define CTX_TEST(name) cmocka_unit_test_setup_teardown(name, make_ctx, free_ctx)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compression_is_told_by_the_first_bytes),
        CTX_TEST(what_was_packed_comes_back),
        CTX_TEST(members_and_frames_follow_each_other),
        CTX_TEST(zstd_frames_to_be_skipped_are_skipped),
        CTX_TEST(a_zstd_window_above_128_mib_is_read),
        CTX_TEST(zeros_behind_gzip_are_padding),
        CTX_TEST(what_stands_behind_the_end_is_an_error),
        CTX_TEST(a_stream_cut_off_anywhere_is_an_error),
        CTX_TEST(a_changed_byte_is_found_or_harmless),
        CTX_TEST(a_bomb_stops_at_the_limit),
        CTX_TEST(a_text_that_fills_the_limit_is_taken),
        CTX_TEST(what_is_not_compressed_is_refused),
        CTX_TEST(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
