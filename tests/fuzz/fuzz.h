/* What the fuzz targets share: a context that must be left clean, files that live in memory, and
 * checks that abort.
 *
 * A target is one file with LLVMFuzzerTestOneInput. Built with clang's libFuzzer (EBB_FUZZ=ON) it
 * searches; built otherwise, replay.c runs it over the inputs of corpus/TARGET/, and a fault that
 * was found once stays found. Bad input must end in a status with a text, at once, with nothing
 * leaked; what is accepted must keep the target's properties.
 *
 * Where a reader wants several texts the input is cut at NUL bytes, which JSON, YAML and templates
 * have no use for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_FUZZ_H
#define EBB_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

void fuzz_failed(const char *file, int line, const char *condition) __attribute__((noreturn));
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition))

/* A context that logs nowhere. */
struct ebb_ctx *fuzz_open(void);
/* Checks that nothing is left of the run, frees the context and forgets the files. */
void fuzz_close(struct ebb_ctx *ctx);
/* The status of a call: a failure has a text in UTF-8, success has none. Clears the error; true
 * where the call succeeded. */
bool fuzz_succeeded(struct ebb_ctx *ctx, enum ebb_status status);

struct fuzz_text {
    const char *data; /* never NULL; no NUL behind it unless the input goes on */
    size_t bytes;
};
/* Cuts the input's next text off: up to a NUL, or all the rest. */
struct fuzz_text fuzz_take(const uint8_t **data, size_t *bytes);

/* Puts a file into the folder "mem", which exists for the code under test alone. Each time that it
 * is opened it is a block of its own of exactly this size, so that the address sanitizer sees a
 * read behind its end, which a mapped file would hide. */
void fuzz_file(const char *name, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
