/* gen_text: writes text of a wanted length, to be compressed, searched and counted.
 *
 * `prose` is sentences and paragraphs; `log` is what four daemons of some machines write, line by
 * line, so that much of a line was in the lines before it. Whole lines: the last one may pass
 * BYTES by a little.
 */
#include "vocabulary.h"

struct writer {
    FILE *file;
    int64_t bytes;
    uint64_t state;
    const struct vocabulary *words;
    uint32_t last; /* word */
};

/* One piece of text. Pieces take at most one random value each: the order in which a compiler
 * evaluates several arguments of one call is its own affair, the order of calls is not.
 */
__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int count = vfprintf(w->file, format, values);
    va_end(values);
    if (count < 0)
        die("cannot write the text");
    w->bytes += count;
}

static uint32_t below(struct writer *w, uint32_t limit)
{
    return random_below(&w->state, limit);
}

static const char *word(struct writer *w)
{
    w->last = next_word(w->words, &w->state, w->last);
    return w->words->word[w->last];
}

static void paragraph(struct writer *w)
{
    for (uint32_t sentences = 2 + below(w, 7); sentences > 0; sentences--) {
        const char *first = word(w);
        put(w, "%c%s", first[0] - 'a' + 'A', first + 1);
        for (uint32_t count = 3 + below(w, 18); count > 0; count--) {
            put(w, "%s", below(w, 12) == 0 ? ", " : " ");
            put(w, "%s", word(w));
        }
        put(w, "%s", sentences > 1 ? ". " : ".\n\n");
    }
}

static void address(struct writer *w)
{
    put(w, "10.%" PRIu32, below(w, 4));
    put(w, ".%" PRIu32, below(w, 32));
    put(w, ".%" PRIu32, below(w, 256));
}

static void access_line(struct writer *w)
{
    static const char *const methods[] = {"GET", "GET", "GET", "GET", "POST", "HEAD"};
    static const int statuses[] = {200, 200, 200, 200, 200, 200, 304, 404, 500, 302};
    put(w, "access[%" PRIu32 "]: ", 4000 + below(w, 8));
    address(w);
    put(w, " \"%s ", methods[below(w, 6)]);
    put(w, "/%s", word(w));
    put(w, "/%s", word(w));
    put(w, "?%s", word(w));
    put(w, "=%" PRIu32 " HTTP/1.1\"", below(w, 100000));
    put(w, " %d", statuses[below(w, 10)]);
    put(w, " %" PRIu32, below(w, 60000));
    put(w, " %" PRIu32 "ms\n", below(w, 900));
}

static void worker_line(struct writer *w)
{
    put(w, "worker[812]: job %" PRIu32, below(w, 1000000));
    put(w, " %s", word(w));
    put(w, "-%s", word(w));
    put(w, " finished in %" PRIu32 " ms\n", 10 + below(w, 5000));
}

static void database_line(struct writer *w)
{
    put(w, "database[77]: slow query (%" PRIu32 " ms): ", 500 + below(w, 4000));
    put(w, "select %s", word(w));
    put(w, ", %s", word(w));
    put(w, " from %s", word(w));
    put(w, " where %s", word(w));
    put(w, " = %" PRIu32 "\n", below(w, 5000));
}

static void session_line(struct writer *w)
{
    put(w, "auth[301]: session opened for user %s from ", word(w));
    address(w);
    put(w, "\n");
}

static void log_line(struct writer *w, int64_t time_ms)
{
    int64_t seconds = time_ms / 1000;
    put(w, "2026-03-%02" PRId64 "T%02" PRId64 ":%02" PRId64 ":%02" PRId64 ".%03" PRId64,
        1 + seconds / 86400 % 28, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60,
        time_ms % 1000);
    put(w, " web-%02" PRIu32 " ", below(w, 24));
    uint32_t kind = below(w, 8);
    if (kind < 5)
        access_line(w);
    else if (kind == 5)
        worker_line(w);
    else if (kind == 6)
        database_line(w);
    else
        session_line(w);
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 3, "prose|log BYTES FILE");
    const int is_log = strcmp(argv[1], "log") == 0;
    if (!is_log && strcmp(argv[1], "prose") != 0)
        die("the kind is '%s', expected prose or log", argv[1]);
    const int64_t bytes = argument(argv, 2, "BYTES", 1, INT64_C(1) << 40);

    struct vocabulary *words = new_vocabulary(11);
    struct writer w = {create(argv[3]), 0, is_log ? 13 : 12, words, 0};
    for (int64_t time_ms = 0; w.bytes < bytes; time_ms += below(&w, 400)) {
        if (is_log)
            log_line(&w, time_ms);
        else
            paragraph(&w);
    }
    free(words);
    return finish_file(w.file, argv[3]);
}
