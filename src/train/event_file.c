/* Event files: frames, the few protobuf fields, and the file that they are added to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#define FILE_VERSION "brain.Event:2"

enum { NAME_TRIES = 1000, SESSION_START = 1 };

/* Protobuf: how a field's value is written. */
enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum event_field {
    EVENT_TIME = 1,
    EVENT_STEP,
    EVENT_VERSION,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7 /* TensorBoard's word for what one process writes */
};
enum summary_field { SUMMARY_VALUE = 1 };
enum value_field { VALUE_TAG = 1, VALUE_SIMPLE };
enum session_field { SESSION_STATUS = 1 };

struct ebb_event_file {
    struct ebb_ctx *ctx;
    char *path;
    int fd;
};

/* ---- frames ---------------------------------------------------------------------------------- */

/* CRC-32C, bit by bit: a step has some hundred bytes, and zlib's crc32 has another polynomial. */
static uint32_t crc32c(const void *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    uint32_t crc = ~(uint32_t)0;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The lowest byte first, whatever the machine. */
static void put_little(unsigned char *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(value >> (8 * i));
}

static enum ebb_status write_frame(struct ebb_event_file *file, const struct ebb_str *data)
{
    struct ebb_str frame = {0};
    unsigned char head[12], tail[4];
    put_little(head, data->bytes, 8);
    put_little(head + 8, masked_crc(head, 8), 4);
    put_little(tail, masked_crc(data->data, data->bytes), 4);
    enum ebb_status status = ebb_str_add(file->ctx, &frame, (const char *)head, sizeof head);
    if (status == EBB_OK) status = ebb_str_add(file->ctx, &frame, data->data, data->bytes);
    if (status == EBB_OK) status = ebb_str_add(file->ctx, &frame, (const char *)tail, sizeof tail);
    if (status == EBB_OK)
        status =
            ebb_file_append(file->ctx, file->fd, file->path, "an event", frame.data, frame.bytes);
    ebb_str_free(file->ctx, &frame);
    return status;
}

/* ---- protobuf -------------------------------------------------------------------------------- */

static enum ebb_status add_varint(struct ebb_ctx *ctx, struct ebb_str *out, uint64_t value)
{
    char bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7) bytes[count++] = (char)(0x80 | (value & 0x7f));
    bytes[count++] = (char)value;
    return ebb_str_add(ctx, out, bytes, count);
}

static enum ebb_status add_key(struct ebb_ctx *ctx, struct ebb_str *out, int field, enum wire wire)
{
    return add_varint(ctx, out, (uint64_t)field << 3 | (uint64_t)wire);
}

static enum ebb_status add_integer(struct ebb_ctx *ctx, struct ebb_str *out, int field,
                                   int64_t value)
{
    EBB_TRY(add_key(ctx, out, field, WIRE_VARINT));
    return add_varint(ctx, out, (uint64_t)value);
}

static enum ebb_status add_fixed(struct ebb_ctx *ctx, struct ebb_str *out, int field,
                                 enum wire wire, uint64_t bits)
{
    unsigned char bytes[8];
    int count = wire == WIRE_64 ? 8 : 4;
    put_little(bytes, bits, count);
    EBB_TRY(add_key(ctx, out, field, wire));
    return ebb_str_add(ctx, out, (const char *)bytes, (size_t)count);
}

static enum ebb_status add_double(struct ebb_ctx *ctx, struct ebb_str *out, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return add_fixed(ctx, out, field, WIRE_64, bits);
}

static enum ebb_status add_float(struct ebb_ctx *ctx, struct ebb_str *out, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return add_fixed(ctx, out, field, WIRE_32, bits);
}

/* A string, or a message. */
static enum ebb_status add_bytes(struct ebb_ctx *ctx, struct ebb_str *out, int field,
                                 const char *data, size_t bytes)
{
    EBB_TRY(add_key(ctx, out, field, WIRE_BYTES));
    EBB_TRY(add_varint(ctx, out, bytes));
    return ebb_str_add(ctx, out, data, bytes);
}

