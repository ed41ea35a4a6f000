/* blocksort: compresses and decompresses text, block by block, in memory.
 *
 * Behaves like bzip2: sorting all rotations of a block (Burrows-Wheeler) is compares and swaps
 * that no branch predictor guesses, move-to-front and Huffman coding are chains of dependent
 * small steps, and undoing the sort jumps through a few megabytes. Limited by branches and by
 * the latency of the second- and third-level cache.
 *
 * The text is drawn from a made-up vocabulary in which a word's successors are few, so that it
 * compresses about as well as prose. Every block is decoded and compared with the original.
 */
#include <string.h>

#include "mini.h"

enum { VOCABULARY = 4096, LONGEST = 12, RUNS = 2, SYMBOLS = 256 + RUNS };

struct code {
    uint8_t length[SYMBOLS];
    uint64_t bits[SYMBOLS];
};

static void write_text(uint8_t *text, int64_t size, uint64_t *state)
{
    char words[VOCABULARY][LONGEST + 2];
    uint64_t spelling = 8;
    for (int i = 0; i < VOCABULARY; i++) {
        uint32_t length = 2 + random_below(&spelling, LONGEST - 1);
        for (uint32_t k = 0; k < length; k++)
            words[i][k] = (k % 2 ? "eaoiu" : "tnshrdlcm")[random_below(&spelling, k % 2 ? 5 : 9)];
        words[i][length] = random_below(&spelling, 12) ? ' ' : '\n';
        words[i][length + 1] = '\0';
    }
    uint32_t word = 0;
    const char *letter = words[word];
    for (int64_t at = 0; at < size; at++) {
        text[at] = (uint8_t)*letter++;
        if (*letter == '\0') {
            double u = random_unit(state); /* most words are followed by a few common ones */
            uint32_t choice = (uint32_t)(u * u * u * 64.0);
            word = (word * 61 + choice * choice) % VOCABULARY;
            letter = words[word];
        }
    }
}

static void swap(int32_t *x, int32_t *y)
{
    int32_t keep = *x;
    *x = *y;
    *y = keep;
}

/* Ternary quicksort of rotations that agree in `depth` bytes; the text is there twice. */
static void sort_rotations(const uint8_t *text, int32_t size, int32_t *order, int32_t count,
                           int32_t depth)
{
    while (count > 12 && depth < size) {
        const uint8_t *t = text + depth;
        uint8_t a = t[order[0]], b = t[order[count / 2]], c = t[order[count - 1]];
        uint8_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        int32_t less = 0, at = 0, more = count;
        while (at < more) {
            uint8_t byte = t[order[at]];
            if (byte < pivot)
                swap(&order[less++], &order[at++]);
            else if (byte > pivot)
                swap(&order[at], &order[--more]);
            else
                at++;
        }
        sort_rotations(text, size, order, less, depth);
        sort_rotations(text, size, order + more, count - more, depth);
        order += less;
        count = more - less;
        depth++;
    }
    for (int32_t i = 1; i < count && depth < size; i++)
        for (int32_t k = i; k > 0; k--) {
            const uint8_t *x = text + order[k - 1] + depth, *y = text + order[k] + depth;
            if (memcmp(x, y, (size_t)(size - depth)) <= 0)
                break;
            swap(&order[k - 1], &order[k]);
        }
}

/* Move-to-front ranks; runs of rank 0 become their length in digits 1 and 2 (symbols 0, 1). */
static int32_t front_ranks(const uint8_t *text, int32_t size, const int32_t *order,
                           uint16_t *symbols)
{
    uint8_t front[256];
    for (int i = 0; i < 256; i++)
        front[i] = (uint8_t)i;
    int32_t used = 0, run = 0;
    for (int32_t i = 0; i <= size; i++) {
        uint8_t byte = i < size ? text[order[i] + size - 1] : 0;
        if (i < size && byte == front[0]) {
            run++;
            continue;
        }
        for (; run > 0; run = (run - 1) / 2)
            symbols[used++] = (uint16_t)((run - 1) % 2);
        if (i == size)
            break;
        int rank = 1;
        while (front[rank] != byte)
            rank++;
        memmove(front + 1, front, (size_t)rank);
        front[0] = byte;
        symbols[used++] = (uint16_t)(rank - 1 + RUNS);
    }
    return used;
}

/* The inverse: last bytes of the sorted rotations. */
static void back_to_bytes(const uint16_t *symbols, int32_t used, uint8_t *last, int32_t size)
{
    uint8_t front[256];
    for (int i = 0; i < 256; i++)
        front[i] = (uint8_t)i;
    int32_t at = 0, weight = 1;
    for (int32_t i = 0; i < used; i++) {
        int32_t repeats = 1;
        if (symbols[i] < RUNS) {
            repeats = (symbols[i] + 1) * weight;
            weight *= 2;
        } else {
            int rank = symbols[i] - RUNS + 1;
            uint8_t byte = front[rank];
            memmove(front + 1, front, (size_t)rank);
            front[0] = byte;
            weight = 1;
        }
        if (repeats > size - at)
            die("a decoded block is longer than %" PRId32 " bytes", size);
        memset(last + at, front[0], (size_t)repeats);
        at += repeats;
    }
}

