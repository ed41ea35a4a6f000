/* matrix: what one place of the machine has of another's memory, each alone in its turn.
 *
 *   latency    dependent loads in one window, then reads in another
 *   bandwidth  reads
 *   loaded     reads, or dependent loads by leaders, in five windows of growing load
 *   compute    arithmetic in registers
 *
 * A copy sets up its memory, sleeps until its turn, and works for that time and no other. So one
 * run measures many places one after another, with the memory of all of them on one node. The
 * turns are counted from the start of the copy: copies that are released together agree on them.
 * A copy that is not ready when the turns begin says how late it was.
 *
 * The environment may say more than the arguments:
 *   MATRIX_KIB       size of the working set
 *   MATRIX_WINDOW_MS, MATRIX_SETUP_MS   length of a window, and how long copies may set up
 *   MATRIX_TURNS     `0,2`: the nodes whose turns come one after another, by RATER_NODE;
 *                    `copies`: each copy has a turn, by RATER_COPY; else all work together
 *   MATRIX_LEADERS   `0,8`: copies that wait for each load when loaded, by RATER_COPY
 *
 * The first part of a window warms up, and is not timed.
 */
#include <stdbool.h>
#include <string.h>

#include "../mini/clock.h"

enum { LINE_BYTES = 64, LOADS = 2000, STEPS = 5, BLOCK_WORDS = 8192, ROUNDS = 20000 };
static const double WARM_SHARE = 0.2, GAP_SHARE = 0.1;
/* Shares of the time that copies read in, in the windows of `loaded`. */
static const double LOADS_OF_STEPS[STEPS] = {0.0625, 0.25, 0.5, 0.75, 1.0};

struct line {
    struct line *next;
    char rest[LINE_BYTES - sizeof(struct line *)];
};

struct work { /* a working set, and where the work in it goes on */
    struct line *lines, *at;
    const uint64_t *words;
    int64_t count, place;
    uint64_t sum;
};

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return otherwise;
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < 0 || value > INT64_C(1) << 40)
        die("%s is '%s', expected a whole number", name, text);
    return value;
}

/* The place of a number in a list such as `0,8`, from 0; -1 where it is not in the list. */
static int place_in(const char *list, int64_t number)
{
    int place = 0;
    for (const char *at = list; *at != '\0'; place++) {
        char *end = NULL;
        if (strtoll(at, &end, 10) == number && end != at)
            return place;
        const char *comma = strchr(at, ',');
        if (comma == NULL)
            break;
        at = comma + 1;
    }
    return -1;
}

static int turn(void)
{
    const char *turns = getenv("MATRIX_TURNS");
    if (turns == NULL || *turns == '\0')
        return 0;
    if (strcmp(turns, "copies") == 0)
        return (int)setting("RATER_COPY", 0);
    const int place = place_in(turns, setting("RATER_NODE", -1));
    if (place < 0)
        die("RATER_NODE is not in MATRIX_TURNS, '%s'", turns);
    return place;
}

