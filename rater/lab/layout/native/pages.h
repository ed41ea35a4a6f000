/* The page sizes of a dynamically linked glibc program, by a library that is preloaded.
 *
 * glibc's malloc stays. It is told to take memory from the break alone (M_MMAP_MAX 0, M_ARENA_MAX 1)
 * and never to give any back (M_TRIM_THRESHOLD -1); one malloc of a large arena, freed at once, leaves
 * a top chunk that is the arena: contiguous, untouched, filled from its start. The page sizes of its
 * parts are set before the program runs. (Since 2.34 glibc calls brk and mmap inside: interposing
 * them reaches nothing.) Anonymous mappings that the program makes itself come from a pool, mapped
 * beforehand with the page sizes of its parts.
 *
 * RATER_PAGES holds words, separated by blanks:
 *   heap=BYTES mmap=BYTES    what is reserved for the heap and for mappings (0: left alone)
 *   large=BYTES              (built with -DSPLIT) blocks of so much and more lie with the mappings
 *   hNN=A+N,A+N,...          windows of the heap in pages of 2^NN bytes: first page and how many
 *   mNN=... sNN=...          the same of mappings, and of .bss
 *   hugetlb                  windows are of the pool of huge pages, not transparent ones
 *   strict                   a window that cannot be had ends the program
 *   process=0000000000       room for the number of the process that the copy begins as: those that it
 *                            starts take no pages of the pool, and run with what there is
 *   report=DIR               where to append to a file called as RATER_COPY says
 */
#ifndef RATER_PAGES_H
#define RATER_PAGES_H
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define UP(n, unit) (((n) + (unit) - 1) & -(uint64_t)(unit))
#define DOWN(n, unit) ((n) & -(uint64_t)(unit))

enum { PAGE = 4096, MOST_WINDOWS = 2048 };
enum category { HEAP, MMAP, STATIC, CATEGORIES };

enum backing { TRANSPARENT, POOL, LEFT }; /* of the pool of huge pages; it was, and is base pages now */

struct window {
    uint64_t start, end; /* bytes from the region's base */
    uint64_t page;
    enum backing backing;
};

struct region {
    uint64_t base, end; /* addresses; both 0: there is none */
    unsigned count;
    struct window of[MOST_WINDOWS]; /* in order */
};

extern struct region regions[CATEGORIES];
extern uint64_t huge_bytes; /* of the machine's transparent huge pages */
extern uint64_t large_bytes; /* blocks of so much and more lie with the mappings */
extern int active, foreign_malloc;
extern int holds_pool; /* some window is of the pool of huge pages */
extern unsigned moved_break;

static inline int inside(enum category which, uint64_t at)
{
    return at - regions[which].base < regions[which].end - regions[which].base;
}

static inline void *raw_mmap(uint64_t at, uint64_t bytes, int protection, int flags)
{
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, -1, 0);
}

static inline unsigned first_window(const struct region *r, uint64_t at)
{
    unsigned low = 0, high = r->count; /* the first that ends behind an address */
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (r->base + r->of[mid].end > at) high = mid; else low = mid + 1;
    }
    return low;
}

struct piece { struct region *of; unsigned window; uint64_t start, end; }; /* of a window; addresses */

void copy_used(char *to, const char *from, uint64_t bytes);
int next_piece(struct piece *p, uint64_t at, uint64_t end, int only_pool);
void zero_piece(const struct piece *p);
int leave_pool(uint64_t start, uint64_t end, const char *call);
void leave_pool_all(void); /* in the child of a fork */
int is_alone(void);

void trouble(const char *what); /* keeps it, with errno, for the report; may end the program */
void advise(const struct region *r, uint64_t start, uint64_t end);

void pool_begin(uint64_t bytes);
int pool_enter(void); /* 0: leave it out, and pool_leave */
int pool_enter_alone(void);
void pool_leave(void);
void pool_freeze(void);
void pool_thaw(int in_child);
void pool_changed(uint64_t start, uint64_t end);
uint64_t pool_take(uint64_t bytes);
int pool_extend(uint64_t at, uint64_t bytes);
void pool_give(uint64_t start, uint64_t end);
void *pool_remap(void *old, size_t old_bytes, size_t bytes, int flags, void *to);

int blocks_are_ours(void);
uint64_t heap_used(void);
void heap_begin(uint64_t bytes, uint64_t align);

void announce(enum category which);

int protection_of(uint64_t start, uint64_t end); /* -1: several, or none */
void read_windows(const char *given);
EXPORT int rater_look(int pid, const char *words, uint64_t huge, const uint64_t *ends, uint64_t *found);

void report_begin(const char *directory);
void report_fork(void);
void report_forked(void);
void complain(const char *what);
void report(const char *event);
void report_used(const char *event, uint64_t used);

#endif