/* Huffman lengths by joining the two rarest trees, then codes in order of length and symbol. */
static void make_code(const uint16_t *symbols, int32_t used, struct code *code)
{
    int64_t weight[2 * SYMBOLS];
    int parent[2 * SYMBOLS], trees = SYMBOLS;
    for (int i = 0; i < SYMBOLS; i++)
        weight[i] = 1; /* so that every symbol has a code */
    for (int32_t i = 0; i < used; i++)
        weight[symbols[i]] += SYMBOLS;
    for (; trees < 2 * SYMBOLS - 1; trees++) {
        int rare[2] = {-1, -1};
        for (int i = 0; i < trees; i++) {
            if (weight[i] == 0)
                continue;
            if (rare[0] < 0 || weight[i] < weight[rare[0]]) {
                rare[1] = rare[0];
                rare[0] = i;
            } else if (rare[1] < 0 || weight[i] < weight[rare[1]]) {
                rare[1] = i;
            }
        }
        weight[trees] = weight[rare[0]] + weight[rare[1]];
        for (int k = 0; k < 2; k++) {
            parent[rare[k]] = trees;
            weight[rare[k]] = 0;
        }
    }
    for (int i = 0; i < SYMBOLS; i++) {
        code->length[i] = 0;
        for (int at = i; at != trees - 1; at = parent[at])
            code->length[i]++;
    }
    uint64_t next = 0;
    for (int length = 1; length < 64; length++, next <<= 1)
        for (int i = 0; i < SYMBOLS; i++)
            if (code->length[i] == length)
                code->bits[i] = next++;
}

static int64_t encode(const struct code *code, const uint16_t *symbols, int32_t used,
                      uint8_t *out)
{
    int64_t at = 0;
    uint64_t pending = 0;
    int held = 0;
    for (int32_t i = 0; i < used; i++) {
        pending = pending << code->length[symbols[i]] | code->bits[symbols[i]];
        for (held += code->length[symbols[i]]; held >= 8; held -= 8)
            out[at++] = (uint8_t)(pending >> (held - 8));
    }
    if (held > 0)
        out[at++] = (uint8_t)(pending << (8 - held));
    return at;
}

/* Bit by bit: codes of one length are consecutive numbers, in the order of their symbols. */
static void decode(const struct code *code, const uint8_t *in, uint16_t *symbols, int32_t used)
{
    uint16_t sorted[SYMBOLS];
    int32_t first[64] = {0}, count[64] = {0};
    int placed = 0;
    for (int length = 1; length < 64; length++) {
        first[length] = placed;
        for (int i = 0; i < SYMBOLS; i++)
            if (code->length[i] == length)
                sorted[placed++] = (uint16_t)i;
        count[length] = placed - first[length];
    }
    int64_t bit = 0;
    for (int32_t i = 0; i < used; i++) {
        int64_t offset = 0;
        int length = 0;
        do { /* offset: how far beyond the first code of this length */
            offset = (offset - count[length]) * 2 + (in[bit / 8] >> (7 - bit % 8) & 1);
            bit++;
            length++;
        } while (offset >= count[length]);
        symbols[i] = sorted[first[length] + offset];
    }
}

/* Follows each row to the rotation one byte earlier, from the row of the unrotated text. */
static void unsort(const uint8_t *last, int32_t size, int32_t row, int32_t *next, uint8_t *text)
{
    int32_t start[257] = {0};
    for (int32_t i = 0; i < size; i++)
        start[last[i] + 1]++;
    for (int i = 0; i < 256; i++)
        start[i + 1] += start[i];
    for (int32_t i = 0; i < size; i++)
        next[i] = start[last[i]]++;
    for (int32_t i = size - 1; i >= 0; i--) {
        text[i] = last[row];
        row = next[row];
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "BLOCK_BYTES BLOCKS");
    const int32_t size = (int32_t)argument(argv, 1, "BLOCK_BYTES", 16, 100000000);
    const int64_t blocks = argument(argv, 2, "BLOCKS", 1, 1000000);

    const size_t bytes = (size_t)size;
    uint8_t *text = allocate(2 * bytes, 1), *last = allocate(bytes, 1);
    uint8_t *packed = allocate(8 * bytes, 1), *decoded = allocate(bytes, 1);
    int32_t *order = allocate(bytes, sizeof *order);
    uint16_t *symbols = allocate(bytes, sizeof *symbols);
    int64_t total = 0;
    uint64_t sum = 0, state = 9;
    for (int64_t block = 0; block < blocks; block++) {
        write_text(text, size, &state);
        memcpy(text + size, text, bytes);
        for (int32_t i = 0; i < size; i++)
            order[i] = i;
        sort_rotations(text, size, order, size, 0);
        int32_t row = 0;
        while (order[row] != 0)
            row++;
        int32_t used = front_ranks(text, size, order, symbols);
        struct code code;
        make_code(symbols, used, &code);
        int64_t length = encode(&code, symbols, used, packed);
        for (int64_t i = 0; i < length; i++)
            sum = fold(sum, packed[i]);
        total += length;

        decode(&code, packed, symbols, used);
        back_to_bytes(symbols, used, last, size);
        unsort(last, size, row, order, decoded);
        if (memcmp(text, decoded, bytes) != 0)
            die("block %" PRId64 " does not decode to the text it was made from", block);
    }
    printf("bytes %" PRId64 " compressed %" PRId64 "\n", size * blocks, total);
    printf("checksum 0x%016" PRIx64 "\n", sum);
    free(text);
    free(last);
    free(packed);
    free(decoded);
    free(order);
    free(symbols);
    return finish();
}
