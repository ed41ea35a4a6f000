/* What a stream of page references (record.h) on standard input says, as JSON on standard output:
 * reuse distances for four page sizes by category, first touches, and what a TLB misses for each
 * mapping of categories to page sizes.
 *
 *   analyse -t LEVEL:SIZES:ENTRIES:WAYS ... -m SHIFT,SHIFT,SHIFT,SHIFT,SHIFT,SHIFT ... [-s RATE] [-j THREADS]
 *
 * -t: an array of a TLB: level 1 or 2, of which page sizes (bits: 1 the first, ...), LRU in sets;
 *     where no array of a level takes a size, it misses there.
 * -m: a mapping: the shifts of the page sizes of heap, mmap, static, small static, stack, other.
 * -s: only a share of all pages, chosen by hash, as large a share of all distances (SHARDS).
 *     TLBs are taken for fully associative then.
 *
 * What a walk costs follows from where its entry of the page table lies, and from what waits for it.
 * `gaps` has, for walks of small pages, how many lines of data the caches took in since the last walk
 * of the same page, by the order in which pages are walked (enum order). A sample has none, since it
 * has not all walks.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record.h"
#include "reuse.h"
#include "regions.h"

enum { HEAP, MMAP, STATIC, SMALL_STATIC, STACK, OTHER, CATEGORIES, SIZES = 4, LEVELS = 2, ARRAYS = 16, MAPPINGS = 256 };
/* Octaves of a gap (0: the page's first walk); small pages of a line of the page table. */
enum { GAPS = 34, LINE_BITS = 3, NEAR_WALKS = 16, LATEST = 4, BESIDE_PAGES = 16, ALONE_REFERENCES = 32 };
/* How a walk follows others: anyhow; a few pages from one of the latest four, as a loop over a
 * column makes it; in a line of the page table that was walked within the latest 16. Alone, and so of
 * its full length: the walk before is 32 references back, about a hundred instructions, which is as
 * far as a processor gets before it mispredicts a branch. */
enum order { FAR, BESIDE, NEAR, ALONE, NEAR_ALONE, ORDERS };
enum { BATCH = 1 << 14, GROUPS = 16 };
static const uint64_t LARGE_PAGES = 512; /* of 4 KiB in 2 MiB */
static const char *const names[] = {"heap", "mmap", "static", "small static", "stack", "other"};
static const unsigned shifts[SIZES] = {12, 16, 21, 30};
static const int category_of[] = {OTHER, HEAP, MMAP, STATIC, STACK, OTHER};

struct batch { uint64_t page[BATCH]; uint32_t count[BATCH]; uint8_t category[BATCH], store[BATCH], lines[BATCH]; unsigned size; };

static double rate = 1;
static uint64_t limit = UINT64_MAX; /* of hashes that are in the sample */
static inline uint64_t hash(uint64_t key)
{
    key ^= key >> 31; key *= 0x7fb5d329728ea185ull;
    key ^= key >> 27; key *= 0x81dadef4bc2dd44dull;
    return key ^ key >> 33;
}

/* ---- reuse distances of one page size ------------------------------------------------------------ */

struct distances {
    unsigned size;
    struct stack stack;
    uint64_t last, hist[CATEGORIES][BINS], near[CATEGORIES], cold[CATEGORIES];
    uint64_t sampled[GROUPS], far[GROUPS], reach; /* by hash: sampled references, those that miss */
};
static struct distances distances[SIZES];

