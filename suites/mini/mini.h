/* What the kernels of suite `mini` share: errors, memory, arguments, random numbers, checksums. */
#ifndef MINI_H
#define MINI_H

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Says what went wrong on standard error and ends the program with status 1. */
__attribute__((format(printf, 1, 2))) _Noreturn static inline void die(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

/* `count` items of `size` bytes, not cleared; never NULL. */
static inline void *allocate(size_t count, size_t size)
{
    if (count == 0 || size == 0 || count > SIZE_MAX / size)
        die("cannot allocate %zu items of %zu bytes", count, size);
    void *memory = malloc(count * size);
    if (memory == NULL)
        die("out of memory: cannot allocate %zu bytes", count * size);
    return memory;
}

static inline void expect_arguments(int argc, char **argv, int count, const char *names)
{
    if (argc != count + 1)
        die("usage: %s %s", argc > 0 ? argv[0] : "program", names);
}

/* argv[index] as an integer from least to most; anything else ends the program. */
static inline int64_t argument(char **argv, int index, const char *name, int64_t least,
                               int64_t most)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(argv[index], &end, 10);
    if (errno != 0 || end == argv[index] || *end != '\0' || value < least || value > most)
        die("%s is '%s', expected an integer from %" PRId64 " to %" PRId64, name, argv[index],
            least, most);
    return value;
}

/* A counter scrambled by a bijection of 64 bits (Steele, Lea, Flood 2014): any seed will do. */
static inline uint64_t scramble(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

static inline uint64_t random_bits(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    return scramble(*state);
}

/* 0 .. limit - 1 */
static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(((random_bits(state) >> 32) * limit) >> 32);
}

/* [0, 1), the same on every machine: 53 bits, exactly representable. */
static inline double random_unit(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) * 0x1p-53;
}

/* A checksum that depends on the order of what is folded into it. */
static inline uint64_t fold(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0xD6E8FEB86659FD93);
    return sum ^ (sum >> 32);
}

/* The value of main(): a result that could not be written must not look like a success. */
static inline int finish(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        die("cannot write the result to standard output");
    return 0;
}

#endif
