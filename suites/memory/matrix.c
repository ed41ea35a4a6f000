/* matrix: what one place of the machine has of another's memory, each alone in its turn.
 *
 *   latency    dependent loads in one window, then reads in another
 *   bandwidth  reads
 *   loaded     reads, or dependent loads by leaders, in five windows of growing load
 *   compute    arithmetic in registers
 *
 * A copy sets up its memory, sleeps until its turn, and works for that time and no other. So one
 * run measures many places one after another. A window is divided into laps: all copies have their
 * turn in each, so that what disturbs the machine for a while does not fall on one of them. They
 * sleep until the last turn is over, so that each can be looked at all the while. The turns begin
 * when all copies are ready: each tells copy 0, which tells all of them the moment. They talk
 * through sockets without files, which end with their copies.
 *
 * The environment may say more than the arguments:
 *   MATRIX_KIB       size of the working set
 *   MATRIX_WINDOW_MS length of a window
 *   MATRIX_TURNS     `0,0,1`: the turn of each copy; else all work together, each as it is ready
 *   MATRIX_LEADERS   `0,8`: copies that wait for each load when loaded
 *
 * The first part of a lap warms up, and is not timed. What is told is the median of pieces of a
 * millisecond or more.
 *
 * The memory is asked for in huge pages: with small ones most of a load's time may be the walk of
 * page tables (202 ns against 138, 256 MB in a virtual machine), and no property of the memory. The
 * share of huge pages is told beside the figures, as the kernel may have none.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "../mini/clock.h"

enum { LINE_BYTES = 64, LINE_WORDS = LINE_BYTES / 8, BLOCK_WORDS = 8192 };
#define HUGE_BYTES ((size_t)2 << 20)
enum { LOADS = 2000, ROUNDS = 20000, STEPS = 5 };
enum { PIECES = 1000, FEWEST = 9, LAPS = 5 }; /* of a window */
enum { READY_S = 600 }; /* so long copies wait for each other */
static const double WARM_SHARE = 0.2, GAP_SHARE = 0.1, AGREED_S = 0.02, LEAST_PIECE_S = 0.001;
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

/* The number at a place of a list such as `0,0,1`. */
static int number_at(const char *list, int64_t place)
{
    for (; place > 0 && list != NULL; place--)
        if ((list = strchr(list, ',')) != NULL)
            list++;
    if (list == NULL)
        die("MATRIX_TURNS has fewer turns than there are copies");
    return (int)strtol(list, NULL, 10);
}

static int largest_of(const char *list)
{
    int largest = 0;
    for (; list != NULL; list = strchr(list, ',')) {
        list += *list == ',';
        const int number = (int)strtol(list, NULL, 10);
        largest = number > largest ? number : largest;
    }
    return largest;
}

static struct sockaddr_un address_of(int64_t copy, socklen_t *length)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *run = getenv("RATER_RUN");
    const size_t room = sizeof address.sun_path - 1; /* the first byte is 0: a name, and no file */
    const int used = snprintf(address.sun_path + 1, room, "rater-matrix-%s-%" PRId64,
                              run == NULL ? "" : run, copy);
    if (used < 0 || (size_t)used >= room)
        die("RATER_RUN is too long");
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
    return address;
}

static int open_socket(int64_t copy)
{
    const struct timeval longest = {.tv_sec = READY_S};
    const int own = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t length = 0;
    const struct sockaddr_un address = address_of(copy, &length);
    if (own < 0 || setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) != 0 ||
        setsockopt(own, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest) != 0 ||
        bind(own, (const struct sockaddr *)&address, length) != 0)
        die("no socket to the other copies: %s", strerror(errno));
    return own;
}

/* Sends a moment to a copy, which may not have begun yet. */
static void tell(int own, int64_t copy, double moment_s)
{
    const double give_up_s = now_s() + READY_S;
    const struct timespec pause = {.tv_nsec = 1000000};
    socklen_t length = 0;
    const struct sockaddr_un address = address_of(copy, &length);
    while (sendto(own, &moment_s, sizeof moment_s, 0, (const struct sockaddr *)&address, length) !=
           (ssize_t)sizeof moment_s) {
        if ((errno != ECONNREFUSED && errno != EINTR) || now_s() > give_up_s)
            die("copy %" PRId64 " cannot be told that all are ready: %s", copy, strerror(errno));
        nanosleep(&pause, NULL);
    }
}

