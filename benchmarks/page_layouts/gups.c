/* gups MEGABYTES MILLIONS: random updates of a table on the heap. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
    uint64_t bytes = (count > 1 ? strtoull(words[1], NULL, 10) : 512) << 20, mask = bytes / 8 - 1;
    uint64_t updates = (count > 2 ? strtoull(words[2], NULL, 10) : 8) * 1000000, x = 88172645463325252u;
    uint64_t *table = malloc(bytes);
    if (table == NULL) return 1;
    for (uint64_t i = 0; i <= mask; i += 512) table[i] = i;
    for (uint64_t i = 0; i < updates; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        table[x & mask] ^= x;
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i <= mask; i += 512) sum ^= table[i];
    printf("%llx\n", (unsigned long long)sum);
    return 0;
}
