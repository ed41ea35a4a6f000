/* JSON written, then read into a tree of malloc's blocks, whose records are sorted by a number and summed up in
 * that order, and freed. */
#include "program.h"

enum { RECORDS = 160000, NAMES = 8 };
enum kind { NUMBER, STRING, LIST, OBJECT };
struct value { enum kind kind; double number; char *text; struct value *first, *next; char *name; };

static const char *at;

static char *write_json(void)
{
    static const char *const names[NAMES] = {"id", "name", "price", "count", "tags", "weight", "city", "note"};
    char *text = allocate((size_t)RECORDS * 200 + 16), *to = text;
    *to++ = '[';
    for (int record = 0; record < RECORDS; record++) {
        uint64_t bits = random_bits();
        to += sprintf(to, "%s{\"%s\": %d, \"%s\": \"item %x\", \"%s\": %u.%02u, \"%s\": %u, \"%s\": [%u, %u, %u], ",
                      record ? ",\n" : "", names[0], record, names[1], (unsigned)bits, names[2], (unsigned)(bits >> 40),
                      (unsigned)(bits % 100), names[3], (unsigned)(bits % 1000), names[4], (unsigned)(bits % 7),
                      (unsigned)(bits % 11), (unsigned)(bits % 13));
        to += sprintf(to, "\"%s\": %u, \"%s\": \"town %x\", \"%s\": \"%x\"}", names[5], (unsigned)(bits >> 50), names[6],
                      (unsigned)(bits >> 44 & 0xfff), names[7], (unsigned)(bits >> 20));
    }
    strcpy(to, "]");
    return text;
}
static void skip_space(void) { while (*at == ' ' || *at == '\n') at++; }
static char *parse_string(void)
{
    const char *begin = ++at;
    while (*at != '"') at++;
    size_t bytes = (size_t)(at++ - begin);
    char *text = allocate(bytes + 1);
    memcpy(text, begin, bytes);
    text[bytes] = 0;
    return text;
}
static struct value *parse(void)
{
    struct value *value = allocate(sizeof *value), **last = &value->first;
    *value = (struct value){.kind = NUMBER};
    skip_space();
    if (*at == '"') { value->kind = STRING; value->text = parse_string(); return value; }
    if (*at != '[' && *at != '{') { char *end; value->number = strtod(at, &end); at = end; return value; }
    value->kind = *at++ == '[' ? LIST : OBJECT;
    for (skip_space(); *at != ']' && *at != '}'; skip_space()) {
        char *name = NULL;
        if (*at == ',') { at++; skip_space(); }
        if (value->kind == OBJECT) { name = parse_string(); skip_space(); at++; }
        *last = parse();
        (*last)->name = name;
        last = &(*last)->next;
    }
    at++;
    return value;
}
static double total(const struct value *value)
{
    double sum = value->number + (value->text ? (double)strlen(value->text) : 0);
    for (const struct value *inner = value->first; inner; inner = inner->next) sum += total(inner);
    return sum;
}
static double price(const struct value *record)
{
    for (const struct value *field = record->first; field; field = field->next)
        if (strcmp(field->name, "price") == 0) return field->number;
    return 0;
}
static int by_price(const void *a, const void *b)
{
    double first = price(*(struct value *const *)a), second = price(*(struct value *const *)b);
    return (first > second) - (first < second);
}
/* Of the records in the order of their prices. */
static double sorted_total(const struct value *document)
{
    const struct value **records = allocate(RECORDS * sizeof *records);
    size_t count = 0;
    double sum = 0;
    for (const struct value *record = document->first; record; record = record->next) records[count++] = record;
    qsort(records, count, sizeof *records, by_price);
    for (size_t i = 0; i < count; i++) sum += total(records[i]) * (double)(i % 8);
    free(records);
    return sum;
}
static void release(struct value *value)
{
    for (struct value *inner = value->first, *next; inner; inner = next) { next = inner->next; release(inner); }
    free(value->text);
    free(value->name);
    free(value);
}

int main(void)
{
    char *text = write_json();
    at = text;
    struct value *document = parse();
    double sum = sorted_total(document);
    release(document);
    free(text);
    printf("sum %.2f\n", sum);
    return 0;
}
