/* moldyn: molecular dynamics of a Lennard-Jones liquid with cell lists.
 *
 * Behaves like namd and gromacs: for each pair of near particles a dozen multiplications, a
 * division and a test that fails two times in three. Particles are sorted into cells every
 * step, so that neighbours in space are neighbours in memory. Limited by floating-point
 * latency and by the cut-off's branch; the memory traffic is small.
 *
 * Trajectories are chaotic: a rounding error grows by about e every 0.5 units of time. Runs
 * are kept to a few units, and the printed sums over all particles agree to many digits.
 * Units are the usual reduced ones: mass, diameter and well depth are 1.
 */
#include <math.h>

#include "mini.h"

static const double CUTOFF = 2.5, TIME_STEP = 0.004, DENSITY = 0.8442, TEMPERATURE = 0.72;

struct particle {
    double at[3];
    double speed[3];
    double force[3];
};

struct box {
    double length;
    int64_t count;
    int64_t edge; /* cells along an axis, each at least CUTOFF wide */
    int64_t *start; /* first particle of each cell; one more entry than cells */
    struct particle *particles; /* in order of cell */
    struct particle *sorted;
};

struct energies {
    double potential;
    double kinetic;
    double virial;
};

static int64_t cell_of(const struct box *box, const struct particle *p)
{
    int64_t cell = 0;
    for (int k = 0; k < 3; k++) {
        int64_t index = (int64_t)(p->at[k] / box->length * (double)box->edge);
        cell = cell * box->edge + (index < box->edge ? index : box->edge - 1);
    }
    return cell;
}

static void sort_into_cells(struct box *box)
{
    const int64_t cells = box->edge * box->edge * box->edge;
    for (int64_t i = 0; i <= cells; i++)
        box->start[i] = 0;
    for (int64_t i = 0; i < box->count; i++)
        box->start[cell_of(box, &box->particles[i])]++;
    for (int64_t i = 1; i <= cells; i++)
        box->start[i] += box->start[i - 1];
    for (int64_t i = box->count - 1; i >= 0; i--) /* ends become starts */
        box->sorted[--box->start[cell_of(box, &box->particles[i])]] = box->particles[i];
    struct particle *swap = box->particles;
    box->particles = box->sorted;
    box->sorted = swap;
}

/* Forces between p and particles first .. last - 1, which are seen shifted by `shift`. */
static void interact(struct particle *p, struct particle *others, int64_t first, int64_t last,
                     const double *shift, struct energies *sums)
{
    const double x = p->at[0] - shift[0], y = p->at[1] - shift[1], z = p->at[2] - shift[2];
    const double inverse = 1.0 / (CUTOFF * CUTOFF), cube = inverse * inverse * inverse;
    const double at_cutoff = 4.0 * cube * (cube - 1.0);
    double fx = 0.0, fy = 0.0, fz = 0.0;
    for (int64_t j = first; j < last; j++) {
        struct particle *q = &others[j];
        double dx = x - q->at[0], dy = y - q->at[1], dz = z - q->at[2];
        double square = dx * dx + dy * dy + dz * dz;
        if (square >= CUTOFF * CUTOFF)
            continue;
        double r2 = 1.0 / square, r6 = r2 * r2 * r2;
        double pull = 48.0 * r2 * r6 * (r6 - 0.5);
        sums->potential += 4.0 * r6 * (r6 - 1.0) - at_cutoff;
        sums->virial += pull * square;
        fx += pull * dx;
        fy += pull * dy;
        fz += pull * dz;
        q->force[0] -= pull * dx;
        q->force[1] -= pull * dy;
        q->force[2] -= pull * dz;
    }
    p->force[0] += fx;
    p->force[1] += fy;
    p->force[2] += fz;
}

/* Every pair once: within a cell, and with 13 of its 26 neighbours. */
static void compute_forces(struct box *box, struct energies *sums)
{
    const int64_t edge = box->edge;
    struct particle *all = box->particles;
    for (int64_t i = 0; i < box->count; i++)
        all[i].force[0] = all[i].force[1] = all[i].force[2] = 0.0;
    for (int64_t cell = 0; cell < edge * edge * edge; cell++) {
        const int64_t place[3] = {cell / (edge * edge), cell / edge % edge, cell % edge};
        for (int step = 13; step < 27; step++) {
            const int64_t move[3] = {step / 9 - 1, step / 3 % 3 - 1, step % 3 - 1};
            double shift[3];
            int64_t other = 0;
            for (int k = 0; k < 3; k++) {
                int64_t index = place[k] + move[k];
                shift[k] = index < 0 ? -box->length : index == edge ? box->length : 0.0;
                other = other * edge + (index + edge) % edge;
            }
            for (int64_t i = box->start[cell]; i < box->start[cell + 1]; i++)
                interact(&all[i], all, step == 13 ? i + 1 : box->start[other],
                         box->start[other + 1], shift, sums);
        }
    }
}

