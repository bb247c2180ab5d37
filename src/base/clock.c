/* Clocks, the machine's memory, and the progress line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock_int.h"
#include "base/context_int.h"
#include "base/text.h"

/* ---- clocks ---- */

double ebb_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double ebb_clock_unix(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void ebb_clock_iso(char out[32])
{
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) == NULL || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        snprintf(out, 32, "1970-01-01T00:00:00Z");
}

/* ---- what Linux says in its small files ---- */

/* Reads at most room - 1 bytes and ends them with NUL; false if the file cannot be read. */
static bool read_small(const char *path, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t got = 0;
    while (got + 1 < room) {
        ssize_t n = read(fd, out + got, room - 1 - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        got += (size_t)n;
    }
    close(fd);
    out[got] = '\0';
    return got > 0;
}

/* The number behind `key` at the start of a line of `text`, or -1. */
static int64_t number_after(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, n) == 0) return strtoll(line + n, NULL, 10);
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return -1;
}

static bool read_in_group(const char *mount, const char *group, const char *name, char *out,
                          size_t room)
{
    char path[4096 + 256];
    int n = snprintf(path, sizeof path, "%s%s/%s", mount, group, name);
    return n > 0 && (size_t)n < sizeof path && read_small(path, out, room);
}

/* Cuts "/a/b" to "/a", "/a" to ""; false after "". */
static bool one_group_up(char *group)
{
    char *slash = strrchr(group, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return true;
}

static bool copy_group(const char *group, char *out, size_t room)
{
    int n = snprintf(out, room, "%s", strcmp(group, "/") == 0 ? "" : group);
    return n >= 0 && (size_t)n < room;
}

int64_t ebb_cgroup_bytes_limit(const char *mount, const char *group, int64_t *available)
{
    char at[4096], text[8192];
    int64_t limit = -1, left = -1;
    if (copy_group(group, at, sizeof at)) {
        do {
            if (!read_in_group(mount, at, "memory.max", text, sizeof text) ||
                strncmp(text, "max", 3) == 0)
                continue;
            int64_t max = strtoll(text, NULL, 10);
            if (limit < 0 || max < limit) limit = max;
            if (available == NULL || !read_in_group(mount, at, "memory.current", text, sizeof text))
                continue;
            int64_t used = strtoll(text, NULL, 10);
            if (read_in_group(mount, at, "memory.stat", text, sizeof text)) {
                int64_t cache = number_after(text, "inactive_file ");
                if (cache > 0) used -= cache < used ? cache : used;
            }
            int64_t here = max > used ? max - used : 0;
            if (left < 0 || here < left) left = here;
        } while (one_group_up(at));
    }
    if (available != NULL) *available = left;
    return limit;
}

int ebb_cgroup_cpu_limit(const char *mount, const char *group)
{
    char at[4096], text[128];
    int limit = -1;
    if (!copy_group(group, at, sizeof at)) return -1;
    do {
        if (!read_in_group(mount, at, "cpu.max", text, sizeof text) || strncmp(text, "max", 3) == 0)
            continue;
        char *end = NULL;
        int64_t quota = strtoll(text, &end, 10), period = strtoll(end, NULL, 10);
        if (quota <= 0 || period <= 0) continue;
        int64_t count = (quota + period - 1) / period;
        if (limit < 0 || count < limit) limit = count < INT32_MAX ? (int)count : INT32_MAX;
    } while (one_group_up(at));
    return limit;
}

static const char group_mount[] = "/sys/fs/cgroup";

/* This process's group in the unified hierarchy: the line "0::/path". */
static bool own_group(char *out, size_t room)
{
    char text[8192];
    if (!read_small("/proc/self/cgroup", text, sizeof text)) return false;
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, "0::/", 4) == 0) {
            size_t n = (end != NULL ? (size_t)(end - line) : strlen(line)) - 3;
            if (n >= room) return false;
            memcpy(out, line + 3, n);
            out[n] = '\0';
            return true;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return false;
}

/* ---- memory and processors ---- */

int64_t ebb_host_bytes_total(void)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t total = pages > 0 && page > 0 ? pages * page : 0;
    char group[4096];
    int64_t limit =
        own_group(group, sizeof group) ? ebb_cgroup_bytes_limit(group_mount, group, NULL) : -1;
    return limit >= 0 && limit < total ? limit : total;
}

int64_t ebb_host_bytes_available(void)
{
    char text[8192], group[4096];
    int64_t kib =
        read_small("/proc/meminfo", text, sizeof text) ? number_after(text, "MemAvailable:") : -1;
    int64_t available = kib >= 0 ? kib * 1024 : ebb_host_bytes_total();
    int64_t left = -1;
    if (own_group(group, sizeof group)) ebb_cgroup_bytes_limit(group_mount, group, &left);
    return left >= 0 && left < available ? left : available;
}

