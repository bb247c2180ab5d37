/* The stash: a table of objects with their states, copies on the device's queues, and, if
 * wanted, a proof of the bytes.
 *
 * Checksums. Every part that leaves has a record: what it hashed to, and how far it is. Three
 * commands go on the queue: check, copy, check. The checks read and write the records there, so
 * the host never waits; but a record may be used again only when no enqueued check can still
 * look at it. Arguments of checks therefore come from a pool that is used up once and taken back
 * as a whole after a sync, and records of an older generation go to a list of retired ones
 * first. Both pools are allocated with the stash; a move allocates nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ebb/stash.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/file.h"

enum { CHECKS = 4096, PARTS = 16384, NONE = -1 };

enum state { STATE_EMPTY, STATE_LEAVING, STATE_AWAY };

struct object {
    const char *name;
    int64_t home, bytes;
    enum state state;
    int64_t end;                   /* bytes that the generation holds so far */
    uint64_t generation;           /* the last complete one; LEAVING writes the one behind it */
    int32_t part_first, part_last; /* records of the generation, ascending; checksums only */
};

enum stage { STAGE_WAITING, STAGE_HASHED, STAGE_LEFT };

/* One part of one generation. A queue's check writes hash and stage, another's reads them;
 * everything else is written before the first check is enqueued, `next` before the generation is
 * complete. */
struct part {
    int64_t offset, bytes;
    int32_t next;
    _Atomic int stage;
    _Atomic uint64_t hash;
};

/* What the two checks around one copy need to know. */
struct check {
    struct ebb_stash *stash;
    int64_t object;
    uint64_t generation;
    int64_t offset, bytes;
    int32_t part;     /* out: the part itself; in: the first one that the range touches */
    const char *away; /* on the device: where the range comes from, or is read to */
    const char *home; /* in host memory: where the object, not the range, begins */
};

struct ebb_stash {
    struct ebb_device *device;
    struct ebb_ctx *ctx;
    struct object *object; /* [count] */
    int64_t count;
    struct part *part;   /* [PARTS], or NULL: no checksums */
    struct check *check; /* [CHECKS] */
    int checks_used;
    int32_t part_free, part_retired; /* lists by `next` */
};

/* ---- life ------------------------------------------------------------------------------------ */

static enum ebb_status copy_objects(struct ebb_stash *stash, const struct ebb_stash_object *objects,
                                    int64_t count)
{
    stash->object = ebb_mem_alloc(stash->ctx, (size_t)count * sizeof *stash->object);
    if (stash->object == NULL) return EBB_NO_MEMORY;
    stash->count = count;
    for (int64_t i = 0; i < count; i++) {
        const struct ebb_stash_object *from = &objects[i];
        EBB_ASSERT(from->name != NULL);
        if (from->bytes < 0 || from->host_offset < 0 || from->bytes > INT64_MAX - from->host_offset)
            return EBB_FAIL(stash->ctx, EBB_FAILED,
                            "object '%s' of the stash has %" PRId64 " bytes at host offset %" PRId64
                            "; both must be 0 or more",
                            from->name, from->bytes, from->host_offset);
        stash->object[i] = (struct object){.name = from->name,
                                           .home = from->host_offset,
                                           .bytes = from->bytes,
                                           .part_first = NONE,
                                           .part_last = NONE};
    }
    return EBB_OK;
}

static enum ebb_status create_pools(struct ebb_stash *stash)
{
    stash->part = ebb_mem_alloc(stash->ctx, PARTS * sizeof *stash->part);
    stash->check = ebb_mem_alloc(stash->ctx, CHECKS * sizeof *stash->check);
    if (stash->part == NULL || stash->check == NULL) return EBB_NO_MEMORY;
    for (int32_t i = 0; i < PARTS; i++) stash->part[i].next = i + 1 < PARTS ? i + 1 : NONE;
    stash->part_free = 0;
    return EBB_OK;
}

enum ebb_status ebb_stash_create(struct ebb_device *device, const struct ebb_stash_object *objects,
                                 int64_t count, bool checksums, struct ebb_stash **stash)
{
    EBB_ASSERT(count >= 0);
    *stash = NULL;
    struct ebb_ctx *ctx = ebb_device_ctx(device);
    struct ebb_stash *fresh = ebb_mem_alloc(ctx, sizeof *fresh);
    if (fresh == NULL) return EBB_NO_MEMORY;
    fresh->device = device;
    fresh->ctx = ctx;
    fresh->part_free = NONE;
    fresh->part_retired = NONE;
    enum ebb_status status = copy_objects(fresh, objects, count);
    if (status == EBB_OK && checksums) status = create_pools(fresh);
    if (status != EBB_OK) {
        ebb_stash_free(fresh);
        return status;
    }
    *stash = fresh;
    return EBB_OK;
}

