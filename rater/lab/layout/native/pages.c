/* Beginning: what RATER_PAGES says, regions with their page sizes, calls that move the break. */
#include "pages.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct region regions[CATEGORIES];
uint64_t huge_bytes = 2u << 20, large_bytes = UINT64_MAX;
int active, foreign_malloc, holds_pool;
unsigned moved_break;
static int pooled, strict;
static int descendant; /* a process that the copy's own has started */
static uint64_t largest_page; /* of all windows of the heap */


void trouble(const char *what)
{
    int error = errno;
    complain(what);
    if (!strict) return;
    char line[256]; /* no stdio: it may allocate */
    int n = snprintf(line, sizeof line,
                     "rater --pages: %s: %s; this copy does not run (with :best behind the layout it "
                     "would, without these pages)\n", what, strerror(error));
    if (write(2, line, (size_t)n) < 0) {}
    syscall(SYS_exit_group, 125);
}

/* ---- page sizes ------------------------------------------------------------------------------ */

/* Transparent pages of [start, end), addresses inside a region. */
void advise(const struct region *r, uint64_t start, uint64_t end)
{
    syscall(SYS_madvise, start, end - start, MADV_NOHUGEPAGE);
    for (unsigned i = first_window(r, start); i < r->count && r->base + r->of[i].start < end; i++) {
        uint64_t s = MAX(start, r->base + r->of[i].start), e = MIN(end, r->base + r->of[i].end);
        if (r->of[i].backing == TRANSPARENT && s < e && syscall(SYS_madvise, s, e - s, MADV_HUGEPAGE) != 0)
            trouble("MADV_HUGEPAGE");
    }
}

/* Pages of zeros stay untouched. */
void copy_used(char *to, const char *from, uint64_t bytes)
{
    static const char zeros[PAGE];
    for (uint64_t at = 0; at < bytes; at += PAGE)
        if (memcmp(from + at, zeros, PAGE)) memcpy(to + at, from + at, PAGE);
}

/* One window in pages of the pool; what lies there (.bss) is kept. */
static int take_of_pool(uint64_t start, uint64_t end, uint64_t page, int keep)
{
    const int normal = MAP_PRIVATE | MAP_ANONYMOUS;
    void *kept = NULL;
    if (keep) {
        kept = raw_mmap(0, end - start, PROT_READ | PROT_WRITE, normal);
        if (kept == MAP_FAILED) return 0;
        copy_used(kept, (void *)start, end - start);
    }
    int had = raw_mmap(start, end - start, PROT_READ | PROT_WRITE,
                       normal | MAP_FIXED | MAP_HUGETLB | (__builtin_ctzll(page) << MAP_HUGE_SHIFT)) != MAP_FAILED;
    int error = errno;
    if (!had) /* what was there is gone already */
        raw_mmap(start, end - start, PROT_READ | PROT_WRITE, normal | MAP_FIXED | MAP_NORESERVE);
    if (keep) {
        copy_used((char *)start, kept, end - start);
        syscall(SYS_munmap, kept, end - start);
    }
    errno = error;
    return had;
}

static void shape(enum category which)
{
    struct region *r = &regions[which];
    if (!r->end) return;
    for (unsigned i = 0; i < r->count; i++) {
        struct window *w = &r->of[i];
        w->end = MIN(w->end, DOWN(r->end - r->base, w->page));
        if (w->start >= w->end) { r->count = i; break; }
        w->backing = pooled || w->page > huge_bytes ? POOL : TRANSPARENT;
    }
    advise(r, r->base, r->end);
    for (unsigned i = 0; i < r->count; i++) {
        struct window *w = &r->of[i];
        if (w->backing != POOL) continue;
        if (descendant) { /* the pool holds what the copy's own process needs, which has it */
            errno = ENOMEM;
            trouble("pages of the pool are of the process that the copy began as");
            w->end = w->start;
            continue;
        }
        holds_pool = 1;
        if (take_of_pool(r->base + w->start, r->base + w->end, w->page, which == STATIC)) continue;
        trouble("pages of the pool (MAP_HUGETLB)"); /* here it goes on with what there is */
        uint64_t at = w->start;
        while (at < w->end && take_of_pool(r->base + at, r->base + at + w->page, w->page, which == STATIC))
            at += w->page;
        syscall(SYS_madvise, r->base + at, w->end - at, MADV_NOHUGEPAGE);
        w->end = at; /* maybe none of it */
    }
}

