/* The compiler of `vm`: one pass over the text, recursive descent, code for a stack machine.
 *
 * The language has integers, functions, locals and one array m[]. Operators are single
 * characters with C's precedence: = is equality, and assignment is written with a colon.
 */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "mini.h"
#include "vm.h"

static const struct operator { char sign; int level; enum op op; } OPERATORS[] = {
    {'^', 0, EXCLUSIVE}, {'=', 1, EQUAL}, {'<', 2, LESS}, {'>', 2, MORE}, {'+', 3, ADD},
    {'-', 3, SUBTRACT}, {'*', 4, MULTIPLY}, {'/', 4, DIVIDE}, {'%', 4, MODULO}};
enum { OPERATOR_COUNT = sizeof OPERATORS / sizeof *OPERATORS, LEVELS = 5 };

static void emit(struct compiler *c, int64_t word)
{
    if (c->used == CODE_WORDS)
        die("the program needs more than %d words", CODE_WORDS);
    c->code[c->used++] = word;
}

static void emit_with(struct compiler *c, enum op op, int64_t operand)
{
    emit(c, op);
    emit(c, operand);
}

static char peek(struct compiler *c)
{
    while (*c->at == ' ')
        c->at++;
    return *c->at;
}

static bool accept(struct compiler *c, char sign)
{
    bool found = peek(c) == sign;
    c->at += found;
    return found;
}

static void expect(struct compiler *c, char sign)
{
    if (!accept(c, sign))
        die("'%c' expected at '%.20s'", sign, c->at);
}

static void read_name(struct compiler *c, char *name)
{
    int length = 0;
    for (peek(c); isalpha((unsigned char)*c->at) && length < NAME - 1; c->at++)
        name[length++] = *c->at;
    name[length] = '\0';
    if (length == 0)
        die("a name expected at '%.20s'", c->at);
}

int find(struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return i;
    if (names->count == NAMES)
        die("more than %d names", NAMES);
    strcpy(names->name[names->count], name); /* read_name keeps it shorter than NAME */
    return names->count++;
}

static void expression(struct compiler *c, int level);

static void operand(struct compiler *c)
{
    char name[NAME];
    if (accept(c, '(')) {
        expression(c, 0);
        expect(c, ')');
    } else if (isdigit((unsigned char)peek(c))) {
        int64_t number = 0;
        for (; isdigit((unsigned char)*c->at); c->at++)
            number = number * 10 + (*c->at - '0');
        emit_with(c, PUSH, number);
    } else {
        read_name(c, name);
        if (accept(c, '[')) {
            expression(c, 0);
            expect(c, ']');
            emit(c, FETCH);
        } else if (accept(c, '(')) {
            int64_t arguments = 0;
            do {
                expression(c, 0);
                arguments++;
            } while (accept(c, ','));
            expect(c, ')');
            emit_with(c, CALL, find(&c->functions, name));
            emit(c, arguments);
        } else {
            emit_with(c, LOAD, find(&c->locals, name));
        }
    }
}

static void expression(struct compiler *c, int level)
{
    if (level == LEVELS) {
        operand(c);
        return;
    }
    expression(c, level + 1);
    for (int i = 0; i < OPERATOR_COUNT; i++)
        if (OPERATORS[i].level == level && accept(c, OPERATORS[i].sign)) {
            expression(c, level + 1);
            emit(c, OPERATORS[i].op);
            i = -1; /* as long as operators of this level follow */
        }
}

static void block(struct compiler *c);

static void statement(struct compiler *c)
{
    char name[NAME];
    const char *start = c->at;
    read_name(c, name);
    if (strcmp(name, "while") == 0 || strcmp(name, "if") == 0) {
        const bool loop = *name == 'w';
        const int64_t top = c->used;
        expression(c, 0);
        emit_with(c, UNLESS, 0);
        int64_t hole = c->used - 1;
        block(c);
        peek(c);
        const bool otherwise = !loop && strncmp(c->at, "else ", 5) == 0;
        if (loop || otherwise)
            emit_with(c, JUMP, top);
        c->code[hole] = c->used;
        if (otherwise) {
            hole = c->used - 1;
            c->at += 4;
            block(c);
            c->code[hole] = c->used;
        }
        return;
    }
    if (strcmp(name, "return") == 0) {
        expression(c, 0);
        emit(c, RETURN);
    } else if (accept(c, ':')) {
        expression(c, 0);
        emit_with(c, STORE, find(&c->locals, name));
    } else if (accept(c, '[')) {
        expression(c, 0);
        expect(c, ']');
        expect(c, ':');
        expression(c, 0);
        emit(c, PUT);
    } else {
        c->at = start;
        expression(c, 0);
        emit(c, DROP);
    }
    expect(c, ';');
}

static void block(struct compiler *c)
{
    expect(c, '{');
    while (!accept(c, '}'))
        statement(c);
}

void compile(struct compiler *c, const char *program)
{
    memset(c, 0, sizeof *c);
    for (c->at = program; peek(c) != '\0';) {
        char name[NAME];
        read_name(c, name);
        c->functions.value[find(&c->functions, name)] = c->used;
        c->locals.count = 0;
        expect(c, '(');
        do {
            read_name(c, name);
            find(&c->locals, name);
        } while (accept(c, ','));
        expect(c, ')');
        block(c);
    }
}
