/* words: a text is split into words, counted, searched, matched with patterns and rewritten.
 *
 * Behaves like perl and xalan: short strings, a hash table of separately allocated entries,
 * a backtracking matcher, output built byte by byte. The code is spread over many small
 * loops with short, unpredictable trip counts; the data stay within a few tens of megabytes.
 * Limited by branches, the second- and third-level cache, and the allocator.
 *
 * Each round works on the text that the round before wrote.
 */
#include <stdbool.h>
#include <string.h>

#include "mini.h"

enum { VOCABULARY = 20000, LONGEST = 15, NEEDLES = 8, BEST = 3 };

struct entry {
    struct entry *next;
    uint32_t hash;
    uint32_t length;
    uint64_t count;
    char word[];
};

struct table {
    struct entry **slots;
    uint32_t size; /* a power of two */
    uint32_t used;
};

static const char *const PATTERNS[] = {"^[aeiou].*[aeiou]$", "n[aeiou]*t", "s.r.*[lm]", "^.*iou",
                                       "[^aeiou][^aeiou]$"};
enum { PATTERN_COUNT = sizeof PATTERNS / sizeof *PATTERNS };

static bool match_here(const char *pattern, const char *text, const char *end);

/* One character, '.', or a set; *after points behind it in the pattern. */
static bool match_one(const char *pattern, char c, const char **after)
{
    if (*pattern != '[') {
        *after = pattern + 1;
        return *pattern == '.' || *pattern == c;
    }
    bool negated = *++pattern == '^', found = false;
    for (pattern += negated; *pattern != ']'; pattern++)
        found = found || *pattern == c;
    *after = pattern + 1;
    return found != negated;
}

/* The longest run first, then ever shorter ones. */
static bool match_star(const char *unit, const char *rest, const char *text, const char *end)
{
    const char *at = text, *after;
    while (at < end && match_one(unit, *at, &after))
        at++;
    for (; at >= text; at--)
        if (match_here(rest, at, end))
            return true;
    return false;
}

static bool match_here(const char *pattern, const char *text, const char *end)
{
    if (*pattern == '\0')
        return true;
    if (*pattern == '$' && pattern[1] == '\0')
        return text == end;
    const char *after;
    bool fits = match_one(pattern, text < end ? *text : '\0', &after);
    if (*after == '*')
        return match_star(pattern, after + 1, text, end);
    return text < end && fits && match_here(after, text + 1, end);
}

static bool match(const char *pattern, const char *text, const char *end)
{
    if (*pattern == '^')
        return match_here(pattern + 1, text, end);
    for (; text <= end; text++)
        if (match_here(pattern, text, end))
            return true;
    return false;
}

/* Occurrences of a word anywhere, skipping by the text's last character (Horspool). */
static int64_t count_needle(const char *text, int64_t size, const char *needle, int64_t length)
{
    int64_t skip[256], found = 0;
    for (int i = 0; i < 256; i++)
        skip[i] = length;
    for (int64_t i = 0; i < length - 1; i++)
        skip[(uint8_t)needle[i]] = length - 1 - i;
    for (int64_t at = 0; at + length <= size; at += skip[(uint8_t)text[at + length - 1]])
        found += memcmp(text + at, needle, (size_t)length) == 0;
    return found;
}

static void grow(struct table *table)
{
    uint32_t size = table->size * 2;
    struct entry **slots = allocate(size, sizeof *slots);
    memset(slots, 0, size * sizeof *slots);
    for (uint32_t i = 0; i < table->size; i++)
        for (struct entry *e = table->slots[i], *next; e != NULL; e = next) {
            next = e->next;
            e->next = slots[e->hash & (size - 1)];
            slots[e->hash & (size - 1)] = e;
        }
    free(table->slots);
    table->slots = slots;
    table->size = size;
}

static struct entry *count_word(struct table *table, const char *word, uint32_t length)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)word[i]) * 16777619u;
    struct entry *e = table->slots[hash & (table->size - 1)];
    while (e != NULL && (e->hash != hash || e->length != length ||
                         memcmp(e->word, word, length) != 0))
        e = e->next;
    if (e == NULL) {
        if (table->used++ == table->size)
            grow(table);
        e = allocate(1, sizeof *e + length);
        struct entry **slot = &table->slots[hash & (table->size - 1)];
        *e = (struct entry){*slot, hash, length, 0};
        memcpy(e->word, word, length);
        *slot = e;
    }
    e->count++;
    return e;
}