void ebb_stash_free(struct ebb_stash *stash)
{
    if (stash == NULL) return;
    ebb_mem_free(stash->ctx, stash->object);
    ebb_mem_free(stash->ctx, stash->part);
    ebb_mem_free(stash->ctx, stash->check);
    ebb_mem_free(stash->ctx, stash);
}

/* Puts an object's records aside: enqueued checks may still read them. Such a check stops before
 * it would look at the last record's `next`, the only one that changes here. */
static void retire_parts(struct ebb_stash *stash, struct object *object)
{
    if (object->part_first == NONE) return;
    stash->part[object->part_last].next = stash->part_retired;
    stash->part_retired = object->part_first;
    object->part_first = NONE;
    object->part_last = NONE;
}

void ebb_stash_reset(struct ebb_stash *stash)
{
    for (int64_t i = 0; i < stash->count; i++) {
        stash->object[i].state = STATE_EMPTY;
        stash->object[i].end = 0;
        retire_parts(stash, &stash->object[i]);
    }
}

uint64_t ebb_stash_generation(const struct ebb_stash *stash, int64_t object)
{
    EBB_ASSERT(object >= 0 && object < stash->count);
    return stash->object[object].generation;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* After a sync no check is enqueued: its arguments and the retired records are free, whatever
 * the sync returned. */
static enum ebb_status take_back(struct ebb_stash *stash)
{
    enum ebb_status status = ebb_device_sync(stash->device);
    stash->checks_used = 0;
    while (stash->part_retired != NONE) {
        int32_t at = stash->part_retired;
        stash->part_retired = stash->part[at].next;
        stash->part[at].next = stash->part_free;
        stash->part_free = at;
    }
    return status;
}

static enum ebb_status new_check(struct ebb_stash *stash, struct check **check)
{
    if (stash->checks_used == CHECKS) EBB_TRY(take_back(stash));
    *check = &stash->check[stash->checks_used++];
    return EBB_OK;
}

static enum ebb_status new_part(struct ebb_stash *stash, int64_t offset, int64_t bytes,
                                int32_t *part)
{
    if (stash->part_free == NONE) EBB_TRY(take_back(stash));
    if (stash->part_free == NONE)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "the stash can keep checksums of %d parts at once, and all of them are "
                        "away\nmove objects in "
                        "larger parts, or turn checksums off",
                        PARTS);
    *part = stash->part_free;
    struct part *fresh = &stash->part[*part];
    stash->part_free = fresh->next;
    fresh->offset = offset;
    fresh->bytes = bytes;
    fresh->next = NONE;
    atomic_store(&fresh->stage, STAGE_WAITING);
    return EBB_OK;
}

static void append_part(struct ebb_stash *stash, struct object *object, int32_t part)
{
    if (object->part_first == NONE)
        object->part_first = part;
    else
        stash->part[object->part_last].next = part;
    object->part_last = part;
}

/* The first record that bytes from `offset` on touch. */
static int32_t find_part(const struct ebb_stash *stash, const struct object *object, int64_t offset)
{
    int32_t at = object->part_first;
    while (stash->part[at].offset + stash->part[at].bytes <= offset) at = stash->part[at].next;
    return at;
}

/* ---- checks, on the queue -------------------------------------------------------------------- */

static enum ebb_status fail_check(const struct check *check, const struct part *part,
                                  const char *what)
{
    const struct object *object = &check->stash->object[check->object];
    return EBB_FAIL(check->stash->ctx, EBB_DEVICE,
                    "object '%s' of the stash, bytes %" PRId64 " to %" PRId64
                    " of generation %" PRIu64 ": %s",
                    object->name, part->offset, part->offset + part->bytes, check->generation,
                    what);
}

static enum ebb_status check_before_out(const struct ebb_queue_env *env, const void *args)
{
    const struct check *check = args;
    struct part *part = &check->stash->part[check->part];
    if (env->stream != NULL)
        return EBB_FAIL(
            check->stash->ctx, EBB_UNSUPPORTED,
            "checksums of the stash are offered on the CPU backend only\nturn checksums off");
    atomic_store(&part->hash, ebb_hash_bytes(check->away, (size_t)check->bytes));
    atomic_store(&part->stage, STAGE_HASHED);
    return EBB_OK;
}

