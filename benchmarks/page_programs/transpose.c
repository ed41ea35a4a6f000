/* A matrix of doubles transposed element by element, row by row, and back again. */
#include "program.h"

enum { SIDE = 3000 };

static void transpose(double *to, const double *from)
{
    for (size_t row = 0; row < SIDE; row++)
        for (size_t column = 0; column < SIDE; column++) to[column * SIDE + row] = from[row * SIDE + column];
}

int main(void)
{
    double *matrix = allocate(sizeof(double) * SIDE * SIDE), *other = allocate(sizeof(double) * SIDE * SIDE);
    double sum = 0;
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++) matrix[i] = (double)(i * 7 % 1000);
    for (int pass = 0; pass < 2; pass++) {
        transpose(other, matrix);
        transpose(matrix, other);
    }
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i += 997) sum += matrix[i] * (double)(i % 31);
    printf("sum %.0f\n", sum);
    return 0;
}
