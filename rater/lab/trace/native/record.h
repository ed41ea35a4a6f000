/* The stream of page references that a traced program writes: words of 8 bytes, host byte order.
 *
 *   bit 63 clear: references one after the other to one 4 KiB page:
 *                 bits 0-35 the page's number, bit 36 the first of them, which is the one that
 *                 misses, was a store, bits 37-54 how many, bits 55-62 how many of them were to
 *                 lines of 64 bytes that a cache of the first level would not have had
 *   bit 63 set:   an event: bits 56-62 its kind, bits 0-47 where it begins; the next word is its end
 */
#pragma once

enum {
    EVENT_HEAP = 1, /* blocks of malloc below 128 KiB */
    EVENT_MMAP,     /* anonymous mappings of the program, and larger blocks */
    EVENT_STATIC,   /* .data and .bss */
    EVENT_STACK,
    EVENT_OTHER,    /* files, code, what cannot be given a page size */
    EVENT_UNMAP,    /* gone: touched again, it is a page fault again */
    EVENT_DROP,     /* the same, of memory that stays what it is (MADV_DONTNEED) */
    EVENT_RESET,    /* another program from here on (exec, the next command) */
    EVENT_FORK      /* it started a process, which is not traced */
};

#define RECORD_PAGE_BITS 36
#define RECORD_PAGE ((1ull << RECORD_PAGE_BITS) - 1)
#define RECORD_STORE (1ull << RECORD_PAGE_BITS)
#define RECORD_COUNT_SHIFT (RECORD_PAGE_BITS + 1)
#define RECORD_COUNT ((1ull << 18) - 1)
#define RECORD_LINES_SHIFT 55
#define RECORD_LINES ((1ull << 8) - 1)
#define RECORD_EVENT (1ull << 63)
#define RECORD_KIND_SHIFT 56
#define RECORD_ADDRESS ((1ull << 48) - 1)

/* A program says by a valgrind client request which range of addresses is what: REQUEST_RANGE,
 * kind (EVENT_*), begin, end. */
#define REQUEST_RANGE ((unsigned long)('P' << 24 | 'T' << 16) + 1)
