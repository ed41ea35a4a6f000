/* select customer.region, sum(price) from orders join customers using (customer) group by region:
 * rows of malloc's blocks, an index of the customers that is searched by halves. */
#include "program.h"

enum { CUSTOMERS = 400000, ORDERS = 1000000, REGIONS = 50 };
struct customer { uint64_t number; uint32_t region; char name[28]; };
struct order { uint64_t customer; uint32_t price; char note[36]; struct order *next; };

static int by_number(const void *a, const void *b)
{
    const struct customer *first = *(struct customer *const *)a, *second = *(struct customer *const *)b;
    return (first->number > second->number) - (first->number < second->number);
}
static const struct customer *find(struct customer *const *index, uint64_t number)
{
    size_t low = 0, high = CUSTOMERS;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (index[middle]->number < number) low = middle + 1;
        else high = middle;
    }
    return low < CUSTOMERS && index[low]->number == number ? index[low] : NULL;
}

int main(void)
{
    static uint64_t sums[REGIONS];
    struct customer **index = allocate(CUSTOMERS * sizeof *index);
    struct order *orders = NULL;
    uint64_t sum = 0;
    for (int i = 0; i < CUSTOMERS; i++) {
        index[i] = allocate(sizeof **index);
        *index[i] = (struct customer){(uint64_t)i * 2654435761u % 4294967291u, random_bits() % REGIONS, "a customer's name"};
    }
    for (int i = 0; i < ORDERS; i++) {
        struct order *order = allocate(sizeof *order);
        *order = (struct order){random_bits() % CUSTOMERS * 2654435761u % 4294967291u, random_bits() % 1000, "what was said", orders};
        orders = order;
    }
    qsort(index, CUSTOMERS, sizeof *index, by_number);
    for (const struct order *order = orders; order; order = order->next) {
        const struct customer *customer = find(index, order->customer);
        if (customer) sums[customer->region] += order->price;
    }
    for (int region = 0; region < REGIONS; region++) sum = mixed(sum, sums[region]);
    printf("sum %llx\n", (unsigned long long)sum);
    return 0;
}
