/* stencil: explicit steps of heat conduction on a cube, 7 points, conductivity per cell.
 *
 * Behaves like bwaves, lbm and other codes on regular grids: long streams with reuse between
 * neighbouring planes. Three planes of the input want to stay in a cache; whatever does not
 * fit is fetched again, so the limit is memory bandwidth, or the last-level cache and whom it
 * is shared with.
 */
#include "mini.h"

static void step(double *restrict after, const double *restrict before,
                 const double *restrict conductivity, int64_t edge)
{
    const int64_t plane = edge * edge;
    for (int64_t z = 1; z < edge - 1; z++)
        for (int64_t y = 1; y < edge - 1; y++) {
            const int64_t row = z * plane + y * edge;
            for (int64_t i = row + 1; i < row + edge - 1; i++) {
                double around = before[i - 1] + before[i + 1] + before[i - edge] +
                                before[i + edge] + before[i - plane] + before[i + plane];
                after[i] = before[i] + conductivity[i] * (around - 6.0 * before[i]);
            }
        }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "EDGE STEPS");
    const int64_t edge = argument(argv, 1, "EDGE", 3, 10000);
    const int64_t steps = argument(argv, 2, "STEPS", 1, 1000000000);

    const int64_t cells = edge * edge * edge;
    double *heat = allocate((size_t)cells, sizeof *heat);
    double *other = allocate((size_t)cells, sizeof *other);
    double *conductivity = allocate((size_t)cells, sizeof *conductivity);
    uint64_t state = 4;
    for (int64_t i = 0; i < cells; i++) {
        /* Below 1/6 everywhere: the explicit step is stable. */
        conductivity[i] = 0.02 + 0.14 * random_unit(&state);
        heat[i] = 100.0 * random_unit(&state);
        other[i] = heat[i]; /* the walls are never written again */
    }

    for (int64_t i = 0; i < steps; i++) {
        step(other, heat, conductivity, edge);
        double *swap = heat;
        heat = other;
        other = swap;
    }

    double total = 0.0, squares = 0.0, hottest = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        total += heat[i];
        squares += heat[i] * heat[i];
        hottest = heat[i] > hottest ? heat[i] : hottest;
    }
    printf("mean %.9e\n", total / (double)cells);
    printf("mean square %.9e\n", squares / (double)cells);
    printf("hottest %.9e centre %.9e\n", hottest, heat[cells / 2]);
    free(heat);
    free(other);
    free(conductivity);
    return finish();
}
