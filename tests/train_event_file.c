/* Event files, read back by a reader of the test's own: frames and their sums, fields, values, and
 * what a full disk leaves.
 *
 * write is replaced in this program, so that a disk can be full at a chosen byte.
 * SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "train/event_file.h"

enum { EVENTS = 64, VALUES = 40, TAG = 64 };

/* ---- a disk that fills ----------------------------------------------------------------------- */

static struct {
    bool on;
    size_t allowed; /* bytes */
} disk;

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (!disk.on || fd <= STDERR_FILENO) return syscall(SYS_write, fd, data, bytes);
    if (disk.allowed == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (bytes > disk.allowed) bytes = disk.allowed;
    disk.allowed -= bytes;
    return syscall(SYS_write, fd, data, bytes);
}

/* ---- the reader ------------------------------------------------------------------------------ */

struct value {
    char tag[TAG];
    float number;
};

struct event {
    double time;
    int64_t step;
    char version[32];
    bool session_starts;
    int value_count;
    struct value values[VALUES];
};

struct events {
    int count;
    struct event list[EVENTS];
};

struct bytes {
    const unsigned char *at, *end;
};

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | at[bytes];
    return value;
}

/* CRC-32C by division of the whole message, reflected at the end: slow and another way than the
 * writer's. */
static uint32_t crc_by_division(const unsigned char *data, size_t bytes)
{
    uint32_t rest = 0xffffffffu, reflected = 0;
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        uint32_t in = data[bit / 8] >> (bit % 8) & 1u, out = rest >> 31;
        rest = rest << 1 ^ (in ^ out ? 0x1edc6f41u : 0);
    }
    for (int bit = 0; bit < 32; bit++) reflected |= (rest >> bit & 1u) << (31 - bit);
    return ~reflected;
}

static void check_sum(const unsigned char *data, size_t bytes, const unsigned char *written)
{
    uint32_t masked = (uint32_t)little(written, 4) - 0xa282ead8u;
    assert_int_equal(masked >> 17 | masked << 15, crc_by_division(data, bytes));
}

