/* A picture of three planes blurred along rows, then along columns, then sharpened by the difference. */
#include "program.h"

enum { WIDTH = 3000, HEIGHT = 2000, PLANES = 3, RADIUS = 4, WINDOW = 2 * RADIUS + 1 };

static void blur(float *to, const float *from, size_t lines, size_t line_step, size_t points, size_t step)
{
    for (size_t line = 0; line < lines; line++) {
        const float *in = from + line * line_step;
        float *out = to + line * line_step, sum = 0;
        for (size_t i = 0; i < WINDOW; i++) sum += in[i * step];
        for (size_t i = RADIUS; i + RADIUS + 1 < points; i++) {
            out[i * step] = sum / WINDOW;
            sum += in[(i + RADIUS + 1) * step] - in[(i - RADIUS) * step];
        }
    }
}

int main(void)
{
    const size_t plane = (size_t)WIDTH * HEIGHT;
    float *picture = allocate(PLANES * plane * sizeof *picture);
    double sum = 0;
    for (size_t i = 0; i < PLANES * plane; i++) picture[i] = (float)(i % 251);
    for (size_t p = 0; p < PLANES; p++) {
        float *rows = allocate(plane * sizeof *rows), *columns = allocate(plane * sizeof *columns);
        memcpy(rows, picture + p * plane, plane * sizeof *rows);
        memcpy(columns, rows, plane * sizeof *rows);
        blur(rows, picture + p * plane, HEIGHT, WIDTH, WIDTH, 1);
        blur(columns, rows, WIDTH, 1, HEIGHT, WIDTH);
        for (size_t i = 0; i < plane; i++) picture[p * plane + i] += .5f * (picture[p * plane + i] - columns[i]);
        free(rows);
        free(columns);
    }
    for (size_t i = 0; i < PLANES * plane; i += 101) sum += picture[i];
    printf("sum %.0f\n", sum);
    return 0;
}
