/* gen_source: writes C source for compilers: one part of a program of PARTS parts.
 *
 * A part is FUNCTIONS functions of loops, branches, switches and table look-ups over unsigned 32
 * bit integers, where nothing is undefined, so that any compiler's program prints the same sum.
 * A function calls at most one earlier function, outside its loops: the program runs for a
 * moment, compiling it is the work. Part 0 has main().
 */
#include "vocabulary.h"

enum { LOCALS = 6, TABLE = 64 };

struct writer {
    FILE *file;
    uint64_t state;
    int counters; /* loop variables so far in this function */
};

static uint32_t below(struct writer *w, uint32_t limit)
{
    return random_below(&w->state, limit);
}

static void indent(struct writer *w, int depth)
{
    fprintf(w->file, "%*s", 4 * depth, "");
}

static void expression(struct writer *w, int depth)
{
    static const char *const operators[] = {"+", "-", "*", "^", "&", "|", "+", "^"};
    uint32_t kind = below(w, depth > 2 ? 3 : 8);
    if (kind < 2) {
        fprintf(w->file, "v%" PRIu32, below(w, LOCALS));
    } else if (kind == 2) {
        fprintf(w->file, "%" PRIu32 "u", below(w, 100000));
    } else if (kind == 3) {
        fputs("table[(", w->file);
        expression(w, depth + 1);
        fprintf(w->file, ") %% %du]", TABLE);
    } else if (kind == 4) {
        fputs("((", w->file);
        expression(w, depth + 1);
        fprintf(w->file, ") >> %" PRIu32 ")", 1 + below(w, 15));
    } else {
        fputs("(", w->file);
        expression(w, depth + 1);
        fprintf(w->file, " %s ", operators[below(w, 8)]);
        expression(w, depth + 1);
        fputs(")", w->file);
    }
}

static void assignment(struct writer *w, int depth)
{
    indent(w, depth);
    if (below(w, 4) == 0) {
        fputs("table[(", w->file);
        expression(w, 2);
        fprintf(w->file, ") %% %du] ", TABLE);
    } else {
        fprintf(w->file, "v%" PRIu32 " ", below(w, LOCALS));
    }
    fputs(below(w, 3) == 0 ? "+= " : "= ", w->file);
    expression(w, 0);
    fputs(";\n", w->file);
}

static void block(struct writer *w, int depth, int statements);

static void statement(struct writer *w, int depth)
{
    uint32_t kind = below(w, depth > 3 ? 4 : 8);
    if (kind < 4) {
        assignment(w, depth);
        return;
    }
    indent(w, depth);
    if (kind == 4) {
        int counter = w->counters++;
        fprintf(w->file, "for (uint32_t i%d = 0; i%d < %" PRIu32 "u; i%d++) {\n", counter, counter,
                2 + below(w, 6), counter);
        block(w, depth + 1, 2);
        indent(w, depth + 1);
        fprintf(w->file, "v%" PRIu32 " += i%d;\n", below(w, LOCALS), counter);
    } else if (kind == 5) {
        fputs("switch (", w->file);
        expression(w, 1);
        fputs(" % 4u) {\n", w->file);
        for (int label = 0; label < 4; label++) {
            indent(w, depth);
            fprintf(w->file, label < 3 ? "case %d:\n" : "default:\n", label);
            block(w, depth + 1, 1);
            indent(w, depth + 1);
            fputs("break;\n", w->file);
        }
    } else {
        fputs("if ((", w->file);
        expression(w, 1);
        fputs(") < (", w->file);
        expression(w, 1);
        fputs(")) {\n", w->file);
        block(w, depth + 1, 2);
        indent(w, depth);
        fputs("} else {\n", w->file);
        block(w, depth + 1, 1);
    }
    indent(w, depth);
    fputs("}\n", w->file);
}

static void block(struct writer *w, int depth, int statements)
{
    for (int i = 0; i < statements; i++)
        statement(w, depth);
}

static void function(struct writer *w, int64_t part, int64_t number)
{
    const char *linkage = below(w, 3) == 0 ? "" : "static ";
    w->counters = 0;
    fprintf(w->file,
            "%suint32_t f%" PRId64 "_%" PRId64 "(uint32_t v0, uint32_t v1, uint32_t *table)\n{\n"
            "    uint32_t v2 = v0 ^ v1, v3 = v0 + 1u, v4 = v1 * 3u, v5 = 7u;\n",
            linkage, part, number);
    block(w, 1, 6);
    if (number > 0)
        fprintf(w->file, "    v2 += f%" PRId64 "_%" PRIu32 "(v3, v4, table);\n", part,
                below(w, (uint32_t)number));
    fputs("    return v0 ^ v1 ^ v2 ^ v3 ^ v4 ^ v5;\n}\n\n", w->file);
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 4, "PART PARTS FUNCTIONS FILE");
    const int64_t parts = argument(argv, 2, "PARTS", 1, 1000);
    const int64_t part = argument(argv, 1, "PART", 0, parts - 1);
    const int64_t functions = argument(argv, 3, "FUNCTIONS", 1, 1000000);

    struct writer w = {create(argv[4]), scramble((uint64_t)part + 15), 0};
    fputs("#include <stdint.h>\n#include <stdio.h>\n\n", w.file);
    for (int64_t number = 0; number < functions; number++)
        function(&w, part, number);
    fprintf(w.file, "uint32_t part%" PRId64 "(uint32_t *table)\n{\n    uint32_t sum = 0;\n", part);
    for (int64_t number = 0; number < functions; number++)
        fprintf(w.file, "    sum = sum * 31u + f%" PRId64 "_%" PRId64 "(sum, %" PRId64 "u, table);\n",
                part, number, number);
    fputs("    return sum;\n}\n", w.file);
    if (part == 0) {
        for (int64_t other = 1; other < parts; other++)
            fprintf(w.file, "\nuint32_t part%" PRId64 "(uint32_t *table);", other);
        fprintf(w.file, "\n\nint main(void)\n{\n    uint32_t table[%d] = {1u};\n", TABLE);
        for (int64_t other = 0; other < parts; other++)
            fprintf(w.file, "    printf(\"part %" PRId64 " %%08x\\n\", (unsigned)part%" PRId64
                            "(table));\n",
                    other, other);
        fputs("    return 0;\n}\n", w.file);
    }
    return finish_file(w.file, argv[4]);
}
