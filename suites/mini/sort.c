/* sort: integers by radix, records by quicksort, pointers by merging.
 *
 * Behaves like NAS IS and the sorts inside databases: radix passes write to two thousand
 * places at once (TLB and write bandwidth), quicksort's comparisons are unpredictable branches
 * over memory in order, and merging pointers to records that lie elsewhere is one miss per
 * comparison. Working sets are far beyond the caches.
 */
#include <stdbool.h>
#include <string.h>

#include "mini.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, FEW = 16, NAME = 16 };

struct record {
    uint64_t key;
    uint64_t value;
    char name[NAME];
};

/* Least significant digit first; the sorted keys end up in `keys`. */
static void radix_sort(uint64_t *keys, uint64_t *spare, int64_t count)
{
    for (int shift = 0; shift < 64; shift += DIGIT_BITS) {
        int64_t start[DIGITS + 1] = {0};
        for (int64_t i = 0; i < count; i++)
            start[(keys[i] >> shift) % DIGITS + 1]++;
        for (int i = 0; i < DIGITS; i++)
            start[i + 1] += start[i];
        for (int64_t i = 0; i < count; i++)
            spare[start[(keys[i] >> shift) % DIGITS]++] = keys[i];
        memcpy(keys, spare, (size_t)count * sizeof *keys);
    }
}

static bool name_before(const struct record *a, const struct record *b)
{
    int order = memcmp(a->name, b->name, NAME);
    return order != 0 ? order < 0 : a->key < b->key;
}

static void swap(struct record *a, struct record *b)
{
    struct record keep = *a;
    *a = *b;
    *b = keep;
}

/* By name, then key. The middle of three as pivot, the smaller part by recursion. */
static void quick_sort(struct record *records, int64_t count)
{
    while (count > FEW) {
        struct record *last = &records[count - 1], *middle = &records[count / 2];
        if (name_before(middle, records))
            swap(middle, records);
        if (name_before(last, middle)) {
            swap(last, middle);
            if (name_before(middle, records))
                swap(middle, records);
        }
        const struct record pivot = *middle;
        int64_t i = 0, j = count - 1;
        while (i <= j) {
            while (name_before(&records[i], &pivot))
                i++;
            while (name_before(&pivot, &records[j]))
                j--;
            if (i <= j)
                swap(&records[i++], &records[j--]);
        }
        if (j + 1 < count - i) {
            quick_sort(records, j + 1);
            records += i;
            count -= i;
        } else {
            quick_sort(records + i, count - i);
            count = j + 1;
        }
    }
    for (int64_t i = 1; i < count; i++)
        for (int64_t k = i; k > 0 && name_before(&records[k], &records[k - 1]); k--)
            swap(&records[k], &records[k - 1]);
}

/* Pointers by the key they point to, runs of 1, 2, 4, ...; returns the array that holds them. */
static struct record **merge_sort(struct record **from, struct record **to, int64_t count)
{
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t start = 0; start < count; start += 2 * run) {
            int64_t middle = start + run < count ? start + run : count;
            int64_t end = start + 2 * run < count ? start + 2 * run : count;
            int64_t a = start, b = middle;
            for (int64_t i = start; i < end; i++)
                to[i] = b >= end || (a < middle && from[a]->key <= from[b]->key) ? from[a++]
                                                                                : from[b++];
        }
        struct record **swapped = from;
        from = to;
        to = swapped;
    }
    return from;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "RECORDS ROUNDS");
    const int64_t count = argument(argv, 1, "RECORDS", 2, INT64_C(1) << 32);
    const int64_t rounds = argument(argv, 2, "ROUNDS", 1, 1000000);

    uint64_t *keys = allocate((size_t)count, sizeof *keys);
    uint64_t *spare = allocate((size_t)count, sizeof *spare);
    struct record *records = allocate((size_t)count, sizeof *records);
    struct record **order = allocate((size_t)count, sizeof *order);
    struct record **other = allocate((size_t)count, sizeof *other);
    uint64_t state = 14, sum = 0;
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t i = 0; i < count; i++) {
            keys[i] = random_bits(&state);
            records[i].key = keys[i];
            records[i].value = (uint64_t)i;
            for (int k = 0; k < NAME; k++) /* long common beginnings are the rule in names */
                records[i].name[k] = k < 4 ? (char)('a' + (keys[i] >> 4 * k) % 3)
                                           : (char)('a' + (keys[i] >> 4 * k & 15));
        }
        radix_sort(keys, spare, count);
        quick_sort(records, count);
        for (int64_t i = 0; i < count; i++) {
            if (i > 0 && name_before(&records[i], &records[i - 1]))
                die("round %" PRId64 ": record %" PRId64 " is out of order", round, i);
            sum = fold(sum, records[i].value);
            order[i] = &records[i];
        }
        struct record **sorted = merge_sort(order, other, count);
        for (int64_t i = 0; i < count; i++) /* two ways of sorting must agree */
            if (sorted[i]->key != keys[i])
                die("round %" PRId64 ": key %" PRId64 " is out of order", round, i);
        for (int64_t i = 0; i < count; i += 64)
            sum = fold(sum, keys[i] ^ sorted[i]->value);
    }
    printf("records %" PRId64 " rounds %" PRId64 "\n", count, rounds);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(keys);
    free(spare);
    free(records);
    free(order);
    free(other);
    return finish();
}