static void distances_of(struct distances *d, const struct batch *b)
{
    const unsigned down = shifts[d->size] - 12;
    const uint64_t key = (uint64_t)d->size << KEY_TABLE_SHIFT;
    for (unsigned i = 0; i < b->size; i++) {
        uint64_t page = b->page[i] >> down;
        unsigned c = b->category[i];
        if (page == d->last) { d->near[c] += b->count[i]; continue; }
        d->last = page;
        d->near[c] += b->count[i] - 1;
        uint64_t h = 0;
        if (rate < 1 && (h = hash(page)) >= limit) continue;
        uint64_t far = stack_touch(&d->stack, page | key);
        if (far != NEVER && rate < 1) far = (uint64_t)((double)far / rate);
        if (far == NEVER) d->cold[c]++;
        else d->hist[c][bin_of(far)]++;
        if (rate < 1) {
            unsigned g = (unsigned)(h & (GROUPS - 1));
            d->sampled[g]++;
            d->far[g] += far >= d->reach;
        }
    }
}

/* ---- TLBs ---------------------------------------------------------------------------------------- */

struct array { unsigned level, sizes, entries, ways, sets; };
static struct array arrays[ARRAYS];
static unsigned array_count;

struct region_misses { uint64_t l1, l2; };
struct mapping {
    unsigned size[CATEGORIES];
    uint64_t *tags[ARRAYS];
    int array[LEVELS][SIZES]; /* of a level for a page size, -1 none */
    uint64_t last, miss[LEVELS][CATEGORIES], store_miss[LEVELS][CATEGORIES]; /* of these, stores */
    uint64_t gaps[ORDERS][2][GAPS];     /* of loads, of stores */
    struct table walked, line;          /* by page `lines`, by line of the page table `walks`, at its last walk */
    uint64_t latest[LATEST];            /* pages */
    uint32_t walks, lines;              /* of data that the caches took in: one or more a walk */
    uint64_t referred, walked_at;       /* references; how many there were at the last walk */
    struct stack stack;  /* of a sample */
    struct table number; /* by 2 MiB of addresses: which of `of`, + 1 */
    struct region_misses (*of)[CATEGORIES];
    uint64_t *where;
    uint32_t regions, room;
};
static struct mapping mappings[MAPPINGS];
static unsigned mapping_count;

static inline int found(struct mapping *m, int which, uint64_t page, uint64_t tag)
{
    const struct array *a = &arrays[which];
    uint64_t set = (a->sets & (a->sets - 1)) == 0 ? page & (a->sets - 1) : page % a->sets;
    uint64_t *way = m->tags[which] + set * a->ways, carried = tag;
    for (unsigned i = 0; i < a->ways; i++) {
        uint64_t was = way[i];
        way[i] = carried;
        if (was == tag) return 1;
        carried = was;
    }
    return 0;
}

static struct region_misses *region_of(struct mapping *m, uint64_t page, unsigned category)
{
    uint32_t *number = table_at(&m->number, page >> 9);
    if (*number == 0) {
        if (m->regions == m->room) {
            m->room = m->room ? 2 * m->room : 256;
            m->of = had(realloc(m->of, m->room * sizeof *m->of));
            m->where = had(realloc(m->where, m->room * sizeof *m->where));
        }
        memset(m->of[m->regions], 0, sizeof *m->of);
        m->where[m->regions] = page >> 9;
        *number = ++m->regions;
    }
    return &m->of[*number - 1][category];
}

static inline void missed(struct mapping *m, unsigned level, const struct batch *b, unsigned i)
{
    m->miss[level][b->category[i]]++;
    m->store_miss[level][b->category[i]] += b->store[i];
    if (m->number.leaves == NULL) return;
    struct region_misses *r = region_of(m, b->page[i], b->category[i]);
    if (level == 0) r->l1++;
    else r->l2++;
}

