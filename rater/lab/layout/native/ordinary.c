/* Pages of the pool of huge pages behave as ordinary memory, which for the kernel they are not.
 *
 * It changes no part of one (EINVAL), and gives no part back: madvise rounds and says that it did. They
 * stay private, readable and writable here; calls that would change that, or are about a part of a page
 * and cannot be done for it, have the page go back to base pages first, with what is in it.
 */
#include "pages.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#if __has_include(<linux/userfaultfd.h>)
#include <linux/userfaultfd.h>
#endif

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
enum { MADV_DONTNEED_LOCKED_ = 24, MADV_COLLAPSE_ = 25, THP_EXCEPT_ADVISED = 2 };

/* The first piece of a window in [at, end): 0, and an empty one at the end, where there is none. */
int next_piece(struct piece *p, uint64_t at, uint64_t end, int only_pool)
{
    *p = (struct piece){NULL, 0, end, end};
    if (only_pool && !holds_pool) return 0;
    for (int c = 0; c < CATEGORIES; c++) {
        struct region *r = &regions[c];
        unsigned i = r->end ? first_window(r, at) : 0;
        for (; r->end && i < r->count && r->base + r->of[i].start < p->start; i++) {
            const struct window *w = &r->of[i];
            if (w->start >= w->end || w->backing == LEFT || (only_pool && w->backing != POOL)) continue;
            *p = (struct piece){r, i, MAX(at, r->base + w->start), MIN(end, r->base + w->end)};
            break;
        }
    }
    return p->start < end;
}

static int is_there(uint64_t at)
{
    unsigned char there = 0;
    return syscall(SYS_mincore, at, PAGE, &there) != 0 || there & 1;
}

static void wipe(const struct window *w, uint64_t start, uint64_t end)
{
    for (uint64_t at = start, to; at < end; at = to) {
        to = MIN(end, DOWN(at, w->page) + w->page);
        if (w->backing != POOL || is_there(DOWN(at, w->page))) memset((void *)at, 0, to - at);
    }
}

/* Whole pages are given back, parts written over. */
void zero_piece(const struct piece *p)
{
    const struct window *w = &p->of->of[p->window];
    uint64_t first = MIN(p->end, UP(p->start, w->page)), last = MAX(first, DOWN(p->end, w->page));
    wipe(w, p->start, first);
    if (first < last && syscall(SYS_madvise, first, last - first, MADV_DONTNEED) != 0) wipe(w, first, last);
    wipe(w, last, p->end);
}

/* ---- back to base pages ------------------------------------------------------------------------ */

static struct { uint64_t start, bytes, page; int alone, error; } move;

