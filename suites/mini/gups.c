/* gups: exclusive-or updates of random words in a big table.
 *
 * Behaves like HPCC RandomAccess and like the hash joins of databases: every update touches a
 * cache line and, with small pages, a translation that nothing has fetched before. The address
 * does not depend on memory, so what limits it is how many misses a core and its node keep in
 * flight, and the TLB: large pages show here first.
 */
#include "mini.h"

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "LOG2_WORDS UPDATES");
    const int64_t bits = argument(argv, 1, "LOG2_WORDS", 4, 40);
    const int64_t updates = argument(argv, 2, "UPDATES", 1, INT64_C(1) << 50);

    const uint64_t words = UINT64_C(1) << bits;
    uint64_t *table = allocate((size_t)words, sizeof *table);
    for (uint64_t i = 0; i < words; i++)
        table[i] = i;

    uint64_t state = 2;
    for (int64_t i = 0; i < updates; i++) {
        uint64_t value = random_bits(&state);
        table[value >> (64 - bits)] ^= value;
    }

    uint64_t sum = 0, untouched = 0;
    for (uint64_t i = 0; i < words; i++) {
        sum = fold(sum, table[i]);
        untouched += table[i] == i;
    }
    printf("words %" PRIu64 " untouched %" PRIu64 "\n", words, untouched);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(table);
    return finish();
}
