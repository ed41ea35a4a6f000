/* malloc: glibc's own, in an arena that is reserved at the start; large blocks apart where asked. */
#include "pages.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
extern int __libc_mallopt(int, int);

/* Another library's malloc (jemalloc) that the program is linked with is what its blocks come from:
 * then calls go on to it, and there is no arena. */
static struct {
    void *(*malloc)(size_t), *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t), *(*memalign)(size_t, size_t);
    void (*free)(void *);
    size_t (*usable)(void *);
} next = {__libc_malloc, __libc_calloc, __libc_realloc, __libc_memalign, __libc_free, NULL};
static int resolved;

static void resolve(void)
{
    resolved = 1; /* first: what dlsym itself calls is glibc's */
    void *found = dlsym(RTLD_NEXT, "malloc");
    *(void **)&next.usable = dlsym(RTLD_NEXT, "malloc_usable_size");
    if (found == NULL || found == (void *)__libc_malloc) return;
    void *calloc_found = dlsym(RTLD_NEXT, "calloc"), *realloc_found = dlsym(RTLD_NEXT, "realloc");
    void *memalign_found = dlsym(RTLD_NEXT, "memalign"), *free_found = dlsym(RTLD_NEXT, "free");
    if (!calloc_found || !realloc_found || !memalign_found || !free_found) return;
    *(void **)&next.malloc = found;
    *(void **)&next.calloc = calloc_found;
    *(void **)&next.realloc = realloc_found;
    *(void **)&next.memalign = memalign_found;
    *(void **)&next.free = free_found;
}
#define READY() do { if (__builtin_expect(!resolved, 0)) resolve(); } while (0)

int blocks_are_ours(void)
{
    READY();
    /* Begins glibc's, with no other thread there: where another malloc is used, two threads that call
     * malloc_trim at once would both find it unused, and one of them follow lists that are not there. */
    __libc_mallopt(M_CHECK_ACTION, 0);
    if (next.malloc != __libc_malloc) return 0;
    /* The program may have a malloc itself; or an address for it that leads to glibc's (not PIE). A
     * block that was just freed is what glibc gives next. */
    void *(*called)(size_t), (*give_back)(void *);
    *(void **)&called = dlsym(RTLD_DEFAULT, "malloc");
    *(void **)&give_back = dlsym(RTLD_DEFAULT, "free");
    if (called == NULL || give_back == NULL) return 1;
    void *one = __libc_malloc(1000);
    __libc_free(one);
    void *other = called(1000);
    give_back(other); /* else a leak, for those who look for leaks */
    return other == one;
}

static uint64_t used_before; /* that is not in the region */

/* Bytes of the region that are no free block's. */
uint64_t heap_used(void)
{
#if __GLIBC_PREREQ(2, 33)
    if (regions[HEAP].end) return mallinfo2().uordblks - used_before;
#endif
    return UINT64_MAX;
}

/* The next block that does not fit into what is free already begins at the region's base. */
void heap_begin(uint64_t bytes, uint64_t align)
{
    __libc_mallopt(M_MMAP_MAX, 0);
    __libc_mallopt(M_ARENA_MAX, 1);
    __libc_mallopt(M_TRIM_THRESHOLD, -1);
    bytes = UP(bytes, align);
    char *all = __libc_malloc(bytes + 2 * align);
    if (all == NULL) { trouble("address space for the heap"); return; }
    uint64_t base = UP((uint64_t)all + (64 << 10), align);
    __libc_free(all);
    /* What was free in front of it may have become part of it. */
    char *first = __libc_malloc(align);
    __libc_free(first);
    char *pad = first && (uint64_t)first < base ? __libc_malloc(base - (uint64_t)first - 8) : NULL;
    if (pad == NULL || pad != first) { errno = ENOTSUP; trouble("glibc's malloc did not begin its arena anew"); return; }
    /* Remainders left their heads in it; pages that are there would stay small. */
    syscall(SYS_madvise, base, bytes, MADV_DONTNEED);
    regions[HEAP].base = base;
    regions[HEAP].end = base + bytes;
    used_before = heap_used();
}

/* What was never touched is zero already; glibc knows that of memory it just got, not of its top
 * chunk. Pages that are there, or swapped out, are found in pagemap; without it all are cleared. */
static void clear(char *from, size_t bytes)
{
    uint64_t start = UP((uint64_t)from, PAGE), end = DOWN((uint64_t)from + bytes, PAGE), entry[512];
    int error = errno, file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    errno = error;
    if (file < 0 || end <= start) {
        if (file >= 0) close(file);
        memset(from, 0, bytes);
        return;
    }
    memset(from, 0, start - (uint64_t)from);
    memset((char *)end, 0, (uint64_t)from + bytes - end);
    for (uint64_t at = start; at < end;) {
        uint64_t pages = MIN(512, (end - at) / PAGE);
        if (pread(file, entry, pages * 8, (off_t)(at / PAGE * 8)) != (ssize_t)(pages * 8)) {
            memset((char *)at, 0, end - at);
            break;
        }
        for (uint64_t i = 0; i < pages; i++)
            if (entry[i] >> 62) memset((char *)at + i * PAGE, 0, PAGE);
        at += pages * PAGE;
    }
    close(file);
    errno = error;
}

enum { CLEAR_FROM = 256 << 10 };