/* ---- what RATER_PAGES says ------------------------------------------------------------------- */

static void add_windows(struct region *r, unsigned bits, const char *text)
{
    while (*text && bits < 48) {
        char *rest;
        uint64_t first = strtoull(text, &rest, 10), count = 0;
        if (rest == text || *rest != '+') break;
        text = rest + 1;
        count = strtoull(text, &rest, 10);
        if (rest == text || (*rest && *rest != ',') || r->count == MOST_WINDOWS) break;
        text = rest + (*rest == ',');
        struct window w = {first << bits, (first + count) << bits, 1ull << bits, 0};
        unsigned i = r->count++;
        for (; i > 0 && r->of[i - 1].start > w.start; i--) r->of[i] = r->of[i - 1];
        r->of[i] = w;
        if (r == &regions[HEAP]) largest_page = MAX(largest_page, w.page);
        if (!*text) return;
    }
    errno = EINVAL;
    trouble("RATER_PAGES: windows");
}

/* .bss of the program itself, as far as whole huge pages fit: .data is of a file. */
static int find_bss(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    uint64_t from = 0, to = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || h->p_memsz <= h->p_filesz || !(h->p_flags & PF_W)) continue;
        uint64_t s = UP(info->dlpi_addr + h->p_vaddr + h->p_filesz, PAGE);
        uint64_t e = UP(info->dlpi_addr + h->p_vaddr + h->p_memsz, PAGE);
        if (e > s && e - s > to - from) { from = s; to = e; }
    }
    uint64_t align = huge_bytes; /* pages of 1 GB begin at multiples of it */
    for (unsigned i = 0; i < regions[STATIC].count; i++) align = MAX(align, regions[STATIC].of[i].page);
    from = UP(from, align);
    to = DOWN(to, huge_bytes);
    if (from < to) { regions[STATIC].base = from; regions[STATIC].end = to; }
    return 1; /* the first is the program */
}

static uint64_t read_number(const char *path)
{
    char text[32] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    return n > 0 ? strtoull(text, NULL, 10) : 0;
}

/* The child of a fork shares pages of the pool with its parent until one of them writes: that takes
 * another page, and where there is none the child ends by SIGBUS. So it copies them into base pages
 * first, while its parent waits. */
static _Thread_local int gate[2] __attribute__((tls_model("initial-exec")));

/* Of pages of 1 GB (Linux 6.18) some children have none, though their parent writes nothing and waits:
 * what is copied then is zeroes. */
static int holds_giant(void)
{
    struct piece p;
    for (uint64_t at = 0; next_piece(&p, at, UINT64_MAX, 1); at = p.end)
        if (p.of->of[p.window].page > huge_bytes) return 1;
    return 0;
}

static void before_fork(void)
{
    report_fork();
    if (holds_pool && holds_giant()) leave_pool(0, UINT64_MAX, "fork of pages of 1 GB");
    /* Writes of other threads would take pages from the child before it has its copy, and handlers of
     * another malloc write in the child before that. */
    if (holds_pool && (foreign_malloc || !is_alone())) leave_pool(0, UINT64_MAX, "fork beside threads or another malloc");
    pool_freeze();
    if (!holds_pool || syscall(SYS_pipe2, gate, O_CLOEXEC) != 0) gate[0] = gate[1] = -1;
}

static void in_parent(void)
{
    int error = errno;
    if (gate[0] >= 0) {
        char nothing; /* the end of it: the child has its copy, or is no more */
        syscall(SYS_close, gate[1]);
        while (syscall(SYS_read, gate[0], &nothing, 1) < 0 && errno == EINTR) {}
        syscall(SYS_close, gate[0]);
    }
    pool_thaw(0);
    errno = error;
}

static void in_child(void)
{
    int error = errno;
    if (gate[0] >= 0) {
        leave_pool_all();
        syscall(SYS_close, gate[0]);
        syscall(SYS_close, gate[1]);
    }
    pool_thaw(1);
    report_forked();
    errno = error;
}

/* The process that a copy began as writes its number into the word `process`, which it has after
 * exec still and its descendants inherit. */
