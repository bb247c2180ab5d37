/* What a backend of the device is: a struct of functions, and the part of a device and a ticket
 * that all share.
 *
 * device.c owns the arguments' checks and the list of backends; a backend sees only calls that make
 * sense. Its own device and ticket structs begin with the ones here.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_DEVICE_INT_H
#define EBB_DEVICE_INT_H

#include <pthread.h>

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_SPACE_ALIGN = 4096 };

struct ebb_device_backend;

/* Both spaces can be looked up without asking the backend; `base` is NULL until the space is
 * reserved. */
struct ebb_device_space {
    char *base;
    int64_t bytes;
};

struct ebb_device {
    const struct ebb_device_backend *backend;
    enum ebb_backend kind;
    char name[128];
    struct ebb_ctx *ctx;
    int threads;
    int events; /* room, in number */
    int marks;
    struct ebb_device_space space[EBB_SPACE_COUNT];
    int64_t pageable_bytes, pin_limit; /* options of the same names */
};

struct ebb_ticket {
    struct ebb_device *device;
};

/* As device.h says. `reserve` fills device->space; `events` is only called to make room for more
 * than there is, and `marks` for `count` in all. */
struct ebb_device_backend {
    bool (*is_there)(char *why, size_t why_bytes);
    bool (*facts)(struct ebb_ctx *ctx, struct ebb_backend_facts *facts);
    int64_t (*bytes_total)(void);
    int64_t (*bytes_free)(struct ebb_ctx *ctx);
    enum ebb_status (*create)(struct ebb_ctx *ctx, const struct ebb_device_options *options,
                              struct ebb_device **device);
    void (*free)(struct ebb_device *device);
    enum ebb_status (*reserve)(struct ebb_device *device, enum ebb_space space, int64_t bytes);
    int64_t (*bytes_resident)(const struct ebb_device *device, enum ebb_space space);
    int64_t (*bytes_process)(const struct ebb_device *device, enum ebb_bytes_way *way);
    int64_t (*bytes_overhead)(const struct ebb_device *device);
    /* NULL: nothing is known. */
    const char *(*other_users)(const struct ebb_device *device, char *out, size_t out_bytes);
    void (*host_ready)(struct ebb_device *device); /* NULL: it is at once */
    /* Of the HOST space, which stands; NULL: nothing has to be pinned. */
    int64_t (*bytes_pinned)(const struct ebb_device *device);
    double (*pin_seconds)(const struct ebb_device *device);
    enum ebb_status (*copy_rows)(struct ebb_device *device, void *to, int64_t to_stride,
                                 const void *from, int64_t from_stride, int64_t row_bytes,
                                 int64_t rows);
    enum ebb_status (*fill)(struct ebb_device *device, void *to, int byte, int64_t bytes);
    enum ebb_status (*block_create)(struct ebb_device *device, int64_t bytes, bool shared,
                                    void **block);
    void (*block_free)(struct ebb_device *device, void *block);
    void (*break_it)(struct ebb_device *device); /* NULL: cannot */
    enum ebb_status (*launch)(struct ebb_device *device, enum ebb_queue queue, ebb_queue_fn fn,
                              const void *args);
    enum ebb_status (*copy)(struct ebb_device *device, enum ebb_queue queue, void *to,
                            const void *from, int64_t bytes);
    enum ebb_status (*events)(struct ebb_device *device, int count);
    enum ebb_status (*record)(struct ebb_device *device, enum ebb_queue queue, int event);
    enum ebb_status (*wait)(struct ebb_device *device, enum ebb_queue queue, int event);
    enum ebb_status (*marks)(struct ebb_device *device, int count);
    enum ebb_status (*mark)(struct ebb_device *device, enum ebb_queue queue, int mark);
    double (*mark_seconds)(struct ebb_device *device, int from, int to);
    enum ebb_status (*sync)(struct ebb_device *device);
    void (*counters)(const struct ebb_device *device, struct ebb_device_counters *counters);
    enum ebb_status (*ticket_create)(struct ebb_device *device, struct ebb_ticket **ticket);
    void (*ticket_free)(struct ebb_ticket *ticket);
    void (*ticket_signal)(struct ebb_ticket *ticket, uint64_t value);
    void (*ticket_fail)(struct ebb_ticket *ticket, enum ebb_status status);
    enum ebb_status (*ticket_wait)(struct ebb_ticket *ticket, uint64_t value, double seconds);
    enum ebb_status (*queue_ticket_signal)(struct ebb_device *device, enum ebb_queue queue,
                                           struct ebb_ticket *ticket, uint64_t value);
    enum ebb_status (*queue_ticket_wait)(struct ebb_device *device, enum ebb_queue queue,
                                         struct ebb_ticket *ticket, uint64_t value, double seconds);
};

const struct ebb_device_backend *ebb_device_backend_cpu(void);
/* NULL in a build without CUDA (device_cuda_none.c). */
const struct ebb_device_backend *ebb_device_backend_cuda(void);

/* What a queue waits at most before each command where nothing is asked for: a little in the
 * torture build, else 0. */
int ebb_device_default_delay(void);
/* Microseconds that the command `number` of a queue waits, up to delay_us. */
int ebb_device_delay(uint64_t delay_key, uint64_t number, int delay_us);

/* A thread that leaves signals from outside to the main thread. EBB_DEVICE where the system refuses
 * it. The name has 15 letters at most. */
enum ebb_status ebb_device_thread_start(struct ebb_ctx *ctx, const char *name,
                                        void *(*main)(void *user), void *user, pthread_t *thread);

const char *ebb_queue_name(enum ebb_queue queue); /* "compute", "out", "in" */
const char *ebb_space_name(enum ebb_space space); /* "device", "host" */
/* Tests, CUDA: a kernel on COMPUTE writes where no memory is, and the device is lost. */
void ebb_device_break(struct ebb_device *device);
/* The space that holds the byte at `at`, or EBB_SPACE_COUNT. */
enum ebb_space ebb_device_space_of(const struct ebb_device *device, const void *at);

#ifdef __cplusplus
}
#endif
#endif
