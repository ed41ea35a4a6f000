/* Which addresses are what: ranges of pages with a kind, sorted, not overlapping. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct range { uint64_t begin, end; int kind; };
struct regions { struct range *of; size_t size, room; };

/* Returns the first range that ends behind a page. */
static inline size_t regions_first(const struct regions *r, uint64_t page)
{
    size_t low = 0, high = r->size;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->of[middle].end > page) high = middle;
        else low = middle + 1;
    }
    return low;
}
static inline int regions_kind(const struct regions *r, uint64_t page)
{
    size_t i = regions_first(r, page);
    return i < r->size && r->of[i].begin <= page ? r->of[i].kind : 0;
}
/* Tells whether one range holds all of [begin, end). */
static inline int regions_hold(const struct regions *r, uint64_t begin, uint64_t end)
{
    size_t i = regions_first(r, begin);
    return i < r->size && r->of[i].begin <= begin && r->of[i].end >= end;
}
/* Pages [begin, end) are of a kind now, 0: of none. */
static inline void regions_set(struct regions *r, uint64_t begin, uint64_t end, int kind)
{
    if (r->size + 2 > r->room) {
        r->room = r->room ? 2 * r->room : 1024;
        r->of = had(realloc(r->of, r->room * sizeof *r->of));
    }
    size_t first = regions_first(r, begin), after = first;
    struct range put[3];
    size_t puts = 0;
    if (first < r->size && r->of[first].begin < begin)
        put[puts++] = (struct range){r->of[first].begin, begin, r->of[first].kind};
    if (kind) put[puts++] = (struct range){begin, end, kind};
    while (after < r->size && r->of[after].begin < end) after++;
    if (after > first && r->of[after - 1].end > end)
        put[puts++] = (struct range){end, r->of[after - 1].end, r->of[after - 1].kind};
    memmove(r->of + first + puts, r->of + after, (r->size - after) * sizeof *r->of);
    memcpy(r->of + first, put, puts * sizeof *put);
    r->size += puts - (after - first);
}
