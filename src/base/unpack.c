/* Unpacking of gzip through zlib and of zstd through libzstd.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/unpack.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/clock.h"
#include "base/text.h"

enum {
    FIRST_ROOM = 64 * 1024,
    CALL_BYTES = 1 << 30, /* zlib counts a call's bytes in 32 bits */
    /* The largest window there is (`zstd --long=31`); libzstd refuses more than 27 bits unless it
     * is told. */
    ZSTD_WINDOW_BITS = 31,
};

/* What is unpacked and where it goes. */
struct unpack {
    struct ebb_ctx *ctx;
    const char *path;
    const unsigned char *in;
    size_t in_bytes, in_at; /* in_at: bytes that were taken */
    char *out;
    size_t out_bytes, out_room, limit;
    const char *format;
};

static bool is_gzip(const unsigned char *data, size_t bytes)
{
    return bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

/* A frame, or one to be skipped, which tools put first for their own ends. */
static bool is_zstd(const unsigned char *data, size_t bytes)
{
    if (bytes < 4) return false;
    if (data[0] == 0x28) return data[1] == 0xb5 && data[2] == 0x2f && data[3] == 0xfd;
    return (data[0] & 0xf0) == 0x50 && data[1] == 0x2a && data[2] == 0x4d && data[3] == 0x18;
}

enum ebb_compression ebb_compression_of(const void *data, size_t bytes)
{
    if (is_gzip(data, bytes)) return EBB_COMPRESSION_GZIP;
    return is_zstd(data, bytes) ? EBB_COMPRESSION_ZSTD : EBB_COMPRESSION_NONE;
}

const char *ebb_compression_name(enum ebb_compression compression)
{
    static const char *const names[] = {"none", "gzip", "zstd"};
    return names[compression];
}

/* ---- failures ---- */

static enum ebb_status fail_cut(const struct unpack *u)
{
    return EBB_FAIL(u->ctx, EBB_BAD_FILE,
                    "%s: the %s stream ends too early, at byte %zu of the file\nthe file was cut "
                    "off: copy or download it again",
                    u->path, u->format, u->in_at);
}

static enum ebb_status fail_corrupt(const struct unpack *u, const char *reason)
{
    return EBB_FAIL(u->ctx, EBB_BAD_FILE,
                    "%s: the %s stream is corrupt at byte %zu of %zu: %s\nthe file is damaged: "
                    "copy or download it again",
                    u->path, u->format, u->in_at, u->in_bytes, reason);
}

static enum ebb_status fail_limit(const struct unpack *u)
{
    char size[32];
    return EBB_FAIL(u->ctx, EBB_NO_MEMORY,
                    "%s: unpacks to more than %s, the most that is unpacked in memory here\nunpack "
                    "the file: one that is not compressed needs no memory of its own",
                    u->path, ebb_text_bytes((int64_t)u->limit, size, sizeof size));
}

/* ---- room for what comes out ---- */

/* Makes room behind what is there: doubles it, up to the limit and one byte, by which a text that
 * fills the limit is told from one that goes beyond it. */
static enum ebb_status make_room(struct unpack *u)
{
    if (u->out_bytes > u->limit) return fail_limit(u);
    if (u->out_bytes < u->out_room) return EBB_OK;
    size_t most = u->limit + 1, room = u->out_room * 2;
    if (u->out == NULL) room = u->in_bytes / 2 * 5 + FIRST_ROOM; /* half of what texts unpack to */
    if (room > most) room = most;
    char *grown = ebb_mem_realloc(u->ctx, u->out, room);
    if (grown == NULL) return EBB_NO_MEMORY;
    u->out = grown;
    u->out_room = room;
    return EBB_OK;
}

static size_t at_most(size_t bytes, size_t most)
{
    return bytes < most ? bytes : most;
}

/* ---- gzip ---- */

static void *zlib_alloc(void *ctx, unsigned count, unsigned bytes)
{
    return ebb_mem_alloc(ctx, (size_t)count * bytes);
}

static void zlib_free(void *ctx, void *block)
{
    ebb_mem_free(ctx, block);
}

static enum ebb_status fail_zlib(const struct unpack *u, const z_stream *stream, int code)
{
    if (code == Z_MEM_ERROR)
        return EBB_FAIL(u->ctx, EBB_NO_MEMORY, "out of host memory while unpacking '%s'", u->path);
    return fail_corrupt(u, stream->msg != NULL ? stream->msg : zError(code));
}

/* One member. */
static enum ebb_status gzip_member(struct unpack *u, z_stream *stream)
{
    for (;;) {
        EBB_TRY(make_room(u));
        size_t in = at_most(u->in_bytes - u->in_at, CALL_BYTES);
        size_t out = at_most(u->out_room - u->out_bytes, CALL_BYTES);
        stream->next_in = (Bytef *)(uintptr_t)(u->in + u->in_at); /* only read */
        stream->avail_in = (uInt)in;
        stream->next_out = (Bytef *)u->out + u->out_bytes;
        stream->avail_out = (uInt)out;
        int code = inflate(stream, Z_NO_FLUSH);
        u->in_at += in - stream->avail_in;
        u->out_bytes += out - stream->avail_out;
        if (code == Z_STREAM_END) return EBB_OK;
        if (code == Z_BUF_ERROR && u->in_at == u->in_bytes) return fail_cut(u);
        if (code == Z_OK && u->in_at == u->in_bytes && stream->avail_out > 0) return fail_cut(u);
        if (code != Z_OK) return fail_zlib(u, stream, code);
    }
}

/* Zeros up to the end are what tapes and block devices pad with; gzip itself passes over them. */
static bool only_zeros_left(const struct unpack *u)
{
    for (size_t i = u->in_at; i < u->in_bytes; i++)
        if (u->in[i] != 0) return false;
    return true;
}

static enum ebb_status gzip_members(struct unpack *u, z_stream *stream)
{
    do {
        size_t left = u->in_bytes - u->in_at;
        if (left == 1 && u->in[u->in_at] == 0x1f) {
            u->in_at++;
            return fail_cut(u);
        }
        if (!is_gzip(u->in + u->in_at, left))
            return fail_corrupt(u, "what stands here is not gzip any more");
        int code = inflateReset(stream);
        if (code != Z_OK) return fail_zlib(u, stream, code);
        EBB_TRY(gzip_member(u, stream));
    } while (!only_zeros_left(u));
    return u->out_bytes > u->limit ? fail_limit(u) : EBB_OK;
}

static enum ebb_status unpack_gzip(struct unpack *u)
{
    z_stream stream = {.zalloc = zlib_alloc, .zfree = zlib_free, .opaque = u->ctx};
    int code = inflateInit2(&stream, MAX_WBITS + 16); /* 16: gzip's frame, not zlib's */
    if (code != Z_OK) return fail_zlib(u, &stream, code);
    enum ebb_status status = gzip_members(u, &stream);
    inflateEnd(&stream);
    return status;
}

/* ---- zstd ---- */

static enum ebb_status fail_zstd(const struct unpack *u, size_t code)
{
    if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
        return EBB_FAIL(u->ctx, EBB_NO_MEMORY, "out of host memory while unpacking '%s'", u->path);
    return fail_corrupt(u, ZSTD_getErrorName(code));
}

static enum ebb_status zstd_frames(struct unpack *u, ZSTD_DCtx *stream)
{
    size_t code = ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, ZSTD_WINDOW_BITS);
    if (ZSTD_isError(code)) return fail_zstd(u, code);
    do {
        EBB_TRY(make_room(u));
        ZSTD_inBuffer in = {u->in, u->in_bytes, u->in_at};
        ZSTD_outBuffer out = {u->out, u->out_room, u->out_bytes};
        code = ZSTD_decompressStream(stream, &out, &in);
        u->in_at = in.pos;
        u->out_bytes = out.pos;
        if (ZSTD_isError(code)) return fail_zstd(u, code);
        /* Room left over and nothing left to take: the frame wants more than there is. */
        if (code != 0 && in.pos == in.size && out.pos < out.size) return fail_cut(u);
    } while (code != 0 || u->in_at < u->in_bytes); /* 0: a frame has ended */
    return u->out_bytes > u->limit ? fail_limit(u) : EBB_OK;
}

