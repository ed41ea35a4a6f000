/* A small stack machine whose values are cells of malloc: binary trees are built, walked and freed. Its heap has
 * been in use for a while: free cells lie anywhere. */
#include "program.h"

enum { ROUNDS = 6, DEPTH = 17, STACK = 4096 };
enum operation { PUSH, PAIR, HEAD, TAIL, ADD, LESS, SWAP, DUP, DROP, JUMP, UNLESS, CALL, RETURN, HALT };
struct cell { int64_t value; struct cell *head, *tail; };

static struct cell *stack[STACK];
static int calls[STACK], top, called;

static struct cell *new_cell(int64_t value, struct cell *head, struct cell *tail)
{
    struct cell *cell = allocate(sizeof *cell);
    *cell = (struct cell){value, head, tail};
    return cell;
}
static void release(struct cell *cell)
{
    if (cell == NULL) return;
    release(cell->head);
    release(cell->tail);
    free(cell);
}
/* build(n): n < 1 ? leaf : pair(build(n - 1), build(n - 1)); all values are numbers in cells. */
static const int build_code[] = {
    CALL, 3, HALT,
    /* 3 */ DUP, PUSH, 1, LESS, UNLESS, 11, RETURN, HALT,
    /* 11 */ PUSH, -1, ADD, DUP, CALL, 3, SWAP, CALL, 3, PAIR, RETURN,
};

static struct cell *run(const int *code, struct cell *argument)
{
    top = called = 0;
    stack[top++] = argument;
    for (int at = 0;;) {
        struct cell *a, *b;
        switch ((enum operation)code[at++]) {
        case PUSH: stack[top++] = new_cell(code[at++], NULL, NULL); break;
        case PAIR: b = stack[--top]; a = stack[--top]; stack[top++] = new_cell(a->value + b->value, a, b); break;
        case HEAD: stack[top - 1] = stack[top - 1]->head; break;
        case TAIL: stack[top - 1] = stack[top - 1]->tail; break;
        case ADD: b = stack[--top]; a = stack[--top]; stack[top++] = new_cell(a->value + b->value, NULL, NULL); free(b); free(a); break;
        case LESS: b = stack[--top]; a = stack[--top]; stack[top++] = new_cell(a->value < b->value, NULL, NULL); free(b); free(a); break;
        case SWAP: a = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = a; break;
        case DUP: a = stack[top - 1]; stack[top++] = new_cell(a->value, a->head, a->tail); break;
        case DROP: free(stack[--top]); break;
        case JUMP: at = code[at]; break;
        case UNLESS: a = stack[--top]; at = a->value ? at + 1 : code[at]; free(a); break;
        case CALL: calls[called++] = at + 1; at = code[at]; break;
        case RETURN: at = calls[--called]; break;
        case HALT: return stack[--top];
        }
    }
}
static uint64_t walk(const struct cell *cell, uint64_t sum)
{
    if (cell->head == NULL) return sum + (uint64_t)cell->value + 1;
    return walk(cell->tail, walk(cell->head, sum));
}

/* Frees as many cells as the trees will have, in no order. */
static void scatter_free_cells(void)
{
    enum { CELLS = ROUNDS << (DEPTH + 1) };
    struct cell **cells = allocate(CELLS * sizeof *cells);
    for (int i = 0; i < CELLS; i++) cells[i] = allocate(sizeof **cells);
    for (int i = CELLS - 1; i > 0; i--) {
        int j = (int)(random_bits() % (uint64_t)(i + 1));
        struct cell *was = cells[i];
        cells[i] = cells[j];
        cells[j] = was;
    }
    for (int i = 0; i < CELLS; i++) free(cells[i]);
    free(cells);
}

int main(void)
{
    struct cell *kept[ROUNDS];
    uint64_t sum = 0;
    scatter_free_cells();
    for (int round = 0; round < ROUNDS; round++) kept[round] = run(build_code, new_cell(DEPTH, NULL, NULL));
    for (int round = 0; round < ROUNDS; round++)
        for (int tree = 0; tree < ROUNDS; tree++) sum += walk(kept[(tree + round) % ROUNDS], 0);
    for (int round = 0; round < ROUNDS; round++) release(kept[round]);
    printf("sum %llu\n", (unsigned long long)sum);
    return 0;
}