static void wait_until(double moment_s)
{
    const time_t whole_s = (time_t)moment_s;
    const struct timespec moment = {whole_s, (long)((moment_s - (double)whole_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
        ;
}

/* One random cycle through all lines (Sattolo 1986), as in latency.c. */
static void make_cycle(struct line *lines, uint32_t count)
{
    uint64_t state = 3;
    for (uint32_t i = 0; i < count; i++)
        lines[i].next = &lines[i];
    for (uint32_t i = count - 1; i > 0; i--) {
        const uint32_t other = random_below(&state, i);
        struct line *keep = lines[i].next;
        lines[i].next = lines[other].next;
        lines[other].next = keep;
    }
}

static int64_t chase(struct work *work)
{
    struct line *at = work->at;
    for (int i = 0; i < LOADS; i++)
        at = at->next;
    work->at = at;
    __asm__ volatile("" : : "r"(at) : "memory");
    return LOADS;
}

/* Reads a block; the sums are apart, so that no read waits for the addition of another. */
static int64_t read_block(struct work *work)
{
    const uint64_t *words = work->words + work->place;
    uint64_t sums[8] = {0};
    for (int i = 0; i < BLOCK_WORDS; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] += words[i + k];
    for (int k = 0; k < 8; k++)
        work->sum += sums[k];
    work->place += BLOCK_WORDS;
    if (work->place + BLOCK_WORDS > work->count * (LINE_BYTES / 8))
        work->place = 0;
    return BLOCK_WORDS / (LINE_BYTES / 8);
}

static int64_t compute(struct work *work)
{
    uint64_t value = work->sum + 1;
    for (int i = 0; i < ROUNDS; i++)
        value = scramble(value + (uint64_t)i);
    work->sum = value;
    return ROUNDS;
}

/* Nanoseconds of one of the things that `step` counts, over a window that begins at a moment. */
static double measure(struct work *work, int64_t (*step)(struct work *), double begin_s,
                      double window_s, double share)
{
    wait_until(begin_s);
    const double warm_s = begin_s + WARM_SHARE * window_s, end_s = begin_s + window_s;
    double now = now_s(), counted_from_s = now;
    int64_t done = 0;
    for (bool warm = false; now < end_s || done == 0; now = now_s()) {
        if (!warm && now >= warm_s) {
            warm = true, done = 0, counted_from_s = now;
        }
        done += step(work);
        if (share < 1) { /* idle, so that the step took this share of the time */
            const double idle_until_s = now + (now_s() - now) / share;
            while (now_s() < idle_until_s)
                ;
        }
    }
    return (now - counted_from_s) / (double)done * 1e9;
}

int main(int argc, char **argv)
{
    const double start_s = now_s();
    expect_arguments(argc, argv, 3, "latency|bandwidth|loaded|compute KIBIBYTES WINDOW_MS");
    const char *mode = argv[1];
    const int64_t kibibytes =
        setting("MATRIX_KIB", argument(argv, 2, "KIBIBYTES", 64, INT64_C(1) << 27));
    const double window_s =
        (double)setting("MATRIX_WINDOW_MS", argument(argv, 3, "WINDOW_MS", 1, 1000000)) * 1e-3;
    const double setup_s = (double)setting("MATRIX_SETUP_MS", 0) * 1e-3;
    const bool loaded = strcmp(mode, "loaded") == 0, latency = strcmp(mode, "latency") == 0;
    const bool computing = strcmp(mode, "compute") == 0;
    const char *leaders = getenv("MATRIX_LEADERS");
    const bool leads =
        leaders == NULL || *leaders == '\0' || place_in(leaders, setting("RATER_COPY", 0)) >= 0;
    if (!loaded && !latency && !computing && strcmp(mode, "bandwidth") != 0)
        die("%s is no mode: expected latency, bandwidth, loaded or compute", mode);

    struct work work = {.count = kibibytes * 1024 / LINE_BYTES};
    if (work.count * (LINE_BYTES / 8) < BLOCK_WORDS)
        die("%" PRId64 " KiB are fewer than a block of %d", kibibytes, BLOCK_WORDS / 128);
    if (!computing) {
        work.lines = aligned_alloc(4096, ((size_t)work.count * LINE_BYTES + 4095) / 4096 * 4096);
        if (work.lines == NULL)
            die("out of memory: cannot allocate %" PRId64 " KiB", kibibytes);
        if (latency || (loaded && leads))
            make_cycle(work.lines, (uint32_t)work.count);
        else
            memset(work.lines, 1, (size_t)work.count * LINE_BYTES);
        work.at = work.lines, work.words = (const uint64_t *)work.lines;
    }

    const double late_s = now_s() - (start_s + setup_s);
    const double turns_s = start_s + setup_s + (late_s > 0 ? late_s : 0);
    const double slot_s = window_s * (1 + GAP_SHARE);
    const int windows = latency ? 2 : loaded ? STEPS : 1;
    double begin_s = turns_s + turn() * windows * slot_s;
    if (latency) {
        printf("latency %.4f ns\n", measure(&work, chase, begin_s, window_s, 1));
        begin_s += slot_s;
    }
    if (latency || strcmp(mode, "bandwidth") == 0)
        printf("bandwidth %.6f GB/s\n",
               LINE_BYTES / measure(&work, read_block, begin_s, window_s, 1));
    if (computing)
        printf("rate %.4f per us\n", 1e3 / measure(&work, compute, begin_s, window_s, 1));
    for (int i = 0; loaded && i < STEPS; i++, begin_s += slot_s)
        printf("line%d %.5f ns\n", i + 1,
               measure(&work, leads ? chase : read_block, begin_s, window_s,
                       leads ? 1 : LOADS_OF_STEPS[i]));
    printf("late %.6f s\n", late_s > 0 ? late_s : 0.0);
    __asm__ volatile("" : : "r"(work.sum), "r"(work.at) : "memory");
    printf("measured\n");
    free(work.lines);
    return finish();
}