static enum ebb_status check_after_out(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    const struct check *check = args;
    struct part *part = &check->stash->part[check->part];
    uint64_t hash = atomic_load(&part->hash);
    if (ebb_hash_bytes(check->home + check->offset, (size_t)check->bytes) != hash) {
        bool source = ebb_hash_bytes(check->away, (size_t)check->bytes) != hash;
        return fail_check(
            check, part,
            source
                ? "the source was written while it left; who writes it must wait for the copy out, "
                  "or "
                  "the copy for him"
                : "the home in host memory was written while it left; two objects use it at once");
    }
    atomic_store(&part->stage, STAGE_LEFT);
    return EBB_OK;
}

/* The next record within the check's range, or NULL. Never reads `next` behind the range
 * (retire_parts). */
static struct part *next_part(const struct check *check, const struct part *part)
{
    if (part->offset + part->bytes >= check->offset + check->bytes) return NULL;
    return &check->stash->part[part->next];
}

static enum ebb_status check_before_in(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    const struct check *check = args;
    for (struct part *part = &check->stash->part[check->part]; part != NULL;
         part = next_part(check, part))
        if (atomic_load(&part->stage) != STAGE_LEFT)
            return fail_check(check, part,
                              "read before it has left; the queue that reads must wait for the one "
                              "that wrote out");
    return EBB_OK;
}

/* A part that the range covers whole is hashed where it came back to. Of one that is cut the
 * home is hashed, and the piece that came back compared with it. */
static bool part_is_back(const struct check *check, const struct part *part)
{
    int64_t first = part->offset > check->offset ? part->offset : check->offset;
    int64_t part_end = part->offset + part->bytes;
    int64_t end = part_end < check->offset + check->bytes ? part_end : check->offset + check->bytes;
    const char *back = check->away + (first - check->offset);
    uint64_t hash = atomic_load(&part->hash);
    if (end - first == part->bytes) return ebb_hash_bytes(back, (size_t)part->bytes) == hash;
    return ebb_hash_bytes(check->home + part->offset, (size_t)part->bytes) == hash &&
           memcmp(back, check->home + first, (size_t)(end - first)) == 0;
}

static enum ebb_status check_after_in(const struct ebb_queue_env *env, const void *args)
{
    (void)env;
    const struct check *check = args;
    for (struct part *part = &check->stash->part[check->part]; part != NULL;
         part = next_part(check, part)) {
        if (part_is_back(check, part)) continue;
        bool home = ebb_hash_bytes(check->home + part->offset, (size_t)part->bytes) !=
                    atomic_load(&part->hash);
        return fail_check(
            check, part,
            home ? "came back changed: its home in host memory was overwritten while it was away"
                 : "came back changed: where it was read to was written before the read was done");
    }
    return EBB_OK;
}

static enum ebb_status copy_checked(const struct check *check, enum ebb_queue queue,
                                    ebb_queue_fn before, void *to, const void *from,
                                    ebb_queue_fn after)
{
    struct ebb_device *device = check->stash->device;
    EBB_TRY(ebb_queue_launch(device, queue, before, check));
    EBB_TRY(ebb_queue_copy(device, queue, to, from, check->bytes));
    return ebb_queue_launch(device, queue, after, check);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Which object, whether the range lies in it, and whether its home is there. */
static enum ebb_status find_object(struct ebb_stash *stash, int64_t index, int64_t offset,
                                   int64_t bytes, struct object **object)
{
    if (index < 0 || index >= stash->count)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "object %" PRId64 " of the stash was asked for; it has %" PRId64, index,
                        stash->count);
    struct object *found = &stash->object[index];
    if (offset < 0 || bytes < 0 || offset > found->bytes || bytes > found->bytes - offset)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "object '%s' of the stash has %" PRId64 " bytes; a part of %" PRId64
                        " at offset %" PRId64 " does not lie in it",
                        found->name, found->bytes, bytes, offset);
    int64_t room = ebb_device_bytes(stash->device, EBB_SPACE_HOST);
    if (ebb_device_base(stash->device, EBB_SPACE_HOST) == NULL)
        return EBB_FAIL(
            stash->ctx, EBB_FAILED,
            "object '%s' of the stash cannot move: the device's host space is not reserved yet",
            found->name);
    if (found->home + found->bytes > room)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "the home of object '%s' of the stash ends at %" PRId64
                        ", but the host space has %" PRId64 " bytes",
                        found->name, found->home + found->bytes, room);
    *object = found;
    return EBB_OK;
}

