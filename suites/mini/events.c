/* events: a packet network simulated event by event.
 *
 * Behaves like omnetpp: a heap of pending events, each a message allocated on its own, copied
 * and freed at every hop; the messages lie scattered over the heap of malloc, and comparing
 * two events means following two pointers. Limited by memory latency and by the allocator.
 *
 * Routers form a torus. A router sends one packet at a time, the others wait in its queue;
 * packets travel along the longer remaining axis first, and one that arrives is replaced by a
 * new one from there to a router not far away. Time is an integer, ties go to the older event.
 */
#include <stdbool.h>
#include <string.h>

#include "mini.h"

enum { SERVICE = 1000, LINK = 50000, REACH = 6, SMALLEST = 24, SPREAD = 200 };

struct message {
    int64_t time;      /* of the event this message stands for */
    uint64_t sequence; /* of its scheduling */
    struct message *next; /* in a router's queue */
    int64_t born;
    uint32_t router; /* where the event happens */
    uint32_t target;
    uint32_t hops;
    uint16_t size;
    bool leaves; /* the event is the end of its service, else its arrival */
    uint8_t payload[];
};

struct router {
    struct message *front;
    struct message *back;
    uint64_t sent;
    uint32_t waiting;
    uint32_t longest;
    bool busy;
};

struct network {
    int64_t edge;
    struct router *routers;
    struct message **heap;
    int64_t pending;
    uint64_t scheduled;
    uint64_t random;
};

static bool earlier(const struct message *a, const struct message *b)
{
    return a->time != b->time ? a->time < b->time : a->sequence < b->sequence;
}

static void schedule(struct network *net, struct message *message, int64_t time)
{
    message->time = time;
    message->sequence = net->scheduled++;
    int64_t hole = net->pending++;
    for (; hole > 0 && earlier(message, net->heap[(hole - 1) / 2]); hole = (hole - 1) / 2)
        net->heap[hole] = net->heap[(hole - 1) / 2];
    net->heap[hole] = message;
}

static struct message *next_event(struct network *net)
{
    struct message *first = net->heap[0], *last = net->heap[--net->pending];
    int64_t hole = 0;
    for (int64_t child = 1; child < net->pending; child = 2 * hole + 1) {
        if (child + 1 < net->pending && earlier(net->heap[child + 1], net->heap[child]))
            child++;
        if (!earlier(net->heap[child], last))
            break;
        net->heap[hole] = net->heap[child];
        hole = child;
    }
    net->heap[hole] = last;
    return first;
}

static struct message *new_message(struct network *net, uint32_t router, int64_t now)
{
    uint16_t size = (uint16_t)(SMALLEST + random_below(&net->random, SPREAD));
    struct message *message = allocate(1, sizeof *message + size);
    int64_t x = router % net->edge + random_below(&net->random, 2 * REACH + 1) - REACH;
    int64_t y = router / net->edge + random_below(&net->random, 2 * REACH + 1) - REACH;
    x = (x + net->edge) % net->edge;
    y = (y + net->edge) % net->edge;
    *message = (struct message){.born = now, .router = router, .size = size,
                                .target = (uint32_t)(y * net->edge + x)};
    memset(message->payload, (int)(router & 255), size);
    return message;
}

/* The packet as the next router sees it: a new header around the same payload. */
static struct message *forward(struct message *old, uint32_t router)
{
    struct message *message = allocate(1, sizeof *message + old->size);
    memcpy(message, old, sizeof *old + old->size);
    message->payload[message->hops++ % message->size] ^= (uint8_t)router;
    message->router = router;
    free(old);
    return message;
}

/* One step on the torus: the signed distances, then along the longer one. */
static uint32_t next_hop(int64_t edge, uint32_t from, uint32_t to)
{
    int64_t x = from % edge, y = from / edge;
    int64_t dx = (to % edge - x + edge + edge / 2) % edge - edge / 2;
    int64_t dy = (to / edge - y + edge + edge / 2) % edge - edge / 2;
    if (llabs(dx) >= llabs(dy))
        x = (x + (dx > 0 ? 1 : edge - 1)) % edge;
    else
        y = (y + (dy > 0 ? 1 : edge - 1)) % edge;
    return (uint32_t)(y * edge + x);
}

static void serve(struct network *net, struct router *router, struct message *message,
                  int64_t now)
{
    router->busy = true;
    message->leaves = true;
    schedule(net, message, now + SERVICE / 2 + random_below(&net->random, SERVICE));
}

static void arrive(struct network *net, struct message *message, int64_t now)
{
    struct router *router = &net->routers[message->router];
    if (!router->busy) {
        serve(net, router, message, now);
        return;
    }
    message->next = NULL;
    if (router->front == NULL)
        router->front = message;
    else
        router->back->next = message;
    router->back = message;
    if (++router->waiting > router->longest)
        router->longest = router->waiting;
}

/* The end of a service: the packet sets off, the next in the queue has its turn. */
static void leave(struct network *net, struct message *message, int64_t now)
{
    struct router *router = &net->routers[message->router];
    router->sent++;
    message = forward(message, next_hop(net->edge, message->router, message->target));
    message->leaves = false;
    schedule(net, message, now + LINK / 2 + random_below(&net->random, LINK));
    router->busy = false;
    if (router->front != NULL) {
        struct message *next = router->front;
        router->front = next->next;
        router->waiting--;
        serve(net, router, next, now);
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 3, "EDGE MESSAGES EVENTS");
    const int64_t edge = argument(argv, 1, "EDGE", REACH, 10000);
    const int64_t messages = argument(argv, 2, "MESSAGES", 1, 100000000);
    const int64_t events = argument(argv, 3, "EVENTS", 1, INT64_C(1) << 50);

    const size_t routers = (size_t)(edge * edge);
    struct network net = {.edge = edge, .random = 11};
    net.routers = allocate(routers, sizeof *net.routers);
    net.heap = allocate((size_t)messages, sizeof *net.heap);
    memset(net.routers, 0, routers * sizeof *net.routers);
    for (int64_t i = 0; i < messages; i++) {
        uint32_t router = random_below(&net.random, (uint32_t)routers);
        struct message *message = new_message(&net, router, 0);
        schedule(&net, message, random_below(&net.random, LINK));
    }

    int64_t now = 0, delivered = 0, delay = 0, hops = 0;
    uint64_t sum = 0;
    for (int64_t i = 0; i < events; i++) {
        struct message *message = next_event(&net);
        now = message->time;
        if (message->leaves) {
            leave(&net, message, now);
        } else if (message->router != message->target) {
            arrive(&net, message, now);
        } else {
            delivered++;
            delay += now - message->born;
            hops += message->hops;
            for (uint16_t k = 0; k < message->size; k += 8)
                sum = fold(sum, message->payload[k]);
            uint32_t router = message->router;
            free(message);
            message = new_message(&net, router, now);
            schedule(&net, message, now + 1 + random_below(&net.random, LINK));
        }
    }

    uint64_t longest = 0;
    for (size_t i = 0; i < routers; i++) {
        longest = net.routers[i].longest > longest ? net.routers[i].longest : longest;
        sum = fold(sum, net.routers[i].sent);
        for (struct message *m = net.routers[i].front, *next; m != NULL; m = next) {
            next = m->next;
            free(m);
        }
    }
    for (int64_t i = 0; i < net.pending; i++)
        free(net.heap[i]);
    printf("time %" PRId64 " delivered %" PRId64 " hops %" PRId64 "\n", now, delivered, hops);
    printf("delay %" PRId64 " longest queue %" PRIu64 "\n", delay, longest);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(net.routers);
    free(net.heap);
    return finish();
}
