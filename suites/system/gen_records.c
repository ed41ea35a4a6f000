/* gen_records: writes orders, one a line, to be sorted, added up, imported and parsed.
 *
 * CSV without a heading: id,day,customer,city,product,quantity,cents,note
 * JSON lines: the same with the customer and what was ordered as objects inside.
 */
#include "vocabulary.h"

enum { CITIES = 40, PRODUCTS = 500, CUSTOMERS = 20000 };

struct order {
    int64_t id;
    uint32_t month, day, customer, city, product, quantity, cents;
    const char *note[3];
};

/* Field by field, because the order in which a compiler evaluates arguments is its own affair. */
static struct order random_order(int64_t id, uint64_t *state, const struct vocabulary *words)
{
    struct order o = {.id = id};
    o.month = 1 + random_below(state, 12);
    o.day = 1 + random_below(state, 28);
    o.customer = random_below(state, CUSTOMERS);
    o.city = o.customer % CITIES;
    o.product = random_below(state, 1 + random_below(state, PRODUCTS)); /* some sell better */
    o.quantity = 1 + random_below(state, 1 + random_below(state, 20));
    o.cents = 99 + 100 * (o.product * 7919 % 997);
    uint32_t last = 0;
    for (int i = 0; i < 3; i++) {
        last = next_word(words, state, last);
        o.note[i] = words->word[last];
    }
    return o;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 3, "csv|json ROWS FILE");
    const int is_json = strcmp(argv[1], "json") == 0;
    if (!is_json && strcmp(argv[1], "csv") != 0)
        die("the format is '%s', expected csv or json", argv[1]);
    const int64_t rows = argument(argv, 2, "ROWS", 1, INT64_C(1) << 40);

    struct vocabulary *words = new_vocabulary(11);
    FILE *file = create(argv[3]);
    uint64_t state = 14;
    for (int64_t row = 0; row < rows; row++) {
        /* ids in no order: an odd factor and a power of two visit all of 0 .. 2^30 - 1 once */
        struct order o =
            random_order(row * 644245095 % (INT64_C(1) << 30), &state, words);
        const char *city = words->word[1000 + o.city], *product = words->word[2000 + o.product];
        fprintf(file,
                is_json ? "{\"id\":%" PRId64 ",\"day\":\"2026-%02" PRIu32 "-%02" PRIu32 "\","
                          "\"customer\":{\"number\":%" PRIu32 ",\"city\":\"%s\"},"
                          "\"ordered\":{\"product\":\"%s\",\"quantity\":%" PRIu32
                          ",\"cents\":%" PRIu32 "},\"note\":\"%s %s %s\"}\n"
                        : "%" PRId64 ",2026-%02" PRIu32 "-%02" PRIu32 ",%" PRIu32 ",%s,%s,%" PRIu32
                          ",%" PRIu32 ",%s %s %s\n",
                o.id, o.month, o.day, o.customer, city, product, o.quantity, o.cents, o.note[0],
                o.note[1], o.note[2]);
    }
    free(words);
    return finish_file(file, argv[3]);
}
