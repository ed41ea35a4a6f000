/* A pool for the mappings that the program makes itself, and for large blocks.
 *
 * Mapped as a whole at the start, so that a huge page is there whatever the sizes of single mappings;
 * munmap clears and keeps.
 */
#include "pages.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { MOST_FREE = 1 << 16 };
static struct { uint64_t start, end; } free_list[MOST_FREE]; /* in order, not adjacent */
static unsigned free_count;
static uint64_t top; /* behind all that was ever taken */
static uint64_t used, peak; /* bytes taken now, and when they were last looked at */
static int remapped; /* the program changed a mapping inside the pool: what lies there is not known */
static atomic_flag busy = ATOMIC_FLAG_INIT;
static _Thread_local int within __attribute__((tls_model("initial-exec"))); /* a signal came in between */

static struct region *const pool = &regions[MMAP];

void pool_lock(void)
{
    within++;
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) syscall(SYS_sched_yield);
}

void pool_unlock(void)
{
    atomic_flag_clear_explicit(&busy, memory_order_release);
    within--;
}

void pool_begin(uint64_t bytes)
{
    uint64_t align = huge_bytes;
    for (unsigned i = 0; i < pool->count; i++) align = MAX(align, pool->of[i].page);
    bytes = UP(bytes, align);
    uint64_t at = (uint64_t)raw_mmap(0, bytes + align, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if ((void *)at == MAP_FAILED) { trouble("address space for mappings"); return; }
    uint64_t base = UP(at, align);
    if (base > at) syscall(SYS_munmap, at, base - at);
    if (at + align > base) syscall(SYS_munmap, base + bytes, at + align - base);
    pool->base = top = base;
    pool->end = base + bytes;
}

static void drop(unsigned i) { memmove(free_list + i, free_list + i + 1, (--free_count - i) * sizeof *free_list); }

uint64_t pool_take(uint64_t bytes)
{
    uint64_t found = 0;
    if (within) return 0;
    pool_lock();
    for (unsigned i = 0; i < free_count && !found; i++)
        if (free_list[i].end - free_list[i].start >= bytes) {
            found = free_list[i].start;
            free_list[i].start += bytes;
            if (free_list[i].start == free_list[i].end) drop(i);
        }
    if (!found && pool->end - top >= bytes) { found = top; top += bytes; }
    if (found) used += bytes;
    pool_unlock();
    return found;
}

/* Take exactly what lies behind a block: it grows where it is. */
int pool_extend(uint64_t at, uint64_t bytes)
{
    int done = 0;
    if (within) return 0;
    pool_lock();
    if (at == top && pool->end - top >= bytes) { top += bytes; done = 1; }
    for (unsigned i = 0; i < free_count && !done && free_list[i].start <= at; i++)
        if (free_list[i].start == at && free_list[i].end - at >= bytes) {
            free_list[i].start += bytes;
            if (free_list[i].start == free_list[i].end) drop(i);
            done = 1;
        }
    if (done) used += bytes;
    pool_unlock();
    return done;
}

/* Zero again: base pages are given back; of larger ones the whole ones, parts are written over. */
static void clear(uint64_t start, uint64_t end)
{
    if (remapped) {
        uint64_t at = start; /* parts of pages of the pool of huge pages cannot be mapped anew */
        for (unsigned i = first_window(pool, start); at < end; i++) {
            uint64_t s = end, e = end;
            while (i < pool->count && !pool->of[i].pooled) i++;
            if (i < pool->count) {
                s = MIN(end, MAX(at, pool->base + pool->of[i].start));
                e = MIN(end, pool->base + pool->of[i].end);
            }
            if (at < s) {
                raw_mmap(at, s - at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE);
                advise(pool, at, s);
            }
            if (s < e) {
                uint64_t page = pool->of[i].page, from = DOWN(s, page), to = UP(e, page);
                syscall(SYS_mprotect, from, to - from, PROT_READ | PROT_WRITE);
                memset((void *)s, 0, e - s);
            }
            at = MAX(s, e);
        }
        return;
    }
    uint64_t at = start;
    for (unsigned i = first_window(pool, start); at < end; i++) {
        uint64_t s = i < pool->count ? MIN(end, pool->base + pool->of[i].start) : end;
        uint64_t e = i < pool->count ? MIN(end, pool->base + pool->of[i].end) : end;
        if (at < s) syscall(SYS_madvise, at, s - at, MADV_DONTNEED);
        at = MAX(at, s);
        if (at < e) {
            uint64_t page = pool->of[i].page;
            uint64_t first = MIN(e, UP(at, page)), last = MAX(first, DOWN(e, page));
            memset((void *)at, 0, first - at);
            if (first < last && syscall(SYS_madvise, first, last - first, MADV_DONTNEED) != 0)
                memset((void *)first, 0, last - first);
            memset((void *)last, 0, e - last);
            at = e;
        }
    }
}

void pool_give(uint64_t start, uint64_t end)
{
    /* At the end of the program it is gone: look while it is there, a few times in all. */
    if (used > peak + peak / 4 + huge_bytes) { peak = used; report("peak"); }
    clear(start, end);
    if (within) return; /* that address space is lost, nothing else */
    pool_lock();
    used -= MIN(used, end - start);
    unsigned low = 0, high = free_count; /* the first that begins at or behind start */
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (free_list[mid].start >= start) high = mid; else low = mid + 1;
    }
    unsigned i = low;
    int left = i > 0 && free_list[i - 1].end >= start, right = i < free_count && free_list[i].start <= end;
    if (left && right) {
        free_list[i - 1].end = MAX(free_list[i].end, end);
        drop(i);
    } else if (left) {
        free_list[i - 1].end = MAX(free_list[i - 1].end, end);
    } else if (right) {
        free_list[i].start = start;
    } else if (free_count < MOST_FREE) {
        memmove(free_list + i + 1, free_list + i, (free_count++ - i) * sizeof *free_list);
        free_list[i].start = start;
        free_list[i].end = end;
    } /* a full list: lost too */
    if (free_count && free_list[free_count - 1].end == top) top = free_list[--free_count].start;
    pool_unlock();
}

