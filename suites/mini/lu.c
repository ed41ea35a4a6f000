/* lu: dense systems solved by blocked LU factorisation with partial pivoting.
 *
 * Behaves like Linpack: nearly all the time goes into subtracting the product of two thin
 * matrices from the rest, in tiles that stay in the second-level cache. Limited by the
 * floating-point units and the vector width that the compiler uses; memory matters little.
 *
 * The matrix can be computed entry by entry, so the residual of the solution is checked
 * against the original although the factors have overwritten it.
 *
 * The rate of the factorisations and solutions alone goes to standard error: it differs from run
 * to run. It is the mean over all systems, not the best one, so that the rates of copies that work
 * at the same time may be added up. Counted as Linpack counts: 2/3 n^3 + 3/2 n^2 for a system.
 */
#include <float.h>
#include <math.h>

#include "clock.h"

enum { BLOCK = 64, TILE = 256 };

static double entry(uint64_t seed, int64_t row, int64_t column)
{
    uint64_t bits = scramble(seed ^ ((uint64_t)row << 32 | (uint64_t)column));
    return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

static void swap_rows(double *x, double *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double keep = x[i];
        x[i] = y[i];
        y[i] = keep;
    }
}

/* Factors columns first .. last - 1 below the diagonal, exchanging whole rows. */
static void factor_panel(double *a, int64_t n, int64_t first, int64_t last, int64_t *pivots)
{
    for (int64_t k = first; k < last; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k]))
                pivot = i;
        pivots[k] = pivot;
        if (a[pivot * n + k] == 0.0)
            die("the matrix is singular in column %" PRId64, k);
        if (pivot != k)
            swap_rows(&a[k * n], &a[pivot * n], n);
        for (int64_t i = k + 1; i < n; i++) {
            double factor = a[i * n + k] / a[k * n + k];
            a[i * n + k] = factor;
            for (int64_t j = k + 1; j < last; j++)
                a[i * n + j] -= factor * a[k * n + j];
        }
    }
}

/* Two rows minus four multiples of each of four other rows: 16 flops for 6 loads. */
static void update_pair(double *restrict x, double *restrict y, const double *lx,
                        const double *ly, const double *restrict u, int64_t stride,
                        int64_t width)
{
    const double *u0 = u, *u1 = u + stride, *u2 = u1 + stride, *u3 = u2 + stride;
    for (int64_t j = 0; j < width; j++) {
        x[j] -= (lx[0] * u0[j] + lx[1] * u1[j]) + (lx[2] * u2[j] + lx[3] * u3[j]);
        y[j] -= (ly[0] * u0[j] + ly[1] * u1[j]) + (ly[2] * u2[j] + ly[3] * u3[j]);
    }
}

/* Rows last .. n - 1 of the columns from `last` on, minus L (n x block) times U (block x n). */
static void update_rest(double *a, int64_t n, int64_t first, int64_t last)
{
    for (int64_t tile = last; tile < n; tile += TILE) {
        int64_t width = n - tile < TILE ? n - tile : TILE;
        for (int64_t i = last; i < n; i += 2)
            for (int64_t k = first; k < last; k += 4)
                update_pair(&a[i * n + tile], &a[(i + 1) * n + tile], &a[i * n + k],
                            &a[(i + 1) * n + k], &a[k * n + tile], n, width);
    }
}

static void factor(double *a, int64_t n, int64_t *pivots)
{
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t last = first + BLOCK;
        factor_panel(a, n, first, last, pivots);
        for (int64_t k = first; k < last; k++) /* U to the right of the panel */
            for (int64_t i = k + 1; i < last; i++)
                for (int64_t j = last; j < n; j++)
                    a[i * n + j] -= a[i * n + k] * a[k * n + j];
        update_rest(a, n, first, last);
    }
}

/* x holds the right-hand side and becomes the solution. */
static void solve(const double *a, int64_t n, const int64_t *pivots, double *x)
{
    for (int64_t k = 0; k < n; k++)
        swap_rows(&x[k], &x[pivots[k]], 1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            x[i] -= a[i * n + j] * x[j];
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < n; j++)
            x[i] -= a[i * n + j] * x[j];
        x[i] /= a[i * n + i];
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "ORDER SYSTEMS");
    const int64_t n = argument(argv, 1, "ORDER", BLOCK, 100000);
    const int64_t systems = argument(argv, 2, "SYSTEMS", 1, 1000000);
    if (n % BLOCK != 0)
        die("ORDER is %" PRId64 ", expected a multiple of %d", n, BLOCK);

    double *a = allocate((size_t)(n * n), sizeof *a);
    double *x = allocate((size_t)n, sizeof *x);
    int64_t *pivots = allocate((size_t)n, sizeof *pivots);
    double logarithm = 0.0, norm = 0.0, elapsed_s = 0.0;
    int64_t exchanges = 0;
    for (int64_t system = 0; system < systems; system++) {
        uint64_t seed = scramble((uint64_t)system + 5);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++)
                a[i * n + j] = entry(seed, i, j);
            x[i] = entry(seed, i, n);
        }
        double start_s = now_s();
        factor(a, n, pivots);
        solve(a, n, pivots, x);
        elapsed_s += now_s() - start_s;

        double worst = 0.0, size = 0.0;
        for (int64_t i = 0; i < n; i++) {
            double rest = entry(seed, i, n);
            for (int64_t j = 0; j < n; j++)
                rest -= entry(seed, i, j) * x[j];
            worst = fmax(worst, fabs(rest));
            size = fmax(size, fabs(x[i]));
            norm += x[i] * x[i];
            logarithm += log(fabs(a[i * n + i]));
            exchanges += pivots[i] != i;
        }
        if (worst > 16.0 * (double)n * DBL_EPSILON * (size * (double)n + 1.0))
            die("system %" PRId64 " has a residual of %g", system, worst);
    }
    printf("systems %" PRId64 " of order %" PRId64 " row exchanges %" PRId64 "\n", systems, n,
           exchanges);
    printf("log determinants %.9e\n", logarithm);
    printf("solution norm %.9e\n", sqrt(norm));
    const double order = (double)n;
    const double flops = order * order * (2.0 / 3.0 * order + 1.5) * (double)systems;
    fprintf(stderr, "rate %.4f GFLOP/s\n", flops / elapsed_s * 1e-9);
    free(a);
    free(x);
    free(pivots);
    return finish();
}