static enum ebb_status unpack_zstd(struct unpack *u)
{
    ZSTD_DCtx *stream = ZSTD_createDCtx();
    if (stream == NULL)
        return EBB_FAIL(u->ctx, EBB_NO_MEMORY, "out of host memory while unpacking '%s'", u->path);
    enum ebb_status status = zstd_frames(u, stream);
    ZSTD_freeDCtx(stream);
    return status;
}

/* ---- either ---- */

static size_t limit_of(int64_t limit)
{
    if (limit > 0) return (size_t)limit;
    int64_t available = ebb_host_bytes_available();
    return (size_t)(available < EBB_UNPACK_BYTES_MAX ? available : EBB_UNPACK_BYTES_MAX);
}

enum ebb_status ebb_unpack(struct ebb_ctx *ctx, const char *path, const void *data, size_t bytes,
                           int64_t limit, char **out, size_t *out_bytes)
{
    *out = NULL;
    *out_bytes = 0;
    enum ebb_compression compression = ebb_compression_of(data, bytes);
    struct unpack u = {.ctx = ctx,
                       .path = path,
                       .in = data,
                       .in_bytes = bytes,
                       .limit = limit_of(limit),
                       .format = ebb_compression_name(compression)};
    enum ebb_status status;
    if (compression == EBB_COMPRESSION_GZIP)
        status = unpack_gzip(&u);
    else if (compression == EBB_COMPRESSION_ZSTD)
        status = unpack_zstd(&u);
    else
        status = EBB_FAIL(ctx, EBB_UNSUPPORTED, "%s: not compressed with gzip or zstd", path);
    /* What doubling has left over goes back. */
    char *fit = status == EBB_OK ? ebb_mem_realloc(ctx, u.out, u.out_bytes + 1) : NULL;
    if (status == EBB_OK && fit == NULL) status = EBB_NO_MEMORY;
    if (status != EBB_OK) {
        ebb_mem_free(ctx, u.out);
        return status;
    }
    fit[u.out_bytes] = '\0'; /* for whoever looks at it in a debugger */
    *out = fit;
    *out_bytes = u.out_bytes;
    return EBB_OK;
}