/* Returns how far a count went on since this place was walked, 0: never. Of 4 G and more it is too low. */
static inline uint32_t gap_of(struct table *t, uint64_t place, uint32_t count)
{
    uint32_t *last = table_at(t, place), gap = *last ? count - *last : 0;
    *last = count;
    return gap;
}
static inline void walked(struct mapping *m, const struct batch *b, unsigned i, unsigned size)
{
    const uint64_t page = b->page[i];
    m->walks++;
    if (b->lines[i] == 0) m->lines++;
    if (size != 0) return;
    uint32_t gap = gap_of(&m->walked, page, m->lines), of_line = gap_of(&m->line, page >> LINE_BITS, m->walks);
    enum order order = FAR;
    for (int k = 0; k < LATEST; k++)
        if (page + BESIDE_PAGES - m->latest[k] <= 2 * BESIDE_PAGES) order = BESIDE;
    if (of_line && of_line <= NEAR_WALKS) order = NEAR;
    if (m->walks > 1 && m->referred - b->count[i] - m->walked_at >= ALONE_REFERENCES) order = order == NEAR ? NEAR_ALONE : ALONE;
    m->walked_at = m->referred - b->count[i]; /* the first of its references walks */
    m->latest[m->walks % LATEST] = page;
    m->gaps[order][b->store[i]][gap ? 32 - (unsigned)__builtin_clz(gap) : 0]++;
}

static void misses_of(struct mapping *m, const struct batch *b)
{
    for (unsigned i = 0; i < b->size; i++) {
        unsigned c = b->category[i], size = m->size[c];
        uint64_t page = b->page[i] >> (shifts[size] - 12), key = page | (uint64_t)size << KEY_TABLE_SHIFT;
        m->lines += b->lines[i];
        m->referred += b->count[i];
        if (key == m->last) continue;
        m->last = key;
        int first = m->array[0][size], second = m->array[1][size];
        if (rate < 1) {
            if (hash(page) >= limit) continue;
            uint64_t far = stack_touch(&m->stack, key);
            if (far != NEVER) far = (uint64_t)((double)far / rate);
            if (first >= 0 && far < arrays[first].entries) continue;
            missed(m, 0, b, i);
            if (second < 0 || far >= arrays[second].entries) missed(m, 1, b, i);
            continue;
        }
        if (first >= 0 && found(m, first, page, key + 1)) continue;
        missed(m, 0, b, i);
        if (second < 0 || !found(m, second, page, key + 1)) {
            missed(m, 1, b, i);
            walked(m, b, i, size);
        }
    }
}

/* ---- threads: a batch is analysed while the next one is read ----------------------------------------- */

static struct batch batches[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static const struct batch *current;
static unsigned next_task, open_tasks;

static void run_task(unsigned task, const struct batch *b)
{
    if (task < mapping_count) misses_of(&mappings[task], b);
    else distances_of(&distances[task - mapping_count], b);
}
static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (next_task == mapping_count + SIZES) pthread_cond_wait(&begun, &mutex);
        unsigned task = next_task++;
        const struct batch *b = current;
        pthread_mutex_unlock(&mutex);
        run_task(task, b);
        pthread_mutex_lock(&mutex);
        if (--open_tasks == 0) pthread_cond_signal(&ended);
    }
    return NULL;
}
static void wait_for_batch(void)
{
    pthread_mutex_lock(&mutex);
    while (open_tasks) pthread_cond_wait(&ended, &mutex);
    pthread_mutex_unlock(&mutex);
}
static struct batch *hand_over(struct batch *full)
{
    wait_for_batch();
    pthread_mutex_lock(&mutex);
    current = full;
    open_tasks = mapping_count + SIZES;
    next_task = 0;
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&mutex);
    struct batch *other = full == &batches[0] ? &batches[1] : &batches[0];
    other->size = 0; /* what it held was waited for */
    return other;
}

/* ---- records ----------------------------------------------------------------------------------------- */

static struct table touched[SIZES]; /* by page: its category + 1; 0: not there */
static struct table seen[SIZES];    /* by page: a bit for each category that it was touched as */
static struct regions regions;
static uint64_t references[CATEGORIES], stores[CATEGORIES], faults[SIZES][CATEGORIES], pages[SIZES][CATEGORIES];
static uint64_t changes, programs, forks, begins[2], ends[2]; /* of heap and mmap: the largest range */

