/* Page reuse distances: how many other pages were referred to since a page was, exactly.
 *
 * An LRU stack: the newest few pages in an array; the others as bits, set in the order in which
 * they left the array, counted by popcounts in blocks and a Fenwick tree over blocks.
 * A page is a key: its number, and in bits 48.. which of the tables knows its place.
 */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAF_BITS = 14, TABLES = 4, FRONT = 16, BLOCK = 1024, LEAST_ROOM = 1 << 15 };
#define NEVER UINT64_MAX
#define KEY_TABLE_SHIFT 48

static inline void *had(void *got)
{
    if (got == NULL) {
        fputs("out of memory\n", stderr);
        exit(3);
    }
    return got;
}

/* Numbers by page number, made where they are written. */
struct table { uint32_t **leaves; uint64_t size; };

static inline void table_make(struct table *t, unsigned index_bits)
{
    t->size = index_bits > LEAF_BITS ? 1ull << (index_bits - LEAF_BITS) : 1;
    t->leaves = had(calloc(t->size, sizeof *t->leaves));
}
static inline uint32_t *table_at(struct table *t, uint64_t index)
{
    uint32_t **leaf = &t->leaves[index >> LEAF_BITS];
    if (__builtin_expect(*leaf == NULL, 0)) *leaf = had(calloc(1u << LEAF_BITS, sizeof **leaf));
    return &(*leaf)[index & ((1u << LEAF_BITS) - 1)];
}
/* Sets [first, end) to zero: what was never made is zero. */
static inline void table_clear(struct table *t, uint64_t first, uint64_t end)
{
    while (first < end) {
        uint64_t next = ((first >> LEAF_BITS) + 1) << LEAF_BITS;
        uint64_t upto = next < end ? next : end;
        uint32_t *leaf = t->leaves[first >> LEAF_BITS];
        if (leaf) memset(leaf + (first & ((1u << LEAF_BITS) - 1)), 0, (upto - first) * sizeof *leaf);
        first = upto;
    }
}

struct stack {
    uint64_t front[FRONT];
    struct table place[TABLES]; /* by key: its bit + 1; 0: never seen; of one in front: any */
    uint64_t *bits, *at;        /* and which key a bit is of */
    uint32_t *tree;             /* Fenwick: bits in blocks */
    uint32_t next, room;        /* the next bit; a few times what lives, so that caches hold it */
    uint32_t live;
};

static inline void stack_room(struct stack *s, uint32_t room)
{
    s->room = room;
    s->bits = had(realloc(s->bits, room / 8));
    s->at = had(realloc(s->at, (size_t)room * sizeof *s->at));
    s->tree = had(realloc(s->tree, (room / BLOCK + 1) * sizeof *s->tree));
    memset(s->bits, 0, room / 8);
    memset(s->tree, 0, (room / BLOCK + 1) * sizeof *s->tree);
    s->next = s->live = 0;
}
/* `index_bits` of each table: 0 where no key uses it. */
static inline void stack_make(struct stack *s, const unsigned *index_bits)
{
    memset(s, 0, sizeof *s);
    memset(s->front, 0xff, sizeof s->front);
    for (int i = 0; i < TABLES; i++)
        if (index_bits[i]) table_make(&s->place[i], index_bits[i]);
    stack_room(s, LEAST_ROOM);
}
static inline void stack_reset(struct stack *s)
{
    for (int i = 0; i < TABLES; i++)
        if (s->place[i].leaves) table_clear(&s->place[i], 0, s->place[i].size << LEAF_BITS);
    memset(s->front, 0xff, sizeof s->front);
    stack_room(s, LEAST_ROOM);
}
static inline uint32_t *stack_place(struct stack *s, uint64_t key)
{
    return table_at(&s->place[key >> KEY_TABLE_SHIFT], key & ((1ull << KEY_TABLE_SHIFT) - 1));
}
static inline void stack_count(struct stack *s, uint32_t block, uint32_t by)
{
    for (uint32_t i = block + 1; i <= s->room / BLOCK; i += i & -i) s->tree[i] += by;
}
static void stack_push(struct stack *s, uint64_t key);
static inline void stack_compact(struct stack *s)
{
    uint64_t *kept = had(malloc((s->live + 1) * sizeof *kept));
    uint32_t n = 0, room = LEAST_ROOM;
    for (uint32_t word = 0; word < s->room / 64; word++)
        for (uint64_t b = s->bits[word]; b; b &= b - 1) kept[n++] = s->at[word * 64 + (uint32_t)__builtin_ctzll(b)];
    while (room / 4 < n) room *= 2;
    stack_room(s, room);
    for (uint32_t i = 0; i < n; i++) stack_push(s, kept[i]);
    free(kept);
}
static inline void stack_push(struct stack *s, uint64_t key)
{
    if (s->next == s->room) stack_compact(s);
    uint32_t bit = s->next++;
    s->bits[bit / 64] |= 1ull << (bit % 64);
    s->at[bit] = key;
    *stack_place(s, key) = bit + 1;
    stack_count(s, bit / BLOCK, 1);
    s->live++;
}
/* Takes a bit out; returns how many are newer. */
static inline uint64_t stack_take(struct stack *s, uint32_t bit)
{
    uint32_t word = bit / 64, end = (bit / BLOCK + 1) * (BLOCK / 64), upto = 0;
    uint64_t above = bit % 64 == 63 ? 0 : ~0ull << (bit % 64 + 1);
    uint64_t newer = (uint64_t)__builtin_popcountll(s->bits[word] & above);
    for (uint32_t w = word + 1; w < end; w++) newer += (uint64_t)__builtin_popcountll(s->bits[w]);
    for (uint32_t i = bit / BLOCK + 1; i; i -= i & -i) upto += s->tree[i];
    newer += s->live - upto;
    s->bits[word] &= ~(1ull << (bit % 64));
    stack_count(s, bit / BLOCK, (uint32_t)-1);
    s->live--;
    return newer;
}
/* A reference: returns how many other keys there were since the last one to it, or NEVER. */
static inline uint64_t stack_touch(struct stack *s, uint64_t key)
{
    uint64_t carried = key; /* each moves on by one place, up to where the key was */
    for (unsigned i = 0; i < FRONT; i++) {
        uint64_t was = s->front[i];
        s->front[i] = carried;
        if (was == key) return i;
        carried = was;
    }
    uint32_t bit = *stack_place(s, key);
    uint64_t distance = bit == 0 ? NEVER : FRONT + stack_take(s, bit - 1);
    if (carried != NEVER) stack_push(s, carried);
    return distance;
}

/* Distances in bins: exact below 32, then 16 an octave. */
enum { SUB = 4, BINS = 64 << SUB };
static inline unsigned bin_of(uint64_t d)
{
    if (d < 2u << SUB) return (unsigned)d;
    unsigned top = 63 - (unsigned)__builtin_clzll(d);
    return (top - SUB + 1) << SUB | (unsigned)(d >> (top - SUB) & ((1 << SUB) - 1));
}
static inline uint64_t bin_low(unsigned bin)
{
    if (bin < 2u << SUB) return bin;
    unsigned top = (bin >> SUB) + SUB - 1;
    return 1ull << top | (uint64_t)(bin & ((1 << SUB) - 1)) << (top - SUB);
}
