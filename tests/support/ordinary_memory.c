/* ordinary_memory WHAT: what programs do to memory that they mapped; prints the same wherever it lies.
 *
 * zeros: an allocator of its own, whose blocks are zero because it gave their pages back
 * guard: pages of no access, while threads write next to them     coroutines: stacks with such pages
 * remap: mappings that grow, shrink, move, and keep what the program made of them
 * advice: every advice there is for parts of pages     fixed: mappings put over parts of others
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, ARENA = 24 << 20, GRAIN = 64 << 10, GRAINS = ARENA / GRAIN };
static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static unsigned char *map(size_t bytes)
{
    unsigned char *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) { perror("mmap"); exit(1); }
    return got;
}

static size_t count_set(const unsigned char *at, size_t bytes)
{
    size_t found = 0;
    for (size_t i = 0; i < bytes; i++) found += at[i] != 0;
    return found;
}

static sigjmp_buf back;
static void jump(int number) { siglongjmp(back, number); }
static const char *reached(volatile unsigned char *at, int write)
{
    struct sigaction act = {.sa_handler = jump}, old;
    sigaction(SIGSEGV, &act, &old);
    const char *what = "reached";
    if (sigsetjmp(back, 1)) what = "SIGSEGV";
    else if (write) *at = 1;
    else (void)*at;
    sigaction(SIGSEGV, &old, NULL);
    return what;
}

/* ---- zeros ------------------------------------------------------------------------------------- */

static void zeros(void)
{
    unsigned char *arena = map(ARENA);
    struct { size_t first, count; } blocks[64] = {0};
    static char taken[GRAINS];
    size_t dirty = 0, given = 0;
    uint64_t sum = 0;
    for (int turn = 0; turn < 3000; turn++) {
        unsigned slot = draw() % 64;
        if (blocks[slot].count) {
            size_t at = blocks[slot].first * GRAIN, bytes = blocks[slot].count * GRAIN;
            for (size_t i = 0; i < bytes; i += PAGE) sum = sum * 31 + arena[at + i];
            int advice = draw() % 4 ? MADV_DONTNEED : MADV_FREE;
            if (madvise(arena + at, bytes, advice) != 0) printf("madvise: %s\n", strerror(errno));
            if (advice == MADV_FREE) memset(arena + at, 0, bytes);
            memset(taken + blocks[slot].first, 0, blocks[slot].count);
            blocks[slot].count = 0;
            given++;
            continue;
        }
        size_t count = 1 + draw() % 15, first = draw() % (GRAINS - 16), i = 0;
        while (i < count && !taken[first + i]) i++;
        if (i < count) continue;
        memset(taken + first, 1, count);
        dirty += count_set(arena + first * GRAIN, count * GRAIN) != 0; /* as calloc of it would be */
        memset(arena + first * GRAIN, 1 + (int)(draw() % 255), count * GRAIN - draw() % PAGE);
        blocks[slot].first = first;
        blocks[slot].count = count;
    }
    printf("zeros: %zu given back, %zu blocks were not zero, sum %llx\n", given, dirty, (unsigned long long)sum);
    /* A length that is no multiple of a page; an address that is none. */
    memset(arena, 7, 8 * PAGE);
    int rounded = madvise(arena, PAGE + 1, MADV_DONTNEED), odd = madvise(arena + 1, PAGE, MADV_DONTNEED);
    printf("zeros: %d %zu, %d %s\n", rounded, count_set(arena, 8 * PAGE), odd, strerror(errno));
    /* Locked memory that is given back is new memory too. */
    unsigned char *locked = map(8 * PAGE);
    memset(locked, 9, 8 * PAGE);
    if (mlock(locked, 8 * PAGE) == 0) munmap(locked, 8 * PAGE);
    printf("zeros: %zu behind mlock\n", count_set(map(8 * PAGE), 8 * PAGE));
    /* All of the heap's large blocks are zero from calloc, whatever was there. */
    size_t bad = 0;
    for (int turn = 0; turn < 300; turn++) {
        size_t bytes = 20000 + draw() % 880000;
        unsigned char *block = calloc(1, bytes);
        bad += count_set(block, bytes) != 0;
        memset(block, 0xa5, bytes);
        free(block);
    }
    printf("zeros: %zu blocks of calloc were not\n", bad);
}

/* ---- guard ------------------------------------------------------------------------------------- */

enum { WRITERS = 3, STACKS = 40, STACK = 64 << 10 };
static volatile int stop;

/* Counts up each word of its pages: a write that is lost leaves one behind. */
static void *count_up(void *own)
{
    volatile uint64_t *words = own;
    uint64_t turn = 0;
    while (!stop || turn % 2048) {
        words[turn % 2048]++;
        turn++;
    }
    size_t wrong = 0;
    for (size_t i = 1; i < 2048; i++) wrong += words[i] != words[0];
    return (void *)wrong;
}

