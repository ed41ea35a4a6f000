/* Every way to get and give memory back, from several threads, with forks: each byte is checked.
 *
 * stress THREADS ROUNDS FORKS. Blocks wander between threads through mailboxes, so that one thread
 * gives back what another got. Ends with "ok" and status 0, or aborts with what was wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLD(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); abort(); } } while (0)
enum { SLOTS = 96, BOXES = 8, PAGE = 4096 };

enum kind { EMPTY, BLOCK, MAPPING };
struct piece { enum kind kind; unsigned char *at; size_t bytes; uint64_t tag; };
static struct { pthread_mutex_t lock; struct piece piece; } boxes[BOXES];
static long rounds;

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static unsigned char expected(uint64_t tag, size_t at) { return (unsigned char)((tag + at * 131) >> 3); }

/* All of a small piece; of a large one its ends, and one byte a page between. */
static void each(struct piece *p, int write)
{
    for (size_t i = 0; i < p->bytes; i += (i < 256 || i + 256 >= p->bytes) ? 1 : (p->bytes - 256 - i < 1021 ? p->bytes - 256 - i : 1021)) {
        if (write) p->at[i] = expected(p->tag, i);
        else HOLD(p->at[i] == expected(p->tag, i));
    }
}
static void zeros(const unsigned char *at, size_t bytes) { for (size_t i = 0; i < bytes; i += i % 251 == 0 ? 7 : 1) HOLD(at[i] == 0); }

static size_t size_of(uint64_t *x)
{
    size_t bytes = 1 + draw(x) % 700;
    if (draw(x) % 8 == 0) bytes *= 1 + draw(x) % 90;
    if (draw(x) % 40 == 0) bytes = (64u << 10) + draw(x) % (512u << 10);
    if (draw(x) % 400 == 0) bytes = (1u << 20) + draw(x) % (7u << 20);
    return bytes;
}

static void get_block(struct piece *p, uint64_t *x)
{
    size_t bytes = size_of(x), align = (size_t)16 << draw(x) % 9;
    void *got = NULL;
    switch (draw(x) % 8) {
    case 0: got = calloc(1, bytes); HOLD(got); zeros(got, bytes); break;
    case 1: got = calloc(bytes / 8 + 1, 8); HOLD(got); zeros(got, (bytes / 8 + 1) * 8); break;
    case 2: HOLD(posix_memalign(&got, align, bytes) == 0); HOLD((uintptr_t)got % align == 0); break;
    case 3: got = memalign(align, bytes); HOLD((uintptr_t)got % align == 0); break;
    case 4: got = aligned_alloc(draw(x) % 30 ? align : 2u << 20, bytes); break;
    case 5: got = reallocarray(NULL, bytes, 1); break;
    default: got = malloc(bytes);
    }
    HOLD(got);
    HOLD(malloc_usable_size(got) >= bytes);
    *p = (struct piece){BLOCK, got, bytes, draw(x)};
    each(p, 1);
}

static void resize_block(struct piece *p, uint64_t *x)
{
    size_t want = size_of(x), kept = want < p->bytes ? want : p->bytes;
    p->at = realloc(p->at, want);
    HOLD(p->at);
    for (size_t i = 0; i < kept && i < 256; i++) HOLD(p->at[i] == expected(p->tag, i));
    p->bytes = want;
    each(p, 1);
}

static void get_mapping(struct piece *p, uint64_t *x)
{
    size_t bytes = PAGE * (1 + draw(x) % (draw(x) % 10 ? 64 : 1500));
    void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (draw(x) % 9 ? 0 : MAP_POPULATE), -1, 0);
    HOLD(got != MAP_FAILED);
    zeros(got, bytes);
    *p = (struct piece){MAPPING, got, bytes, draw(x)};
    each(p, 1);
}

