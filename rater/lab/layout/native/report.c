/* What was had: which pages of each region are there, and which of them are large. */
#include "pages.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

/* <linux/fs.h> of Linux 6.7 */
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t inverted, mask, any_of, returned;
};
struct run { uint64_t start, end, is; };
#define PAGEMAP_SCAN_NOW _IOWR('f', 16, struct scan)
enum { PRESENT = 1 << 3, SWAPPED = 1 << 4, ZERO = 1 << 5, LARGE = 1 << 6 };

static char path[4096];
static int owner; /* the process it is about */
static unsigned forks;
static int forked;
static int reporting;
static uint64_t began_ns;
static char troubles[256];

/* Of the moment when most of a region was there. */
static struct seen {
    uint64_t extent; /* bytes from the base to the last page */
    uint64_t there, touched; /* bytes that are there; pages of windows with something in them */
    uint64_t large, stray; /* bytes in pages larger than base pages: inside windows, outside */
    uint64_t giant; /* of `large`, in windows of larger pages than transparent ones */
} best[CATEGORIES];

void complain(const char *what)
{
    size_t used = strlen(troubles);
    int error = errno;
    if (used + strlen(what) + 16 < sizeof troubles) {
        char *at = troubles + used;
        sprintf(at, "%s%s:%d", used ? "," : "", what, error);
        for (; *at; at++) if (*at == ' ') *at = '_';
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void report_begin(const char *directory)
{
    const char *copy = getenv("RATER_COPY");
    snprintf(path, sizeof path, "%s/%s", directory, copy && *copy && !strchr(copy, '/') ? copy : "none");
    owner = getpid();
    began_ns = now_ns();
}

void report_forked(void)
{
    owner = getpid();
    forked = 1;
    forks = 0;
    reporting = 0;
    began_ns = now_ns();
    memset(best, 0, sizeof best);
}

/* Pages [s, e) of a region are there, in order of their addresses. */
static void take(const struct region *r, struct seen *seen, uint64_t s, uint64_t e, int large, uint64_t *slot)
{
    seen->there += e - s;
    seen->extent = MAX(seen->extent, e - r->base);
    uint64_t covered = 0;
    for (unsigned i = first_window(r, s); i < r->count && r->base + r->of[i].start < e; i++) {
        const struct window *w = &r->of[i];
        uint64_t from = MAX(s, r->base + w->start), to = MIN(e, r->base + w->end);
        if (from >= to) continue;
        covered += to - from;
        uint64_t first = MAX(DOWN(from, w->page), *slot), last = UP(to, w->page);
        if (last > first) { seen->touched += last - first; *slot = last; }
        if (large && w->page > huge_bytes) seen->giant += to - from;
    }
    if (large) { seen->large += covered; seen->stray += e - s - covered; }
}

static int scan(int pagemap, const struct region *r, struct seen *seen)
{
    static struct run runs[512];
    uint64_t slot = 0;
    struct scan arg = {
        .size = sizeof arg, .start = r->base, .end = r->end, .vec = (uint64_t)runs, .vec_len = 512,
        .inverted = ZERO, .mask = ZERO, .any_of = PRESENT | SWAPPED, .returned = LARGE,
    };
    while (arg.start < arg.end) {
        long n = ioctl(pagemap, PAGEMAP_SCAN_NOW, &arg);
        if (n < 0) return 0;
        for (long i = 0; i < n; i++) take(r, seen, runs[i].start, runs[i].end, !!(runs[i].is & LARGE), &slot);
        if (arg.walk_end <= arg.start) break;
        arg.start = arg.walk_end;
    }
    return 1;
}

/* An older kernel: what is there from pagemap, what is large of each mapping from smaps. */
static void read_slowly(int pagemap, const struct region *r, struct seen *seen)
{
    static uint64_t entry[4096];
    uint64_t slot = 0;
    for (uint64_t at = r->base; at < r->end;) {
        uint64_t pages = MIN(4096, (r->end - at) / PAGE);
        if (pread(pagemap, entry, pages * 8, (off_t)(at / PAGE * 8)) != (ssize_t)(pages * 8)) break;
        for (uint64_t i = 0; i < pages; i++)
            if (entry[i] >> 62) take(r, seen, at + i * PAGE, at + (i + 1) * PAGE, 0, &slot);
        at += pages * PAGE;
    }
}

/* One line of smaps. */
static void take_line(const char *line, struct seen *found, int *which, uint64_t *start)
{
    unsigned long s, e, value;
    char mode[5];
    if (sscanf(line, "%lx-%lx %4s", &s, &e, mode) == 3) {
        *which = -1;
        *start = s;
        for (int c = 0; c < CATEGORIES; c++)
            if (regions[c].end && s >= regions[c].base && e <= regions[c].end) *which = c;
    } else if (*which >= 0 && (sscanf(line, "AnonHugePages: %lu", &value) == 1 ||
                               sscanf(line, "Private_Hugetlb: %lu", &value) == 1) && value) {
        const struct region *r = &regions[*which];
        unsigned i = first_window(r, *start);
        int in = i < r->count && r->base + r->of[i].start <= *start;
        *(in ? &found[*which].large : &found[*which].stray) += value << 10;
        if (in && r->of[i].page > huge_bytes) found[*which].giant += value << 10;
    }
}

static void read_smaps(struct seen *found)
{
    static char text[1 << 14];
    size_t have = 0;
    int which = -1, file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    uint64_t start = 0;
    if (file < 0) return;
    for (;;) {
        ssize_t n = read(file, text + have, sizeof text - 1 - have);
        if (n <= 0) break;
        have += (size_t)n;
        text[have] = '\0';
        char *line = text;
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            take_line(line, found, &which, &start);
        }
        have -= (size_t)(line - text);
        memmove(text, line, have);
    }
    close(file);
}

static void look(void)
{
    struct seen found[CATEGORIES];
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), slow = 0;
    memset(found, 0, sizeof found);
    if (pagemap < 0) return;
    for (int c = 0; c < CATEGORIES; c++) {
        const struct region *r = &regions[c];
        if (!r->end || (!slow && scan(pagemap, r, &found[c]))) continue;
        memset(&found[c], 0, sizeof found[c]);
        read_slowly(pagemap, r, &found[c]);
        slow = 1;
    }
    close(pagemap);
    if (slow) read_smaps(found);
    for (int c = 0; c < CATEGORIES; c++)
        if (found[c].there >= best[c].there) best[c] = found[c];
}

