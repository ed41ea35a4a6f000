/* What TLB misses and page faults cost on this machine, as JSON.
 *
 *   cost [MIB]    memory it may use for the largest footprint (default 256)
 *
 * The same lines of data, one a 4 KiB page, are read in the same order in small and in huge pages,
 * turn by turn; the difference is what the misses cost. Dependent: each address comes from the load
 * before; independent: addresses are computed; stores: the same addresses are written to. Once the
 * order of pages is random, and once eight neighbours follow each other ("near"): their entries share
 * a line of the page table. Streams read or write all lines of all pages in their order: with each page
 * prefetching begins anew. Times are nanoseconds of CPU time, as little of other load in them as can be.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SMALL = 4096, ROUNDS = 12, LEAST_LOADS = 100000 };
static const size_t HUGE = 2u << 20;
static volatile uint64_t sink, zero;

/* Of CPU time: what others have of the CPU meanwhile does not count. */
static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double least(double *of, int n)
{
    qsort(of, (size_t)n, sizeof *of, by_value);
    return of[0];
}

/* Memory that begins at a huge page, not touched yet; NULL where there is none. */
static char *memory(size_t bytes, int advice)
{
    char *all = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return NULL;
    char *begin = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
    if (begin > all) munmap(all, (size_t)(begin - all));
    munmap(begin + bytes, (size_t)(all + HUGE - begin));
    if (madvise(begin, bytes, advice) != 0) { munmap(begin, bytes); return NULL; }
    return begin;
}
/* Huge pages in a range, by the kernel's word. */
static size_t huge_bytes(const char *begin)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    size_t found = 0, kb;
    int here = 0;
    unsigned long from, to;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' ')) here = from <= (uintptr_t)begin && (uintptr_t)begin < to;
        else if (here && sscanf(line, "AnonHugePages: %zu kB", &kb) == 1) found = kb << 10;
    }
    if (file) fclose(file);
    return found;
}