static void change_mapping(struct piece *p, uint64_t *x)
{
    size_t pages = p->bytes / PAGE;
    switch (draw(x) % 6) {
    case 0: { /* larger: what is new is zero */
        size_t more = PAGE * (1 + draw(x) % 200);
        unsigned char *got = mremap(p->at, p->bytes, p->bytes + more, MREMAP_MAYMOVE);
        if (got == MAP_FAILED && errno == EFAULT) return; /* of several mappings for the kernel */
        HOLD(got != MAP_FAILED);
        zeros(got + p->bytes, more);
        p->at = got;
        each(p, 0);
        p->bytes += more;
        break;
    }
    case 1: /* smaller, by either call */
        if (pages < 3) return;
        if (draw(x) % 2) HOLD(mremap(p->at, p->bytes, p->bytes - PAGE, 0) == p->at);
        else HOLD(munmap(p->at + p->bytes - PAGE, PAGE) == 0);
        p->bytes -= PAGE;
        break;
    case 2: /* a hole in the middle, which is filled anew */
        if (pages < 3) return;
        HOLD(munmap(p->at + PAGE, PAGE) == 0);
        HOLD(munmap(p->at + 2 * PAGE, p->bytes - 2 * PAGE) == 0);
        p->bytes = PAGE;
        break;
    case 3:
        HOLD(mprotect(p->at, PAGE, PROT_READ) == 0);
        HOLD(p->at[0] == expected(p->tag, 0));
        HOLD(mprotect(p->at, PAGE, PROT_READ | PROT_WRITE) == 0);
        break;
    case 4: /* fixed over a part of it */
        HOLD(mmap(p->at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p->at);
        zeros(p->at, PAGE);
        break;
    default:
        HOLD(madvise(p->at, PAGE, MADV_DONTNEED) == 0);
        zeros(p->at, PAGE);
        HOLD(madvise(p->at, p->bytes, MADV_HUGEPAGE) == 0);
    }
    each(p, 1);
}

static void give(struct piece *p)
{
    each(p, 0);
    if (p->kind == BLOCK) free(p->at);
    else HOLD(munmap(p->at, p->bytes) == 0);
    p->kind = EMPTY;
}

static void *work(void *seed)
{
    uint64_t x = (uint64_t)(uintptr_t)seed * 0x2545f4914f6cdd1du + 1;
    struct piece own[SLOTS] = {0};
    for (long r = 0; r < rounds; r++) {
        struct piece *p = &own[draw(&x) % SLOTS];
        if (p->kind != EMPTY) each(p, 0);
        unsigned what = draw(&x) % 10;
        if (p->kind == EMPTY) {
            if (what < 7) get_block(p, &x); else get_mapping(p, &x);
        } else if (what < 3) {
            if (p->kind == BLOCK) resize_block(p, &x); else change_mapping(p, &x);
        } else if (what < 5) {
            unsigned box = draw(&x) % BOXES;
            pthread_mutex_lock(&boxes[box].lock);
            struct piece other = boxes[box].piece;
            boxes[box].piece = *p;
            *p = other;
            pthread_mutex_unlock(&boxes[box].lock);
        } else {
            give(p);
        }
        if (r % 1000 == 0) malloc_trim(0);
    }
    for (int i = 0; i < SLOTS; i++) if (own[i].kind != EMPTY) give(&own[i]);
    return NULL;
}

int main(int count, char **words)
{
    int threads = count > 1 ? atoi(words[1]) : 8, forks = count > 3 ? atoi(words[3]) : 4;
    rounds = count > 2 ? atol(words[2]) : 5000;
    pthread_t thread[64];
    HOLD(threads > 0 && threads <= 64);
    for (int i = 0; i < BOXES; i++) pthread_mutex_init(&boxes[i].lock, NULL);
    for (int i = 0; i < threads; i++) HOLD(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < forks; i++) { /* while the threads are at it */
        usleep(3000);
        pid_t child = fork();
        HOLD(child >= 0);
        if (child == 0) {
            for (int box = 0; box < BOXES; box++) { /* its own from now on; a lock may be another thread's */
                pthread_mutex_init(&boxes[box].lock, NULL);
                boxes[box].piece.kind = EMPTY;
            }
            rounds /= 5;
            work((void *)(uintptr_t)(1000 + i));
            if (i % 2) _exit(0);
            exit(0);
        }
        int status;
        HOLD(waitpid(child, &status, 0) == child);
        HOLD(status == 0);
    }
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < BOXES; i++) if (boxes[i].piece.kind != EMPTY) give(&boxes[i].piece);
    puts("ok");
    return 0;
}
