/* stream: one of STREAM's four kernels, PASSES times over arrays of ELEMENTS doubles.
 *
 *   copy   a = b          16 bytes an element       add    a = b + c        24 bytes
 *   scale  a = s * b      16 bytes                  triad  a = b + s * c    24 bytes
 *
 * Counted as STREAM counts (McCalpin): what the program reads and writes, not what a cache reads
 * in order to write. The compiler may turn `copy` into a call of memcpy, as it may in STREAM:
 * where that writes past the caches, copy is faster than scale.
 *
 * The first pass is not timed. The bandwidth is the mean over all others: STREAM's best pass is
 * right for one program that has the machine for itself, but the best passes of many copies need
 * not have happened at the same time, and their sum may be more than the machine can do.
 */
#include <string.h>

#include "../mini/clock.h"

/* Never inlined, and nothing may be assumed about memory behind it: each pass is done. */
typedef void kernel_function(double *restrict a, const double *restrict b,
                             const double *restrict c, double s, int64_t count);

__attribute__((noinline)) static void copy(double *restrict a, const double *restrict b,
                                           const double *restrict c, double s, int64_t count)
{
    (void)c, (void)s;
    for (int64_t i = 0; i < count; i++)
        a[i] = b[i];
}

__attribute__((noinline)) static void scale(double *restrict a, const double *restrict b,
                                            const double *restrict c, double s, int64_t count)
{
    (void)c;
    for (int64_t i = 0; i < count; i++)
        a[i] = s * b[i];
}

__attribute__((noinline)) static void add(double *restrict a, const double *restrict b,
                                          const double *restrict c, double s, int64_t count)
{
    (void)s;
    for (int64_t i = 0; i < count; i++)
        a[i] = b[i] + c[i];
}

__attribute__((noinline)) static void triad(double *restrict a, const double *restrict b,
                                            const double *restrict c, double s, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        a[i] = b[i] + s * c[i];
}

struct kernel {
    const char *name;
    kernel_function *run;
    int arrays;
    double of_b, of_c; /* a = of_b * b + of_c * c, to be checked */
};

static const double S = 3.0;
static const struct kernel KERNELS[] = {
    {"copy", copy, 2, 1.0, 0.0},
    {"scale", scale, 2, 3.0, 0.0},
    {"add", add, 3, 1.0, 1.0},
    {"triad", triad, 3, 1.0, 3.0},
};

static const struct kernel *kernel_called(const char *name)
{
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (strcmp(KERNELS[i].name, name) == 0)
            return &KERNELS[i];
    die("there is no kernel '%s', expected copy, scale, add or triad", name);
}

/* Small whole numbers, different from element to element: every result is exact. */
static double b_value(int64_t i)
{
    return (double)(1 + i % 1021);
}

static double c_value(int64_t i)
{
    return (double)(1 + i % 509);
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 3, "copy|scale|add|triad ELEMENTS PASSES");
    const struct kernel *kernel = kernel_called(argv[1]);
    const int64_t count = argument(argv, 2, "ELEMENTS", 1, INT64_C(1) << 40);
    const int64_t passes = argument(argv, 3, "PASSES", 1, 1000000000);

    double *a = allocate((size_t)count, sizeof *a);
    double *b = allocate((size_t)count, sizeof *b);
    double *c = kernel->arrays > 2 ? allocate((size_t)count, sizeof *c) : NULL;
    for (int64_t i = 0; i < count; i++) {
        a[i] = 0.0;
        b[i] = b_value(i);
        if (c != NULL)
            c[i] = c_value(i);
    }

    double start_s = 0.0;
    for (int64_t pass = -1; pass < passes; pass++) {
        if (pass == 0)
            start_s = now_s();
        kernel->run(a, b, c, S, count);
        __asm__ volatile("" : : "r"(a) : "memory");
    }
    const double elapsed_s = now_s() - start_s;

    int64_t errors = 0;
    for (int64_t i = 0; i < count; i++)
        errors += a[i] != kernel->of_b * b_value(i) + kernel->of_c * c_value(i);
    printf("%s %" PRId64 " elements %" PRId64 " passes errors %" PRId64 "\n", kernel->name, count,
           passes, errors);
    const double bytes = (double)passes * (double)count * kernel->arrays * sizeof *a;
    printf("bandwidth %.4f GB/s\n", bytes / elapsed_s * 1e-9);
    free(a);
    free(b);
    free(c);
    return finish();
}