/* What is gone is a fault again: whole pages only. */
static void forget(uint64_t begin, uint64_t end)
{
    for (int k = 0; k < SIZES; k++) {
        unsigned down = shifts[k] - 12;
        uint64_t first = (begin + (1ull << down) - 1) >> down, upto = end >> down;
        if (first < upto) table_clear(&touched[k], first, upto);
    }
}
static unsigned first_touch(uint64_t page)
{
    unsigned c = (unsigned)category_of[regions_kind(&regions, page)];
    /* The kernel puts no huge page where it would reach out of a mapping. */
    if (c == STATIC && !regions_hold(&regions, page & ~(LARGE_PAGES - 1), (page | (LARGE_PAGES - 1)) + 1)) c = SMALL_STATIC;
    for (int k = 0; k < SIZES; k++) {
        uint32_t *is = table_at(&touched[k], page >> (shifts[k] - 12));
        if (*is == 0) { *is = c + 1; faults[k][c]++; }
        uint32_t *as = table_at(&seen[k], page >> (shifts[k] - 12));
        if (!(*as >> c & 1)) { *as |= 1u << c; pages[k][c]++; }
    }
    return c;
}
static void event(int kind, uint64_t begin, uint64_t end, struct batch **batch)
{
    uint64_t first = begin >> 12, upto = (end + 4095) >> 12;
    if (upto > RECORD_PAGE + 1) upto = RECORD_PAGE + 1;
    switch (kind) {
    case EVENT_FORK: forks++; return;
    case EVENT_DROP: forget(first, end >> 12); return;
    case EVENT_RESET:
        if (programs++) {
            *batch = hand_over(*batch);
            wait_for_batch();
            for (int k = 0; k < SIZES; k++) { stack_reset(&distances[k].stack); distances[k].last = NEVER; }
            for (unsigned i = 0; i < mapping_count; i++) {
                mappings[i].last = NEVER;
                if (rate < 1) stack_reset(&mappings[i].stack);
                table_clear(&mappings[i].walked, 0, mappings[i].walked.size << LEAF_BITS);
                table_clear(&mappings[i].line, 0, mappings[i].line.size << LEAF_BITS);
                for (unsigned a = 0; a < array_count; a++) memset(mappings[i].tags[a], 0, arrays[a].entries * sizeof(uint64_t));
            }
            regions.size = 0;
            forget(0, RECORD_PAGE + 1);
        }
        return;
    case EVENT_UNMAP: kind = 0; break;
    case EVENT_HEAP:
    case EVENT_MMAP:
        if (end - begin > ends[kind - EVENT_HEAP] - begins[kind - EVENT_HEAP]) {
            begins[kind - EVENT_HEAP] = begin;
            ends[kind - EVENT_HEAP] = end;
        }
        break;
    }
    if (first >= upto || kind > EVENT_OTHER) return;
    /* As it is told again with another kind, what was touched before is not a fault again. */
    regions_set(&regions, first, upto, kind);
    forget(first, upto);
}

static void read_all(void)
{
    static uint64_t words[1 << 15];
    struct batch *b = &batches[0];
    size_t left = 0;
    for (;;) {
        ssize_t got = read(0, (char *)words + left, sizeof words - left);
        if (got <= 0) break;
        size_t size = (left + (size_t)got) / sizeof *words, i = 0;
        for (; i < size; i++) {
            uint64_t word = words[i];
            if (word & RECORD_EVENT) {
                if (i + 1 == size) break;
                event((int)(word >> RECORD_KIND_SHIFT & 0x7f), word & RECORD_ADDRESS, words[++i], &b);
                continue;
            }
            uint64_t page = word & RECORD_PAGE, count = word >> RECORD_COUNT_SHIFT & RECORD_COUNT;
            uint32_t is = *table_at(&touched[0], page);
            unsigned c = is ? is - 1 : first_touch(page);
            changes++;
            references[c] += count;
            stores[c] += (word & RECORD_STORE) != 0;
            b->page[b->size] = page;
            b->count[b->size] = (uint32_t)count;
            b->lines[b->size] = (uint8_t)(word >> RECORD_LINES_SHIFT & RECORD_LINES);
            b->category[b->size] = (uint8_t)c;
            b->store[b->size] = (word & RECORD_STORE) != 0;
            if (++b->size == BATCH) b = hand_over(b);
        }
        left = left + (size_t)got - i * sizeof *words;
        memmove(words, (char *)words + i * sizeof *words, left);
    }
    hand_over(b);
    wait_for_batch();
}