/* More frequent, or as frequent and first in the alphabet. */
static bool ranks_before(const struct entry *a, const struct entry *b)
{
    if (b == NULL || a->count != b->count)
        return b == NULL || a->count > b->count;
    int order = memcmp(a->word, b->word, a->length < b->length ? a->length : b->length);
    return order != 0 ? order < 0 : a->length < b->length;
}

/* The most frequent words, best first; empties the table. */
static uint64_t report(struct table *table, bool print)
{
    struct entry *best[BEST + 1] = {NULL};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < table->size; i++)
        for (struct entry *e = table->slots[i]; e != NULL; e = e->next) {
            sum += scramble(e->count << 32 | e->hash); /* whatever the order of the slots */
            int at = BEST;
            for (; at > 0 && ranks_before(e, best[at - 1]); at--)
                best[at] = best[at - 1];
            best[at] = e;
        }
    for (int i = 0; print && i < BEST && best[i] != NULL; i++)
        printf("word %.*s count %" PRIu64 "\n", (int)best[i]->length, best[i]->word,
               best[i]->count);
    for (uint32_t i = 0; i < table->size; i++)
        for (struct entry *e = table->slots[i], *next; e != NULL; e = next) {
            next = e->next;
            free(e);
        }
    memset(table->slots, 0, table->size * sizeof *table->slots);
    table->used = 0;
    return sum;
}

/* Lines of words from a made-up vocabulary, the first of which are the most frequent. */
static void write_text(char *text, int64_t size, uint64_t *state)
{
    char (*words)[LONGEST + 1] = allocate(VOCABULARY, sizeof *words);
    for (int i = 0; i < VOCABULARY; i++) {
        uint32_t length = 2 + random_below(state, LONGEST - 2);
        for (uint32_t k = 0; k < length; k++)
            words[i][k] = random_below(state, 2) ? "aeiou"[random_below(state, 5)]
                                                 : "bcdfghlmnprst"[random_below(state, 13)];
        words[i][length] = '\0';
    }
    for (int64_t at = 0; at < size;) {
        double u = random_unit(state);
        for (const char *c = words[(int)(u * u * u * VOCABULARY)]; *c != '\0' && at < size;)
            text[at++] = *c++;
        if (at < size)
            text[at++] = random_below(state, 9) ? ' ' : '\n';
    }
    free(words);
}

/* The next round's text: reversed words where a pattern matched, all others turned by a letter. */
static void rewrite(char *to, const char *word, uint32_t length, bool matched)
{
    for (uint32_t i = 0; i < length; i++)
        to[i] = matched ? word[length - 1 - i] : word[(i + 1) % length];
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "TEXT_BYTES ROUNDS");
    const int64_t size = argument(argv, 1, "TEXT_BYTES", 1000, INT64_C(1) << 31);
    const int64_t rounds = argument(argv, 2, "ROUNDS", 1, 1000000);

    char *text = allocate((size_t)size, 1), *other = allocate((size_t)size, 1);
    struct table table = {allocate(1024, sizeof *table.slots), 1024, 0};
    memset(table.slots, 0, table.size * sizeof *table.slots);
    uint64_t state = 12, sum = 0;
    write_text(text, size, &state);

    int64_t words = 0, matches = 0, needles = 0;
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t at = 0; at < size;) {
            int64_t end = at;
            while (end < size && text[end] != ' ' && text[end] != '\n')
                end++;
            uint32_t length = (uint32_t)(end - at);
            bool matched = false;
            if (length > 0) {
                struct entry *entry = count_word(&table, text + at, length);
                const char *pattern = PATTERNS[(entry->count + (uint64_t)round) % PATTERN_COUNT];
                matched = match(pattern, text + at, text + end);
                words++;
                matches += matched;
            }
            rewrite(other + at, text + at, length, matched);
            if (end < size)
                other[end] = text[end];
            at = end + 1;
        }
        for (int i = 0; i < NEEDLES; i++) {
            int64_t length = 4 + random_below(&state, 6);
            int64_t from = random_below(&state, (uint32_t)(size - length));
            needles += count_needle(text, size, text + from, length);
        }
        sum = fold(sum, report(&table, round == rounds - 1));
        char *swap = text;
        text = other;
        other = swap;
    }
    printf("words %" PRId64 " matches %" PRId64 " needles %" PRId64 "\n", words, matches, needles);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(table.slots);
    free(text);
    free(other);
    return finish();
}
