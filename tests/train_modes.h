/* Ways to lay a model's saved tensors out that tests compare with keeping everything.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_MODES_H
#define EBB_TRAIN_MODES_H

#include "plan/policy.h"

/* Slots of a decoder's layer. */
enum { X, QKV, O, X2, GATE_UP, SLOTS };
struct mode {
    const char *name; /* "early": with rates by which slots come in early, in train_policy.c */
    struct ebb_memory_keys keys;
    struct ebb_policy_rule rules[8];
};

static const struct mode modes[] = {
    {"full checkpointing",
     {EBB_TRUE, EBB_FALSE, NULL, 0, EBB_AUTO, EBB_AUTO},
     {{0, 0, 0, 0, EBB_POLICY_KEEP}}},
    {"layer inputs to host",
     {EBB_TRUE, EBB_TRUE, NULL, 0, EBB_AUTO, EBB_AUTO},
     {{0, 0, 0, 0, EBB_POLICY_KEEP}}},
    {"all slots to host",
     {EBB_FALSE, EBB_TRUE, NULL, 0, EBB_AUTO, EBB_AUTO},
     {{0, 0, 0, 0, EBB_POLICY_KEEP}}},
    {"attention output kept",
     {EBB_AUTO, EBB_AUTO, NULL, 2, EBB_AUTO, EBB_AUTO},
     {{0, -1, 0, X, EBB_POLICY_KEEP}, {0, -1, 0, O, EBB_POLICY_KEEP}}},
    {"every second layer input",
     {EBB_AUTO, EBB_AUTO, NULL, 1, EBB_AUTO, EBB_AUTO},
     {{0, -1, 2, X, EBB_POLICY_HOST}}},
    {"attention output to host, every second layer input kept",
     {EBB_AUTO, EBB_AUTO, NULL, 2, EBB_AUTO, EBB_AUTO},
     {{0, -1, 2, X, EBB_POLICY_KEEP}, {0, -1, 0, O, EBB_POLICY_HOST}}},
    {"every layer input made again",
     {EBB_AUTO, EBB_AUTO, NULL, 1, EBB_AUTO, EBB_AUTO},
     {{0, -1, 0, X, EBB_POLICY_RECOMPUTE}}},
    /* Units away: frozen matrices, or what belongs to trained ones. */
    {"everything kept, weights and optimizer away",
     {EBB_FALSE, EBB_FALSE, NULL, 0, EBB_TRUE, EBB_TRUE},
     {{0, 0, 0, 0, EBB_POLICY_KEEP}}},
    {"full checkpointing, weights and optimizer away",
     {EBB_TRUE, EBB_FALSE, NULL, 0, EBB_TRUE, EBB_TRUE},
     {{0, 0, 0, 0, EBB_POLICY_KEEP}}},
    {"every second layer input, weights and optimizer away",
     {EBB_AUTO, EBB_AUTO, NULL, 2, EBB_TRUE, EBB_TRUE},
     {{0, -1, 2, X, EBB_POLICY_HOST}, {1, -1, 0, O, EBB_POLICY_HOST}}},
    {"mixed ranges",
     {EBB_AUTO, EBB_AUTO, NULL, 6, EBB_AUTO, EBB_AUTO},
     {{0, 0, 0, X, EBB_POLICY_HOST},
      {0, 0, 0, QKV, EBB_POLICY_KEEP},
      {1, -1, 0, X, EBB_POLICY_RECOMPUTE},
      {1, -1, 0, GATE_UP, EBB_POLICY_HOST},
      {1, -1, 0, X2, EBB_POLICY_KEEP},
      {1, 1, 0, QKV, EBB_POLICY_HOST}}},
    {"half of gate_up to host, the rest kept",
     {EBB_AUTO, EBB_AUTO, NULL, 5, EBB_AUTO, EBB_AUTO},
     {{0, -1, 0, X, EBB_POLICY_KEEP},
      {0, -1, 0, QKV, EBB_POLICY_KEEP},
      {0, -1, 0, O, EBB_POLICY_KEEP},
      {0, -1, 0, X2, EBB_POLICY_KEEP},
      {0, -1, 0, GATE_UP, EBB_POLICY_HALF}}},
    {"all slots to host, early",
     {EBB_FALSE, EBB_TRUE, NULL, 0, EBB_AUTO, EBB_AUTO},
     {{0, 0, 0, 0, EBB_POLICY_KEEP}}},
    {"half of x2 and gate_up and every second layer input to host, early, weights away",
     {EBB_AUTO, EBB_AUTO, NULL, 4, EBB_TRUE, EBB_TRUE},
     {{0, -1, 2, X, EBB_POLICY_HOST},
      {0, -1, 0, O, EBB_POLICY_HOST},
      {0, -1, 0, X2, EBB_POLICY_HALF},
      {0, -1, 0, GATE_UP, EBB_POLICY_HALF}}},
};
enum { MODES = (int)(sizeof modes / sizeof modes[0]) };

#endif