static void guard(void)
{
    pthread_t threads[WRITERS];
    unsigned char *guarded[STACKS];
    size_t lost = 0;
    for (int i = 0; i < WRITERS; i++) pthread_create(&threads[i], NULL, count_up, map(2048 * 8));
    for (int i = 0; i < STACKS; i++) {
        guarded[i] = map(STACK);
        memset(guarded[i], i + 1, STACK);
        if (mprotect(guarded[i], PAGE, PROT_NONE) != 0) printf("mprotect: %s\n", strerror(errno));
        usleep(500);
    }
    stop = 1;
    for (int i = 0; i < WRITERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        lost += (size_t)wrong;
    }
    size_t kept = 0;
    for (int i = 0; i < STACKS; i++) kept += guarded[i][PAGE] == i + 1 && guarded[i][STACK - 1] == i + 1;
    printf("guard: %s in front, %s behind; %zu of %d kept; %zu writes lost\n", reached(guarded[3], 0),
           reached(guarded[3] + PAGE, 1), kept, STACKS, lost);
    printf("guard: read %s", (mprotect(guarded[4] + PAGE, PAGE, PROT_READ), reached(guarded[4] + PAGE, 0)));
    printf(", written %s", reached(guarded[4] + PAGE, 1));
    printf(", anew %s\n", (mprotect(guarded[4], STACK, PROT_READ | PROT_WRITE), reached(guarded[4], 1)));
    for (int i = 0; i < STACKS; i++) munmap(guarded[i], STACK);
    unsigned char *anew = map(STACKS * STACK); /* where they were */
    printf("guard: %zu set where they were\n", count_set(anew, STACKS * STACK));
    memset(anew, 1, STACKS * STACK);
    unsigned char *block = aligned_alloc(PAGE, 1 << 20); /* of the heap */
    memset(block, 5, 1 << 20);
    int done = mprotect(block + (512 << 10), PAGE, PROT_NONE);
    printf("guard: heap %d %s", done, reached(block + (512 << 10), 0));
    printf(", beside %s", reached(block + (512 << 10) - 1, 1));
    printf(" %zu\n", (mprotect(block + (512 << 10), PAGE, PROT_READ | PROT_WRITE), count_set(block, 1 << 20)));
    free(block);
    pid_t child = fork();
    if (child == 0) {
        memset(anew, 2, STACKS * STACK);
        mprotect(anew, PAGE, PROT_NONE);
        _exit(anew[PAGE] == 2 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    printf("guard: child %d, %d here\n", status, anew[PAGE]);
}

/* ---- coroutines -------------------------------------------------------------------------------- */

static ucontext_t contexts[STACKS + 1];
static uint64_t total;

static int depth(int n) { volatile char used[512]; used[0] = (char)n; return n ? depth(n - 1) + used[0] - (char)n + 1 : 0; }

/* Each makes the next, from a stack beside its own. */
static void routine(int number)
{
    char mine[1024];
    memset(mine, number, sizeof mine);
    if (number < STACKS) {
        unsigned char *stack = map(STACK);
        if (mprotect(stack, PAGE, PROT_NONE) != 0) printf("mprotect: %s\n", strerror(errno));
        getcontext(&contexts[number]);
        contexts[number].uc_stack.ss_sp = stack;
        contexts[number].uc_stack.ss_size = STACK;
        static ucontext_t here[STACKS + 1];
        contexts[number].uc_link = &here[number];
        makecontext(&contexts[number], (void (*)(void))routine, 1, number + 1);
        swapcontext(&here[number], &contexts[number]);
        total += (uint64_t)depth(50);
    }
    for (size_t i = 0; i < sizeof mine; i++) total += mine[i] == (char)number;
}

static void coroutines(void)
{
    routine(0);
    printf("coroutines: %llu\n", (unsigned long long)total);
}

/* ---- remap ------------------------------------------------------------------------------------- */

static void remap(void)
{
    unsigned char *at = map(PAGE);
    size_t bytes = PAGE;
    memset(at, 1, PAGE);
    for (int turn = 0; turn < 60; turn++) { /* grows page by page, others between */
        unsigned char *between = map(PAGE * (1 + draw() % 40));
        size_t more = bytes + PAGE * (1 + draw() % 60);
        at = mremap(at, bytes, more, MREMAP_MAYMOVE);
        if (at == MAP_FAILED) { perror("mremap"); exit(1); }
        if (count_set(at + bytes, more - bytes)) printf("remap: new memory was not zero\n");
        memset(at + bytes, turn + 2, more - bytes);
        bytes = more;
        between[0] = 1;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum = sum * 31 + at[i];
    printf("remap: %zu bytes, sum %llx\n", bytes, (unsigned long long)sum);
    printf("remap: shrunk %d\n", mremap(at, bytes, bytes - 3 * PAGE, 0) == at);
    bytes -= 3 * PAGE;
    unsigned char *goal = map(bytes + PAGE), old = at[bytes - 1];
    at = mremap(at, bytes, bytes + PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, goal);
    printf("remap: to its place %d, %d %d\n", at == goal, at != MAP_FAILED && at[bytes - 1] == old,
           at != MAP_FAILED && at[bytes] == 0);
    unsigned char *closed = map(16 * PAGE); /* as read-only as it was */
    memset(closed, 3, 16 * PAGE);
    mprotect(closed, 16 * PAGE, PROT_READ);
    unsigned char *moved = mremap(closed, 16 * PAGE, 700 * PAGE, MREMAP_MAYMOVE);
    printf("remap: read-only %d, read %s", moved != MAP_FAILED && moved[16 * PAGE - 1] == 3, reached(moved, 0));
    printf(", written %s, behind %s\n", reached(moved, 1), reached(moved + 600 * PAGE, 1));
    unsigned char *part = map(64 * PAGE); /* a part of a mapping moves out of it */
    memset(part, 4, 64 * PAGE);
    unsigned char *out = mremap(part + 16 * PAGE, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
    printf("remap: a part %d %d %d\n", out != MAP_FAILED && out[16 * PAGE - 1] == 4, part[0] == 4, part[32 * PAGE] == 4);
    unsigned char *goal2 = map(16 * PAGE);
    out = mremap(part + 40 * PAGE, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, goal2);
    printf("remap: to a place %d %d, left %s\n", out == goal2, goal2[0] == 4, reached(part + 40 * PAGE, 0));
}

/* ---- advice and fixed -------------------------------------------------------------------------- */

static void advice(void)
{
    static const struct { const char *name; int advice; } every[] = {
        {"normal", MADV_NORMAL}, {"random", MADV_RANDOM}, {"sequential", MADV_SEQUENTIAL}, {"cold", 20},
        {"pageout", 21}, {"populate", 23}, {"dontdump", MADV_DONTDUMP}, {"dodump", MADV_DODUMP},
        {"remove", MADV_REMOVE}, {"free", MADV_FREE}, {"huge", MADV_HUGEPAGE}, {"nohuge", MADV_NOHUGEPAGE},
        {"wipeonfork", MADV_WIPEONFORK}, {"dontfork", MADV_DONTFORK}, {"none such", 77},
    };
    unsigned char *front = map(64 * PAGE), *at = map(64 * PAGE);
    memset(front, 1, 64 * PAGE);
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        memset(at, 6, 64 * PAGE);
        int done = madvise(at + PAGE, 3 * PAGE, every[i].advice);
        printf("advice: %s %d %s, %zu kept\n", every[i].name, done, done ? strerror(errno) : "",
               every[i].advice == MADV_FREE ? 61 * PAGE : count_set(at, 64 * PAGE));
    }
    pid_t child = fork();
    if (child == 0) {
        printf("advice: in the child %s", reached(at + 2 * PAGE, 0));
        printf(", beside %d\n", at[0]);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    munmap(at, 64 * PAGE);
    at = map(64 * PAGE); /* the next there is an ordinary mapping again */
    memset(at, 8, 64 * PAGE);
    if ((child = fork()) == 0) _exit(at[2 * PAGE] == 8 ? 0 : 1);
    waitpid(child, &status, 0);
    printf("advice: %d, %d\n", status, prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
}

static void fixed(void)
{
    unsigned char *at = map(4 << 20);
    memset(at, 2, 4 << 20);
    const int plain = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    printf("fixed: %d", mmap(at + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE, plain, -1, 0) == at + 5 * PAGE);
    printf(" %d", mmap(at + 9 * PAGE, 2 * PAGE, PROT_NONE, plain, -1, 0) == at + 9 * PAGE);
    int file = open("/proc/self/exe", 0);
    printf(" %d\n", mmap(at + (3 << 20), PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == at + (3 << 20));
    printf("fixed: %d %s", at[5 * PAGE], reached(at + 9 * PAGE, 0));
    printf(" %.3s %d %d\n", at + (3 << 20) + 1, at[11 * PAGE], at[(3 << 20) - 1]);
    munmap(at, 4 << 20);
    unsigned char *anew = map(4 << 20);
    printf("fixed: %zu set where it was", count_set(anew, 4 << 20));
    printf(", written %s\n", reached(anew + (3 << 20), 1));
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*what)(void); } every[] = {
        {"zeros", zeros}, {"guard", guard}, {"coroutines", coroutines}, {"remap", remap}, {"fixed", fixed}, {"advice", advice},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (count < 2 || strcmp(words[1], every[i].name) == 0) every[i].what();
    return 0;
}