static enum ebb_status copy_out(struct ebb_stash *stash, enum ebb_queue queue, int64_t index,
                                int64_t offset, int64_t bytes, const void *from, int32_t *part)
{
    const struct object *object = &stash->object[index];
    char *home = (char *)ebb_device_base(stash->device, EBB_SPACE_HOST) + object->home;
    if (stash->part == NULL)
        return ebb_queue_copy(stash->device, queue, home + offset, from, bytes);
    struct check *check = NULL;
    EBB_TRY(new_part(stash, offset, bytes, part));
    EBB_TRY(new_check(stash, &check));
    *check = (struct check){.stash = stash,
                            .object = index,
                            .generation = object->generation + 1,
                            .offset = offset,
                            .bytes = bytes,
                            .part = *part,
                            .away = from,
                            .home = home};
    return copy_checked(check, queue, check_before_out, home + offset, from, check_after_out);
}

enum ebb_status ebb_stash_out(struct ebb_stash *stash, enum ebb_queue queue, int64_t object,
                              int64_t offset, int64_t bytes, bool last, const void *from)
{
    struct object *own = NULL;
    EBB_TRY(find_object(stash, object, offset, bytes, &own));
    int64_t wanted = own->state == STATE_LEAVING ? own->end : 0;
    if (offset != wanted)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "object '%s' of the stash, generation %" PRIu64
                        ": a part goes out at offset %" PRId64
                        ", but the next one begins at %" PRId64
                        "; parts leave in order and without holes",
                        own->name, own->generation + 1, offset, wanted);
    int32_t part = NONE;
    if (bytes > 0) {
        enum ebb_status status = copy_out(stash, queue, object, offset, bytes, from, &part);
        if (status != EBB_OK) {
            if (part != NONE) {
                stash->part[part].next = stash->part_retired;
                stash->part_retired = part;
            }
            return status;
        }
    }
    if (own->state != STATE_LEAVING) retire_parts(stash, own);
    if (part != NONE) append_part(stash, own, part);
    own->end = offset + bytes;
    own->state = last ? STATE_AWAY : STATE_LEAVING;
    if (last) own->generation++;
    return EBB_OK;
}

static enum ebb_status refuse_in(const struct ebb_stash *stash, const struct object *object,
                                 int64_t offset, int64_t bytes)
{
    if (object->state == STATE_EMPTY)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "object '%s' of the stash is read, but nothing of it was written out",
                        object->name);
    if (object->state == STATE_LEAVING)
        return EBB_FAIL(stash->ctx, EBB_FAILED,
                        "object '%s' of the stash is read, but generation %" PRIu64
                        " is not complete: %" PRId64
                        " bytes went out, and the last part is missing",
                        object->name, object->generation + 1, object->end);
    return EBB_FAIL(stash->ctx, EBB_FAILED,
                    "object '%s' of the stash is read to byte %" PRId64 ", but generation %" PRIu64
                    " ends at %" PRId64,
                    object->name, offset + bytes, object->generation, object->end);
}

enum ebb_status ebb_stash_in(struct ebb_stash *stash, enum ebb_queue queue, int64_t object,
                             int64_t offset, int64_t bytes, void *to)
{
    struct object *own = NULL;
    EBB_TRY(find_object(stash, object, offset, bytes, &own));
    if (own->state != STATE_AWAY || offset + bytes > own->end)
        return refuse_in(stash, own, offset, bytes);
    if (bytes == 0) return EBB_OK;
    const char *home = (const char *)ebb_device_base(stash->device, EBB_SPACE_HOST) + own->home;
    if (stash->part == NULL) return ebb_queue_copy(stash->device, queue, to, home + offset, bytes);
    struct check *check = NULL;
    EBB_TRY(new_check(stash, &check));
    *check = (struct check){.stash = stash,
                            .object = object,
                            .generation = own->generation,
                            .offset = offset,
                            .bytes = bytes,
                            .part = find_part(stash, own, offset),
                            .away = to,
                            .home = home};
    return copy_checked(check, queue, check_before_in, to, home + offset, check_after_in);
}
