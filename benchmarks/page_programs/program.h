/* What the ten programs share: random numbers, memory that is there or the end, a mixed checksum. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 88172645463325252ull;

/* Marsaglia's xorshift64. */
static inline uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static inline void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fputs("error: no memory\n", stderr);
        exit(1);
    }
    return memory;
}

static inline uint64_t mixed(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * 0x9e3779b97f4a7c15ull;
}
