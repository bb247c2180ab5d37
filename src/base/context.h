/* The context: where errors, log lines and memory counts go. Passed first to everything; there is
 * no global state.
 *
 * Thread safety: every function here may be called from any thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_CONTEXT_H
#define EBB_CONTEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_ctx;

enum { EBB_ERROR_TEXT = 2048 };

enum ebb_log_level { EBB_LOG_ERROR, EBB_LOG_WARNING, EBB_LOG_INFO, EBB_LOG_DEBUG };

/* Receives each log line, without a newline at its end. Must not call back into the context. */
typedef void (*ebb_log_fn)(void *user, enum ebb_log_level level, const char *topic,
                           const char *text);

/* Creates a context. EBB_LOG=topic,topic in the environment turns on debug lines of those topics
 * ("all": every one). Returns NULL only when the process has no memory left. The caller frees. */
struct ebb_ctx *ebb_ctx_create(void);
void ebb_ctx_free(struct ebb_ctx *ctx); /* accepts NULL */

/* Log lines go to stderr, control characters as "\x1b", unless a sink is set. */
void ebb_ctx_set_log(struct ebb_ctx *ctx, ebb_log_fn fn, void *user);

/* A variable of the environment, for rooms that must say what it was; NULL: not set. Borrowed. */
const char *ebb_environment(const char *name);

/* ---- errors ---- */

/* Records a failure and returns `status`. Only the first failure since the last ebb_error_clear is
 * kept. The text says what, where, got, wanted and what to do next; lower case, no full stop, names
 * in single quotes. Further lines after '\n' are hints. What it quotes may be any bytes: the text
 * kept is UTF-8, '?' where it is not, and has control characters as "\x1b". */
enum ebb_status ebb_fail_at(struct ebb_ctx *ctx, enum ebb_status status, const char *file, int line,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));
#define EBB_FAIL(ctx, status, ...) ebb_fail_at((ctx), (status), __FILE__, __LINE__, __VA_ARGS__)

enum ebb_status ebb_error_status(const struct ebb_ctx *ctx); /* EBB_OK if nothing failed */
/* "" if nothing failed; borrowed, valid until clear. */
const char *ebb_error_text(const struct ebb_ctx *ctx);
const char *ebb_error_where(const struct ebb_ctx *ctx); /* "file.c:123", for debugging; borrowed */
void ebb_error_clear(struct ebb_ctx *ctx);

/* ---- log ---- */

void ebb_log(struct ebb_ctx *ctx, enum ebb_log_level level, const char *topic, const char *format,
             ...) __attribute__((format(printf, 4, 5)));
/* A warning that appears once per run: `key` names it. It says what was decided and which option
 * changes it. */
void ebb_warn_once(struct ebb_ctx *ctx, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* How often ebb_warn_once was called, also for what had been said already: whether a stretch of
 * work had something to warn of. */
int64_t ebb_warn_count(const struct ebb_ctx *ctx);
bool ebb_log_enabled(const struct ebb_ctx *ctx, enum ebb_log_level level, const char *topic);

/* ---- our own mistakes ---- */

/* Stays on in release: a wrong gradient is worse than a stop. Prints the condition and aborts. */
void ebb_assert_failed(const char *file, int line, const char *condition) __attribute__((noreturn));
#define EBB_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : ebb_assert_failed(__FILE__, __LINE__, #condition))

/* ---- host memory ---- */

/* Zeroed heap memory, counted, aligned to 64 bytes. NULL after recording EBB_NO_MEMORY in the
 * context. ebb_mem_free accepts NULL. A realloc of NULL allocates; zero bytes are a block too. */
void *ebb_mem_alloc(struct ebb_ctx *ctx, size_t bytes);
/* New space behind the old size is not zeroed. On failure the old block stays valid. */
void *ebb_mem_realloc(struct ebb_ctx *ctx, void *block, size_t bytes);
/* Room for one more item behind `count` in a list. `items` is the address of the pointer to it;
 * where *room, in items, is used up it doubles, and what is new is zero. On failure the list
 * stays. */
enum ebb_status ebb_mem_grow(struct ebb_ctx *ctx, void *items, int64_t count, int64_t *room,
                             size_t item_bytes);
void ebb_mem_free(struct ebb_ctx *ctx, void *block);
char *ebb_mem_strdup(struct ebb_ctx *ctx, const char *text);
char *ebb_mem_strndup(struct ebb_ctx *ctx, const char *text, size_t bytes);
char *ebb_mem_format(struct ebb_ctx *ctx, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int64_t ebb_mem_bytes_now(const struct ebb_ctx *ctx);
int64_t ebb_mem_bytes_peak(const struct ebb_ctx *ctx);
/* Tests: the nth allocation from now fails (1 = the next), once or, with `persist`, from then on. 0
 * turns it off. */
void ebb_mem_fail_nth(struct ebb_ctx *ctx, int64_t nth, bool persist);

#ifdef __cplusplus
}
#endif
#endif
