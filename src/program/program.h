/* A program: one step's work as data. Tensors with byte ranges and lifetimes, entries on queues,
 * edges between queues.
 *
 * How one is made, in this order (each stage is refused before the one above it is done):
 *   1. create   with the persistent tensors that all programs of a plan share
 *   2. build    add transient tensors, append entries (ops and moves) in *program order*: an order
 *               in which running them one after the other would be right
 *   3. finish   lifetimes are known; `poison` (torture) writes NaN over every transient range after
 *               its last use
 *   4. layout   transient tensors whose lifetimes overlap get disjoint ranges (program/layout.c)
 *   5. order    edges: the fewest waits between queues that make every pair of conflicting accesses
 *               happen in program order (program/order.c)
 * Tests prove 5 from the outside (program/check.h); an executor runs it (program/executor.h).
 *
 * Since every edge points forward in program order and each queue runs in program order, a
 * program cannot deadlock. A tensor's lifetime is from the first to the last entry that touches
 * it, counted in program order and stretched by ebb_program_hold. Ranges are at capacity: what a
 * run with fewer tokens touches lies inside them.
 *
 * Strings are borrowed unless stated; a program owns its tables. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_PROGRAM_H
#define EBB_PROGRAM_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of every tensor's offset: what copy engines and vector units like. */
enum { EBB_ALIGN_BYTES = 256 };
static inline int64_t ebb_align_up(int64_t bytes)
{
    return (bytes + EBB_ALIGN_BYTES - 1) / EBB_ALIGN_BYTES * EBB_ALIGN_BYTES;
}

struct ebb_tensor {
    char name[48]; /* "layer3.qkv"; for messages, tables and the memory map */
    enum ebb_space space;
    bool persistent; /* laid out by the plan, the same in all its programs */
    bool whole;      /* transient, yet held throughout: a later run finds what an earlier left */
    int64_t bytes;
    int64_t offset;      /* from the start of its space; -1 before layout */
    int32_t first, last; /* lifetime in entry indices; first > last: never touched */
};

enum ebb_entry_kind {
    EBB_ENTRY_OP,  /* run an op */
    EBB_ENTRY_OUT, /* move view 0 (device) to view 1 (host) */
    EBB_ENTRY_IN   /* move view 1 (host) to view 0 (device) */
};

/* Runs of a program in which an entry does its work; in others it is passed over, its waits and
 * events excepted. Lifetimes, order and sizes are those of a program in which all entries run. */
enum ebb_entry_when {
    EBB_RUNS_ALWAYS,
    EBB_RUNS_FIRST, /* a step's first: step->first of the run's first micro-batch */
    EBB_RUNS_LATER  /* the others */
};

/* A program may take several micro-batches in a run, each with values of its own (op/step.h). An
 * entry is one micro-batch's, and passed over in a run that has no such, or all of theirs: then it
 * has the first one's values. */
enum {
    EBB_MICRO_ALL = -1,
    EBB_MICROS_MOST = 16 /* of a run */
};

/* A move of whole rows: part of a stash object. Both views have the same shape, dtype, extent
 * and row0; each is contiguous. Live rows only are moved. */
struct ebb_move {
    struct ebb_view device;
    struct ebb_view host;
    /* Stash object that the host tensor is the home of. -1: none, a plain copy (of a persistent
     * host tensor: what it holds is older than the run, which the stash would refuse). */
    int32_t object;
    int32_t last; /* out: 1 if this ends the object's generation */
};

struct ebb_entry {
    uint8_t kind;       /* enum ebb_entry_kind */
    uint8_t queue;      /* enum ebb_queue */
    uint16_t op;        /* enum ebb_op, for EBB_ENTRY_OP */
    uint8_t when;       /* enum ebb_entry_when */
    int8_t micro;       /* of the run's micro-batches, from 0; or EBB_MICRO_ALL */
    int32_t args;       /* where its arguments start in the program's pool, in bytes */
    int32_t waits;      /* first wait in the program's wait list */
    int32_t wait_count; /* entries on other queues that must have run before this one */
    int32_t event;      /* recorded after this entry, as another queue waits for it; -1: none */
};

struct ebb_program;

/* `persistent` [count] is copied and gets tensor indices 0 .. count - 1; their offsets are set
 * already. */
enum ebb_status ebb_program_create(struct ebb_ctx *ctx, const char *name,
                                   const struct ebb_tensor *persistent, int32_t count,
                                   struct ebb_program **program);
void ebb_program_free(struct ebb_program *program); /* accepts NULL */

/* ---- build ---- */

/* Makes room for as much as another program has, before one that is much like it is written. */
enum ebb_status ebb_program_reserve(struct ebb_program *program, const struct ebb_program *like);

/* Adds a transient tensor; its index comes by pointer. The name is copied (and cut). */
enum ebb_status ebb_program_tensor(struct ebb_program *program, enum ebb_space space, int64_t bytes,
                                   int32_t *tensor, const char *name_format, ...)
    __attribute__((format(printf, 5, 6)));
/* Makes a tensor larger, before finish; a smaller size is ignored. For scratch whose need shows
 * as ops are added. */
void ebb_program_grow(struct ebb_program *program, int32_t tensor, int64_t bytes);
/* Appends an op; args is its argument struct, copied. */
enum ebb_status ebb_program_op(struct ebb_program *program, enum ebb_queue queue, enum ebb_op op,
                               const void *args);
