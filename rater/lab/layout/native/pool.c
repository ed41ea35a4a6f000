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

enum { MOST_FREE = 1 << 16 };
static struct { uint64_t start, end; } free_list[MOST_FREE]; /* in order, not adjacent */
static unsigned free_count;
static uint64_t top; /* behind all that was ever taken */
static uint64_t used, peak; /* bytes taken now, and when they were last looked at */
static int remapped; /* the program changed a mapping inside the pool: what lies there is not known */
static atomic_flag busy = ATOMIC_FLAG_INIT;
static atomic_int forking; /* threads that are at it */
static _Thread_local int within __attribute__((tls_model("initial-exec"))); /* a signal came in between */
static _Thread_local int forking_here __attribute__((tls_model("initial-exec")));

static struct region *const pool = &regions[MMAP];

static void lock(void)
{
    within++;
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) syscall(SYS_sched_yield);
}

void pool_leave(void)
{
    atomic_flag_clear_explicit(&busy, memory_order_release);
    within--;
}

/* For who looks at windows that may change: only those of the pool of huge pages do. */
int pool_enter(void)
{
    if (!holds_pool || within) return 0;
    lock();
    return 1;
}

/* For who changes something. During a fork nothing is, that its child would see half done; and nobody
 * waits for the fork, who may hold a lock that it waits for (another malloc's). */
static int may_change(void)
{
    if (within) return 0;
    lock();
    if (!forking || forking_here) return 1;
    pool_leave();
    return 0;
}

/* For who must: it waits for the forks. */
int pool_enter_alone(void)
{
    while (!within)
        if (may_change()) return 1;
        else syscall(SYS_sched_yield);
    return 0;
}

void pool_freeze(void)
{
    const int locked = !within;
    if (locked) lock();
    forking++;
    forking_here++;
    if (locked) pool_leave();
}

void pool_thaw(int in_child)
{
    forking_here--;
    atomic_fetch_sub(&forking, 1);
    if (!in_child) return;
    forking = 0; /* other threads are not there, nor is what they hold */
    if (!within) atomic_flag_clear(&busy);
}

/* The program changes mappings itself. */
void pool_changed(uint64_t start, uint64_t end)
{
    if (pool->end && start < pool->end && end > pool->base) remapped = 1;
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
    if (!may_change()) return 0;
    for (unsigned i = 0; i < free_count && !found; i++)
        if (free_list[i].end - free_list[i].start >= bytes) {
            found = free_list[i].start;
            free_list[i].start += bytes;
            if (free_list[i].start == free_list[i].end) drop(i);
        }
    if (!found && pool->end - top >= bytes) { found = top; top += bytes; }
    if (found) used += bytes;
    pool_leave();
    return found;
}

/* Take exactly what lies behind a block: it grows where it is. */
int pool_extend(uint64_t at, uint64_t bytes)
{
    int done = 0;
    if (!may_change()) return 0;
    if (at == top && pool->end - top >= bytes) { top += bytes; done = 1; }
    for (unsigned i = 0; i < free_count && !done && free_list[i].start <= at; i++)
        if (free_list[i].start == at && free_list[i].end - at >= bytes) {
            free_list[i].start += bytes;
            if (free_list[i].start == free_list[i].end) drop(i);
            done = 1;
        }
    if (done) used += bytes;
    pool_leave();
    return done;
}

/* Zero again: base pages are given back; of larger ones the whole ones, parts are written over.
 * What the program may have changed is mapped anew, but for the pool of huge pages (see ordinary.c). */
static void clear(uint64_t start, uint64_t end)
{
    struct piece p;
    int locked = pool_enter();
    for (uint64_t at = start; at < end; at = p.end) {
        int found = next_piece(&p, at, end, remapped);
        if (at < p.start && (remapped || syscall(SYS_madvise, at, p.start - at, MADV_DONTNEED) != 0)) {
            raw_mmap(at, p.start - at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE);
            advise(pool, at, p.start);
        }
        if (found) zero_piece(&p);
    }
    if (locked) pool_leave();
}

void pool_give(uint64_t start, uint64_t end)
{
    /* At the end of the program it is gone: look while it is there, a few times in all. */
    if (used > peak + peak / 4 + huge_bytes) { peak = used; report("peak"); }
    clear(start, end);
    if (!may_change()) return; /* that address space is lost, nothing else */
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
    pool_leave();
}

/* By the kernel, with what the program made of it (protection, locks); window by window, for these are
 * mappings of their own to the kernel. */
static void *move_mapping(uint64_t start, uint64_t had, uint64_t want, int flags, uint64_t goal)
{
    for (uint64_t at = start, to; at < start + had; at = to) {
        unsigned i = first_window(pool, at);
        to = i < pool->count ? pool->base + pool->of[i].start : start + had;
        if (to <= at) to = pool->base + pool->of[i].end;
        to = MIN(to, start + had);
        uint64_t bytes = to < start + had ? to - at : start + want - at;
        if (syscall(SYS_mremap, at, to - at, bytes, flags, goal + (at - start)) == -1) return MAP_FAILED;
    }
    return (void *)goal;
}

void *pool_remap(void *old, size_t old_bytes, size_t bytes, int flags, void *to)
{
    uint64_t start = (uint64_t)old, had = UP(old_bytes, PAGE), want = UP(bytes, PAGE), goal = (uint64_t)to;
    if (!pool->end || !inside(MMAP, start) || (flags & ~MREMAP_MAYMOVE) || had == 0 || want == 0) {
        if (leave_pool(start, start + had, "mremap") || (to && leave_pool(goal, goal + want, "mremap"))) return MAP_FAILED;
        pool_changed(start, start + had);
        pool_changed(goal, goal + want);
        if (to && pool->end && inside(MMAP, start) && had && want >= had)
            return move_mapping(start, had, want, flags, goal);
        return (void *)syscall(SYS_mremap, old, old_bytes, bytes, flags, to);
    }
    if (want < had) pool_give(start + want, start + had);
    const int whole = PROT_READ | PROT_WRITE, protection = remapped ? protection_of(start, start + MIN(had, want)) : whole;
    if (want <= had || (protection == whole && pool_extend(start + had, want - had))) return old;
    goal = flags & MREMAP_MAYMOVE && protection >= 0 ? pool_take(want) : 0;
    if (goal == 0) { errno = protection < 0 ? EFAULT : ENOMEM; return MAP_FAILED; }
    if (protection != whole) syscall(SYS_mprotect, start, had, whole);
    memcpy((void *)goal, old, had);
    if (protection != whole) mprotect((void *)goal, want, protection);
    pool_give(start, start + had);
    return (void *)goal;
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
    if (flags & MAP_FIXED && leave_pool((uint64_t)at, (uint64_t)at + UP(bytes, PAGE), "mmap")) return MAP_FAILED;
    void *got = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    if (pool->end && got != MAP_FAILED && (flags & MAP_FIXED) && inside(MMAP, (uint64_t)got)) {
        remapped = 1;
        if ((flags & plain) == plain && !(flags & MAP_HUGETLB))
            advise(pool, (uint64_t)got, MIN(pool->end, (uint64_t)got + UP(bytes, PAGE)));
    }
    return got;
}
EXPORT void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

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