static uint64_t take_varint(struct bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(b->at < b->end && shift < 64);
        unsigned char byte = *b->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

static struct bytes take(struct bytes *b, uint64_t count)
{
    assert_true(count <= (uint64_t)(b->end - b->at));
    struct bytes part = {b->at, b->at + count};
    b->at += count;
    return part;
}

/* A field's number; its value as bits, or as bytes. */
static int take_field(struct bytes *b, uint64_t *bits, struct bytes *part)
{
    uint64_t key = take_varint(b);
    switch (key & 7) {
    case 0:
        *bits = take_varint(b);
        break;
    case 1:
        *bits = little(take(b, 8).at, 8);
        break;
    case 2:
        *part = take(b, take_varint(b));
        break;
    case 5:
        *bits = little(take(b, 4).at, 4);
        break;
    default:
        fail_msg("wire type %d", (int)(key & 7));
    }
    return (int)key; /* number << 3 | wire type */
}

static void copy_text(struct bytes part, char *out, size_t room)
{
    size_t bytes = (size_t)(part.end - part.at);
    assert_true(bytes < room);
    memcpy(out, part.at, bytes);
    out[bytes] = 0;
}

static void read_value(struct bytes b, struct value *value)
{
    int fields = 0;
    while (b.at < b.end) {
        uint64_t bits = 0;
        struct bytes part = b;
        int key = take_field(&b, &bits, &part);
        fields++;
        if (key == (1 << 3 | 2)) {
            copy_text(part, value->tag, TAG);
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            uint32_t low = (uint32_t)bits;
            memcpy(&value->number, &low, 4);
        }
    }
    assert_int_equal(fields, 2);
}

static void read_summary(struct bytes b, struct event *event)
{
    while (b.at < b.end) {
        uint64_t bits;
        struct bytes part = b;
        assert_int_equal(take_field(&b, &bits, &part), 1 << 3 | 2);
        assert_true(event->value_count < VALUES);
        read_value(part, &event->values[event->value_count++]);
    }
}

static void read_event(struct bytes b, struct event *event)
{
    memset(event, 0, sizeof *event);
    event->step = -1;
    while (b.at < b.end) {
        uint64_t bits = 0;
        struct bytes part = b;
        switch (take_field(&b, &bits, &part)) {
        case 1 << 3 | 1:
            memcpy(&event->time, &bits, 8);
            break;
        case 2 << 3 | 0:
            event->step = (int64_t)bits;
            break;
        case 3 << 3 | 2:
            copy_text(part, event->version, sizeof event->version);
            break;
        case 5 << 3 | 2:
            read_summary(part, event);
            break;
        case 7 << 3 | 2:
            assert_int_equal(take_field(&part, &bits, &part), 1 << 3 | 0);
            event->session_starts = bits == 1;
            break;
        default:
            fail_msg("an event has a field that is none");
        }
    }
    assert_true(event->time > 1.7e9 && event->step >= 0);
}

/* Every byte of a file belongs to a frame whose sums are right. */
static struct events *read_events(struct ebb_ctx *ctx, const char *path)
{
    struct ebb_map map;
    struct events *events = (struct events *)calloc(1, sizeof *events);
    run_ok(ctx, ebb_map_open(ctx, path, &map), path);
    struct bytes b = {map.data, map.data + map.bytes};
    while (b.at < b.end) {
        struct bytes head = take(&b, 12);
        struct bytes data = take(&b, little(head.at, 8));
        check_sum(head.at, 8, head.at + 8);
        check_sum(data.at, (size_t)(data.end - data.at), take(&b, 4).at);
        assert_true(events->count < EVENTS);
        read_event(data, &events->list[events->count++]);
    }
    ebb_map_close(&map);
    return events;
}

/* The value of this tag; fails where there is none. */
static float value_of(const struct event *event, const char *tag)
{
    for (int i = 0; i < event->value_count; i++)
        if (strcmp(event->values[i].tag, tag) == 0) return event->values[i].number;
    fail_msg("no '%s' at step %d", tag, (int)event->step);
    return 0;
}

/* ---- a folder for each case ------------------------------------------------------------------ */

struct place {
    struct ebb_ctx *ctx;
    char dir[64], events[96];
};

static int open_place(void **state)
{
    struct place *place = (struct place *)calloc(1, sizeof *place);
    memset(&disk, 0, sizeof disk);
    place->ctx = ebb_ctx_create();
    snprintf(place->dir, sizeof place->dir, "/tmp/ebb_events_XXXXXX");
    if (!mkdtemp(place->dir)) return -1;
    snprintf(place->events, sizeof place->events, "%s/out/runs", place->dir);
    *state = place;
    return 0;
}

static int close_place(void **state)
{
    struct place *place = (struct place *)*state;
    disk.on = false;
    bool clean =
        ebb_dir_remove(place->ctx, place->dir) == EBB_OK && ebb_mem_bytes_now(place->ctx) == 0;
    ebb_ctx_free(place->ctx);
    free(place);
    return clean ? 0 : -1;
}

static void add_text(struct place *place, struct ebb_event_file *file, const char *text)
{
    json_t *record = json_loads(text, 0, NULL);
    assert_non_null(record);
    run_ok(place->ctx, ebb_event_file_add(file, record), "add");
    json_decref(record);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void the_readers_sum_is_crc_32c(void **state)
{
    static const unsigned char zeros[32];
    (void)state;
    /* RFC 3720, B.4, and the catalogue's check value */
    assert_int_equal(crc_by_division(zeros, 32), 0x8a9136aa);
    assert_int_equal(crc_by_division((const unsigned char *)"123456789", 9), 0xe3069283);
}

static void a_file_begins_with_version_and_session(void **state)
{
    struct place *place = (struct place *)*state;
    struct ebb_event_file *file;
    run_ok(place->ctx, ebb_event_file_open(place->ctx, place->events, 300, &file), "open");
    run_ok(place->ctx, ebb_event_file_flush(file), "flush");
    const char *name = strrchr(ebb_event_file_path(file), '/') + 1;
    long long seconds;
    char host[256], rest[300];
    assert_int_equal(sscanf(name, "events.out.tfevents.%10lld.%299s", &seconds, rest), 2);
    assert_true(seconds > 1700000000);
    assert_int_equal(gethostname(host, sizeof host), 0);
    char wanted[600];
    snprintf(wanted, sizeof wanted, "%s.%ld.0", host, (long)getpid());
    assert_string_equal(rest, wanted);
    struct events *events = read_events(place->ctx, ebb_event_file_path(file));
    assert_int_equal(events->count, 2);
    assert_string_equal(events->list[0].version, "brain.Event:2");
    assert_true(events->list[1].session_starts);
    assert_int_equal(events->list[1].step, 300);
    free(events);
    ebb_event_file_close(file);
}

static void numbers_are_named_as_transformers_names_them(void **state)
{
    struct place *place = (struct place *)*state;
    struct ebb_event_file *file;
    run_ok(place->ctx, ebb_event_file_open(place->ctx, place->events, 0, &file), "open");
    add_text(place, file,
             "{\"step\": 300, \"epoch\": 0.5, \"loss\": 1.25, \"rewards/chosen\": -2,"
             " \"grad_norm\": null, \"num_tokens\": 4096, \"skipped\": true}");
    add_text(place, file, "{\"step\": 300, \"epoch\": 0.5, \"eval_loss\": 0.5}");
    add_text(place, file, "{\"step\": 300, \"epoch\": 0.5, \"samples\": [{\"num_tokens\": 3}]}");
    struct events *events = read_events(place->ctx, ebb_event_file_path(file));
    assert_int_equal(events->count, 4);
    const struct event *train = &events->list[2], *eval = &events->list[3];
    assert_int_equal(train->step, 300);
    assert_int_equal(train->value_count, 4);
    assert_true(value_of(train, "train/loss") == 1.25f);
    assert_true(value_of(train, "train/epoch") == 0.5f);
    assert_true(value_of(train, "train/rewards/chosen") == -2);
    assert_true(value_of(train, "train/num_tokens") == 4096);
    assert_int_equal(eval->value_count, 1);
    assert_true(value_of(eval, "eval/loss") == 0.5f);
    free(events);
    ebb_event_file_close(file);
}

static void files_of_one_second_do_not_meet(void **state)
{
    struct place *place = (struct place *)*state;
    struct ebb_event_file *files[3];
    char **names;
    size_t count;
    for (int i = 0; i < 3; i++)
        run_ok(place->ctx, ebb_event_file_open(place->ctx, place->events, 0, &files[i]), "open");
    run_ok(place->ctx, ebb_dir_list(place->ctx, place->events, &names, &count), "list");
    assert_int_equal(count, 3);
    ebb_dir_list_free(place->ctx, names, count);
    for (int i = 0; i < 3; i++) ebb_event_file_close(files[i]);
}

static void a_full_disk_leaves_whole_events(void **state)
{
    struct place *place = (struct place *)*state;
    struct ebb_event_file *file;
    run_ok(place->ctx, ebb_event_file_open(place->ctx, place->events, 0, &file), "open");
    add_text(place, file, "{\"step\": 1, \"loss\": 3}");
    json_t *record = json_loads("{\"step\": 2, \"loss\": 2}", 0, NULL);
    for (size_t allowed = 0; allowed < 40; allowed += 13) {
        disk.on = true;
        disk.allowed = allowed;
        assert_int_equal(ebb_event_file_add(file, record), EBB_IO);
        disk.on = false;
        const char *text = ebb_error_text(place->ctx);
        if (!strstr(text, "disk full: cannot add an event to") ||
            !strstr(text, ebb_event_file_path(file)))
            fail_msg("%s", text);
        ebb_error_clear(place->ctx);
        struct events *events = read_events(place->ctx, ebb_event_file_path(file));
        assert_int_equal(events->count, 3);
        free(events);
    }
    json_decref(record);
    add_text(place, file, "{\"step\": 3, \"loss\": 1}");
    struct events *events = read_events(place->ctx, ebb_event_file_path(file));
    assert_int_equal(events->count, 4);
    assert_int_equal(events->list[3].step, 3);
    free(events);
    ebb_event_file_close(file);
}

static void a_folder_that_cannot_be_is_an_error(void **state)
{
    struct place *place = (struct place *)*state;
    struct ebb_event_file *file;
    char path[128];
    snprintf(path, sizeof path, "%s/file", place->dir);
    run_ok(place->ctx, ebb_file_write(place->ctx, path, "x", 1), "write");
    assert_int_equal(ebb_event_file_open(place->ctx, path, 0, &file), EBB_IO);
    assert_null(file);
    assert_non_null(strstr(ebb_error_text(place->ctx), path));
    ebb_error_clear(place->ctx);
    disk.on = true;
    disk.allowed = 30;
    assert_int_equal(ebb_event_file_open(place->ctx, place->events, 0, &file), EBB_IO);
    disk.on = false;
    assert_null(file);
    assert_non_null(strstr(ebb_error_text(place->ctx), "disk full"));
    ebb_error_clear(place->ctx);
}

static void removing_leaves_what_others_put_there(void **state)
{
    struct place *place = (struct place *)*state;
    struct ebb_event_file *file;
    char path[128];
    run_ok(place->ctx, ebb_event_files_remove(place->ctx, place->events), "nothing there");
    run_ok(place->ctx, ebb_event_file_open(place->ctx, place->events, 0, &file), "open");
    ebb_event_file_close(file);
    snprintf(path, sizeof path, "%s/mine", place->events);
    run_ok(place->ctx, ebb_file_write(place->ctx, path, "x", 1), "write");
    run_ok(place->ctx, ebb_event_files_remove(place->ctx, place->events), "remove");
    assert_true(ebb_file_exists(path));
    assert_int_equal(unlink(path), 0);
    run_ok(place->ctx, ebb_event_files_remove(place->ctx, place->events), "remove");
    assert_false(ebb_dir_exists(place->events));
}

/* ---- of a run -------------------------------------------------------------------------------- */

static void train_into(struct place *place, const char *from)
{
    struct run run;
    struct run_options o = {.lora = true};
    char out[96];
    snprintf(out, sizeof out, "%s/out", place->dir);
    run_open(&run, &o, out, from);
    run.request.max_steps = 8;
    run.request.eval_strategy = run.request.save_strategy = EBB_WHEN_STEPS;
    run.request.eval_steps = run.request.save_steps = 4;
    run.request.events_dir = place->events;
    run_must(&run);
    run_close(&run);
}

/* What metrics.jsonl says of the steps from `first` on stands in the file, in its order. */
static void check_against_metrics(struct place *place, const char *path, int64_t first)
{
    char out[96];
    snprintf(out, sizeof out, "%s/out", place->dir);
    json_t *metrics = run_metrics(place->ctx, out);
    struct events *events = read_events(place->ctx, path);
    assert_true(events->list[1].session_starts);
    int at = 2;
    size_t i;
    json_t *record;
    json_array_foreach(metrics, i, record)
    {
        int64_t step = json_integer_value(json_object_get(record, "step"));
        if (step < first) continue;
        const struct event *event = &events->list[at++];
        assert_true(at <= events->count);
        assert_int_equal(event->step, step);
        int numbers = 0;
        const char *key;
        json_t *value;
        json_object_foreach(record, key, value) numbers += json_is_number(value);
        bool eval = json_object_get(record, "eval_loss") != NULL;
        assert_int_equal(event->value_count, numbers - (eval ? 2 : 1)); /* step; epoch */
        const char *tag = eval ? "eval/loss" : "train/loss";
        double loss = run_number(record, eval ? "eval_loss" : "loss");
        assert_true(value_of(event, tag) == (float)loss);
        if (!eval) {
            assert_true(value_of(event, "train/learning_rate") ==
                        (float)run_number(record, "learning_rate"));
            (void)value_of(event, "train/grad_norm");
            (void)value_of(event, "train/tokens_per_second");
            (void)value_of(event, "train/peak_device_bytes");
        }
    }
    assert_int_equal(at, events->count);
    free(events);
    json_decref(metrics);
}

static void a_run_and_the_one_that_resumes_it_write_what_metrics_has(void **state)
{
    struct place *place = (struct place *)*state;
    char **names, path[600], from[128];
    size_t count;
    train_into(place, NULL);
    run_ok(place->ctx, ebb_dir_list(place->ctx, place->events, &names, &count), "list");
    assert_int_equal(count, 1);
    snprintf(path, sizeof path, "%s/%s", place->events, names[0]);
    check_against_metrics(place, path, 1);
    snprintf(from, sizeof from, "%s/out/checkpoint-4", place->dir);
    train_into(place, from);
    ebb_dir_list_free(place->ctx, names, count);
    run_ok(place->ctx, ebb_dir_list(place->ctx, place->events, &names, &count), "list");
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", place->events, names[i]);
        struct events *events = read_events(place->ctx, path);
        int64_t first = events->list[1].step;
        assert_int_equal(first, i == 0 ? 0 : 5);
        if (first > 0) check_against_metrics(place, path, first);
        free(events);
    }
    ebb_dir_list_free(place->ctx, names, count);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_place, close_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_readers_sum_is_crc_32c),
        CASE(a_file_begins_with_version_and_session),
        CASE(numbers_are_named_as_transformers_names_them),
        CASE(files_of_one_second_do_not_meet),
        CASE(a_full_disk_leaves_whole_events),
        CASE(a_folder_that_cannot_be_is_an_error),
        CASE(removing_leaves_what_others_put_there),
        CASE(a_run_and_the_one_that_resumes_it_write_what_metrics_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
