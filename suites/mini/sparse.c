/* sparse: reads a large symmetric matrix from a file, then solves systems with it.
 *
 * Behaves like soplex and other solvers whose run begins with a big input: many copies that
 * start together all read at once, from disk or from the page cache of one node. Then entries
 * are sorted into compressed rows (scattered writes), and conjugate gradients with diagonal
 * scaling run through the matrix again and again: memory bandwidth plus gathers.
 *
 * The result printed is x.b, the energy: its error is the square of the residual's, so it does
 * not depend on how the compiler orders the roundings.
 */
#include <math.h>
#include <string.h>

#include "mini.h"
#include "sparse.h"

struct matrix {
    int64_t rows;
    int64_t *start; /* rows + 1 */
    int32_t *column;
    double *value;
    double *diagonal;
};

static struct sparse_entry *read_file(const char *path, struct sparse_header *header)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        die("cannot open %s: %s", path, strerror(errno));
    if (fread(header, sizeof *header, 1, file) != 1 || header->magic != SPARSE_MAGIC)
        die("%s is not a matrix written by gen_sparse on this kind of machine", path);
    if (header->rows < 1 || header->rows > INT32_MAX || header->entries < header->rows)
        die("%s has %" PRId64 " rows, %" PRId64 " entries", path, header->rows, header->entries);
    size_t count = (size_t)header->entries;
    struct sparse_entry *entries = allocate(count, sizeof *entries);
    if (fread(entries, sizeof *entries, count, file) != count)
        die("%s ends early: %zu entries expected", path, count);
    fclose(file);
    return entries;
}

/* Both triangles in compressed rows, the diagonal apart. */
static struct matrix build(const struct sparse_entry *entries, const struct sparse_header *header)
{
    const int64_t rows = header->rows;
    struct matrix m = {rows, allocate((size_t)rows + 1, sizeof *m.start), NULL, NULL,
                       allocate((size_t)rows, sizeof *m.diagonal)};
    memset(m.start, 0, ((size_t)rows + 1) * sizeof *m.start);
    for (int64_t i = 0; i < header->entries; i++) {
        int32_t row = entries[i].row, column = entries[i].column;
        if (column < 0 || column > row || row >= rows)
            die("entry %" PRId64 " lies outside the lower triangle", i);
        if (row != column) {
            m.start[row + 1]++;
            m.start[column + 1]++;
        }
    }
    for (int64_t i = 0; i < rows; i++)
        m.start[i + 1] += m.start[i];

    m.column = allocate((size_t)m.start[rows] + 1, sizeof *m.column);
    m.value = allocate((size_t)m.start[rows] + 1, sizeof *m.value);
    int64_t *next = allocate((size_t)rows, sizeof *next);
    memcpy(next, m.start, (size_t)rows * sizeof *next);
    for (int64_t i = 0; i < header->entries; i++) {
        const struct sparse_entry e = entries[i];
        if (e.row == e.column) {
            m.diagonal[e.row] = e.value;
            continue;
        }
        m.column[next[e.row]] = e.column;
        m.value[next[e.row]++] = e.value;
        m.column[next[e.column]] = e.row;
        m.value[next[e.column]++] = e.value;
    }
    free(next);
    return m;
}

/* y = A x; returns x.y */
static double multiply(const struct matrix *m, const double *restrict x, double *restrict y)
{
    double product = 0.0;
    for (int64_t i = 0; i < m->rows; i++) {
        double sum = m->diagonal[i] * x[i];
        for (int64_t k = m->start[i]; k < m->start[i + 1]; k++)
            sum += m->value[k] * x[m->column[k]];
        y[i] = sum;
        product += sum * x[i];
    }
    return product;
}

/* Solves A x = b until the scaled residual has fallen by 1e-7; returns the iterations. */
static int64_t solve(const struct matrix *m, const double *b, double *x, double *r, double *p,
                     double *ap)
{
    const int64_t rows = m->rows;
    double rho = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        x[i] = 0.0;
        r[i] = b[i];
        p[i] = r[i] / m->diagonal[i];
        rho += r[i] * p[i];
    }
    const double target = rho * 1e-14;
    int64_t iterations = 0;
    while (rho > target) {
        if (++iterations > 10000)
            die("no convergence after %" PRId64 " iterations", iterations);
        double alpha = rho / multiply(m, p, ap);
        double previous = rho;
        rho = 0.0;
        for (int64_t i = 0; i < rows; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * ap[i];
            rho += r[i] * r[i] / m->diagonal[i];
        }
        double beta = rho / previous;
        for (int64_t i = 0; i < rows; i++)
            p[i] = r[i] / m->diagonal[i] + beta * p[i];
    }
    return iterations;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "FILE SYSTEMS");
    const int64_t systems = argument(argv, 2, "SYSTEMS", 1, 1000000);

    struct sparse_header header;
    struct sparse_entry *entries = read_file(argv[1], &header);
    struct matrix m = build(entries, &header);
    free(entries);
    const int64_t rows = m.rows;
    double *work = allocate((size_t)rows * 5, sizeof *work);
    double *b = work, *x = b + rows, *r = x + rows, *p = r + rows, *ap = p + rows;

    printf("rows %" PRId64 " entries %" PRId64 "\n", rows, header.entries);
    uint64_t state = 7;
    for (int64_t system = 0; system < systems; system++) {
        for (int64_t i = 0; i < rows; i++)
            b[i] = random_unit(&state) - 0.5;
        solve(&m, b, x, r, p, ap);
        double energy = 0.0, rest = 0.0, whole = 0.0;
        multiply(&m, x, ap);
        for (int64_t i = 0; i < rows; i++) {
            energy += x[i] * b[i];
            rest += (b[i] - ap[i]) * (b[i] - ap[i]);
            whole += b[i] * b[i];
        }
        if (!(sqrt(rest / whole) < 1e-5))
            die("system %" PRId64 " has a relative residual of %g", system, sqrt(rest / whole));
        printf("energy %.9e\n", energy);
    }
    free(m.start);
    free(m.column);
    free(m.value);
    free(m.diagonal);
    free(work);
    return finish();
}
