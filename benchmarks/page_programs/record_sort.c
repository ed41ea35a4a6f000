/* Records of 100 bytes sorted by their first ten, by pointers, then written in their order. */
#include "program.h"

enum { RECORDS = 600000, BYTES = 100, KEY = 10 };

static int by_key(const void *a, const void *b)
{
    return memcmp(*(char *const *)a, *(char *const *)b, KEY);
}

int main(void)
{
    char *records = allocate((size_t)RECORDS * BYTES), *sorted = allocate((size_t)RECORDS * BYTES);
    char **pointers = allocate(RECORDS * sizeof *pointers);
    uint64_t sum = 0;
    for (size_t i = 0; i < RECORDS; i++) {
        pointers[i] = records + i * BYTES;
        for (int at = 0; at < BYTES; at++) pointers[i][at] = at < KEY ? (char)(random_bits() % 95 + 32) : (char)at;
    }
    qsort(pointers, RECORDS, sizeof *pointers, by_key);
    for (size_t i = 0; i < RECORDS; i++) memcpy(sorted + i * BYTES, pointers[i], BYTES);
    for (size_t i = 0; i < RECORDS; i++) sum = mixed(sum, (unsigned char)sorted[i * BYTES + i % KEY]);
    printf("sum %llx\n", (unsigned long long)sum);
    return 0;
}