/* An event with one field beside time and step. */
static enum ebb_status write_event(struct ebb_event_file *file, int64_t step, int field,
                                   const char *data, size_t bytes)
{
    struct ebb_str event = {0};
    struct ebb_ctx *ctx = file->ctx;
    enum ebb_status status = add_double(ctx, &event, EVENT_TIME, ebb_clock_unix());
    if (status == EBB_OK) status = add_integer(ctx, &event, EVENT_STEP, step);
    if (status == EBB_OK) status = add_bytes(ctx, &event, field, data, bytes);
    if (status == EBB_OK) status = write_frame(file, &event);
    ebb_str_free(ctx, &event);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

static enum ebb_status add_value(struct ebb_ctx *ctx, struct ebb_str *summary, const char *key,
                                 double number)
{
    bool eval = strncmp(key, "eval_", 5) == 0;
    struct ebb_str tag = {0}, value = {0};
    enum ebb_status status =
        ebb_str_addf(ctx, &tag, "%s%s", eval ? "eval/" : "train/", eval ? key + 5 : key);
    if (status == EBB_OK) status = add_bytes(ctx, &value, VALUE_TAG, tag.data, tag.bytes);
    if (status == EBB_OK) status = add_float(ctx, &value, VALUE_SIMPLE, (float)number);
    if (status == EBB_OK) status = add_bytes(ctx, summary, SUMMARY_VALUE, value.data, value.bytes);
    ebb_str_free(ctx, &tag);
    ebb_str_free(ctx, &value);
    return status;
}

enum ebb_status ebb_event_file_add(struct ebb_event_file *file, const json_t *record)
{
    struct ebb_str summary = {0};
    enum ebb_status status = EBB_OK;
    bool trained = json_object_get(record, "loss") != NULL;
    const char *key;
    json_t *number;
    json_object_foreach((json_t *)(uintptr_t)record, key, number)
    {
        if (!json_is_number(number) || strcmp(key, "step") == 0) continue;
        if (strcmp(key, "epoch") == 0 && !trained) continue;
        status = add_value(file->ctx, &summary, key, json_number_value(number));
        if (status != EBB_OK) break;
    }
    if (status == EBB_OK && summary.bytes > 0)
        status = write_event(file, json_integer_value(json_object_get(record, "step")),
                             EVENT_SUMMARY, summary.data, summary.bytes);
    ebb_str_free(file->ctx, &summary);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* A name that nobody has: what an older process of the same second and number wrote stays. */
static enum ebb_status create(struct ebb_event_file *file, const char *dir)
{
    char host[256] = "", name[384];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0)
        snprintf(host, sizeof host, "localhost");
    for (int i = 0; i < NAME_TRIES; i++) {
        snprintf(name, sizeof name, EBB_EVENT_FILE_PREFIX "%010" PRId64 ".%s.%ld.%d",
                 (int64_t)ebb_clock_unix(), host, (long)getpid(), i);
        ebb_mem_free(file->ctx, file->path);
        file->path = ebb_path_join(file->ctx, dir, name);
        if (!file->path) return EBB_NO_MEMORY;
        file->fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0) return EBB_OK;
        if (errno != EEXIST) break;
    }
    return EBB_FAIL(file->ctx, EBB_IO, "%scannot make event file '%s': %s",
                    errno == ENOSPC || errno == EDQUOT ? "disk full: " : "", file->path,
                    strerror(errno));
}

static enum ebb_status begin(struct ebb_event_file *file, int64_t first)
{
    struct ebb_str session = {0};
    EBB_TRY(write_event(file, first, EVENT_VERSION, FILE_VERSION, strlen(FILE_VERSION)));
    enum ebb_status status = add_integer(file->ctx, &session, SESSION_STATUS, SESSION_START);
    if (status == EBB_OK)
        status = write_event(file, first, EVENT_SESSION, session.data, session.bytes);
    ebb_str_free(file->ctx, &session);
    return status;
}

enum ebb_status ebb_event_file_open(struct ebb_ctx *ctx, const char *dir, int64_t first,
                                    struct ebb_event_file **file)
{
    *file = NULL;
    EBB_TRY(ebb_dir_create(ctx, dir));
    struct ebb_event_file *made = (struct ebb_event_file *)ebb_mem_alloc(ctx, sizeof *made);
    if (!made) return EBB_NO_MEMORY;
    made->ctx = ctx;
    made->fd = -1;
    enum ebb_status status = create(made, dir);
    if (status == EBB_OK) status = begin(made, first);
    if (status != EBB_OK) {
        ebb_event_file_close(made);
        return status;
    }
    *file = made;
    return EBB_OK;
}

enum ebb_status ebb_event_file_flush(struct ebb_event_file *file)
{
    if (fsync(file->fd) == 0) return EBB_OK;
    return EBB_FAIL(file->ctx, EBB_IO, "%scannot flush '%s': %s",
                    errno == ENOSPC || errno == EDQUOT ? "disk full: " : "", file->path,
                    strerror(errno));
}

const char *ebb_event_file_path(const struct ebb_event_file *file)
{
    return file->path;
}

void ebb_event_file_close(struct ebb_event_file *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    ebb_mem_free(file->ctx, file->path);
    ebb_mem_free(file->ctx, file);
}

static enum ebb_status remove_one(struct ebb_ctx *ctx, const char *dir, const char *name)
{
    char *path = ebb_path_join(ctx, dir, name);
    if (!path) return EBB_NO_MEMORY;
    enum ebb_status status = EBB_OK;
    if (unlink(path) != 0 && errno != ENOENT)
        status = EBB_FAIL(ctx, EBB_IO, "cannot remove '%s': %s", path, strerror(errno));
    ebb_mem_free(ctx, path);
    return status;
}

enum ebb_status ebb_event_files_remove(struct ebb_ctx *ctx, const char *dir)
{
    char **names;
    size_t count, left = 0;
    if (!ebb_dir_exists(dir)) return EBB_OK;
    EBB_TRY(ebb_dir_list(ctx, dir, &names, &count));
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && status == EBB_OK; i++) {
        bool ours = strncmp(names[i], EBB_EVENT_FILE_PREFIX, strlen(EBB_EVENT_FILE_PREFIX)) == 0;
        if (ours)
            status = remove_one(ctx, dir, names[i]);
        else
            left++;
    }
    ebb_dir_list_free(ctx, names, count);
    if (status == EBB_OK && left == 0 && rmdir(dir) != 0 && errno != ENOTEMPTY)
        status = EBB_FAIL(ctx, EBB_IO, "cannot remove '%s': %s", dir, strerror(errno));
    return status;
}
