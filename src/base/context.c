/* The context: first error, log sink, warnings given, counted memory. One lock for the state, one
 * for log output, so that a slow terminal never holds up an allocation. The log lock is never taken
 * with the state lock held.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/context.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/context_int.h"
#include "base/text.h"

enum { LOG_TEXT = 4096, BLOCK_ALIGN = 64 };

/* Blocks from this size on come from calloc and grow by realloc: the kernel hands out zero pages
 * and moves them by remapping, so that a large block costs nothing until it is touched. Smaller
 * ones end exactly where their memory ends, which lets the address sanitizer see an overrun of one
 * byte. */
static const size_t large_block = 256u << 10;

static const uint64_t block_magic = 0x6562622d626c6f63u;

/* Lies directly in front of each block. */
struct block_head {
    uint64_t magic;
    size_t bytes;
    size_t offset; /* from the start of the allocation to the block */
};

struct warned_key {
    struct warned_key *next;
    char key[];
};

struct ebb_ctx {
    pthread_mutex_t lock;
    enum ebb_status status;
    char error_text[EBB_ERROR_TEXT];
    char error_where[128];
    struct warned_key *warned;
    int64_t warn_count;
    int64_t bytes_now, bytes_peak;
    int64_t fail_in; /* 0: off; 1: the next allocation fails */
    bool fail_persist;

    pthread_mutex_t log_lock;
    ebb_log_fn log;
    void *log_user;
    bool live_line; /* stderr's last line has no end and is to be cleared */
    char *topics;   /* set once, at creation */
};

/* Reading functions take a const context, yet must lock it; contexts are always on the heap, never
 * const objects. */
static struct ebb_ctx *ctx_lock(const struct ebb_ctx *ctx)
{
    struct ebb_ctx *own = (struct ebb_ctx *)(uintptr_t)ctx;
    pthread_mutex_lock(&own->lock);
    return own;
}

static void ctx_unlock(struct ebb_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

const char *ebb_environment(const char *name)
{
    return getenv(name);
}

struct ebb_ctx *ebb_ctx_create(void)
{
    struct ebb_ctx *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) return NULL;
    const char *topics = getenv("EBB_LOG");
    if (topics != NULL && topics[0] != '\0') {
        ctx->topics = strdup(topics);
        if (ctx->topics == NULL) {
            free(ctx);
            return NULL;
        }
    }
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->log_lock, NULL);
    return ctx;
}

void ebb_ctx_free(struct ebb_ctx *ctx)
{
    if (ctx == NULL) return;
    if (ctx->bytes_now != 0)
        ebb_log(ctx, EBB_LOG_DEBUG, "mem", "%" PRId64 " bytes were never freed", ctx->bytes_now);
    while (ctx->warned != NULL) {
        struct warned_key *next = ctx->warned->next;
        free(ctx->warned);
        ctx->warned = next;
    }
    pthread_mutex_destroy(&ctx->lock);
    pthread_mutex_destroy(&ctx->log_lock);
    free(ctx->topics);
    free(ctx);
}

void ebb_ctx_set_log(struct ebb_ctx *ctx, ebb_log_fn fn, void *user)
{
    pthread_mutex_lock(&ctx->log_lock);
    ctx->log = fn;
    ctx->log_user = user;
    pthread_mutex_unlock(&ctx->log_lock);
}

/* ---- errors ---- */

/* Messages quote what files and command lines say, which may be cut inside a character or be no
 * text at all. */
static void make_utf8(char *text)
{
    size_t bytes = strlen(text), at = 0;
    while ((at += ebb_text_utf8_valid(text + at, bytes - at)) < bytes) text[at++] = '?';
}