static double hear(int own)
{
    double moment_s = 0;
    if (recv(own, &moment_s, sizeof moment_s, 0) != (ssize_t)sizeof moment_s)
        die("other copies were not ready in %d s", READY_S);
    return moment_s;
}

/* The moment on which all copies agree, a little after the last one is ready. */
static double agreed_moment_s(int own, int64_t copy)
{
    if (copy != 0) {
        tell(own, 0, 0);
        return hear(own);
    }
    const int64_t copies = setting("RATER_COPIES", 1);
    for (int64_t other = 1; other < copies; other++)
        (void)hear(own);
    const double moment_s = now_s() + AGREED_S;
    for (int64_t other = 1; other < copies; other++)
        tell(own, other, moment_s);
    return moment_s;
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

/* Reads a block: one word of each line, for which memory sends all of it. More words would not
 * move more, and each takes a place among the loads that wait: with all eight, one CPU of a Xeon
 * read 6.6 GB/s, with one 10.6, and by vectors 12. The sums are apart, so that no read waits for
 * the addition of another, and are no array, which compilers keep in memory. */
static int64_t read_block(struct work *work)
{
    const uint64_t *words = work->words + work->place;
    uint64_t first = 0, second = 0, third = 0, fourth = 0;
    for (int i = 0; i < BLOCK_WORDS; i += 4 * LINE_WORDS) {
        first += words[i];
        second += words[i + LINE_WORDS];
        third += words[i + 2 * LINE_WORDS];
        fourth += words[i + 3 * LINE_WORDS];
    }
    work->sum += first + second + third + fourth;
    work->place += BLOCK_WORDS;
    if (work->place + BLOCK_WORDS > work->count * LINE_WORDS)
        work->place = 0;
    return BLOCK_WORDS / LINE_WORDS;
}

static int64_t compute(struct work *work)
{
    uint64_t value = work->sum + 1;
    for (int i = 0; i < ROUNDS; i++)
        value = scramble(value + (uint64_t)i);
    work->sum = value;
    return ROUNDS;
}

/* Memory for lines, of huge pages where the kernel gives them. */
static struct line *allocate_lines(size_t bytes)
{
    const size_t whole = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    struct line *lines = aligned_alloc(HUGE_BYTES, whole);
    if (lines != NULL)
        (void)madvise(lines, bytes, MADV_HUGEPAGE); /* refused without them in this kernel */
    return lines;
}

/* Percent of so many bytes that lie in huge pages; -1 where the kernel does not tell. */
static double percent_in_huge_pages(size_t bytes)
{
    char line[256];
    unsigned long long kibibytes;
    double percent = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "AnonHugePages: %llu kB", &kibibytes) == 1)
            percent = 100.0 * 1024 * (double)kibibytes / (double)bytes;
    if (file != NULL)
        fclose(file);
    return percent > 100 ? 100 : percent;
}

static int by_size(const void *left, const void *right)
{
    const double one = *(const double *)left, other = *(const double *)right;
    return (one > other) - (one < other);
}

struct pieces { /* of a window: nanoseconds of one of the things that are counted */
    int count;
    double ns[PIECES];
};

struct lap {
    double begin_s, length_s, piece_s;
    int fewest; /* pieces that there are behind it, even if it takes longer */
};

/* Adds the pieces of one lap, of what `step` counts. */
static void measure(struct pieces *pieces, struct work *work, int64_t (*step)(struct work *),
                    struct lap lap, double share)
{
    const double warm_s = lap.begin_s + WARM_SHARE * lap.length_s;
    const double end_s = lap.begin_s + lap.length_s;
    int64_t done = 0;
    wait_until(lap.begin_s);
    double now = now_s(), from_s = now;
    while (pieces->count < PIECES && (now < end_s || pieces->count < lap.fewest)) {
        const double step_s = now;
        done += step(work);
        now = now_s();
        if (share < 1) { /* idle, so that the step took this share of the time */
            const double idle_until_s = step_s + (now - step_s) / share;
            while (now < idle_until_s)
                now = now_s();
        }
        if (now < warm_s) {
            done = 0, from_s = now;
        } else if (now - from_s >= lap.piece_s) {
            pieces->ns[pieces->count++] = (now - from_s) / (double)done * 1e9;
            done = 0, from_s = now;
        }
    }
}