#ifdef SPLIT
/* Lengths of blocks in the pool, in pages, by their first page. What else lies there is mappings, those
 * of another malloc too. */
static uint32_t *lengths;

static uint32_t *length_of(const void *p) { return &lengths[((uint64_t)p - regions[MMAP].base) / PAGE]; }
static int is_large(const void *p) { return lengths && inside(MMAP, (uint64_t)p) && *length_of(p); }

__attribute__((constructor(102))) static void begin_lengths(void)
{
    const struct region *pool = &regions[MMAP];
    if (!pool->end || large_bytes == UINT64_MAX) return;
    lengths = raw_mmap(0, (pool->end - pool->base) / PAGE * sizeof *lengths, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (lengths != MAP_FAILED) return;
    lengths = NULL;
    large_bytes = UINT64_MAX;
    trouble("address space for large blocks");
}

static void *large_malloc(size_t bytes, size_t align)
{
    uint64_t more = bytes + (align > PAGE ? align : 0), whole = UP(more, PAGE);
    uint64_t got = lengths && more >= bytes && whole >= more ? pool_take(whole) : 0;
    if (!got) return align > 16 ? next.memalign(align, bytes) : next.malloc(bytes); /* a full pool */
    uint64_t at = align > PAGE ? UP(got, align) : got, end = at + UP(bytes, PAGE);
    if (at > got) pool_give(got, at);
    if (end < got + whole) pool_give(end, got + whole);
    *length_of((void *)at) = (uint32_t)((end - at) / PAGE);
    return (void *)at;
}

static size_t large_length(const void *p) { return (size_t)*length_of(p) * PAGE; }

EXPORT void *malloc(size_t n)
{
    READY();
    return n >= large_bytes ? large_malloc(n, 16) : next.malloc(n);
}
EXPORT void free(void *p)
{
    READY();
    if (!is_large(p)) { next.free(p); return; }
    int error = errno;
    size_t bytes = large_length(p);
    *length_of(p) = 0; /* before another thread has it */
    pool_give((uint64_t)p, (uint64_t)p + bytes);
    errno = error;
}
EXPORT void *memalign(size_t a, size_t n)
{
    READY();
    return n >= large_bytes && !(a & (a - 1)) ? large_malloc(n, a) : next.memalign(a, n);
}
EXPORT void *aligned_alloc(size_t a, size_t n) { return memalign(a, n); }
EXPORT void *valloc(size_t n) { return memalign(PAGE, n); }
EXPORT void *pvalloc(size_t n) { return memalign(PAGE, UP(n, PAGE)); }
EXPORT int posix_memalign(void **p, size_t a, size_t n)
{
    if (a % sizeof(void *) || (a & (a - 1)) || a == 0) return EINVAL;
    int error = errno;
    void *got = memalign(a, n);
    errno = error;
    if (got == NULL) return ENOMEM;
    *p = got;
    return 0;
}
EXPORT size_t malloc_usable_size(void *p)
{
    READY();
    if (p == NULL) return 0;
    return is_large(p) ? large_length(p) : next.usable(p);
}
EXPORT void *realloc(void *p, size_t n)
{
    READY();
    if (p == NULL) return malloc(n);
    if (!is_large(p) && n < large_bytes) return next.realloc(p, n);
    if (n == 0) { free(p); return NULL; }
    size_t had = malloc_usable_size(p);
    if (is_large(p) && n >= large_bytes) {
        *length_of(p) = 0;
        void *got = pool_remap(p, had, n, MREMAP_MAYMOVE, NULL);
        if (got == MAP_FAILED) *length_of(p) = (uint32_t)(had / PAGE);
        else { *length_of(got) = (uint32_t)(UP(n, PAGE) / PAGE); return got; }
    }
    void *got = malloc(n);
    if (got != NULL) { memcpy(got, p, MIN(had, n)); free(p); }
    return got;
}
EXPORT void *reallocarray(void *p, size_t a, size_t b)
{
    size_t n;
    if (__builtin_mul_overflow(a, b, &n)) { errno = ENOMEM; return NULL; }
    return realloc(p, n);
}
#endif

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    READY();
    if (__builtin_mul_overflow(count, size, &bytes)) { errno = ENOMEM; return NULL; }
#ifdef SPLIT
    if (bytes >= large_bytes) {
        void *got = large_malloc(bytes, 16);
        if (got != NULL && !is_large(got)) memset(got, 0, bytes);
        return got;
    }
#endif
    if (!regions[HEAP].end || bytes < CLEAR_FROM) return next.calloc(count, size);
    char *got = next.malloc(bytes);
    if (got != NULL) clear(got, bytes);
    return got;
}

EXPORT int malloc_trim(size_t pad)
{
    static int (*trim)(size_t);
    if (regions[HEAP].end) return 0;
    if (!trim) *(void **)&trim = dlsym(RTLD_NEXT, "malloc_trim");
    return trim ? trim(pad) : 0;
}

EXPORT int mallopt(int what, int value)
{
    if (regions[HEAP].end && (what == M_MMAP_MAX || what == M_MMAP_THRESHOLD || what == M_TRIM_THRESHOLD ||
                              what == M_TOP_PAD || what == M_ARENA_MAX || what == M_ARENA_TEST))
        return 1;
    return __libc_mallopt(what, value);
}
