/* Text of random words compressed by earlier matches anywhere before (as long windows do it), and made again. */
#include "program.h"

enum { BYTES = 48 << 20, HASHES = 1 << 22, WORDS = 20000, LEAST = 4, FARTHEST = BYTES };

static size_t write_text(unsigned char *text)
{
    static char words[WORDS][12];
    size_t at = 0;
    for (int word = 0; word < WORDS; word++)
        for (int letter = 0, letters = 3 + (int)(random_bits() % 8); letter < letters; letter++)
            words[word][letter] = (char)('a' + random_bits() % 26);
    while (at < BYTES - 16) {
        uint64_t bits = random_bits();
        const char *word = words[(bits % WORDS) * (bits >> 32 & 0xffff) >> 16];
        size_t length = strlen(word);
        memcpy(text + at, word, length);
        text[at + length] = ' ';
        at += length + 1;
    }
    return at;
}
static uint32_t four(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
/* Tokens: a byte of literals before it, one of its length, four of how far back it is. */
static size_t compress(unsigned char *out, const unsigned char *text, size_t bytes)
{
    uint32_t *latest = allocate(HASHES * sizeof *latest);
    size_t done = 0, literal = 0, at = 0;
    memset(latest, 0, HASHES * sizeof *latest);
    while (at + 8 < bytes) {
        uint32_t hash = four(text + at) * 2654435761u >> 10, before = latest[hash], length = 0;
        latest[hash] = (uint32_t)at;
        if (before < at && at - before < FARTHEST && four(text + before) == four(text + at))
            while (at + length + 8 < bytes && length < 255 && text[before + length] == text[at + length]) length++;
        if (length < LEAST && at - literal < 255) { at++; continue; }
        uint32_t back = (uint32_t)(at - before);
        if (length < LEAST) length = 0;
        out[done++] = (unsigned char)(at - literal);
        memcpy(out + done, text + literal, at - literal);
        done += at - literal;
        out[done++] = (unsigned char)length;
        memcpy(out + done, &back, sizeof back);
        done += sizeof back;
        literal = at += length;
    }
    free(latest);
    return done;
}
static size_t expand(unsigned char *text, const unsigned char *in, size_t bytes)
{
    size_t at = 0, done = 0;
    while (at < bytes) {
        size_t literals = in[at++];
        memcpy(text + done, in + at, literals);
        done += literals;
        at += literals;
        size_t length = in[at++];
        uint32_t back = four(in + at);
        at += sizeof back;
        for (size_t i = 0; i < length; i++, done++) text[done] = text[done - back];
    }
    return done;
}

int main(void)
{
    unsigned char *text = allocate(BYTES), *packed = allocate(2 * (size_t)BYTES), *again = allocate(BYTES);
    size_t bytes = write_text(text), small = compress(packed, text, bytes), made = expand(again, packed, small);
    printf("%zu bytes in %zu, %s\n", made, small, memcmp(text, again, made) ? "different" : "the same");
    return 0;
}
