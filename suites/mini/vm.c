/* vm: compiles small programs to bytecode (vm_compiler.c) and interprets them.
 *
 * Behaves like cpython and perl's inner loop: fetch an instruction, jump on it, touch a stack
 * that sits in the first-level cache. Limited by indirect branches and by the store-to-load
 * latency of the stack; memory hardly matters.
 */
#include <string.h>

#include "mini.h"
#include "vm.h"

enum { STACK = 65536, CELLS = 65536 };

static const char PROGRAM[] =
    "fib(n) { if n < 2 { return n; } return fib(n - 1) + fib(n - 2); }"
    "sieve(n) { i: 0; while i < n { m[i]: 1; i: i + 1; } i: 2; found: 0;"
    "  while i < n { if m[i] { found: found + 1; j: i + i; while j < n { m[j]: 0; j: j + i; } }"
    "    i: i + 1; } return found; }"
    "collatz(n) { longest: 0; i: 1; while i < n { x: i; steps: 0;"
    "  while x > 1 { if x % 2 { x: 3 * x + 1; } else { x: x / 2; } steps: steps + 1; }"
    "  if steps > longest { longest: steps; } i: i + 1; } return longest; }"
    "sort(from, to) { if to - from < 2 { return 0; } pivot: m[from + (to - from) / 2];"
    "  i: from; j: to - 1; while i < j + 1 { while m[i] < pivot { i: i + 1; }"
    "    while m[j] > pivot { j: j - 1; }"
    "    if i < j + 1 { keep: m[i]; m[i]: m[j]; m[j]: keep; i: i + 1; j: j - 1; } }"
    "  sort(from, j + 1); sort(i, to); return 0; }"
    "sorted(n, seed) { i: 0; while i < n { seed: (seed * 1103515245 + 12345) % 2147483648;"
    "  m[i]: seed / 8; i: i + 1; } sort(0, n); i: 0; sum: 0;"
    "  while i < n { sum: sum * 31 ^ m[i] + i; i: i + 1; } return sum; }"
    "safe(row, column) { i: 0; while i < row { d: m[i] - column;"
    "  if (d = 0) + (d = row - i) + (d = i - row) { return 0; } i: i + 1; } return 1; }"
    "queens(row, n) { if row = n { return 1; } ways: 0; column: 0; while column < n {"
    "  if safe(row, column) { m[row]: column; ways: ways + queens(row + 1, n); }"
    "  column: column + 1; } return ways; }"
    "main(seed) { sum: fib(19 + seed % 3); sum: sum * 31 ^ sieve(20000 + seed % 999);"
    "  sum: sum * 31 ^ collatz(3000 + seed % 99); sum: sum * 31 ^ sorted(8000, seed);"
    "  return sum * 31 ^ queens(0, 7); }";

static int64_t *cell(int64_t *cells, int64_t index)
{
    if (index < 0 || index >= CELLS)
        die("m[%" PRId64 "] is outside the array", index);
    return &cells[index];
}

/* Arithmetic wraps around: unsigned, so that overflow is defined. */
static int64_t apply(enum op op, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case ADD: return (int64_t)(x + y);
    case SUBTRACT: return (int64_t)(x - y);
    case MULTIPLY: return (int64_t)(x * y);
    case LESS: return a < b;
    case MORE: return a > b;
    case EQUAL: return a == b;
    case EXCLUSIVE: return a ^ b;
    default:
        if (b <= 0)
            die("division by %" PRId64, b);
        return op == DIVIDE ? a / b : a % b;
    }
}

/* Calls main(argument). A frame is NAMES locals, return address, caller's frame, operands. */
static int64_t run(struct compiler *c, int64_t *stack, int64_t *cells, int64_t argument,
                   uint64_t *executed)
{
    const int64_t *code = c->code;
    int64_t pc = c->functions.value[find(&c->functions, "main")];
    int64_t *frame = stack, *top = frame + NAMES;
    frame[0] = argument;
    *top++ = -1;
    *top++ = 0;
    for (uint64_t count = 1;; count++) {
        const enum op op = (enum op)code[pc++];
        switch (op) {
        case PUSH: *top++ = code[pc++]; break;
        case LOAD: *top++ = frame[code[pc++]]; break;
        case STORE: frame[code[pc++]] = *--top; break;
        case FETCH: top[-1] = *cell(cells, top[-1]); break;
        case PUT: top -= 2; *cell(cells, top[0]) = top[1]; break;
        case JUMP: pc = code[pc]; break;
        case UNLESS: pc = *--top != 0 ? pc + 1 : code[pc]; break;
        case DROP: top--; break;
        case CALL: {
            int64_t *arguments = top - code[pc + 1];
            if (stack + STACK - arguments <= 2 * (NAMES + 2))
                die("calls are nested too deeply");
            top = arguments + NAMES; /* the arguments are the callee's first locals */
            *top++ = pc + 2;
            *top++ = frame - stack;
            pc = c->functions.value[code[pc]];
            frame = arguments;
            break;
        }
        case RETURN: {
            int64_t value = top[-1];
            pc = frame[NAMES];
            if (pc < 0) {
                *executed += count;
                return value;
            }
            top = frame;
            frame = stack + frame[NAMES + 1];
            *top++ = value;
            break;
        }
        default:
            top--;
            top[-1] = apply(op, top[-1], top[0]);
        }
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 1, "RUNS");
    const int64_t runs = argument(argv, 1, "RUNS", 1, 1000000000);

    struct compiler *c = allocate(1, sizeof *c);
    int64_t *stack = allocate(STACK, sizeof *stack), *cells = allocate(CELLS, sizeof *cells);
    memset(stack, 0, STACK * sizeof *stack);
    memset(cells, 0, CELLS * sizeof *cells);
    uint64_t state = 15, sum = 0, executed = 0;
    for (int64_t i = 0; i < runs; i++) {
        compile(c, PROGRAM);
        for (int64_t k = 0; k < c->used; k++)
            sum = fold(sum, (uint64_t)c->code[k]);
        int64_t seed = random_below(&state, 1000000);
        sum = fold(sum, (uint64_t)run(c, stack, cells, seed, &executed));
    }
    printf("runs %" PRId64 " words %" PRId64 " instructions %" PRIu64 "\n", runs, c->used,
           executed);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(stack);
    free(cells);
    free(c);
    return finish();
}
