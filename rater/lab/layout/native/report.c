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

/* What the layout does not reach: bytes of the process outside of all regions. */
static struct rest { uint64_t there, large, files, shared; } rest;
static uint64_t kept; /* bytes of the heap that are there and free */

void complain(const char *what)
{
    char text[128];
    size_t used = strlen(troubles);
    int error = errno, n = snprintf(text, sizeof text, "%s%s:%d", used ? "," : "", what, error);
    for (char *at = text; *at; at++) if (*at == ' ') *at = '_';
    if (n + used < sizeof troubles && !strstr(troubles, text + (used > 0))) strcpy(troubles + used, text);
    errno = error;
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
    memset(&rest, 0, sizeof rest);
    kept = 0;
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

/* Each line of a file of /proc, without stdio, which allocates. */
static void read_lines(const char *name, void (*take_line)(const char *line, void *to), void *to)
{
    char text[1 << 12];
    size_t have = 0;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; file >= 0 && (n = read(file, text + have, sizeof text - 1 - have)) > 0;) {
        char *line = text;
        text[have += (size_t)n] = '\0';
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            take_line(line, to);
        }
        have -= (size_t)(line - text);
        memmove(text, line, have);
        if (have == sizeof text - 1) have = 0; /* the end of a long path */
    }
    if (file >= 0) close(file);
}

struct mapping { uint64_t start, end; int shared, file, protection; };

static int parse_mapping(const char *line, struct mapping *m)
{
    char mode[5];
    unsigned long inode;
    if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &m->start, &m->end, mode, &inode) != 4) return 0;
    m->shared = mode[3] == 's';
    m->file = inode != 0 && !m->shared;
    m->protection = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) | (mode[2] == 'x' ? PROT_EXEC : 0);
    return 1;
}

struct range { uint64_t at, end; int protection; };

static void take_protection(const char *line, void *to)
{
    struct range *r = to;
    struct mapping m;
    if (r->at >= r->end || !parse_mapping(line, &m) || m.start > r->at || m.end <= r->at) return;
    if (r->protection >= 0 && r->protection != m.protection) return;
    r->protection = m.protection;
    r->at = m.end;
}

int protection_of(uint64_t start, uint64_t end)
{
    struct range r = {start, end, -1};
    read_lines("/proc/self/maps", take_protection, &r);
    return r.at >= end ? r.protection : -1;
}

static struct {
    int pagemap, which;
    struct seen found[CATEGORIES];
    struct rest rest;
    struct mapping at; /* of smaps */
} looking;

static void add_rest(const struct mapping *m, uint64_t there, uint64_t large)
{
    looking.rest.there += there;
    looking.rest.large += large;
    if (m->file) looking.rest.files += there;
    if (m->shared) looking.rest.shared += there;
}

/* One line of maps: what of it lies in no region. */
static void take_mapping(const char *line, void *unused)
{
    static struct region outside; /* without windows */
    struct mapping m;
    (void)unused;
    if (!parse_mapping(line, &m)) return;
    for (uint64_t at = m.start, end; at < m.end; at = end) {
        end = m.end;
        int in = 0;
        for (int c = 0; c < CATEGORIES && !in; c++) {
            in = regions[c].end && inside(c, at);
            if (in) end = MIN(m.end, regions[c].end);
            else if (regions[c].end && regions[c].base > at) end = MIN(end, regions[c].base);
        }
        struct seen seen = {0};
        outside.base = at;
        outside.end = end;
        if (!in && scan(looking.pagemap, &outside, &seen)) add_rest(&m, seen.there, seen.stray);
    }
}

/* One line of smaps. */
static void take_smaps(const char *line, void *unused)
{
    (void)unused;
    struct seen *found = looking.found;
    unsigned long value;
    if (parse_mapping(line, &looking.at)) {
        looking.which = -1;
        for (int c = 0; c < CATEGORIES; c++)
            if (regions[c].end && looking.at.start >= regions[c].base && looking.at.end <= regions[c].end) looking.which = c;
        return;
    }
    const int pooled = sscanf(line, "Private_Hugetlb: %lu", &value) == 1 || sscanf(line, "Shared_Hugetlb: %lu", &value) == 1;
    const int large = pooled || sscanf(line, "AnonHugePages: %lu", &value) == 1 ||
                      sscanf(line, "ShmemPmdMapped: %lu", &value) == 1 || sscanf(line, "FilePmdMapped: %lu", &value) == 1;
    if (looking.which < 0) {
        if (pooled || sscanf(line, "Rss: %lu", &value) == 1) add_rest(&looking.at, value << 10, pooled ? value << 10 : 0);
        else if (large) looking.rest.large += value << 10;
    } else if (large && value) {
        const struct region *r = &regions[looking.which];
        unsigned i = first_window(r, looking.at.start);
        int in = i < r->count && r->base + r->of[i].start <= looking.at.start;
        *(in ? &found[looking.which].large : &found[looking.which].stray) += value << 10;
        if (in && r->of[i].page > huge_bytes) found[looking.which].giant += value << 10;
    }
}

