/* What the two halves of `vm` share: the instructions, and what the compiler knows and makes. */
#ifndef VM_H
#define VM_H

#include <stdint.h>

enum { CODE_WORDS = 4096, NAMES = 32, NAME = 16 };
enum op { PUSH, LOAD, STORE, FETCH, PUT, JUMP, UNLESS, CALL, RETURN, DROP,
          ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO, LESS, MORE, EQUAL, EXCLUSIVE };

struct names {
    char name[NAMES][NAME];
    int64_t value[NAMES]; /* a function's address */
    int count;
};

struct compiler {
    const char *at;
    struct names functions;
    struct names locals;
    int64_t code[CODE_WORDS];
    int64_t used;
};

/* Compiles the functions of a program; ends the program with a message when it is wrong. */
void compile(struct compiler *c, const char *program);

/* The name's index, added when it is new. */
int find(struct names *names, const char *name);

#endif
