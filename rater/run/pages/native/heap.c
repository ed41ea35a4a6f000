/* Preloaded into a traced program: small blocks of malloc in one range of addresses, told to the tracer.
 *
 * Under valgrind the break ends after 8 MiB, and what glibc maps behind it looks like a large
 * block. So the heap is taken at once: malloc may use nothing but the break (M_MMAP_MAX 0), one
 * block of RATER_TRACE_HEAP bytes is had and freed, and stands as the top of the heap from then
 * on. Blocks of 128 KiB and more are mapped each by itself, as glibc begins with.
 */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <valgrind/valgrind.h>

#include "record.h"

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

enum { LARGE = 128 << 10, HUGE = 2 << 20 };

__attribute__((constructor(101))) static void begin(void)
{
    const char *wanted = getenv("RATER_TRACE_HEAP");
    uintptr_t bytes = wanted ? strtoull(wanted, NULL, 10) : 0;
    if (bytes == 0) return;
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, -1);
    mallopt(M_MMAP_MAX, 0);
    char *all = __libc_malloc(bytes + 2 * HUGE);
    if (all != NULL) {
        /* The next block from the top of the heap begins at a huge page, as with --pages. */
        uintptr_t from = ((uintptr_t)all + HUGE + LARGE) & -(uintptr_t)HUGE;
        __libc_free(all);
        char *front = __libc_malloc(from - (uintptr_t)all - sizeof(size_t));
        VALGRIND_DO_CLIENT_REQUEST_STMT(REQUEST_RANGE, EVENT_HEAP, from, from + bytes, 0, 0);
        if (front != all && front != NULL) __libc_free(front);
    }
    mallopt(M_MMAP_MAX, 1 << 20);
    mallopt(M_MMAP_THRESHOLD, LARGE); /* fixed from here on */
}