enum ebb_status ebb_program_move(struct ebb_program *program, enum ebb_queue queue,
                                 enum ebb_entry_kind kind, const struct ebb_move *move);
/* Says when the entry that was appended last runs. */
void ebb_program_when(struct ebb_program *program, enum ebb_entry_when when);
/* Says whose the entries are that are appended from here on; at first micro-batch 0's. Returns
 * whose they were. */
int32_t ebb_program_set_micro(struct ebb_program *program, int32_t micro);
/* Stretches a tensor's lifetime to the entry that was appended last (and, with `whole`, over the
 * whole program: what a later run of the same program finds again, such as a key/value cache). */
void ebb_program_hold(struct ebb_program *program, int32_t tensor, bool whole);
/* A stash object whose home is a host tensor; its index comes by pointer. Where that tensor is
 * persistent, its moves are plain copies: the stash knows what left in this run only. */
enum ebb_status ebb_program_object(struct ebb_program *program, int32_t host_tensor,
                                   int32_t *object);

/* ---- finish, layout, order ---- */

/* Ends building. poison: adds, after each transient device tensor's last use, an entry that
 * fills it with 0xff (NaN in every float format). */
enum ebb_status ebb_program_finish(struct ebb_program *program, bool poison);
/* Gives transient tensors of each space offsets from `start[space]` on, aligned to
 * EBB_ALIGN_BYTES. The ends are then ebb_program_end(). apart: no two tensors share a byte
 * (torture). */
enum ebb_status ebb_program_layout(struct ebb_program *program,
                                   const int64_t start[EBB_SPACE_COUNT], bool apart);
/* The same where device memory may end at `limit` or below. Where it can't, since more is alive at
 * once, that is seen before tensors are placed, most of the work: only the host's are, the program
 * can be neither ordered nor run, and *end is the end that it would have at least. Else *end is
 * device memory's end, which may lie above the limit, too. */
enum ebb_status ebb_program_layout_within(struct ebb_program *program,
                                          const int64_t start[EBB_SPACE_COUNT], bool apart,
                                          int64_t limit, int64_t *end);
enum ebb_status ebb_program_order(struct ebb_program *program);

/* ---- reading ---- */

const char *ebb_program_name(const struct ebb_program *program);
int32_t ebb_program_tensors(const struct ebb_program *program);
/* How many of them are persistent. */
int32_t ebb_program_persistent(const struct ebb_program *program);
const struct ebb_tensor *ebb_program_tensor_at(const struct ebb_program *program, int32_t tensor);
int32_t ebb_program_entries(const struct ebb_program *program);
const struct ebb_entry *ebb_program_entry_at(const struct ebb_program *program, int32_t entry);
const void *ebb_program_args(const struct ebb_program *program, const struct ebb_entry *entry);
/* The k-th entry that `entry` waits for. */
int32_t ebb_program_wait_at(const struct ebb_program *program, const struct ebb_entry *entry,
                            int32_t k);
int32_t ebb_program_events(const struct ebb_program *program);
int32_t ebb_program_objects(const struct ebb_program *program);
int32_t ebb_program_object_tensor(const struct ebb_program *program, int32_t object);
/* End of the highest range that the program uses in a space (its persistent tensors included
 * where touched); 0: none. */
int64_t ebb_program_end(const struct ebb_program *program, enum ebb_space space);
/* The first bytes of the host space that are not pinned, for what moves of them cost
 * (plan/rates.h); 0 until it is said. */
void ebb_program_set_pageable(struct ebb_program *program, int64_t bytes);
/* Of the first `bytes` that a move's host view has, how many are not pinned; 0 for an op. A
 * program that is laid out. */
int64_t ebb_entry_pageable(const struct ebb_program *program, const struct ebb_entry *entry,
                           int64_t bytes);
/* How many micro-batches a run takes, at most. */
int32_t ebb_program_micros(const struct ebb_program *program);
/* Whether an entry does its work in a run of `count` micro-batches, which is a step's first one or
 * not. */
bool ebb_entry_runs(const struct ebb_entry *entry, int32_t count, bool first);
/* Whose values an entry has. */
static inline int32_t ebb_entry_micro(const struct ebb_entry *entry)
{
    return entry->micro < 0 ? 0 : entry->micro;
}
/* Bytes moved by OUT and IN entries at capacity, in a step's first run. */
void ebb_program_traffic(const struct ebb_program *program, int64_t *bytes_out, int64_t *bytes_in);

/* One access of an entry: which bytes, whether written. i runs over the entry's views; false for
 * absent ones. A view with a stride counts as everything from its first byte to its last, at
 * capacity. */
struct ebb_access {
    enum ebb_space space;
    int64_t begin, end; /* bytes in the space */
    int32_t tensor;
    bool reads, writes;
};
int ebb_program_views(const struct ebb_program *program, const struct ebb_entry *entry);
bool ebb_program_access(const struct ebb_program *program, const struct ebb_entry *entry, int i,
                        struct ebb_access *access);

/* Tests: removes the k-th of all edges of the program (0 .. edges - 1). */
int32_t ebb_program_edges(const struct ebb_program *program);
void ebb_program_remove_edge(struct ebb_program *program, int32_t k);

#ifdef __cplusplus
}
#endif
#endif
