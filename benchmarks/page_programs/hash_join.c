/* A hash join: rows of one table chained in buckets of blocks of memory, probed by another's. */
#include "program.h"

enum { BUILD_ROWS = 3000000, PROBE_ROWS = 4000000, BUCKETS = 1 << 20 };
struct row { uint64_t key, value; uint32_t next; };

int main(void)
{
    struct row *rows = allocate((BUILD_ROWS + 1) * sizeof *rows);
    uint32_t *buckets = allocate(BUCKETS * sizeof *buckets);
    uint64_t sum = 0, matches = 0;
    memset(buckets, 0, BUCKETS * sizeof *buckets);
    for (uint32_t row = 1; row <= BUILD_ROWS; row++) {
        uint64_t key = random_bits() % (4 * BUILD_ROWS), bucket = key * 0x9e3779b97f4a7c15ull >> 44;
        rows[row] = (struct row){key, row, buckets[bucket]};
        buckets[bucket] = row;
    }
    for (int probe = 0; probe < PROBE_ROWS; probe++) {
        uint64_t key = random_bits() % (4 * BUILD_ROWS);
        for (uint32_t row = buckets[key * 0x9e3779b97f4a7c15ull >> 44]; row; row = rows[row].next)
            if (rows[row].key == key) { sum = mixed(sum, rows[row].value); matches++; }
    }
    printf("%llu matches, sum %llx\n", (unsigned long long)matches, (unsigned long long)sum);
    return 0;
}
