/* Packing: samples into bins of at most `capacity` tokens, so that a micro-batch is nearly full.
 *
 * Names and meanings of the strategies are TRL's:
 *
 *   bfd        best-fit decreasing. Samples from the longest to the shortest, each into the fullest
 *              bin that still has room for it; never more than 11/9 of the best number of bins plus
 *              one (Johnson 1973). No sample is cut: one above the capacity is an error (the data
 *              set has dropped or cut it before).
 *   bfd_split  samples above the capacity are first split into pieces of `capacity` tokens, the
 *              rest of each being a piece of its own; then bfd over the pieces. No token is lost.
 *   wrapped    samples are laid end to end in their order and cut every `capacity` tokens. Every
 *              bin but the last is full.
 *
 * A piece is a document like any other: its positions begin at 0 and attention stays inside it,
 * also with `wrapped`, where TRL lets neighbours see each other.
 *
 * Deterministic: of samples equally long the lower number goes first, of bins with equal room the
 * one that has had it longest is taken, which are TRL's choices too. Unlike TRL, which packs every
 * thousand samples apart and cuts what is above the capacity silently with bfd, all samples are
 * packed together. Time and memory are of the order of samples + pieces + capacity: a million
 * samples take a fraction of a second.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DATA_PACKING_H
#define EBB_DATA_PACKING_H

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ebb_packing_strategy { EBB_PACKING_BFD, EBB_PACKING_BFD_SPLIT, EBB_PACKING_WRAPPED };

/* A part of a sample: its tokens [start, stop). */
struct ebb_piece {
    int64_t sample, start, stop;
};

/* Bins are ordered by their lowest piece, pieces inside a bin ascend by sample and start.
 * {0} is a valid empty value. */
struct ebb_packing {
    int64_t bins, pieces;
    int64_t *starts;         /* [bins + 1] where each bin begins in items */
    struct ebb_piece *items; /* [pieces] */
    int64_t *tokens;         /* [bins] */
};

/* lengths [count] in tokens, each at least 1. EBB_BAD_CONFIG where bfd meets a sample that is
 * longer than the capacity (naming it). The caller frees. */
enum ebb_status ebb_packing_create(struct ebb_ctx *ctx, const int64_t *lengths, int64_t count,
                                   int64_t capacity, enum ebb_packing_strategy strategy,
                                   struct ebb_packing *packing);
void ebb_packing_free(struct ebb_ctx *ctx, struct ebb_packing *packing);

#ifdef __cplusplus
}
#endif
#endif
