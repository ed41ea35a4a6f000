/* Three kinds of data: a static table (96 MB), small blocks in a list (64 MB of malloc), a large array
 * (192 MB of malloc).
 *
 *   page_mixed STEPS STATIC% NODES% dependent|independent
 *
 * A step reads one of them at random, by these shares; the rest of the steps the array. Dependent: the
 * next place depends on what was read.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE = 12 << 20, ARRAY = 24 << 20, NODES = 1000000 };
static uint64_t table[TABLE];
struct node { struct node *next; uint64_t value[5]; };

static inline uint64_t bits(uint64_t *x)
{
    *x ^= *x << 13; *x ^= *x >> 7; *x ^= *x << 17;
    return *x * 0x2545F4914F6CDD1Dull;
}
static inline uint64_t below(uint64_t v, uint64_t n) { return (uint64_t)(((unsigned __int128)v * n) >> 64); }

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    long steps = atol(argv[1]);
    int of_table = atoi(argv[2]), of_nodes = atoi(argv[3]), dependent = !strcmp(argv[4], "dependent");
    uint64_t state = 88172645463325252ull, sum = 0;
    uint64_t *array = malloc(ARRAY * sizeof *array);
    struct node **all = malloc(NODES * sizeof *all), *at;
    for (uint64_t i = 0; i < NODES; i++) { all[i] = malloc(sizeof **all); all[i]->value[0] = i; }
    for (uint64_t i = NODES - 1; i > 0; i--) {
        uint64_t j = below(bits(&state), i + 1);
        struct node *was = all[i];
        all[i] = all[j];
        all[j] = was;
    }
    for (uint64_t i = 0; i < NODES; i++) all[i]->next = all[(i + 1) % NODES];
    at = all[0];
    free(all);
    for (uint64_t i = 0; i < ARRAY; i += 512) array[i] = i;
    for (uint64_t i = 0; i < TABLE; i += 512) table[i] = i;
    for (long i = 0; i < steps; i++) {
        uint64_t r = bits(&state) ^ (dependent ? sum & 1 : 0);
        int which = (int)(r % 100);
        if (which < of_table) sum += table[below(r, TABLE)];
        else if (which < of_table + of_nodes) { sum += at->value[0]; at = at->next; }
        else sum += array[below(r, ARRAY)];
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
