/* Tells a tracer of pages (../../pages/native/tracer.c) which addresses are whose.
 *
 * A client request of valgrind, written out (valgrind.h may not be there): instructions that do
 * nothing where no valgrind reads them.
 */
#include "pages.h"

void announce(enum category which)
{
    const struct region *r = &regions[which];
    if (!r->end) return;
    /* REQUEST_RANGE, EVENT_HEAP or EVENT_MMAP, begin, end */
    volatile uint64_t words[6] = {((uint64_t)'P' << 24 | (uint64_t)'T' << 16) + 1, which == HEAP ? 1 : 2, r->base, r->end, 0, 0};
#if defined __x86_64__
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "=d"(answer) : "a"(words), "0"(answer) : "cc", "memory");
#elif defined __aarch64__
    __asm__ volatile("mov x3, xzr; mov x4, %0; ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; "
                     "ror x12, x12, #61; orr x10, x10, x10"
                     : : "r"(words) : "cc", "memory", "x3", "x4");
#else
    (void)words;
#endif
}