/* ---- in and out ---------------------------------------------------------------------------------------- */

static void usage(void)
{
    fputs("analyse: wrong arguments\n", stderr);
    exit(2);
}
static unsigned size_of_shift(unsigned shift)
{
    for (unsigned k = 0; k < SIZES; k++)
        if (shifts[k] == shift) return k;
    usage();
    return 0;
}
static void add_array(const char *text)
{
    struct array *a = &arrays[array_count];
    if (array_count == ARRAYS || sscanf(text, "%u:%u:%u:%u", &a->level, &a->sizes, &a->entries, &a->ways) != 4) usage();
    if (a->level < 1 || a->level > LEVELS || a->ways < 1 || a->ways > a->entries || a->entries % a->ways) usage();
    a->sets = a->entries / a->ways;
    array_count++;
}
static void add_mapping(const char *text)
{
    unsigned s[CATEGORIES];
    if (mapping_count == MAPPINGS || sscanf(text, "%u,%u,%u,%u,%u,%u", s, s + 1, s + 2, s + 3, s + 4, s + 5) != CATEGORIES) usage();
    for (int c = 0; c < CATEGORIES; c++) mappings[mapping_count].size[c] = size_of_shift(s[c]);
    mapping_count++;
}
static void make_all(void)
{
    unsigned bits[SIZES];
    for (int k = 0; k < SIZES; k++) bits[k] = 48 - shifts[k];
    if (rate < 1) limit = (uint64_t)(rate * 18446744073709551615.0);
    for (unsigned k = 0; k < SIZES; k++) {
        unsigned only[TABLES] = {0};
        only[k] = bits[k];
        stack_make(&distances[k].stack, only);
        table_make(&touched[k], bits[k]);
        table_make(&seen[k], bits[k]);
        distances[k].size = k;
        distances[k].last = NEVER;
        for (unsigned a = 0; a < array_count; a++)
            if (arrays[a].sizes >> k & 1 && arrays[a].entries > distances[k].reach) distances[k].reach = arrays[a].entries;
    }
    for (unsigned i = 0; i < mapping_count; i++) {
        struct mapping *m = &mappings[i];
        m->last = NEVER;
        if (rate < 1) stack_make(&m->stack, bits);
        table_make(&m->number, 48 - 21);
        table_make(&m->walked, 48 - 12);
        table_make(&m->line, 48 - 12 - LINE_BITS);
        for (int level = 0; level < LEVELS; level++)
            for (int k = 0; k < SIZES; k++) {
                m->array[level][k] = -1;
                for (unsigned a = 0; a < array_count; a++)
                    if ((int)arrays[a].level == level + 1 && arrays[a].sizes >> k & 1) m->array[level][k] = (int)a;
            }
        for (unsigned a = 0; a < array_count; a++) m->tags[a] = had(calloc(arrays[a].entries, sizeof(uint64_t)));
    }
}

