/* Philox for many counters at once: the same words as ebb_philox, in a loop that vectorises.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_RANDOM_INT_H
#define EBB_RANDOM_INT_H

#include "op/vector_int.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sixteen counters, four words each; `words` gets them counter by counter. */
EBB_VECTOR void ebb_philox_block(uint64_t key, uint64_t first, uint32_t *words)
{
    uint32_t c0[16], c1[16], c2[16], c3[16];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 16; i++) {
        uint64_t counter = first + (uint64_t)i;
        c0[i] = (uint32_t)counter;
        c1[i] = (uint32_t)(counter >> 32);
        c2[i] = 0;
        c3[i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 16; i++) {
            uint64_t p0 = (uint64_t)0xd2511f53u * c0[i];
            uint64_t p1 = (uint64_t)0xcd9e8d57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    for (int i = 0; i < 16; i++) {
        words[4 * i] = c0[i];
        words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i];
        words[4 * i + 3] = c3[i];
    }
}

/* `count` counters from `first` on: 4 count words. */
EBB_VECTOR void ebb_philox_run(uint64_t key, uint64_t first, int64_t count, uint32_t *words)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) ebb_philox_block(key, first + (uint64_t)i, words + 4 * i);
    if (i < count) {
        uint32_t last[64];
        ebb_philox_block(key, first + (uint64_t)i, last);
        memcpy(words + 4 * i, last, (size_t)(count - i) * 4 * sizeof *words);
    }
}

#ifdef __cplusplus
}
#endif
#endif
