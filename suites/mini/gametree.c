/* gametree: alpha-beta search of four-in-a-row positions, with a table of positions seen.
 *
 * Behaves like deepsjeng and other game programs: bit patterns in registers, branches that
 * depend on the position and are hard to predict, and one random access to a big table per
 * position. Limited by branch prediction and integer latency, then by the table's misses.
 *
 * The board has 7 columns of 6; a column takes 7 bits, the top one always empty, so that a
 * shift by 1, 6, 7 or 8 bits is a step in one of the four directions of a line.
 */
#include <stdbool.h>

#include "mini.h"

enum { COLUMNS = 7, HEIGHT = 6, WON = 10000, OPENING = 8 };
enum bound { EXACT = 1, AT_LEAST, AT_MOST };

struct seen {
    uint64_t key;
    int32_t score;
    uint8_t depth;
    uint8_t bound;
    uint8_t column;
};

struct game {
    struct seen *table;
    uint64_t mask; /* of table indices */
    uint64_t positions;
    uint64_t hits;
};

#define BOTTOM UINT64_C(0x40810204081) /* the lowest bit of every column */
#define BOARD (BOTTOM * 63)
#define CENTRE UINT64_C(0x1E3C78000) /* 4 cells of each of the 3 middle columns */

static const int SEARCH_ORDER[COLUMNS] = {3, 2, 4, 1, 5, 0, 6};

static int count_bits(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return (int)(x * UINT64_C(0x0101010101010101) >> 56);
}

static bool has_four(uint64_t discs)
{
    for (int step = 1; step <= 8; step += step == 1 ? 5 : 1) {
        uint64_t pairs = discs & discs >> step;
        if (pairs & pairs >> 2 * step)
            return true;
    }
    return false;
}

/* Empty cells that would complete a line of four. */
static uint64_t threats(uint64_t discs, uint64_t all)
{
    uint64_t found = discs << 1 & discs << 2 & discs << 3;
    for (int step = 6; step <= 8; step++) {
        uint64_t up = discs << step & discs << 2 * step;
        uint64_t down = discs >> step & discs >> 2 * step;
        found |= up & (discs << 3 * step | discs >> step);
        found |= down & (discs >> 3 * step | discs << step);
    }
    return found & BOARD & ~all;
}

/* Where a disc dropped into the column comes to rest, 0 when the column is full. */
static uint64_t landing(uint64_t all, int column)
{
    uint64_t cells = UINT64_C(63) << column * (HEIGHT + 1);
    return (all + (UINT64_C(1) << column * (HEIGHT + 1))) & cells;
}

/* The score for the side that owns `own`, to move; `all` are the discs of both. */
static int32_t search(struct game *game, uint64_t own, uint64_t all, int depth, int32_t alpha,
                      int32_t beta)
{
    game->positions++;
    const uint64_t other = own ^ all, wins = threats(own, all);
    for (int column = 0; column < COLUMNS; column++)
        if (landing(all, column) & wins)
            return WON + depth;
    if (all == BOARD)
        return 0;
    if (depth == 0)
        return 8 * (count_bits(wins) - count_bits(threats(other, all))) +
               count_bits(own & CENTRE) - count_bits(other & CENTRE);

    const uint64_t key = own + all + BOTTOM; /* unique: the top one marks each column's height */
    struct seen *seen = &game->table[scramble(key) & game->mask];
    int first = -1;
    if (seen->key == key) {
        game->hits++;
        first = seen->column;
        if (seen->depth == depth && (seen->bound == EXACT ||
                                     (seen->bound == AT_LEAST && seen->score >= beta) ||
                                     (seen->bound == AT_MOST && seen->score <= alpha)))
            return seen->score;
    }

    int32_t best = -2 * WON, floor = alpha;
    int best_column = 0;
    for (int i = first < 0 ? 0 : -1; i < COLUMNS; i++) {
        int column = i < 0 ? first : SEARCH_ORDER[i];
        uint64_t disc = landing(all, column);
        if (disc == 0 || (i >= 0 && column == first))
            continue;
        int32_t score = -search(game, other, all | disc, depth - 1, -beta, -floor);
        if (score > best) {
            best = score;
            best_column = column;
        }
        floor = best > floor ? best : floor;
        if (floor >= beta)
            break;
    }
    enum bound bound = best >= beta ? AT_LEAST : best <= alpha ? AT_MOST : EXACT;
    *seen = (struct seen){key, best, (uint8_t)depth, (uint8_t)bound, (uint8_t)best_column};
    return best;
}

/* Random discs by turns, until a position arises in which nobody has won. */
static uint64_t open_game(uint64_t *state, uint64_t *all)
{
    for (;;) {
        uint64_t own = *all = 0;
        bool won = false;
        for (int disc = 0; disc < OPENING; disc++) {
            uint64_t cell = landing(*all, (int)random_below(state, COLUMNS));
            own ^= *all; /* the other side's discs: it moves next */
            *all |= cell;
            won = won || has_four(own ^ *all);
        }
        if (!won && count_bits(*all) == OPENING)
            return own;
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 3, "OPENINGS DEPTH LOG2_TABLE");
    const int64_t openings = argument(argv, 1, "OPENINGS", 1, 1000000);
    const int depth = (int)argument(argv, 2, "DEPTH", 1, COLUMNS * HEIGHT - OPENING);
    const int64_t bits = argument(argv, 3, "LOG2_TABLE", 4, 32);

    struct game game = {NULL, (UINT64_C(1) << bits) - 1, 0, 0};
    game.table = allocate((size_t)game.mask + 1, sizeof *game.table);
    for (uint64_t i = 0; i <= game.mask; i++)
        game.table[i] = (struct seen){0};

    uint64_t state = 10, sum = 0;
    int64_t won = 0, lost = 0;
    for (int64_t i = 0; i < openings; i++) {
        uint64_t all, own = open_game(&state, &all);
        int32_t score = search(&game, own, all, depth, -2 * WON, 2 * WON);
        won += score >= WON;
        lost += score <= -WON;
        sum = fold(sum, (uint64_t)score);
    }
    printf("openings %" PRId64 " won %" PRId64 " lost %" PRId64 "\n", openings, won, lost);
    printf("positions %" PRIu64 " table hits %" PRIu64 "\n", game.positions, game.hits);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(game.table);
    return finish();
}