static int is_descendant(const char *given)
{
    enum { DIGITS = 10 };
    char *word = strstr(given, "process="), own[DIGITS + 1];
    if (word == NULL || strlen(word += strlen("process=")) < DIGITS) return 0;
    snprintf(own, sizeof own, "%0*d", DIGITS, (int)getpid());
    if (strncmp(word, "0000000000", DIGITS)) return strncmp(word, own, DIGITS) != 0;
    memcpy(word, own, DIGITS);
    return 0;
}

static void each_word(const char *given, void (*take)(const char *word, char *value))
{
    uint64_t length = strlen(given) + 1;
    /* Not on the heap, which is to begin empty; not static, which would be a copy in every process. */
    char *words = raw_mmap(0, UP(length, PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (words == MAP_FAILED) return;
    memcpy(words, given, length);
    for (char *next, *word = strtok_r(words, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
        char *value = strchr(word, '=');
        if (value) *value++ = '\0';
        take(word, value);
    }
    syscall(SYS_munmap, words, UP(length, PAGE));
}

static void take_windows(const char *word, char *value)
{
    static const char letters[] = "hms"; /* in the order of categories */
    const char *at = value && atoi(word + 1) ? strchr(letters, *word) : NULL;
    if (at) add_windows(&regions[at - letters], (unsigned)atoi(word + 1), value);
}

static uint64_t heap, pool; /* bytes to reserve */

static void take_word(const char *word, char *value)
{
    if (!strcmp(word, "strict")) strict = 1;
    else if (!strcmp(word, "hugetlb")) pooled = 1;
    else if (!value) { errno = EINVAL; trouble("RATER_PAGES: a word"); }
    else if (!strcmp(word, "heap")) heap = strtoull(value, NULL, 10);
    else if (!strcmp(word, "mmap")) pool = strtoull(value, NULL, 10);
    else if (!strcmp(word, "process")) {} /* see is_descendant */
    else if (!strcmp(word, "large")) large_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(word, "report")) report_begin(value);
    else if (strchr("hms", *word)) take_windows(word, value);
    else { errno = EINVAL; trouble("RATER_PAGES: a word"); }
}

/* Windows of another process, to look at it. */
void read_windows(const char *given)
{
    for (int which = 0; which < CATEGORIES; which++) regions[which].count = 0;
    each_word(given, take_windows);
}

__attribute__((constructor(101))) static void begin(void)
{
    const char *given = getenv("RATER_PAGES");
    if (given == NULL || *given == '\0') return;
    /* Where it is not preloaded somebody looks at other processes with it. */
    if (dlsym(RTLD_DEFAULT, "rater_look") != (void *)rater_look) return;
    uint64_t size = read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    if (size) huge_bytes = size;
    each_word(given, take_word);
    descendant = is_descendant(given);
    strict = strict && !descendant;
    foreign_malloc = !blocks_are_ours();
    if (heap && !foreign_malloc) heap_begin(heap, MAX(largest_page, huge_bytes));
    shape(HEAP);
    if (pool) pool_begin(pool);
    shape(MMAP);
    if (!regions[MMAP].end || foreign_malloc) large_bytes = UINT64_MAX;
    dl_iterate_phdr(find_bss, NULL);
    shape(STATIC);
    announce(HEAP);
    announce(MMAP);
    pthread_atfork(before_fork, in_parent, in_child);
    active = 1;
    report("begin");
}

/* Here no thread is within malloc, as one may be at `_exit`: it can be asked. */
__attribute__((destructor)) static void end(void) { report_used("exit", heap_used()); }

/* `_exit` passes destructors by. (The child of a vfork is not to touch what is its parent's: `report`
 * does nothing in it.) */
EXPORT __attribute__((noreturn)) void _exit(int status)
{
    report("exit");
    for (;;) syscall(SYS_exit_group, status);
}
EXPORT __attribute__((noreturn)) void _Exit(int status) { _exit(status); }

/* ---- the break ------------------------------------------------------------------------------- */

/* Memory that the program takes from the break itself lies in no category: counted for the report. */
extern void *__sbrk(intptr_t);
EXPORT void *sbrk(intptr_t more)
{
    if (active && more) moved_break++;
    return __sbrk(more);
}
EXPORT int brk(void *to)
{
    uint64_t now = (uint64_t)__sbrk(0);
    if (active) moved_break++;
    return __sbrk((intptr_t)((uint64_t)to - now)) == (void *)-1 ? -1 : 0;
}
