/* gen_frames: writes raw video for an encoder, 8 bit planar YUV 4:2:0.
 *
 * A slowly moving background of two waves, some boxes that cross it, and the noise of a camera:
 * most of a picture is its neighbourhood or the picture before, and some of it is not.
 */
#include "vocabulary.h"

enum { BOXES = 8 };

struct box {
    int64_t x, y, width, height, dx, dy;
    int shade;
};

/* 0 .. 2 * half, up and down again */
static int64_t wave(int64_t at, int64_t half)
{
    int64_t place = at % (4 * half);
    return place < 2 * half ? place : 4 * half - place;
}

static int inside(const struct box *b, int64_t x, int64_t y, int64_t time, int64_t width,
                  int64_t height)
{
    int64_t left = (b->x + b->dx * time) % width, top = (b->y + b->dy * time) % height;
    return x >= left && x < left + b->width && y >= top && y < top + b->height;
}

static void write_plane(FILE *file, uint64_t *state, const struct box *boxes, int64_t time,
                        int64_t width, int64_t height, int plane, unsigned char *row)
{
    const int64_t step = plane == 0 ? 1 : 2; /* the colours have half the rows and columns */
    for (int64_t y = 0; y < height; y += step) {
        for (int64_t x = 0; x < width; x += step) {
            int64_t value = 60 + (wave(x + 2 * time, 90) + wave(y + x / 2 + time, 70)) / 3;
            for (int i = 0; i < BOXES; i++)
                if (inside(&boxes[i], x, y, time, width, height))
                    value = boxes[i].shade + plane * 9;
            uint64_t noise = plane == 0 ? random_bits(state) : 0;
            value += (int64_t)(noise & 3) + (int64_t)(noise >> 2 & 3) - 3;
            row[x / step] = (unsigned char)value;
        }
        fwrite(row, 1, (size_t)(width / step), file);
    }
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 4, "WIDTH HEIGHT FRAMES FILE");
    const int64_t width = argument(argv, 1, "WIDTH", 16, 16384);
    const int64_t height = argument(argv, 2, "HEIGHT", 16, 16384);
    const int64_t frames = argument(argv, 3, "FRAMES", 1, 1000000);
    if (width % 2 != 0 || height % 2 != 0)
        die("WIDTH and HEIGHT must be even");

    uint64_t state = 17;
    struct box boxes[BOXES];
    for (int i = 0; i < BOXES; i++) {
        boxes[i].x = random_below(&state, (uint32_t)width);
        boxes[i].y = random_below(&state, (uint32_t)height);
        boxes[i].width = 8 + random_below(&state, (uint32_t)width / 4);
        boxes[i].height = 8 + random_below(&state, (uint32_t)height / 4);
        boxes[i].dx = 1 + random_below(&state, 5);
        boxes[i].dy = random_below(&state, 3);
        boxes[i].shade = 16 + (int)random_below(&state, 200);
    }
    unsigned char *row = allocate((size_t)width, 1);
    FILE *file = create(argv[4]);
    for (int64_t time = 0; time < frames; time++)
        for (int plane = 0; plane < 3; plane++)
            write_plane(file, &state, boxes, time, width, height, plane, row);
    free(row);
    return finish_file(file, argv[4]);
}
