/* GPUs by their data sheets, and rates for them.
 *
 * What is known of a GPU that is not here is its peak: a measured one shows how much of its own
 * peak each class of op reaches, and the share is taken to be the same. That is a guess, and said
 * to be one: smaller GPUs mostly reach a little more of their arithmetic, older ones less.
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plan/rates.h"

#define MIB(n) ((int64_t)(n) << 20)

/* NVIDIA's data sheets and architecture papers: dense bf16 with fp32 sums, memory, one way of the
 * PCIe link; memory as nvidia-smi shows it. */
static const struct ebb_gpu gpus[] = {
    {"RTX 3060 12GB", MIB(12288), 25.5e12, 360e9, 31.5e9},
    {"RTX 3090", MIB(24576), 71e12, 936e9, 31.5e9},
    {"RTX 4060 Ti 16GB", MIB(16380), 44.1e12, 288e9, 15.8e9},
    {"RTX 4090", MIB(24564), 165.2e12, 1008e9, 31.5e9},
    {"RTX 5090", MIB(32607), 209.5e12, 1792e9, 63e9},
    {"A100 40GB", MIB(40960), 312e12, 1555e9, 31.5e9},
    {"A100 80GB", MIB(81920), 312e12, 2039e9, 31.5e9},
    {"L4", MIB(23034), 121e12, 300e9, 31.5e9},
    {"L40S", MIB(46068), 362e12, 864e9, 31.5e9},
    {"H100", MIB(81559), 989e12, 3350e9, 63e9},
    {"H200", MIB(143771), 989e12, 4800e9, 63e9},
    {"B200", MIB(183359), 2250e12, 8000e9, 63e9},
};
enum { GPUS = (int)(sizeof gpus / sizeof gpus[0]) };

const struct ebb_gpu *ebb_gpus(int64_t *count)
{
    *count = GPUS;
    return gpus;
}

/* ---- by name ---- */

/* What drivers call some of them. */
static const char *const driver_names[][2] = {
    {"A100-SXM4-40GB", "A100 40GB"}, {"A100-PCIE-40GB", "A100 40GB"},
    {"A100-SXM4-80GB", "A100 80GB"}, {"A100 80GB PCIe", "A100 80GB"},
    {"H100 80GB HBM3", "H100"},      {"H100 SXM5 80GB", "H100"},
};

/* The next character that counts: letters in lower case, digits. */
static int next_of(const char **text)
{
    while (**text && !isalnum((unsigned char)**text)) (*text)++;
    return **text ? tolower((unsigned char)*(*text)++) : '\0';
}

/* Behind "NVIDIA", "GeForce" and "RTX". */
static const char *behind_makers(const char *name)
{
    static const char *const makers[] = {"nvidia", "geforce", "rtx"};
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        size_t bytes = strlen(makers[i]);
        while (*name && !isalnum((unsigned char)*name)) name++;
        if (strncasecmp(name, makers[i], bytes) == 0) name += bytes;
    }
    return name;
}

/* Do both say the same? *memory: but for the memory that the first ends with ("12GB"). */
static bool same_name(const char *name, const char *other, bool *memory)
{
    const char *a = behind_makers(name), *b = behind_makers(other), *before;
    int x, y;
    do {
        before = a;
        x = next_of(&a);
        y = next_of(&b);
    } while (x == y && x != '\0');
    *memory = y == '\0' && *before == ' ' && isdigit(x);
    return x == y;
}

/* The name, or one that only one GPU of several sizes of memory has ("A100" is two). */
const struct ebb_gpu *ebb_gpu_find(const char *name)
{
    const struct ebb_gpu *found = NULL;
    int64_t matches = 0;
    bool memory;
    for (size_t i = 0; i < sizeof driver_names / sizeof driver_names[0]; i++)
        if (same_name(driver_names[i][0], name, &memory)) name = driver_names[i][1];
    if (*behind_makers(name) == '\0') return NULL;
    for (int i = 0; i < GPUS; i++) {
        if (same_name(gpus[i].name, name, &memory)) return &gpus[i];
        if (!memory) continue;
        found = &gpus[i];
        matches++;
    }
    return matches == 1 ? found : NULL;
}

