/* Invented words for the generators of suite `system`, used about as often as words of a language:
 * the n-th most frequent one 1/n times as often as the first (Zipf), and some words follow one
 * another more often than chance. Integers only, so that every machine writes the same bytes.
 */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include <string.h>

#include "../mini/mini.h"

enum { WORD_BITS = 13, WORDS = (1 << WORD_BITS) - 1, FOLLOWERS = 4, WORD_ROOM = 16 };

struct vocabulary {
    char word[WORDS][WORD_ROOM];
    uint32_t follower[WORDS][FOLLOWERS];
};

/* Each power of two of ranks is as likely as any other: 1/n, without floating point. */
static inline uint32_t frequent_word(uint64_t *state)
{
    uint32_t first = UINT32_C(1) << random_below(state, WORD_BITS);
    return first - 1 + random_below(state, first);
}

static inline uint32_t next_word(const struct vocabulary *v, uint64_t *state, uint32_t last)
{
    if (random_below(state, 3) == 0)
        return v->follower[last][random_below(state, FOLLOWERS)];
    return frequent_word(state);
}

static inline struct vocabulary *new_vocabulary(uint64_t seed)
{
    static const char *const starts[] = {"b",  "d",  "f",  "g",  "h",  "k",  "l",  "m",
                                         "n",  "p",  "r",  "s",  "t",  "v",  "w",  "st",
                                         "tr", "pl", "sh", "br", "",   "ch", "gr", "th"};
    static const char *const middles[] = {"a", "e", "i", "o", "u", "ea", "ou", "ai"};
    static const char *const ends[] = {"", "", "", "n", "r", "s", "t", "l"};
    struct vocabulary *v = allocate(1, sizeof *v);
    uint64_t state = seed;
    for (uint32_t i = 0; i < WORDS; i++) {
        /* frequent words are short, as in languages: at most 3 syllables of at most 5 letters */
        uint32_t syllables = i < 63 ? 1 : 1 + random_below(&state, i < 1023 ? 2 : 3);
        v->word[i][0] = '\0';
        do {
            strcat(v->word[i], starts[random_below(&state, 24)]);
            strcat(v->word[i], middles[random_below(&state, 8)]);
            strcat(v->word[i], ends[random_below(&state, 8)]);
        } while (--syllables > 0);
        for (int j = 0; j < FOLLOWERS; j++)
            v->follower[i][j] = frequent_word(&state);
    }
    return v;
}

static inline FILE *create(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        die("cannot create %s", path);
    return file;
}

/* The value of main(): a file that is not whole must not look like a success. */
static inline int finish_file(FILE *file, const char *path)
{
    int failed = ferror(file);
    if (fclose(file) != 0 || failed)
        die("cannot write %s", path);
    return finish();
}

#endif
