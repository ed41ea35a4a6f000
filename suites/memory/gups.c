/* gups: updates of random words in a table that all copies of a run share out among them.
 *
 * HPCC's RandomAccess with three differences. The copies do not write into one another's part
 * (each is a program of its own): the table of TOTAL_MIB divided by $RATER_COPIES, so that the
 * whole machine always touches the same amount of memory. Any number of copies will do, not only
 * powers of two: a random number becomes an index by multiplication, not by a mask. And each copy
 * does UPDATES updates however large its part is, so that copies x time means what it means for
 * other programs; HPCC does four for each word of the table.
 *
 * Verified as in HPCC: the same updates again must undo the first ones. HPCC allows 1 % of errors,
 * from updates that race; here nobody races, and 0 is expected.
 *
 * The rate is the mean over all of the first updates, so that the rates of copies, which work at
 * the same time, may be added up.
 */
#include "../mini/clock.h"

static int64_t copies_of_the_run(void)
{
    char *words[] = {getenv("RATER_COPIES")};
    return words[0] == NULL ? 1 : argument(words, 0, "RATER_COPIES", 1, 1000000);
}

__attribute__((noinline)) static void update(uint64_t *table, uint64_t words, int64_t updates)
{
    uint64_t state = 2;
    for (int64_t i = 0; i < updates; i++) {
        uint64_t value = random_bits(&state);
        table[(uint64_t)(((unsigned __int128)value * words) >> 64)] ^= value;
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "TOTAL_MIB UPDATES");
    const int64_t total_mib = argument(argv, 1, "TOTAL_MIB", 1, INT64_C(1) << 30);
    const int64_t updates = argument(argv, 2, "UPDATES", 1, INT64_C(1) << 50);
    const int64_t words_of_all = total_mib * ((1 << 20) / (int64_t)sizeof(uint64_t));
    const int64_t copies = copies_of_the_run();
    if (copies > words_of_all)
        die("%" PRId64 " MiB are not enough for %" PRId64 " copies", total_mib, copies);

    const uint64_t words = (uint64_t)(words_of_all / copies);
    uint64_t *table = allocate((size_t)words, sizeof *table);
    for (uint64_t i = 0; i < words; i++)
        table[i] = i;

    const double start_s = now_s();
    update(table, words, updates);
    const double elapsed_s = now_s() - start_s;

    uint64_t touched = 0, errors = 0;
    for (uint64_t i = 0; i < words; i++)
        touched += table[i] != i;
    update(table, words, updates);
    for (uint64_t i = 0; i < words; i++)
        errors += table[i] != i;
    if (touched == 0)
        die("no word was changed by %" PRId64 " updates", updates);
    printf("updates %" PRId64 " errors %" PRIu64 "\n", updates, errors);
    printf("words %" PRIu64 "\n", words);
    printf("rate %.6f GUPS\n", (double)updates / elapsed_s * 1e-9);
    free(table);
    return finish();
}