/* ---- rates ---- */

/* One H200 (driver 580.159.04), 2 and 3 Dec 2026, in seconds for a call, a byte, an operation.
 * Products, thin products, memory-bound ops and losses: fitted to steps of Llama 3.2 1B and
 * Qwen2.5-7B with LoRA at 8,192 and 32,768 tokens, which hold it at its power limit; the rest: what
 * `ebb probe` measured. */
static const struct ebb_cost reference[EBB_COST_COUNT] = {
    [EBB_COST_PRODUCT] = {24e-6, 1 / 10.69e12, 1 / 740.7e12},
    [EBB_COST_THIN] = {10.15e-6, 1 / 4.91e12, 1 / 168.4e12},
    [EBB_COST_ATTENTION_FORWARD_64] = {0, 1 / 0.858e12, 1 / 408.8e12},
    [EBB_COST_ATTENTION_FORWARD_128] = {0, 1 / 1.448e12, 1 / 568.3e12},
    [EBB_COST_ATTENTION_BACKWARD_64] = {0, 1 / 0.461e12, 1 / 410.9e12},
    [EBB_COST_ATTENTION_BACKWARD_128] = {0, 1 / 0.706e12, 1 / 495.6e12},
    [EBB_COST_ATTENTION_FIXED_64] = {0, 0, 1 / 172.9e12},
    [EBB_COST_ATTENTION_FIXED_128] = {0, 1 / 4.214e12, 1 / 287.9e12},
    [EBB_COST_ATTENTION_PLAIN_FORWARD] = {0, 1 / 0.0999e12, 1 / 27.5e12},
    [EBB_COST_ATTENTION_PLAIN_BACKWARD] = {1.2e-3, 0, 1 / 15.29e12},
    [EBB_COST_MEMORY] = {6.05e-6, 1 / 4.09e12, 0},
    [EBB_COST_LOSS] = {0, 1 / 2.10e12, 0},
    [EBB_COST_OPTIMIZER] = {0.02e-6, 1 / 3.988e12, 0},
    [EBB_COST_COPY_OUT] = {4.8e-6, 1 / 55.35e9, 0},
    [EBB_COST_COPY_IN] = {5.95e-6, 1 / 51.9e9, 0},
    [EBB_COST_BOUNCE_OUT] = {434e-6, 1 / 8.96e9, 0},
    [EBB_COST_BOUNCE_IN] = {0, 1 / 8.23e9, 0},
    [EBB_COST_GAP] = {1.42e-6, 0, 0},
    [EBB_COST_HOST] = {0.076e-3, 1 / 35.3e9, 0},
};
static const char reference_name[] = "H200";

static double unit_bytes(const struct ebb_gpu *gpu, int which)
{
    return which == EBB_COST_COPY_OUT || which == EBB_COST_COPY_IN ? gpu->link_bytes
                                                                   : gpu->memory_bytes;
}

/* The host's own work, whatever the GPU: bytes that bounce are bound by the thread that moves
 * them. */
static bool is_hosts(int which)
{
    return which == EBB_COST_HOST || which == EBB_COST_BOUNCE_OUT || which == EBB_COST_BOUNCE_IN;
}

void ebb_gpu_rates(const struct ebb_gpu *gpu, enum ebb_dtype storage, struct ebb_rates *rates)
{
    const struct ebb_gpu *known = ebb_gpu_find(reference_name);
    memset(rates, 0, sizeof *rates);
    snprintf(rates->device, sizeof rates->device, "%s", gpu->name);
    snprintf(rates->versions, sizeof rates->versions, "data sheet, at an H200's efficiency");
    rates->storage = storage;
    if (storage != EBB_BF16) return; /* nothing is known of other types */
    for (int i = 0; i < EBB_COST_COUNT; i++) {
        struct ebb_cost cost = reference[i];
        if (!is_hosts(i)) cost.byte *= unit_bytes(known, i) / unit_bytes(gpu, i);
        cost.flop *= known->flops / gpu->flops;
        rates->costs[i] = cost;
    }
}