/* Append a line about this process: its event, and what its regions had at most so far. */
void report(const char *event)
{
    if (!active || !*path || getpid() != owner || __atomic_exchange_n(&reporting, 1, __ATOMIC_ACQUIRE)) return;
    int error = errno;
    uint64_t from_ns = now_ns();
    if (strcmp(event, "begin")) look();
    static char line[4096];
    static const char *const names[CATEGORIES] = {"heap", "mmap", "static"};
    int n = snprintf(line, sizeof line, "1 %s %d %d %lu %lu %d %u %u %d %s", event, owner, getpgrp(), began_ns,
                     now_ns() - from_ns, forked, forks, moved_break, foreign_malloc, *troubles ? troubles : "-");
    for (int c = 0; c < CATEGORIES; c++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %s=%lx,%lx,%lu,%lu,%lu,%lu,%lu,%lu", names[c],
                      regions[c].base, regions[c].end, best[c].extent, best[c].there, best[c].touched,
                      best[c].large, best[c].stray, best[c].giant);
    line[n++] = '\n';
    int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (to >= 0) {
        if (write(to, line, (size_t)n) < 0) {}
        close(to);
    }
    errno = error;
    __atomic_store_n(&reporting, 0, __ATOMIC_RELEASE);
}

void report_fork(void)
{
    /* Once is enough: what is there then is in large pages still; a fork makes those that are
     * written afterwards small. */
    if (forks++ == 0) report("fork");
}
