/* gen_sparse: writes the input file of `sparse`, a symmetric positive definite matrix.
 *
 * The matrix is that of a resistor network: a cube of nodes joined to their neighbours, one
 * wire in four nodes to some far node (so that the solver's gathers are not all local, as on
 * an unstructured mesh), and a small leak at every node that makes it definite.
 */
#include "mini.h"
#include "sparse.h"

enum { BUFFERED = 4096 };

struct output {
    FILE *file;
    const char *path;
    struct sparse_entry *buffer;
    size_t used;
    int64_t entries;
};

static void flush(struct output *out)
{
    if (fwrite(out->buffer, sizeof *out->buffer, out->used, out->file) != out->used)
        die("cannot write %s", out->path);
    out->used = 0;
}

static void put(struct output *out, int64_t row, int64_t column, double value)
{
    out->buffer[out->used++] = (struct sparse_entry){(int32_t)row, (int32_t)column, value};
    out->entries++;
    if (out->used == BUFFERED)
        flush(out);
}

static void join(struct output *out, double *diagonal, int64_t i, int64_t j, double conductance)
{
    diagonal[i] += conductance;
    diagonal[j] += conductance;
    put(out, i > j ? i : j, i > j ? j : i, -conductance);
}

static void write_header(struct output *out, int64_t rows)
{
    struct sparse_header header = {SPARSE_MAGIC, rows, out->entries};
    if (fwrite(&header, sizeof header, 1, out->file) != 1)
        die("cannot write %s", out->path);
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "EDGE FILE");
    const int64_t edge = argument(argv, 1, "EDGE", 2, 1000);
    const int64_t rows = edge * edge * edge;

    struct output out = {fopen(argv[2], "wb"), argv[2], NULL, 0, 0};
    if (out.file == NULL)
        die("cannot create %s", argv[2]);
    out.buffer = allocate(BUFFERED, sizeof *out.buffer);
    double *diagonal = allocate((size_t)rows, sizeof *diagonal);
    for (int64_t i = 0; i < rows; i++)
        diagonal[i] = 1e-3;

    write_header(&out, rows); /* counted and written again at the end */
    uint64_t state = 6;
    const int64_t strides[3] = {1, edge, edge * edge};
    for (int64_t i = 0; i < rows; i++) {
        for (int axis = 0; axis < 3; axis++)
            if (i / strides[axis] % edge != edge - 1)
                join(&out, diagonal, i, i + strides[axis], 0.1 + random_unit(&state));
        int64_t far = random_below(&state, (uint32_t)rows);
        if (i % 4 == 0 && far != i)
            join(&out, diagonal, i, far, 0.01 * random_unit(&state));
    }
    for (int64_t i = 0; i < rows; i++)
        put(&out, i, i, diagonal[i]);
    flush(&out);
    if (fseek(out.file, 0, SEEK_SET) != 0)
        die("cannot write %s", out.path);
    write_header(&out, rows);
    if (fclose(out.file) != 0)
        die("cannot write %s", out.path);
    free(out.buffer);
    free(diagonal);
    return finish();
}