int is_alone(void)
{
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

/* Have the kernel hold other threads that write to it, until the file is closed. */
static int hold_writers(void)
{
#ifdef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
    struct uffdio_register of = {.range = {move.start, move.bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct uffdio_writeprotect on = {.range = of.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (file >= 0 && ioctl(file, UFFDIO_API, &api) == 0 && ioctl(file, UFFDIO_REGISTER, &of) == 0 &&
        ioctl(file, UFFDIO_WRITEPROTECT, &on) == 0)
        return file;
#else
    errno = ENOSYS;
#endif
    char line[320];
    int n = snprintf(line, sizeof line,
                     "rater --pages: this program changes parts of huge pages of the pool while other threads use "
                     "them, which takes userfaultfd (Linux 5.19, root or vm.unprivileged_userfaultfd=1): %s; "
                     "take transparent pages (--pages-backing thp)\n", strerror(errno));
    if (write(2, line, (size_t)n) < 0) {}
    for (;;) syscall(SYS_exit_group, 125);
}

/* On a thread of its own: stack and thread-local data of who calls may lie in what is moved. */
static int move_content(void *unused)
{
    (void)unused;
    char *copy = raw_mmap(0, move.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    int file = -1;
    move.error = errno;
    if (copy == MAP_FAILED) return 0;
    syscall(SYS_madvise, copy, move.bytes, MADV_NOHUGEPAGE);
    if (!move.alone) file = hold_writers();
    for (uint64_t at = 0; at < move.bytes; at += move.page)
        if (is_there(move.start + at)) copy_used(copy + at, (char *)move.start + at, move.page);
    long got = syscall(SYS_mremap, copy, move.bytes, move.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, move.start);
    move.error = got == -1 ? errno : 0;
    if (got == -1) syscall(SYS_munmap, copy, move.bytes);
    if (file >= 0) syscall(SYS_close, file);
    return 0;
}

/* A window, all or a part of which left the pool. */
static void part(struct region *r, unsigned i, uint64_t start, uint64_t end)
{
    struct window *w = &r->of[i];
    const struct window left = {start, end, w->page, LEFT}, behind = {end, w->end, w->page, POOL};
    for (int more = 0; more < 2; more++) {
        if (more ? start == w->start : end == w->end) continue;
        memmove(w + 1, w, (r->count++ - i) * sizeof *w);
        if (more) { w->end = start; w++; }
        else w[1] = behind;
    }
    *w = left;
    if (w > r->of && w[-1].backing == LEFT && w[-1].end == start && w[-1].page == left.page) {
        w[-1].end = end;
        memmove(w, w + 1, (--r->count - (unsigned)(w - r->of)) * sizeof *w);
    }
}

/* All pages of the pool that [start, end) touches; who calls holds the lock. Else errno is why. */
static int leave(uint64_t start, uint64_t end, const char *call)
{
    static char stack[64 << 10] __attribute__((aligned(16)));
    const int thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_VFORK;
    const int alone = is_alone(); /* once: the thread that moves a window may be seen when it has ended */
    sigset_t every, before;
    struct piece p;
    for (; next_piece(&p, start, end, 1); start = p.end) {
        const struct window *w = &p.of->of[p.window];
        uint64_t from = DOWN(p.start, w->page), to = UP(p.end, w->page);
        if (call == NULL || p.of->count + 2 > MOST_WINDOWS) {
            from = p.of->base + w->start;
            to = p.of->base + w->end;
        }
        move.start = from;
        move.bytes = to - from;
        move.page = w->page;
        move.alone = alone;
        sigfillset(&every); /* a handler could write, too */
        pthread_sigmask(SIG_SETMASK, &every, &before);
        if (clone(move_content, stack + sizeof stack, thread, NULL) == -1) move.error = errno;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (move.error && call == NULL) continue; /* the child of a fork: it may have enough */
        errno = move.error;
        if (move.error) return -1;
        part(p.of, p.window, from - p.of->base, to - p.of->base);
        if (call == NULL) continue;
        char line[120];
        snprintf(line, sizeof line, "%s: huge pages of the pool that it is about are base pages now", call);
        errno = 0;
        complain(line);
    }
    holds_pool = next_piece(&p, 0, UINT64_MAX, 1);
    return 0;
}

void leave_pool_all(void) { leave(0, UINT64_MAX, NULL); }

int leave_pool(uint64_t start, uint64_t end, const char *call)
{
    if (!holds_pool || end <= start) return 0;
    int error = errno, locked = pool_enter_alone(), failed = leave(start, end, call);
    if (locked) pool_leave();
    if (!failed) errno = error;
    return failed;
}

/* ---- what the program calls -------------------------------------------------------------------- */

/* A call is for what is not of the pool; there it says nothing, or zeroes. */
static int beside_pool(long call, uint64_t start, uint64_t end, int how, int zero)
{
    struct piece p;
    int result = 0, error = errno, locked = pool_enter();
    for (; start < end; start = p.end) {
        int found = next_piece(&p, start, end, 1);
        if (start < p.start && syscall(call, start, p.start - start, how) != 0) {
            result = -1;
            error = errno;
        }
        if (found && zero) zero_piece(&p);
    }
    if (locked) pool_leave();
    errno = error;
    return result;
}

EXPORT int madvise(void *at, size_t bytes, int advice)
{
    uint64_t start = (uint64_t)at, end = start + UP(bytes, PAGE);
    struct piece p;
    if (active && (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE || advice == MADV_COLLAPSE_) &&
        (inside(HEAP, start) || inside(MMAP, start) || inside(STATIC, start)))
        return 0; /* the layout decides */
    const int sound = active && start % PAGE == 0 && end > start;
    switch (advice) {
    case MADV_DONTNEED: case MADV_DONTNEED_LOCKED_:
        if (sound && holds_pool) return beside_pool(SYS_madvise, start, end, advice, 1);
        break;
    case MADV_FREE: /* what was there may stay */
    case MADV_NORMAL: case MADV_RANDOM: case MADV_SEQUENTIAL: case MADV_WILLNEED: case MADV_COLD: case MADV_PAGEOUT:
    case MADV_DONTDUMP: case MADV_DODUMP: case MADV_DOFORK: case MADV_KEEPONFORK: case MADV_UNMERGEABLE:
        if (sound && holds_pool) return beside_pool(SYS_madvise, start, end, advice, 0);
        break;
    case MADV_POPULATE_READ: case MADV_POPULATE_WRITE: break;
    case MADV_REMOVE:
        if (!sound || !next_piece(&p, start, end, 1)) break;
        errno = EINVAL;
        return -1;
    default:
        if (!sound) break;
        if (leave_pool(start, end, "madvise")) return -1;
        pool_changed(start, end);
    }
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

EXPORT int mprotect(void *at, size_t bytes, int protection)
{
    uint64_t start = (uint64_t)at, end = start + UP(bytes, PAGE);
    if (start % PAGE == 0 && end > start) {
        if (holds_pool && protection == (PROT_READ | PROT_WRITE))
            return pool_changed(start, end), beside_pool(SYS_mprotect, start, end, protection, 0);
        if (leave_pool(start, end, "mprotect")) return -1;
        pool_changed(start, end);
    }
    return (int)syscall(SYS_mprotect, at, bytes, protection);
}

EXPORT int pkey_mprotect(void *at, size_t bytes, int protection, int key)
{
    uint64_t start = (uint64_t)at, end = start + UP(bytes, PAGE);
    if (leave_pool(start, end, "pkey_mprotect")) return -1;
    pool_changed(start, end);
    return (int)syscall(SYS_pkey_mprotect, at, bytes, protection, key);
}

EXPORT int prctl(int option, ...)
{
    va_list more;
    va_start(more, option);
    unsigned long a = va_arg(more, unsigned long), b = va_arg(more, unsigned long);
    unsigned long c = va_arg(more, unsigned long), d = va_arg(more, unsigned long);
    va_end(more);
    struct piece p;
    int result = (int)syscall(SYS_prctl, option, a, b, c, d), error = errno;
    if (active && result == 0 && option == PR_SET_THP_DISABLE && a && !(b & THP_EXCEPT_ADVISED))
        for (uint64_t at = 0; next_piece(&p, at, UINT64_MAX, 0); at = p.end)
            if (p.of->of[p.window].backing == TRANSPARENT) {
                errno = 0;
                complain("it turned transparent huge pages off for itself (prctl PR_SET_THP_DISABLE)");
                break;
            }
    errno = error;
    return result;
}