static void kick(struct box *box, double time)
{
    for (int64_t i = 0; i < box->count; i++)
        for (int k = 0; k < 3; k++)
            box->particles[i].speed[k] += time * box->particles[i].force[k];
}

static void drift(struct box *box, double time)
{
    for (int64_t i = 0; i < box->count; i++)
        for (int k = 0; k < 3; k++) {
            double at = box->particles[i].at[k] + time * box->particles[i].speed[k];
            box->particles[i].at[k] = at < 0.0           ? at + box->length
                                      : at >= box->length ? at - box->length
                                                          : at;
        }
}

/* A face-centred cubic crystal with random speeds, no momentum as a whole. */
static void fill(struct box *box, int64_t edge)
{
    static const double CORNER[4][3] = {{0, 0, 0}, {0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}};
    const double spacing = box->length / (double)edge;
    double mean[3] = {0.0}, square = 0.0;
    uint64_t state = 13;
    for (int64_t i = 0; i < box->count; i++) {
        const int64_t place[3] = {i / 4 / (edge * edge), i / 4 / edge % edge, i / 4 % edge};
        for (int k = 0; k < 3; k++) {
            box->particles[i].at[k] = ((double)place[k] + CORNER[i % 4][k] + 0.25) * spacing;
            box->particles[i].speed[k] = random_unit(&state) - 0.5;
            mean[k] += box->particles[i].speed[k] / (double)box->count;
        }
    }
    for (int64_t i = 0; i < box->count; i++)
        for (int k = 0; k < 3; k++) {
            box->particles[i].speed[k] -= mean[k];
            square += box->particles[i].speed[k] * box->particles[i].speed[k];
        }
    /* A crystal that melts turns half of its kinetic energy into potential energy. */
    const double scale = sqrt(2.0 * TEMPERATURE * 3.0 * (double)box->count / square);
    for (int64_t i = 0; i < box->count; i++)
        for (int k = 0; k < 3; k++)
            box->particles[i].speed[k] *= scale;
}

int main(int argc, char **argv)
{
    expect_arguments(argc, argv, 2, "UNIT_CELLS STEPS");
    const int64_t edge = argument(argv, 1, "UNIT_CELLS", 5, 1000);
    const int64_t steps = argument(argv, 2, "STEPS", 1, 1000000);

    struct box box = {.count = 4 * edge * edge * edge};
    box.length = cbrt((double)box.count / DENSITY);
    box.edge = (int64_t)(box.length / CUTOFF);
    box.start = allocate((size_t)(box.edge * box.edge * box.edge) + 1, sizeof *box.start);
    box.particles = allocate((size_t)box.count, sizeof *box.particles);
    box.sorted = allocate((size_t)box.count, sizeof *box.sorted);
    fill(&box, edge);

    struct energies first = {0}, now = {0};
    sort_into_cells(&box);
    compute_forces(&box, &first);
    for (int64_t step = 0; step < steps; step++) {
        kick(&box, TIME_STEP / 2.0);
        drift(&box, TIME_STEP);
        sort_into_cells(&box);
        now = (struct energies){0};
        compute_forces(&box, &now);
        kick(&box, TIME_STEP / 2.0);
    }
    double momentum = 0.0;
    for (int64_t i = 0; i < box.count; i++)
        for (int k = 0; k < 3; k++) {
            now.kinetic += 0.5 * box.particles[i].speed[k] * box.particles[i].speed[k];
            momentum += box.particles[i].speed[k];
        }
    const double count = (double)box.count;
    if (!(fabs(momentum) < 1e-7 * count))
        die("the momentum is %g, not 0", momentum);
    printf("particles %" PRId64 " lattice energy %.9f\n", box.count, first.potential / count);
    printf("potential %.9f kinetic %.9f\n", now.potential / count, now.kinetic / count);
    printf("total %.9f virial %.9f\n", (now.potential + now.kinetic) / count, now.virial / count);
    free(box.start);
    free(box.particles);
    free(box.sorted);
    return finish();
}