static void print_row(const char *name, const uint64_t *of, const char *after)
{
    printf("\"%s\": [", name);
    for (int c = 0; c < CATEGORIES; c++) printf("%s%" PRIu64, c ? ", " : "", of[c]);
    printf("]%s", after);
}
static void print_groups(const char *name, const uint64_t *of, const char *after)
{
    printf("\"%s\": [", name);
    for (int g = 0; g < GROUPS; g++) printf("%s%" PRIu64, g ? ", " : "", of[g]);
    printf("]%s", after);
}
static void print_distances(const struct distances *d)
{
    printf("{\"shift\": %u, ", shifts[d->size]);
    print_row("faults", faults[d->size], ", ");
    print_row("pages", pages[d->size], ", ");
    print_row("near", d->near, ", ");
    print_row("cold", d->cold, ", ");
    print_groups("sampled", d->sampled, ", ");
    print_groups("far", d->far, ", ");
    printf("\"far_from\": %" PRIu64 ", \"histogram\": {", d->reach);
    for (int c = 0; c < CATEGORIES; c++) {
        printf("%s\"%s\": [", c ? ", " : "", names[c]);
        const char *between = "";
        for (unsigned i = 0; i < BINS; i++)
            if (d->hist[c][i]) { printf("%s[%" PRIu64 ", %" PRIu64 "]", between, bin_low(i), d->hist[c][i]); between = ", "; }
        printf("]");
    }
    printf("}}");
}
static void print_mapping(const struct mapping *m)
{
    printf("{\"shifts\": [");
    for (int c = 0; c < CATEGORIES; c++) printf("%s%u", c ? ", " : "", shifts[m->size[c]]);
    printf("], ");
    print_row("l1", m->miss[0], ", ");
    print_row("l2", m->miss[1], ", ");
    print_row("store_l1", m->store_miss[0], ", ");
    print_row("store_l2", m->store_miss[1], ", ");
    printf("\"gaps\": [");
    const char *between = "";
    for (int o = 0; o < ORDERS; o++)
        for (int g = 0; g < GAPS; g++)
            if (m->gaps[o][0][g] || m->gaps[o][1][g]) {
                printf("%s[%d, %d, %" PRIu64 ", %" PRIu64 "]", between, o, g, m->gaps[o][0][g], m->gaps[o][1][g]);
                between = ", ";
            }
    printf("], \"regions\": [");
    between = "";
    for (uint32_t r = 0; r < m->regions; r++)
        for (int c = 0; c < CATEGORIES; c++)
            if (m->of[r][c].l1) {
                printf("%s[%d, %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", between, c, m->where[r], m->of[r][c].l1, m->of[r][c].l2);
                between = ", ";
            }
    printf("]}");
}
int main(int argc, char **argv)
{
    unsigned threads = 1;
    for (int option; (option = getopt(argc, argv, "t:m:s:j:")) != -1;) {
        if (option == 't') add_array(optarg);
        else if (option == 'm') add_mapping(optarg);
        else if (option == 's') rate = atof(optarg);
        else if (option == 'j') threads = (unsigned)atoi(optarg);
        else usage();
    }
    if (!(rate > 0 && rate <= 1) || optind != argc || threads < 1 || threads > 1024) usage();
    make_all();
    next_task = mapping_count + SIZES;
    for (unsigned i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0) { perror("pthread_create"); return 3; }
    }
    read_all();
    printf("{\"page_changes\": %" PRIu64 ", \"programs\": %" PRIu64 ", \"forks\": %" PRIu64 ", \"rate\": %.9g,\n", changes, programs, forks, rate);
    printf(" \"begins\": [%" PRIu64 ", %" PRIu64 "],\n ", begins[0], begins[1]);
    print_row("references", references, ",\n ");
    print_row("stores", stores, ",\n \"sizes\": [");
    for (int k = 0; k < SIZES; k++) { printf(k ? ",\n  " : "\n  "); print_distances(&distances[k]); }
    printf("],\n \"mappings\": [");
    for (unsigned i = 0; i < mapping_count; i++) { printf(i ? ",\n  " : "\n  "); print_mapping(&mappings[i]); }
    printf("]}\n");
    return ferror(stdout) || fflush(stdout) ? 3 : 0;
}