static int look(const char *process)
{
    struct seen *found = looking.found;
    char name[64];
    snprintf(name, sizeof name, "/proc/%s/pagemap", process);
    int pagemap = open(name, O_RDONLY | O_CLOEXEC), slow = 0;
    memset(&looking, 0, sizeof looking);
    if (pagemap < 0) return 0;
    looking.pagemap = pagemap;
    for (int c = 0; c < CATEGORIES; c++) {
        const struct region *r = &regions[c];
        if (!r->end || (!slow && scan(pagemap, r, &found[c]))) continue;
        memset(&found[c], 0, sizeof found[c]);
        read_slowly(pagemap, r, &found[c]);
        slow = 1;
    }
    snprintf(name, sizeof name, "/proc/%s/%s", process, slow ? "smaps" : "maps");
    read_lines(name, slow ? take_smaps : take_mapping, NULL);
    close(pagemap);
    return 1;
}

static void look_here(void)
{
    const struct seen *found = looking.found;
    if (!look("self")) return;
    for (int c = 0; c < CATEGORIES; c++)
        if (found[c].there >= best[c].there) best[c] = found[c];
    if (looking.rest.there >= rest.there) rest = looking.rest;
}

/* Append a line about this process: its event, and what its regions had at most so far. `used` are
 * bytes of the heap that are not free, where malloc could be asked. */
void report_used(const char *event, uint64_t used)
{
    if (!active || !*path || getpid() != owner || __atomic_exchange_n(&reporting, 1, __ATOMIC_ACQUIRE)) return;
    int error = errno;
    uint64_t from_ns = now_ns();
    if (strcmp(event, "begin")) look_here();
    if (used < best[HEAP].there) kept = best[HEAP].there - used;
    static char line[4096];
    static const char *const names[CATEGORIES] = {"heap", "mmap", "static"};
    int n = snprintf(line, sizeof line, "2 %s %d %d %lu %lu %d %u %u %d %s", event, owner, getpgrp(), began_ns,
                     now_ns() - from_ns, forked, forks, moved_break, foreign_malloc, *troubles ? troubles : "-");
    for (int c = 0; c < CATEGORIES; c++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %s=%lx,%lx,%lu,%lu,%lu,%lu,%lu,%lu", names[c],
                      regions[c].base, regions[c].end, best[c].extent, best[c].there, best[c].touched,
                      best[c].large, best[c].stray, best[c].giant);
    n += snprintf(line + n, sizeof line - (size_t)n, " rest=%lu,%lu,%lu,%lu,%lu\n", rest.there, rest.large, rest.files,
                  rest.shared, kept);
    int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (to >= 0) {
        if (write(to, line, (size_t)n) < 0) {}
        close(to);
    }
    errno = error;
    __atomic_store_n(&reporting, 0, __ATOMIC_RELEASE);
}

void report(const char *event) { report_used(event, UINT64_MAX); }

void report_fork(void)
{
    /* Once is enough: what is there then is in large pages still; a fork makes those that are
     * written afterwards small. */
    if (forks++ == 0) report("fork");
}

/* For rater, which loads this library to look at a process: `words` are what that was told, `ends` base
 * and end of its regions. Writes six numbers a region and those of the rest; 0: it cannot be read. */
int rater_look(int pid, const char *words, uint64_t huge, const uint64_t *ends, uint64_t *found)
{
    char process[16];
    snprintf(process, sizeof process, "%d", pid);
    huge_bytes = huge;
    read_windows(words);
    for (int c = 0; c < CATEGORIES; c++) {
        regions[c].base = ends[2 * c];
        regions[c].end = ends[2 * c + 1];
    }
    if (!look(process)) return 0;
    for (int c = 0; c < CATEGORIES; c++, found += 6) memcpy(found, &looking.found[c], sizeof looking.found[c]);
    memcpy(found, &looking.rest, sizeof looking.rest);
    return 1;
}