int64_t ebb_process_bytes_now(void)
{
    char text[256];
    if (!read_small("/proc/self/statm", text, sizeof text)) return 0;
    /* The first number is the address space, the second what is resident. */
    const char *space = strchr(text, ' ');
    return space != NULL ? strtoll(space, NULL, 10) * (int64_t)sysconf(_SC_PAGESIZE) : 0;
}

int64_t ebb_process_bytes_peak(void)
{
    char text[8192];
    int64_t kib =
        read_small("/proc/self/status", text, sizeof text) ? number_after(text, "VmHWM:") : -1;
    if (kib < 0) {
        struct rusage usage;
        kib = getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss : 0;
    }
    return kib * 1024;
}

int ebb_cpu_count(void)
{
    int count = 0;
    /* The kernel refuses a mask that is smaller than its own, so larger ones are tried. */
    for (int room = 1024; room <= (1 << 20) && count == 0; room *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)room);
        if (set == NULL) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)room);
        if (sched_getaffinity(0, bytes, set) == 0) count = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
    }
    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (count <= 0) count = 1;
    char group[4096];
    int limit = own_group(group, sizeof group) ? ebb_cgroup_cpu_limit(group_mount, group) : -1;
    return limit > 0 && limit < count ? limit : count;
}

void ebb_cpu_name(char *out, size_t out_bytes)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, out_bytes, "unknown");
    if (file == NULL) return;
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        colon += strspn(colon, ": \t");
        snprintf(out, out_bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(file);
}

/* ---- progress line ---- */

struct ebb_progress {
    struct ebb_ctx *ctx;
    bool live;   /* stderr is a terminal that can go back to a line's start */
    bool colour; /* and colours are wanted */
};

struct ebb_progress *ebb_progress_create(struct ebb_ctx *ctx)
{
    struct ebb_progress *progress = ebb_mem_alloc(ctx, sizeof *progress);
    if (progress == NULL) return NULL;
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    progress->ctx = ctx;
    progress->live = isatty(STDERR_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") != 0);
    progress->colour = progress->live && (no_color == NULL || no_color[0] == '\0');
    return progress;
}

bool ebb_progress_is_live(const struct ebb_progress *progress)
{
    return progress->live;
}

static size_t terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

/* Bytes of the colour sequence (ESC [ numbers m) at `at`, or 0. */
static size_t colour_bytes(const char *at)
{
    if (at[0] != '\033' || at[1] != '[') return 0;
    size_t n = 2 + strspn(at + 2, "0123456789;");
    return at[n] == 'm' ? n + 1 : 0;
}

size_t ebb_progress_fit(const char *text, size_t columns, bool colour, char *out, size_t room)
{
    size_t used = 0, shown = 0;
    while (*text != '\0') {
        size_t n = colour_bytes(text);
        bool is_colour = n > 0;
        if (!is_colour) {
            n = 1;
            while (((unsigned char)text[n] & 0xc0) == 0x80) n++;
        }
        /* Colours behind the edge are kept too: the last one resets. */
        bool keep = is_colour ? colour : shown < columns;
        if (keep && used + n < room) {
            memcpy(out + used, text, n);
            /* A newline would break the line in two. */
            if (!is_colour && (unsigned char)*text < 0x20) out[used] = ' ';
            used += n;
        }
        shown += !is_colour;
        text += n;
    }
    out[used] = '\0';
    return used;
}

void ebb_progress_show(struct ebb_progress *progress, bool keep, const char *format, ...)
{
    char text[1024], line[1100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t n = 0;
    if (!progress->live) {
        n = ebb_progress_fit(text, sizeof text, false, line, sizeof line - 1);
        line[n++] = '\n';
        ebb_log_draw(progress->ctx, line, n, false);
        return;
    }
    line[n++] = '\r';
    /* The last column stays free: a full line would make some terminals go to the next one. A line
     * that is to stay may wrap, so nothing of it is lost. */
    size_t columns = keep ? sizeof text : terminal_columns() - 1;
    n += ebb_progress_fit(text, columns, progress->colour, line + n, sizeof line - n - 8);
    memcpy(line + n, "\033[K", 3);
    n += 3;
    if (keep) line[n++] = '\n';
    ebb_log_draw(progress->ctx, line, n, !keep);
}

void ebb_progress_free(struct ebb_progress *progress)
{
    if (progress == NULL) return;
    ebb_log_end_live(progress->ctx);
    ebb_mem_free(progress->ctx, progress);
}
