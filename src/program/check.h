/* The proof that a program is free of races.
 *
 * Walks the entries in program order with a vector clock per queue: an entry happens after
 * everything before it on its own queue and after whatever its waits happened after. Any two
 * accesses to overlapping bytes, one of them a write, must be ordered so. It also refuses: a
 * transient range read before this program wrote it as that tensor (unless it is held over the
 * whole program), an entry outside its tensor's lifetime, two tensors alive at the same time on
 * the same bytes (persistent ones always are), a view outside its tensor, a wait for a later
 * entry or for an event that another entry recorded since. Time is about linear in accesses and
 * in the pieces that they cut the memory into.
 *
 * It shares no code with the ordering pass (program/order.c) but the list of accesses.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PROGRAM_CHECK_H
#define EBB_PROGRAM_CHECK_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* EBB_FAILED with both entries, the tensors and the bytes in the text. */
enum ebb_status ebb_program_check(struct ebb_ctx *ctx, const struct ebb_program *program);

#ifdef __cplusplus
}
#endif
#endif