/* The median piece. Those in which something else had the CPU are few, and do not move it. */
static double median_ns(struct pieces *pieces)
{
    qsort(pieces->ns, (size_t)pieces->count, sizeof *pieces->ns, by_size);
    return pieces->ns[pieces->count / 2];
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 3, "latency|bandwidth|loaded|compute KIBIBYTES WINDOW_MS");
    const char *mode = argv[1];
    const int64_t kibibytes =
        setting("MATRIX_KIB", argument(argv, 2, "KIBIBYTES", 64, INT64_C(1) << 27));
    const double window_s =
        (double)setting("MATRIX_WINDOW_MS", argument(argv, 3, "WINDOW_MS", 1, 1000000)) * 1e-3;
    const int64_t copy = setting("RATER_COPY", 0);
    const char *turns = getenv("MATRIX_TURNS");
    const bool agree = turns != NULL && *turns != '\0';
    const int own = agree ? open_socket(copy) : -1, turn = agree ? number_at(turns, copy) : 0;
    const bool loaded = strcmp(mode, "loaded") == 0, latency = strcmp(mode, "latency") == 0;
    const bool computing = strcmp(mode, "compute") == 0;
    const char *leaders = getenv("MATRIX_LEADERS");
    const bool leads =
        leaders == NULL || *leaders == '\0' || place_in(leaders, copy) >= 0;
    if (!loaded && !latency && !computing && strcmp(mode, "bandwidth") != 0)
        die("%s is no mode: expected latency, bandwidth, loaded or compute", mode);

    struct work work = {.count = kibibytes * 1024 / LINE_BYTES};
    if (work.count * LINE_WORDS < BLOCK_WORDS)
        die("%" PRId64 " KiB are fewer than a block of %d", kibibytes, BLOCK_WORDS / 128);
    if (!computing) {
        work.lines = allocate_lines((size_t)work.count * LINE_BYTES);
        if (work.lines == NULL)
            die("out of memory: cannot allocate %" PRId64 " KiB", kibibytes);
        if (latency || (loaded && leads))
            make_cycle(work.lines, (uint32_t)work.count);
        else
            memset(work.lines, 1, (size_t)work.count * LINE_BYTES);
        work.at = work.lines, work.words = (const uint64_t *)work.lines;
    }

    static struct pieces pieces[STEPS]; /* of each window */
    const double huge = computing ? -1 : percent_in_huge_pages((size_t)work.count * LINE_BYTES);
    const int windows = latency ? 2 : loaded ? STEPS : 1;
    const int all_turns = agree ? largest_of(turns) + 1 : 1;
    const double part_s = window_s / PIECES, slot_s = window_s / LAPS * (1 + GAP_SHARE);
    const double first_s = agree ? agreed_moment_s(own, copy) : now_s();
    struct lap lap = {
        .length_s = window_s / LAPS,
        .piece_s = part_s > LEAST_PIECE_S ? part_s : LEAST_PIECE_S,
    };
    for (int i = 0; i < LAPS * windows; i++) {
        const int window = i % windows, before = (i / windows * all_turns + turn) * windows;
        const bool chases = loaded ? leads : latency && window == 0;
        lap.begin_s = first_s + (before + window) * slot_s;
        lap.fewest = i / windows == LAPS - 1 ? FEWEST : 0;
        measure(&pieces[window], &work, computing ? compute : chases ? chase : read_block, lap,
                loaded && !leads ? LOADS_OF_STEPS[window] : 1);
    }
    if (latency)
        printf("latency %.4f ns\n", median_ns(&pieces[0]));
    if (latency || strcmp(mode, "bandwidth") == 0)
        printf("bandwidth %.6f GB/s\n", LINE_BYTES / median_ns(&pieces[windows - 1]));
    if (huge >= 0)
        printf("huge %.0f %%\n", huge);
    if (computing)
        printf("rate %.4f per us\n", 1e3 / median_ns(&pieces[0]));
    for (int i = 0; loaded && i < STEPS; i++)
        printf("line%d %.5f ns\n", i + 1, median_ns(&pieces[i]));
    __asm__ volatile("" : : "r"(work.sum), "r"(work.at) : "memory");
    if (agree) /* until all are through: a copy that ended could not be looked at any more */
        wait_until(first_s + LAPS * all_turns * windows * slot_s);
    printf("measured\n");
    free(work.lines);
    return finish();
}