/* Formats into `out`; text that is cut ends with "..." and never inside a UTF-8 character. */
static void format_cut(char *out, size_t room, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void format_cut(char *out, size_t room, const char *format, va_list args)
{
    int wanted = vsnprintf(out, room, format, args);
    if (wanted < 0) {
        snprintf(out, room, "(a message that could not be formatted)");
        return;
    }
    if ((size_t)wanted >= room) {
        size_t at = room - 4;
        while (at > 0 && ((unsigned char)out[at] & 0xc0) == 0x80) at--;
        memcpy(out + at, "...", 4);
    }
    make_utf8(out);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

enum ebb_status ebb_fail_at(struct ebb_ctx *ctx, enum ebb_status status, const char *file, int line,
                            const char *format, ...)
{
    EBB_ASSERT(status != EBB_OK);
    int saved_errno = errno;
    char quoted[EBB_ERROR_TEXT], text[EBB_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    format_cut(quoted, sizeof quoted, format, args);
    va_end(args);
    ebb_text_escape(quoted, text, sizeof text);

    ctx_lock(ctx);
    bool first = ctx->status == EBB_OK;
    if (first) {
        memcpy(ctx->error_text, text, sizeof text);
        snprintf(ctx->error_where, sizeof ctx->error_where, "%s:%d", base_name(file), line);
        ctx->status = status;
    }
    ctx_unlock(ctx);
    if (!first) ebb_log(ctx, EBB_LOG_DEBUG, "error", "after the first failure: %s", text);
    errno = saved_errno;
    return status;
}

enum ebb_status ebb_error_status(const struct ebb_ctx *ctx)
{
    struct ebb_ctx *own = ctx_lock(ctx);
    enum ebb_status status = own->status;
    ctx_unlock(own);
    return status;
}

const char *ebb_error_text(const struct ebb_ctx *ctx)
{
    return ebb_error_status(ctx) == EBB_OK ? "" : ctx->error_text;
}

const char *ebb_error_where(const struct ebb_ctx *ctx)
{
    return ebb_error_status(ctx) == EBB_OK ? "" : ctx->error_where;
}

void ebb_error_clear(struct ebb_ctx *ctx)
{
    ctx_lock(ctx);
    ctx->status = EBB_OK;
    ctx->error_text[0] = '\0';
    ctx->error_where[0] = '\0';
    ctx_unlock(ctx);
}

/* ---- log ---- */

static void write_stderr(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody is left to be told */
        text += n;
        bytes -= (size_t)n;
    }
}

/* One write per line, so that lines of several processes do not mix. */
static void log_to_stderr(struct ebb_ctx *ctx, enum ebb_log_level level, const char *topic,
                          const char *text)
{
    char line[4 * LOG_TEXT + 128], shown[4 * LOG_TEXT];
    text = ebb_text_escape(text, shown, sizeof shown);
    const char *clear = ctx->live_line ? "\r\033[K" : "";
    int n = 0;
    switch (level) {
    case EBB_LOG_ERROR: n = snprintf(line, sizeof line, "%sebb: error: %s\n", clear, text); break;
    case EBB_LOG_WARNING:
        n = snprintf(line, sizeof line, "%sebb: warning: %s\n", clear, text);
        break;
    case EBB_LOG_INFO: n = snprintf(line, sizeof line, "%s%s\n", clear, text); break;
    case EBB_LOG_DEBUG:
        n = snprintf(line, sizeof line, "%sebb: [%.64s] %s\n", clear, topic, text);
        break;
    }
    ctx->live_line = false;
    if (n > 0) write_stderr(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static void log_line(struct ebb_ctx *ctx, enum ebb_log_level level, const char *topic,
                     const char *text)
{
    int saved_errno = errno;
    pthread_mutex_lock(&ctx->log_lock);
    if (ctx->log != NULL)
        ctx->log(ctx->log_user, level, topic, text);
    else
        log_to_stderr(ctx, level, topic, text);
    pthread_mutex_unlock(&ctx->log_lock);
    errno = saved_errno;
}

void ebb_log_draw(struct ebb_ctx *ctx, const char *text, size_t bytes, bool live)
{
    pthread_mutex_lock(&ctx->log_lock);
    write_stderr(text, bytes);
    ctx->live_line = live;
    pthread_mutex_unlock(&ctx->log_lock);
}

void ebb_log_end_live(struct ebb_ctx *ctx)
{
    pthread_mutex_lock(&ctx->log_lock);
    if (ctx->live_line) write_stderr("\n", 1);
    ctx->live_line = false;
    pthread_mutex_unlock(&ctx->log_lock);
}

bool ebb_log_enabled(const struct ebb_ctx *ctx, enum ebb_log_level level, const char *topic)
{
    if (level != EBB_LOG_DEBUG) return true;
    const char *at = ctx->topics;
    size_t topic_bytes = topic != NULL ? strlen(topic) : 0;
    while (at != NULL && *at != '\0') {
        size_t n = strcspn(at, ", ");
        if (n == 3 && memcmp(at, "all", 3) == 0) return true;
        if (n > 0 && n == topic_bytes && memcmp(at, topic, n) == 0) return true;
        at += n;
        at += strspn(at, ", ");
    }
    return false;
}

void ebb_log(struct ebb_ctx *ctx, enum ebb_log_level level, const char *topic, const char *format,
             ...)
{
    if (!ebb_log_enabled(ctx, level, topic)) return;
    char text[LOG_TEXT];
    va_list args;
    va_start(args, format);
    format_cut(text, sizeof text, format, args);
    va_end(args);
    log_line(ctx, level, topic != NULL ? topic : "", text);
}

/* True the first time. When there is no memory to remember the key, warning twice is the lesser
 * evil. */
static bool remember_key(struct ebb_ctx *ctx, const char *key)
{
    size_t bytes = strlen(key) + 1;
    bool first = true;
    ctx_lock(ctx);
    ctx->warn_count++;
    for (const struct warned_key *at = ctx->warned; at != NULL && first; at = at->next)
        first = strcmp(at->key, key) != 0;
    if (first) {
        struct warned_key *fresh = malloc(sizeof *fresh + bytes);
        if (fresh != NULL) {
            memcpy(fresh->key, key, bytes);
            fresh->next = ctx->warned;
            ctx->warned = fresh;
        }
    }
    ctx_unlock(ctx);
    return first;
}

void ebb_warn_once(struct ebb_ctx *ctx, const char *key, const char *format, ...)
{
    if (!remember_key(ctx, key)) return;
    char quoted[LOG_TEXT], text[LOG_TEXT];
    va_list args;
    va_start(args, format);
    format_cut(quoted, sizeof quoted, format, args);
    va_end(args);
    ebb_text_escape(quoted, text, sizeof text);
    log_line(ctx, EBB_LOG_WARNING, key, text);
}

int64_t ebb_warn_count(const struct ebb_ctx *ctx)
{
    struct ebb_ctx *own = ctx_lock(ctx);
    int64_t count = own->warn_count;
    ctx_unlock(own);
    return count;
}

/* ---- our own mistakes ---- */

void ebb_assert_failed(const char *file, int line, const char *condition)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "ebb: internal error: '%s' does not hold at %s:%d; please report this\n",
                     condition, base_name(file), line);
    if (n > 0) write_stderr(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    abort();
}

/* ---- host memory ---- */

/* Counts `delta` more bytes; false if this allocation was chosen to fail. */
static bool count_alloc(struct ebb_ctx *ctx, int64_t delta)
{
    bool fine = true;
    ctx_lock(ctx);
    if (ctx->fail_in == 1) {
        fine = false;
        if (!ctx->fail_persist) ctx->fail_in = 0;
    } else if (ctx->fail_in > 1) {
        ctx->fail_in--;
    }
    if (fine) {
        ctx->bytes_now += delta;
        if (ctx->bytes_now > ctx->bytes_peak) ctx->bytes_peak = ctx->bytes_now;
    }
    ctx_unlock(ctx);
    return fine;
}

static void count_free(struct ebb_ctx *ctx, int64_t bytes)
{
    ctx_lock(ctx);
    ctx->bytes_now -= bytes;
    ctx_unlock(ctx);
}

static struct block_head *head_of(void *block)
{
    struct block_head *head = (struct block_head *)block - 1;
    EBB_ASSERT(head->magic == block_magic);
    return head;
}

static void *place_head(char *raw, size_t offset, size_t bytes)
{
    char *block = raw + offset;
    struct block_head *head = (struct block_head *)(void *)block - 1;
    head->magic = block_magic;
    head->bytes = bytes;
    head->offset = offset;
    return block;
}

static size_t large_offset(const char *raw)
{
    uintptr_t first = (uintptr_t)raw + sizeof(struct block_head);
    return (size_t)(((first + BLOCK_ALIGN - 1) & ~(uintptr_t)(BLOCK_ALIGN - 1)) - (uintptr_t)raw);
}

static void *block_create(size_t bytes)
{
    if (bytes >= large_block) {
        char *raw = calloc(1, bytes + 2 * BLOCK_ALIGN);
        return raw != NULL ? place_head(raw, large_offset(raw), bytes) : NULL;
    }
    void *raw = NULL;
    if (posix_memalign(&raw, BLOCK_ALIGN, bytes + BLOCK_ALIGN) != 0) return NULL;
    memset(raw, 0, bytes + BLOCK_ALIGN);
    return place_head(raw, BLOCK_ALIGN, bytes);
}

static void block_destroy(void *block)
{
    /* So that freeing twice stops at head_of, as long as nobody else has the memory yet; volatile,
     * or the compiler would drop a store right before free. */
    volatile struct block_head *head = head_of(block);
    size_t offset = head->offset;
    head->magic = ~block_magic;
    free((char *)block - offset);
}

static void *block_resize(void *block, size_t bytes)
{
    struct block_head head = *head_of(block);
    if (head.bytes < large_block || bytes < large_block) {
        void *fresh = block_create(bytes);
        if (fresh == NULL) return NULL;
        memcpy(fresh, block, head.bytes < bytes ? head.bytes : bytes);
        block_destroy(block);
        return fresh;
    }
    char *raw = realloc((char *)block - head.offset, bytes + 2 * BLOCK_ALIGN);
    if (raw == NULL) return NULL;
    size_t offset = large_offset(raw);
    if (offset != head.offset)
        memmove(raw + offset, raw + head.offset, head.bytes < bytes ? head.bytes : bytes);
    return place_head(raw, offset, bytes);
}

static void fail_memory(struct ebb_ctx *ctx, size_t bytes)
{
    char size[32];
    int64_t shown = bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
    EBB_FAIL(ctx, EBB_NO_MEMORY,
             "out of host memory: %zu bytes (%s) wanted, %" PRId64 " already in use", bytes,
             ebb_text_bytes(shown, size, sizeof size), ebb_mem_bytes_now(ctx));
}

/* No single block may be larger: sizes stay within int64_t, with room for what lies in front. */
static bool size_is_sane(size_t bytes)
{
    return bytes <= SIZE_MAX / 2 - 2 * (size_t)BLOCK_ALIGN;
}

void *ebb_mem_alloc(struct ebb_ctx *ctx, size_t bytes)
{
    void *block = NULL;
    if (size_is_sane(bytes) && count_alloc(ctx, (int64_t)bytes)) {
        block = block_create(bytes);
        if (block == NULL) count_free(ctx, (int64_t)bytes);
    }
    if (block == NULL) fail_memory(ctx, bytes);
    return block;
}

void *ebb_mem_realloc(struct ebb_ctx *ctx, void *block, size_t bytes)
{
    if (block == NULL) return ebb_mem_alloc(ctx, bytes);
    void *fresh = NULL;
    int64_t delta = size_is_sane(bytes) ? (int64_t)bytes - (int64_t)head_of(block)->bytes : 0;
    if (size_is_sane(bytes) && count_alloc(ctx, delta)) {
        fresh = block_resize(block, bytes);
        if (fresh == NULL) count_free(ctx, delta);
    }
    if (fresh == NULL) fail_memory(ctx, bytes);
    return fresh;
}

enum ebb_status ebb_mem_grow(struct ebb_ctx *ctx, void *items, int64_t count, int64_t *room,
                             size_t item_bytes)
{
    char *block; /* whatever the items' type: pointers to objects look alike */
    if (count < *room) return EBB_OK;
    int64_t wanted = *room ? 2 * *room : 8;
    memcpy(&block, items, sizeof block);
    block = ebb_mem_realloc(ctx, block, (size_t)wanted * item_bytes);
    if (block == NULL) return EBB_NO_MEMORY;
    memset(block + (size_t)count * item_bytes, 0, (size_t)(wanted - count) * item_bytes);
    memcpy(items, &block, sizeof block);
    *room = wanted;
    return EBB_OK;
}

void ebb_mem_free(struct ebb_ctx *ctx, void *block)
{
    if (block == NULL) return;
    int64_t bytes = (int64_t)head_of(block)->bytes;
    block_destroy(block);
    count_free(ctx, bytes);
}

char *ebb_mem_strndup(struct ebb_ctx *ctx, const char *text, size_t bytes)
{
    char *copy = ebb_mem_alloc(ctx, bytes + 1);
    if (copy != NULL && bytes > 0) memcpy(copy, text, bytes);
    return copy;
}

char *ebb_mem_strdup(struct ebb_ctx *ctx, const char *text)
{
    return ebb_mem_strndup(ctx, text, strlen(text));
}

char *ebb_mem_format(struct ebb_ctx *ctx, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(NULL, 0, format, args);
    va_end(args);
    EBB_ASSERT(wanted >= 0);
    char *text = ebb_mem_alloc(ctx, (size_t)wanted + 1);
    if (text == NULL) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)wanted + 1, format, args);
    va_end(args);
    return text;
}

int64_t ebb_mem_bytes_now(const struct ebb_ctx *ctx)
{
    struct ebb_ctx *own = ctx_lock(ctx);
    int64_t bytes = own->bytes_now;
    ctx_unlock(own);
    return bytes;
}

int64_t ebb_mem_bytes_peak(const struct ebb_ctx *ctx)
{
    struct ebb_ctx *own = ctx_lock(ctx);
    int64_t bytes = own->bytes_peak;
    ctx_unlock(own);
    return bytes;
}

void ebb_mem_fail_nth(struct ebb_ctx *ctx, int64_t nth, bool persist)
{
    ctx_lock(ctx);
    ctx->fail_in = nth > 0 ? nth : 0;
    ctx->fail_persist = persist;
    ctx_unlock(ctx);
}
