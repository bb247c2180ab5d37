/* A witness of how much memory a run uses that knows nothing of plans: memory is filled with a
 * pattern, and the last byte that a run changed is looked for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_TRAIN_WITNESS_H
#define EBB_TRAIN_WITNESS_H

#include "train_device.h"

/* Memory from `begin` to its end, and what was there before and after a run. */
struct witness {
    struct ebb_device *device;
    char *base;
    unsigned char *before, *after;
    int64_t begin, end, last; /* last: one past the last byte that a run changed */
};

static inline struct witness watch(struct ebb_device *device, enum ebb_space space, int64_t begin)
{
    struct witness w = {.device = device,
                        .base = (char *)ebb_device_base(device, space),
                        .begin = begin,
                        .end = ebb_device_bytes(device, space),
                        .last = begin};
    w.before = (unsigned char *)malloc((size_t)w.end + 1);
    w.after = (unsigned char *)malloc((size_t)w.end + 1);
    return w;
}

static inline void free_witness(struct witness *w)
{
    free(w->before);
    free(w->after);
}

static inline void fill_pattern(struct witness *w, int pattern)
{
    if (w->end > w->begin)
        assert_int_equal(ebb_device_fill(w->device, w->base + w->begin, pattern, w->end - w->begin),
                         EBB_OK);
    if (w->end > 0)
        assert_int_equal(ebb_device_copy(w->device, w->before, w->base, w->end), EBB_OK);
}

static inline void look(struct witness *w)
{
    int64_t at = w->end;
    if (w->end > 0) assert_int_equal(ebb_device_copy(w->device, w->after, w->base, w->end), EBB_OK);
    while (at > w->last && w->after[at - 1] == w->before[at - 1]) at--;
    w->last = at;
}

static inline void expect_last(const struct witness *w, int64_t predicted, const char *mode,
                               const char *space)
{
    if (w->last > predicted || predicted - w->last >= EBB_ALIGN_BYTES)
        fail_msg("%s: predicted %lld %s bytes, the last one that changed is %lld", mode,
                 (long long)predicted, space, (long long)w->last);
}

static inline int64_t persistent_end(const struct ebb_engine *engine, enum ebb_space space)
{
    const struct ebb_plan *plan = ebb_engine_plan(engine);
    int64_t end = 0;
    for (int32_t t = 0; t < ebb_engine_net(engine)->tensor_count; t++) {
        if (plan->persistent[t].space != space) continue;
        int64_t own = plan->persistent[t].offset + plan->persistent[t].bytes;
        end = own > end ? own : end;
    }
    return end;
}

/* Where on the host a witness may begin: what is away there must keep its values. */
static inline int64_t host_begin(const struct ebb_engine *engine)
{
    const struct ebb_policies *policies = &ebb_engine_plan(engine)->policies;
    for (int32_t i = 0; i < policies->units; i++)
        if (policies->away[i]) return persistent_end(engine, EBB_SPACE_HOST);
    return 0;
}

/* Both memories of an engine, behind what has to keep its values. */
struct witnesses {
    struct witness device, host;
};

/* Two patterns, so that a byte which happens to be written with one of them still shows. */
enum { PATTERNS = 2 };

static inline struct witnesses watch_engine(const struct ebb_engine *engine)
{
    struct ebb_device *device = ebb_engine_device(engine);
    return (
        struct witnesses){watch(device, EBB_SPACE_DEVICE, persistent_end(engine, EBB_SPACE_DEVICE)),
                          watch(device, EBB_SPACE_HOST, host_begin(engine))};
}

static inline void fill_both(struct witnesses *w, int pattern)
{
    static const int bytes[PATTERNS] = {0x5a, 0xa5};
    fill_pattern(&w->device, bytes[pattern]);
    fill_pattern(&w->host, bytes[pattern]);
}

static inline void look_at_both(struct witnesses *w)
{
    look(&w->device);
    look(&w->host);
}

/* The last bytes that changed are the predicted ones. */
static inline void expect_both(const struct witnesses *w, const struct ebb_plan *plan,
                               const char *mode)
{
    expect_last(&w->device, plan->device_bytes, mode, "device");
    expect_last(&w->host, plan->host_bytes, mode, "host");
}

static inline void free_witnesses(struct witnesses *w)
{
    free_witness(&w->device);
    free_witness(&w->host);
}

#endif
