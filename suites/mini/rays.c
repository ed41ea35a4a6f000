/* rays: a picture of mirroring spheres over a chequered floor, by ray tracing.
 *
 * Behaves like povray: square roots and divisions in long dependent chains, branches on hit or
 * miss, a scene of a few kilobytes. Limited by floating-point latency and by the branches;
 * copies disturb each other only through power and shared cores.
 */
#include <math.h>
#include <stdbool.h>

#include "mini.h"

enum { SPHERES = 24, BOUNCES = 4 };

struct vector {
    double x, y, z;
};

struct sphere {
    struct vector centre;
    double radius;
    double shade;
    double mirror;
};

struct hit {
    double distance;
    struct vector point;
    struct vector normal;
    double shade;
    double mirror;
};

static struct vector add_scaled(struct vector a, double s, struct vector b)
{
    return (struct vector){a.x + s * b.x, a.y + s * b.y, a.z + s * b.z};
}

static double dot(struct vector a, struct vector b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static struct vector normalized(struct vector a)
{
    return add_scaled((struct vector){0, 0, 0}, 1.0 / sqrt(dot(a, a)), a);
}

/* How far along the ray the sphere begins, or a negative number. */
static double meet(const struct sphere *sphere, struct vector from, struct vector direction)
{
    struct vector offset = add_scaled(from, -1.0, sphere->centre);
    double half = dot(offset, direction);
    double inside = half * half - dot(offset, offset) + sphere->radius * sphere->radius;
    return inside > 0.0 ? -half - sqrt(inside) : -1.0;
}

/* The nearest thing in front; false when the ray leaves for the sky. */
static bool trace(const struct sphere *spheres, struct vector from, struct vector direction,
                  struct hit *hit)
{
    hit->distance = INFINITY;
    const struct sphere *nearest = NULL;
    for (int i = 0; i < SPHERES; i++) {
        double distance = meet(&spheres[i], from, direction);
        if (distance > 1e-6 && distance < hit->distance) {
            hit->distance = distance;
            nearest = &spheres[i];
        }
    }
    double floor = -from.y / direction.y;
    if (floor > 1e-6 && floor < hit->distance && floor < 200.0) {
        hit->distance = floor;
        hit->point = add_scaled(from, floor, direction);
        hit->normal = (struct vector){0, 1, 0};
        bool odd = ((int64_t)(hit->point.x + 1000.0) + (int64_t)(hit->point.z + 1000.0)) % 2;
        hit->shade = odd ? 0.9 : 0.2;
        hit->mirror = 0.1;
        return true;
    }
    if (nearest == NULL)
        return false;
    hit->point = add_scaled(from, hit->distance, direction);
    hit->normal = normalized(add_scaled(hit->point, -1.0, nearest->centre));
    hit->shade = nearest->shade;
    hit->mirror = nearest->mirror;
    return true;
}

static bool in_shadow(const struct sphere *spheres, struct vector from, struct vector direction)
{
    for (int i = 0; i < SPHERES; i++)
        if (meet(&spheres[i], from, direction) > 1e-6)
            return true;
    return false;
}

/* The light that comes back along a ray, with a light source that is a little extended. */
static double brightness(const struct sphere *spheres, struct vector from,
                         struct vector direction, uint64_t *state)
{
    double light = 0.0, weight = 1.0;
    for (int bounce = 0; bounce <= BOUNCES; bounce++) {
        struct hit hit;
        if (!trace(spheres, from, direction, &hit))
            return light + weight * (0.4 + 0.5 * fabs(direction.y));
        struct vector lamp = {3.0 + random_unit(state), 9.0, -4.0 + random_unit(state)};
        struct vector to_lamp = normalized(add_scaled(lamp, -1.0, hit.point));
        double cosine = dot(to_lamp, hit.normal);
        double local = 0.1;
        if (cosine > 0.0 && !in_shadow(spheres, hit.point, to_lamp))
            local += 0.9 * cosine;
        light += weight * (1.0 - hit.mirror) * hit.shade * local;
        weight *= hit.mirror;
        direction = add_scaled(direction, -2.0 * dot(direction, hit.normal), hit.normal);
        from = hit.point;
    }
    return light;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "PIXELS SAMPLES");
    const int64_t edge = argument(argv, 1, "PIXELS", 2, 100000);
    const int64_t samples = argument(argv, 2, "SAMPLES", 1, 1000000);

    struct sphere spheres[SPHERES];
    uint64_t state = 16;
    for (int i = 0; i < SPHERES; i++) {
        struct sphere *s = &spheres[i];
        s->radius = 0.3 + 0.5 * random_unit(&state);
        s->centre = (struct vector){8.0 * random_unit(&state) - 4.0, s->radius,
                                    8.0 * random_unit(&state)};
        s->shade = 0.3 + 0.7 * random_unit(&state);
        s->mirror = 0.2 + 0.6 * random_unit(&state);
    }

    double quarter[4] = {0.0}, squares = 0.0;
    const struct vector eye = {0.0, 2.0, -6.0};
    for (int64_t y = 0; y < edge; y++)
        for (int64_t x = 0; x < edge; x++) {
            double pixel = 0.0;
            for (int64_t i = 0; i < samples; i++) {
                double right = ((double)x + random_unit(&state)) / (double)edge - 0.5;
                double up = 0.5 - ((double)y + random_unit(&state)) / (double)edge;
                struct vector direction = normalized((struct vector){right, up - 0.15, 0.9});
                pixel += brightness(spheres, eye, direction, &state);
            }
            pixel /= (double)samples;
            quarter[(y * 2 >= edge) * 2 + (x * 2 >= edge)] += pixel;
            squares += pixel * pixel;
        }
    const double pixels = (double)(edge * edge);
    printf("quarters %.9f %.9f %.9f %.9f\n", 4.0 * quarter[0] / pixels, 4.0 * quarter[1] / pixels,
           4.0 * quarter[2] / pixels, 4.0 * quarter[3] / pixels);
    printf("mean square %.9f\n", squares / pixels);
    return finish();
}