/* Which line of its page each page has: all sets of a cache alike. */
static size_t line_of(size_t page) { return page * SMALL + (page * 29 % 64) * 64; }
static uint64_t state = 88172645463325252ull;
static uint64_t bits(void)
{
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
/* One cycle through all pages in random order, in the lines themselves. */
static void thread_pages(char *base, const uint32_t *order, size_t pages)
{
    for (size_t i = 0; i < pages; i++)
        *(char **)(base + line_of(order[i])) = base + line_of(order[(i + 1) % pages]);
}
/* Time of each piece of some loads: one that was interrupted, or that found the caches emptied, is slow. */
enum { PIECE = 4096, MOST_PIECES = 1 << 14 };
struct pieces { double ns[MOST_PIECES]; int size; };

static void add_piece(struct pieces *of, double ns)
{
    if (of->size < MOST_PIECES) of->ns[of->size++] = ns / PIECE;
}
/* The time that a fifth of all pieces are below. */
static double typical(struct pieces *of)
{
    qsort(of->ns, (size_t)of->size, sizeof *of->ns, by_value);
    return of->ns[of->size / 5];
}
/* The sum of other lines of a page, so many with the first one at `at`. */
static inline __attribute__((always_inline)) uint64_t other_lines(uintptr_t at, int lines)
{
    uint64_t sum = 0;
    for (int i = 1; i < lines; i++) sum += *(uint64_t *)((at & -(uintptr_t)SMALL) | (at + (uintptr_t)i * 21 * 64 & (SMALL - 64)));
    return sum;
}
static inline __attribute__((always_inline)) void followed(char *base, size_t loads, struct pieces *of, int lines)
{
    char **at = (char **)(base + line_of(0));
    for (size_t done = 0; done < loads; done += PIECE) {
        double begin = now_ns();
        for (int i = 0; i < PIECE; i++) {
            uint64_t others = lines == 1 ? 0 : other_lines((uintptr_t)at, lines);
            /* The next address waits for the other lines too. */
            if (lines > 1) __asm__ volatile("" : "+r"(at) : "r"(others &= zero));
            at = (char **)(*(uintptr_t *)((uintptr_t)at + others));
        }
        sink = (uintptr_t)at;
        add_piece(of, now_ns() - begin);
    }
}
static void dependent(char *base, size_t loads, struct pieces *of, int lines)
{
    if (lines == 1) followed(base, loads, of, 1);
    else followed(base, loads, of, lines);
}
/* The place of a page when eight neighbours follow each other, not in their own order. */
static inline uint64_t near_page(uint64_t place) { return (place & ~7ull) | (place * 5 + 3 & 7); }
static inline __attribute__((always_inline)) void computed(char *base, size_t pages, size_t times, struct pieces *of, int store, int near, int lines)
{
    uint64_t sum = 0, x = 1;
    const uint64_t mask = pages - 1; /* a power of two: a full cycle by Hull and Dobell */
    for (size_t done = 0; done < times; done += PIECE) {
        double begin = now_ns();
        for (int i = 0; i < PIECE; i++) {
            x = (near ? x + 1 : x * 1664525 + 1013904223) & mask;
            uint64_t page = near ? near_page(x) : (x ^ x >> 7) & mask, *at = (uint64_t *)(base + page * SMALL + (page * 29 % 64) * 64);
            if (store) at[1] = x; /* beside the address that `dependent` follows */
            else sum += *at;
            if (lines > 1) sum += other_lines((uintptr_t)at, lines);
        }
        sink = sum;
        add_piece(of, now_ns() - begin);
    }
}
static void independent(char *base, size_t pages, size_t loads, struct pieces *of, int lines)
{
    if (lines == 1) computed(base, pages, loads, of, 0, 0, 1);
    else computed(base, pages, loads, of, 0, 0, lines);
}
static void stores(char *base, size_t pages, size_t times, struct pieces *of, int lines)
{
    if (lines == 1) computed(base, pages, times, of, 1, 0, 1);
    else computed(base, pages, times, of, 1, 0, lines);
}
static void independent_near(char *base, size_t pages, size_t loads, struct pieces *of) { computed(base, pages, loads, of, 0, 1, 1); }
static void stores_near(char *base, size_t pages, size_t times, struct pieces *of) { computed(base, pages, times, of, 1, 1, 1); }

enum { FOOTPRINTS = 20, KINDS = 6, LEAST_PAGES = 16 };

/* Streams: all lines of the pages in their order, piece after piece. Neighbours of one piece lie together in
 * memory, where prefetching goes on, and those of another do not: of each piece the least time of all rounds
 * counts, of a stream the mean of its pieces. */
enum { STREAM_PAGES = 64, STREAM_KINDS = 4, STREAM_ROUNDS = ROUNDS / 2, MOST_STREAM_PIECES = 1 << 13 };
struct stream { float least_ns[MOST_STREAM_PIECES]; size_t pieces; };

static void stream(char *base, size_t pages, struct stream *of, int store)
{
    const size_t piece = pages < STREAM_PAGES ? pages : STREAM_PAGES;
    of->pieces = pages / piece < MOST_STREAM_PIECES ? pages / piece : MOST_STREAM_PIECES;
    for (size_t i = 0; i < of->pieces; i++) {
        uint64_t sum = 0;
        double begin = now_ns();
        for (char *at = base + i * piece * SMALL, *end = at + piece * SMALL; at < end; at += 64) {
            if (store) *(uint64_t *)(at + 8) = sum++; /* beside the address that `dependent` follows */
            else sum += *(uint64_t *)at;
        }
        sink = sum;
        float ns = (float)((now_ns() - begin) / (double)piece);
        if (of->least_ns[i] == 0 || ns < of->least_ns[i]) of->least_ns[i] = ns;
    }
}
static double page_ns(const struct stream *of)
{
    double sum = 0;
    for (size_t i = 0; i < of->pieces; i++) sum += of->least_ns[i];
    return sum / (double)of->pieces;
}
static void streams(char *small, char *huge, size_t pages, struct stream *of)
{
    static struct stream unused;
    for (int kind = 0; kind < STREAM_KINDS; kind++) {
        stream(kind % 2 ? huge : small, pages, &unused, kind / 2);
        stream(kind % 2 ? huge : small, pages, &of[kind], kind / 2);
    }
}

static void shuffle(uint32_t *order, size_t pages)
{
    for (size_t i = 0; i < pages; i++) order[i] = (uint32_t)i;
    for (size_t i = pages - 1; i > 0; i--) {
        size_t j = bits() % (i + 1);
        uint32_t was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
}
/* Follows the lines in `order` through small and huge pages, once to warm up. */
static void dependent_both(char *small, char *huge, const uint32_t *order, size_t pages, size_t n, struct pieces *of, int lines)
{
    static struct pieces unused;
    thread_pages(small, order, pages);
    thread_pages(huge, order, pages);
    unused.size = 0;
    dependent(small, pages, &unused, lines);
    dependent(small, n, &of[0], lines);
    unused.size = 0;
    dependent(huge, pages, &unused, lines);
    dependent(huge, n, &of[1], lines);
}
/* Dependent loads in small and in huge pages, independent ones, stores; random or near; of so many lines a page. */
static void measure(char *small, char *huge, uint32_t *order, size_t pages, struct pieces *of, int near, int lines)
{
    const size_t n = pages < LEAST_LOADS ? (LEAST_LOADS + pages - 1) / pages * pages : pages;
    if (near)
        for (size_t i = 0; i < pages; i++) order[i] = (uint32_t)near_page(i);
    else shuffle(order, pages);
    dependent_both(small, huge, order, pages, n, of, lines);
    for (int is_huge = 0; is_huge < 2; is_huge++) {
        char *base = is_huge ? huge : small;
        if (near) { independent_near(base, pages, n, &of[2 + is_huge]); stores_near(base, pages, n, &of[4 + is_huge]); }
        else { independent(base, pages, n, &of[2 + is_huge], lines); stores(base, pages, n, &of[4 + is_huge], lines); }
    }
}
static void print_kinds(const char *order, struct pieces *of)
{
    static const char *const kinds[] = {"dependent", "independent", "store"}, *const sizes[] = {"small", "huge"};
    for (int k = 0; k < KINDS; k++) printf(", \"%s%s_%s_ns\": %.3f", order, kinds[k / 2], sizes[k % 2], typical(&of[k]));
}

static void print_streams(const struct stream *of)
{
    static const char *const kinds[] = {"load_small", "load_huge", "store_small", "store_huge"};
    for (int k = 0; k < STREAM_KINDS; k++) printf(", \"stream_%s_ns\": %.2f", kinds[k], page_ns(&of[k]));
}

/* All footprints in turn, round by round: load that comes and goes spoils no footprint as a whole. The largest
 * once more with 2, 4, ... lines a page: caches take in as much as of a larger one meanwhile. */
enum { DOUBLINGS = 6, MOST_LINES = 1 << 19, LINES_ROUNDS = ROUNDS / 2 };
static void loads(size_t most_pages)
{
    static struct pieces of[FOOTPRINTS][KINDS], near[FOOTPRINTS][KINDS], lined[DOUBLINGS][KINDS];
    static struct stream streamed[FOOTPRINTS][STREAM_KINDS];
    const size_t bytes = most_pages * SMALL < HUGE ? HUGE : most_pages * SMALL;
    uint32_t *order = malloc(most_pages * sizeof *order);
    char *small = memory(bytes, MADV_NOHUGEPAGE), *huge = memory(bytes, MADV_HUGEPAGE);
    int doublings = 1;
    while (doublings < DOUBLINGS && most_pages << doublings <= MOST_LINES) doublings++;
    if (!order || !small || !huge) return;
    for (size_t i = 0; i < bytes; i += SMALL) small[i] = huge[i] = 1;
    for (int r = 0; r < ROUNDS; r++) {
        int f = 0;
        for (size_t pages = LEAST_PAGES; pages <= most_pages; pages *= 2, f++) {
            measure(small, huge, order, pages, of[f], 0, 1);
            measure(small, huge, order, pages, near[f], 1, 1);
            if (r < STREAM_ROUNDS) streams(small, huge, pages, streamed[f]);
        }
        for (int d = 1; d < doublings && r < LINES_ROUNDS; d++) measure(small, huge, order, most_pages, lined[d], 0, 1 << d);
    }
    int f = 0;
    const size_t had = huge_bytes(huge);
    for (size_t pages = LEAST_PAGES; pages <= most_pages; pages *= 2, f++) {
        printf("%s\n  {\"pages\": %zu, \"huge_bytes\": %zu", f ? "," : "", pages, had < bytes ? 0 : pages * SMALL);
        print_kinds("", of[f]);
        print_kinds("near_", near[f]);
        print_streams(streamed[f]);
        printf("}");
    }
    for (int d = 1; d < doublings; d++) {
        printf(",\n  {\"pages\": %zu, \"lines\": %d, \"huge_bytes\": %zu", most_pages, 1 << d, had < bytes ? 0 : bytes);
        print_kinds("", lined[d]);
        printf("}");
    }
    munmap(small, bytes);
    munmap(huge, bytes);
    free(order);
}

/* Nanoseconds for the first touch of a page, of 64 MiB of fresh memory, and for giving it back. */
static void faults(void)
{
    const size_t bytes = 64u << 20;
    double of[2][ROUNDS], freed[2][ROUNDS];
    for (int r = -1; r < ROUNDS; r++)
        for (int is_huge = 0; is_huge < 2; is_huge++) {
            char *at = memory(bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
            size_t page = is_huge ? HUGE : SMALL;
            double pages = (double)(bytes / page);
            if (at == NULL) { printf("null"); return; }
            double begin = now_ns();
            for (size_t i = 0; i < bytes; i += page) at[i] = 1;
            double took = (now_ns() - begin) / pages;
            if (is_huge && r == 0 && huge_bytes(at) < bytes) { printf("null"); return; }
            begin = now_ns();
            munmap(at, bytes);
            if (r >= 0) { of[is_huge][r] = took; freed[is_huge][r] = (now_ns() - begin) / pages; }
        }
    printf("{\"small_ns\": %.2f, \"huge_ns\": %.2f, ", least(of[0], ROUNDS), least(of[1], ROUNDS));
    printf("\"small_free_ns\": %.2f, \"huge_free_ns\": %.2f}", least(freed[0], ROUNDS), least(freed[1], ROUNDS));
}

/* Nanoseconds of a cycle: of an addition that needs the one before. */
static double cycle(void)
{
    enum { ADDITIONS = 1000000 };
    double of[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t x = 1, one = 1;
        __asm__ volatile("" : "+r"(one));
        double begin = now_ns();
        for (int i = 0; i < ADDITIONS; i += 10)
            for (int k = 0; k < 10; k++) { x += one; __asm__ volatile("" : "+r"(x)); }
        of[r] = (now_ns() - begin) / ADDITIONS;
        sink = x;
    }
    return least(of, ROUNDS);
}

int main(int argc, char **argv)
{
    size_t most = (size_t)(argc > 1 ? atol(argv[1]) : 256) << 20;
    size_t most_pages = LEAST_PAGES;
    while (most_pages * 2 * SMALL <= most) most_pages *= 2;
    printf("{\"loads\": [");
    loads(most_pages);
    printf("],\n \"faults\": ");
    faults();
    printf(", \"cycle_ns\": %.4f}\n", cycle());
    return fflush(stdout) ? 1 : 0;
}
