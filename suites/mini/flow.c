/* flow: minimum-cost flow by successive shortest paths, on nodes and arcs linked by pointers.
 *
 * Behaves like mcf (vehicle scheduling by network simplex): the graph is a few hundred bytes a
 * node, scattered over memory in the order in which the arcs were drawn, and almost every step
 * follows a pointer to a line that is in no cache. Limited by memory latency, and by the TLB.
 *
 * Each search is label-correcting with a first-in-first-out queue threaded through the nodes,
 * because residual arcs have negative costs. Two facts check the answer: path lengths never
 * decrease from one augmentation to the next, and the cost summed over the paths must equal
 * the cost summed over the arcs.
 */
#include <stdbool.h>

#include "mini.h"

enum { ARCS_PER_NODE = 4, FAN = 256, DEAREST = 1000 };

struct arc {
    struct node *head;
    struct arc *next; /* out of the same node */
    struct arc *twin; /* the same arc backwards: its capacity is the flow */
    int32_t cost;
    int32_t capacity;
};

struct node {
    int64_t distance;
    struct arc *first;
    struct arc *via; /* last arc of the shortest path found so far */
    struct node *queued_next;
    bool queued;
};

static void add_arc(struct arc *pair, struct node *tail, struct node *head, int32_t cost,
                    int32_t capacity)
{
    pair[0] = (struct arc){head, tail->first, &pair[1], cost, capacity};
    tail->first = &pair[0];
    pair[1] = (struct arc){tail, head->first, &pair[0], -cost, 0};
    head->first = &pair[1];
}

/* Shortest distances from the source over arcs with capacity left; the number of arcs seen. */
static int64_t search(struct node *nodes, int64_t count, struct node *source)
{
    for (int64_t i = 0; i < count; i++) {
        nodes[i].distance = INT64_MAX;
        nodes[i].via = NULL;
    }
    source->distance = 0;
    source->queued_next = NULL;
    struct node *front = source, *back = source;
    int64_t seen = 0;
    while (front != NULL) {
        struct node *tail = front;
        front = tail->queued_next;
        tail->queued = false;
        for (struct arc *arc = tail->first; arc != NULL; arc = arc->next) {
            seen++;
            if (arc->capacity == 0)
                continue;
            struct node *head = arc->head;
            int64_t distance = tail->distance + arc->cost;
            if (distance >= head->distance)
                continue;
            head->distance = distance;
            head->via = arc;
            if (head->queued)
                continue;
            head->queued = true;
            head->queued_next = NULL;
            if (front == NULL)
                front = head;
            else
                back->queued_next = head;
            back = head;
        }
    }
    return seen;
}

/* Sends as much as fits along the path just found; the units sent. */
static int32_t augment(struct node *source, struct node *sink)
{
    int32_t units = INT32_MAX;
    for (struct node *at = sink; at != source; at = at->via->twin->head)
        if (at->via->capacity < units)
            units = at->via->capacity;
    for (struct node *at = sink; at != source; at = at->via->twin->head) {
        at->via->capacity -= units;
        at->via->twin->capacity += units;
    }
    return units;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "NODES PATHS");
    const int64_t count = argument(argv, 1, "NODES", 1000, 100000000);
    const int64_t paths = argument(argv, 2, "PATHS", 1, FAN);

    const int64_t pairs = count * ARCS_PER_NODE + 2 * FAN;
    struct node *nodes = allocate((size_t)count, sizeof *nodes);
    struct arc *arcs = allocate((size_t)pairs * 2, sizeof *arcs);
    for (int64_t i = 0; i < count; i++)
        nodes[i] = (struct node){0};
    struct node *source = &nodes[0], *sink = &nodes[count - 1];
    uint64_t state = 3;
    for (int64_t i = 0; i < pairs; i++) {
        struct node *tail = &nodes[random_below(&state, (uint32_t)count)];
        struct node *head = &nodes[random_below(&state, (uint32_t)count)];
        int32_t cost = 1 + (int32_t)random_below(&state, DEAREST);
        int32_t capacity = 1 + (int32_t)random_below(&state, 3);
        if (i < FAN)
            tail = source;
        else if (i < 2 * FAN)
            head = sink;
        add_arc(&arcs[2 * i], tail, head, cost, capacity);
    }

    int64_t units = 0, cost = 0, seen = 0, last = 0;
    uint64_t sum = 0;
    for (int64_t path = 0; path < paths; path++) {
        seen += search(nodes, count, source);
        if (sink->via == NULL)
            die("no path is left after %" PRId64 " of %" PRId64, path, paths);
        if (sink->distance < last)
            die("path %" PRId64 " is shorter than the one before it", path);
        last = sink->distance;
        int32_t sent = augment(source, sink);
        units += sent;
        cost += sent * last;
        for (int64_t i = 0; i < count; i += 97)
            sum = fold(sum, (uint64_t)nodes[i].distance);
    }

    int64_t spent = 0;
    for (int64_t i = 0; i < pairs; i++)
        spent += (int64_t)arcs[2 * i].cost * arcs[2 * i + 1].capacity;
    if (spent != cost)
        die("the arcs cost %" PRId64 ", the paths %" PRId64, spent, cost);
    printf("units %" PRId64 " cost %" PRId64 " longest %" PRId64 "\n", units, cost, last);
    printf("arcs seen %" PRId64 "\n", seen);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(arcs);
    free(nodes);
    return finish();
}
