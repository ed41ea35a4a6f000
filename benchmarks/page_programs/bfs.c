/* Breadth-first search through a random graph in compressed rows, from three vertices in turn. */
#include "program.h"

enum { VERTICES = 1 << 20, DEGREE = 12, SEARCHES = 3 };

int main(void)
{
    uint32_t *edges = allocate((size_t)VERTICES * DEGREE * sizeof *edges);
    uint32_t *queue = allocate(VERTICES * sizeof *queue);
    int32_t *depths = allocate(VERTICES * sizeof *depths);
    uint64_t sum = 0;
    for (size_t edge = 0; edge < (size_t)VERTICES * DEGREE; edge++) edges[edge] = random_bits() % VERTICES;
    for (uint32_t search = 0; search < SEARCHES; search++) {
        uint32_t first = 0, last = 0;
        memset(depths, -1, VERTICES * sizeof *depths);
        depths[search] = 0;
        queue[last++] = search;
        while (first < last) {
            uint32_t vertex = queue[first++];
            for (int i = 0; i < DEGREE; i++) {
                uint32_t other = edges[(size_t)vertex * DEGREE + i];
                if (depths[other] >= 0) continue;
                depths[other] = depths[vertex] + 1;
                queue[last++] = other;
            }
        }
        sum = mixed(sum, (uint64_t)depths[queue[last - 1]] << 32 | last);
    }
    printf("sum %llx\n", (unsigned long long)sum);
    return 0;
}
