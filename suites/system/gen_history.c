/* gen_history: writes the history of a project as a stream for `git fast-import`.
 *
 * COMMITS commits, each changing some lines of one to three of FILES text files of LINES lines,
 * so that a later version of a file differs little from an earlier one, as in a real project.
 */
#include "vocabulary.h"

enum { LINE_WORDS = 7 };

struct project {
    FILE *out;
    uint64_t state;
    const struct vocabulary *words;
    int64_t lines;
    uint64_t *seeds; /* [file][line]: a line's text follows from its seed */
};

/* Returns the length; writes the line when `out` is not NULL. */
static int64_t line_text(const struct project *p, uint64_t seed, FILE *out)
{
    int64_t length = 0;
    uint32_t last = 0;
    for (int i = 0; i < LINE_WORDS; i++) {
        last = next_word(p->words, &seed, last);
        length += (int64_t)strlen(p->words->word[last]) + 1;
        if (out != NULL)
            fprintf(out, "%s%c", p->words->word[last], i + 1 < LINE_WORDS ? ' ' : '\n');
    }
    return length;
}

static void write_file(struct project *p, int64_t file)
{
    const uint64_t *seeds = &p->seeds[file * p->lines];
    int64_t length = 0;
    for (int64_t i = 0; i < p->lines; i++)
        length += line_text(p, seeds[i], NULL);
    fprintf(p->out, "M 100644 inline %s/%s-%" PRId64 ".txt\ndata %" PRId64 "\n",
            p->words->word[100 + file % 9], p->words->word[200 + file], file, length);
    for (int64_t i = 0; i < p->lines; i++)
        line_text(p, seeds[i], p->out);
    fputc('\n', p->out);
}

static void start_commit(struct project *p, int64_t commit)
{
    static const char person[] = "A Writer <writer@example.org>";
    int64_t time_s = 1767225600 + 3600 * commit; /* from 2026-01-01 on */
    const char *subject = p->words->word[random_below(&p->state, WORDS)];
    fprintf(p->out,
            "commit refs/heads/main\nauthor %s %" PRId64 " +0000\ncommitter %s %" PRId64
            " +0000\ndata %zu\n%s\n\n",
            person, time_s, person, time_s, strlen(subject) + 1, subject);
}

static void change(struct project *p, int64_t file)
{
    for (uint32_t edits = 1 + random_below(&p->state, 12); edits > 0; edits--) {
        int64_t line = random_below(&p->state, (uint32_t)p->lines);
        p->seeds[file * p->lines + line] = random_bits(&p->state);
    }
    write_file(p, file);
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 4, "COMMITS FILES LINES FILE");
    const int64_t commits = argument(argv, 1, "COMMITS", 1, 1000000);
    const int64_t files = argument(argv, 2, "FILES", 1, 1000);
    const int64_t lines = argument(argv, 3, "LINES", 1, 100000);

    struct vocabulary *words = new_vocabulary(11);
    struct project p = {create(argv[4]), 16, words, lines,
                        allocate((size_t)(files * lines), sizeof(uint64_t))};
    for (int64_t i = 0; i < files * lines; i++)
        p.seeds[i] = random_bits(&p.state);
    start_commit(&p, 0);
    for (int64_t file = 0; file < files; file++)
        write_file(&p, file);
    for (int64_t commit = 1; commit < commits; commit++) {
        start_commit(&p, commit);
        int64_t first = random_below(&p.state, (uint32_t)files);
        int64_t count = 1 + random_below(&p.state, files < 3 ? (uint32_t)files : 3);
        for (int64_t i = 0; i < count; i++)
            change(&p, (first + i) % files);
    }
    free(p.seeds);
    free(words);
    return finish_file(p.out, argv[4]);
}
