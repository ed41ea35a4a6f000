/* triad: a = b + s * c over three long arrays of doubles.
 *
 * Behaves like STREAM and the vector loops of large solvers: every element is read or written
 * once a pass, in order, so that prefetchers do all they can and the limit is memory bandwidth
 * (of the node, or of the link to it, once several copies run).
 *
 * After each pass the arrays change places, so that a pass uses what the one before wrote.
 * With the sign of s alternating, two passes are a rotation (trace 2 - s * s, determinant 1):
 * the values stay bounded however many passes there are.
 */
#include "mini.h"

static void triad(double *restrict a, const double *restrict b, const double *restrict c,
                  double s, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        a[i] = b[i] + s * c[i];
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "ELEMENTS PASSES");
    const int64_t count = argument(argv, 1, "ELEMENTS", 1, INT64_C(1) << 40);
    const int64_t passes = argument(argv, 2, "PASSES", 1, 1000000000);

    double *a = allocate((size_t)count, sizeof *a);
    double *b = allocate((size_t)count, sizeof *b);
    double *c = allocate((size_t)count, sizeof *c);
    uint64_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        a[i] = 0.0;
        b[i] = 0.5 + random_unit(&state);
        c[i] = 0.5 + random_unit(&state);
    }

    for (int64_t pass = 0; pass < passes; pass++) {
        triad(a, b, c, pass % 2 == 0 ? 0.75 : -0.75, count);
        double *oldest = b;
        b = c;
        c = a;
        a = oldest;
    }

    double squares = 0.0, weighted = 0.0;
    for (int64_t i = 0; i < count; i++) {
        squares += b[i] * b[i] + c[i] * c[i];
        weighted += (double)(i % 7 + 1) * c[i] * c[i];
    }
    printf("mean square %.9e\n", squares / (double)count);
    printf("weighted %.9e\n", weighted / (double)count);
    printf("first %.9e last %.9e\n", c[0], c[count - 1]);
    free(a);
    free(b);
    free(c);
    return finish();
}
