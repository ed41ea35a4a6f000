/* The matrix file that gen_sparse writes and sparse reads: a header, then `entries` entries of
 * the lower triangle of a symmetric matrix in no useful order, in the machine's byte order. */
#ifndef SPARSE_H
#define SPARSE_H

#include <stdint.h>

#define SPARSE_MAGIC UINT64_C(0x31656C7262756F64)

struct sparse_header {
    uint64_t magic;
    int64_t rows;
    int64_t entries;
};

struct sparse_entry {
    int32_t row;
    int32_t column; /* <= row */
    double value;
};

#endif
