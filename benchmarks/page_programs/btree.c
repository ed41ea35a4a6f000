/* A B-tree whose nodes are blocks of malloc: random keys inserted, then looked for. */
#include "program.h"

enum { ORDER = 16, MOST = 2 * ORDER - 1, KEYS = 3000000, LOOKUPS = 1000000 };
struct node { int count, leaf; uint64_t keys[MOST]; struct node *children[]; };

static struct node *new_node(int leaf)
{
    struct node *node = allocate(sizeof *node + (leaf ? 0 : 2 * ORDER * sizeof *node->children));
    node->count = 0;
    node->leaf = leaf;
    return node;
}
static int position(const struct node *node, uint64_t key)
{
    int at = 0;
    while (at < node->count && node->keys[at] < key) at++;
    return at;
}
/* The child at a place is full: its upper half becomes a node of its own. */
static void split(struct node *parent, int at)
{
    struct node *left = parent->children[at], *right = new_node(left->leaf);
    right->count = ORDER - 1;
    memcpy(right->keys, left->keys + ORDER, (ORDER - 1) * sizeof *left->keys);
    if (!left->leaf) memcpy(right->children, left->children + ORDER, ORDER * sizeof *left->children);
    left->count = ORDER - 1;
    memmove(parent->children + at + 2, parent->children + at + 1, (parent->count - at) * sizeof *parent->children);
    memmove(parent->keys + at + 1, parent->keys + at, (parent->count - at) * sizeof *parent->keys);
    parent->children[at + 1] = right;
    parent->keys[at] = left->keys[ORDER - 1];
    parent->count++;
}
static struct node *insert(struct node *root, uint64_t key)
{
    if (root->count == MOST) {
        struct node *above = new_node(0);
        above->children[0] = root;
        split(above, 0);
        root = above;
    }
    struct node *node = root;
    while (!node->leaf) {
        int at = position(node, key);
        if (node->children[at]->count == MOST) {
            split(node, at);
            if (node->keys[at] < key) at++;
        }
        node = node->children[at];
    }
    int at = position(node, key);
    memmove(node->keys + at + 1, node->keys + at, (node->count - at) * sizeof *node->keys);
    node->keys[at] = key;
    node->count++;
    return root;
}
static int contains(const struct node *node, uint64_t key)
{
    for (;;) {
        int at = position(node, key);
        if (at < node->count && node->keys[at] == key) return 1;
        if (node->leaf) return 0;
        node = node->children[at];
    }
}

int main(void)
{
    struct node *root = new_node(1);
    int found = 0;
    for (int i = 0; i < KEYS; i++) root = insert(root, random_bits() & 0xffffffffff);
    random_state = 88172645463325252ull;
    for (int i = 0; i < LOOKUPS; i++) found += contains(root, (random_bits() & 0xffffffffff) + (i & 1));
    printf("%d found\n", found);
    return 0;
}
