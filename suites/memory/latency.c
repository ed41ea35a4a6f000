/* latency: loads, each of which needs the one before it to know its address.
 *
 * The working set is cut into cache lines, and every line holds the address of another one, in
 * one random cycle through all of them (Sattolo 1986): nothing can be fetched ahead, and no line
 * comes twice before all others. Translations miss as well: with small pages a load from a large
 * working set also walks page tables, as it does in programs of this kind.
 *
 * One walk around the cycle, which also checks it, comes before the timed one. The time of a load
 * is the mean over all timed ones.
 */
#include "../mini/clock.h"

enum { LINE_BYTES = 64 };

struct line {
    struct line *next;
    char rest[LINE_BYTES - sizeof(struct line *)];
};

static void make_cycle(struct line *lines, uint32_t count)
{
    uint64_t state = 3;
    for (uint32_t i = 0; i < count; i++)
        lines[i].next = &lines[i];
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t other = random_below(&state, i);
        struct line *keep = lines[i].next;
        lines[i].next = lines[other].next;
        lines[other].next = keep;
    }
}

static int64_t cycle_length(const struct line *start)
{
    int64_t length = 1;
    for (const struct line *at = start->next; at != start; at = at->next)
        length++;
    return length;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "KIBIBYTES LOADS");
    const int64_t kibibytes = argument(argv, 1, "KIBIBYTES", 1, INT64_C(1) << 27);
    const int64_t loads = argument(argv, 2, "LOADS", 1, INT64_C(1) << 50);
    const uint32_t count = (uint32_t)(kibibytes * 1024 / LINE_BYTES);

    /* aligned, or every line would be two of the machine's */
    struct line *lines = aligned_alloc(4096, ((size_t)count * sizeof *lines + 4095) / 4096 * 4096);
    if (lines == NULL)
        die("out of memory: cannot allocate %" PRId64 " KiB", kibibytes);
    make_cycle(lines, count);
    const int64_t length = cycle_length(lines);

    const double start_s = now_s();
    const struct line *at = lines;
    for (int64_t i = 0; i < loads; i++)
        at = at->next;
    __asm__ volatile("" : : "r"(at) : "memory"); /* before the clock is read again */
    const double elapsed_s = now_s() - start_s;

    printf("lines %" PRIu32 " cycle %" PRId64 " end %td\n", count, length, at - lines);
    printf("latency %.4f ns\n", elapsed_s / (double)loads * 1e9);
    free(lines);
    return finish();
}