void *pool_remap(void *old, size_t old_bytes, size_t bytes, int flags, void *to)
{
    uint64_t start = (uint64_t)old, had = UP(old_bytes, PAGE), want = UP(bytes, PAGE);
    if (!pool->end || !inside(MMAP, start) || (flags & ~MREMAP_MAYMOVE) || had == 0 || want == 0) {
        if (pool->end && inside(MMAP, start)) remapped = 1;
        return (void *)syscall(SYS_mremap, old, old_bytes, bytes, flags, to);
    }
    if (want < had) pool_give(start + want, start + had);
    if (want <= had || pool_extend(start + had, want - had)) return old;
    uint64_t at = flags & MREMAP_MAYMOVE ? pool_take(want) : 0;
    if (at == 0) { errno = ENOMEM; return MAP_FAILED; }
    memcpy((void *)at, old, had);
    pool_give(start, start + had);
    return (void *)at;
}

/* ---- what the program calls -------------------------------------------------------------------- */

EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    const int plain = MAP_PRIVATE | MAP_ANONYMOUS;
    if (active && pool->end && at == NULL && bytes > 0 && bytes < (pool->end - pool->base) / 2 &&
        protection == (PROT_READ | PROT_WRITE) && (flags & ~(MAP_NORESERVE | MAP_POPULATE)) == plain) {
        uint64_t whole = UP(bytes, PAGE), got = pool_take(whole);
        if (got) {
            if (flags & MAP_POPULATE) syscall(SYS_madvise, got, whole, MADV_POPULATE_WRITE);
            return (void *)got;
        }
    }
    void *got = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    if (pool->end && got != MAP_FAILED && (flags & MAP_FIXED) && inside(MMAP, (uint64_t)got)) {
        remapped = 1;
        if ((flags & plain) == plain && !(flags & MAP_HUGETLB))
            advise(pool, (uint64_t)got, MIN(pool->end, (uint64_t)got + UP(bytes, PAGE)));
    }
    return got;
}
EXPORT void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

EXPORT int mprotect(void *at, size_t bytes, int protection)
{
    if (pool->end && inside(MMAP, (uint64_t)at)) remapped = 1;
    return (int)syscall(SYS_mprotect, at, bytes, protection);
}

EXPORT int munmap(void *at, size_t bytes)
{
    uint64_t start = (uint64_t)at, end = start + UP(bytes, PAGE);
    if (pool->end && inside(MMAP, start) && end <= pool->end && end > start && !(start % PAGE)) {
        pool_give(start, end);
        return 0;
    }
    return (int)syscall(SYS_munmap, at, bytes);
}

EXPORT void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    void *got = pool_remap(old, old_bytes, bytes, flags, to);
    if (got != MAP_FAILED || errno != ENOMEM || flags != MREMAP_MAYMOVE || !pool->end || !inside(MMAP, (uint64_t)old))
        return got;
    /* The pool is full: it moves out of it. */
    got = raw_mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (got == MAP_FAILED) return got;
    memcpy(got, old, MIN(old_bytes, bytes));
    pool_give((uint64_t)old, (uint64_t)old + UP(old_bytes, PAGE));
    return got;
}

EXPORT int madvise(void *at, size_t bytes, int advice)
{
    uint64_t start = (uint64_t)at;
    if (active && (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE || advice == MADV_COLLAPSE) &&
        (inside(HEAP, start) || inside(MMAP, start) || inside(STATIC, start)))
        return 0; /* the layout decides */
    return (int)syscall(SYS_madvise, at, bytes, advice);
}
