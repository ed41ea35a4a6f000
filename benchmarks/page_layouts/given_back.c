/* given_back huge|base: 512 MB touched, given back and touched again, at once and after seconds.
 *
 * Where the kernel reports free memory to the host (a balloon device), pages that were free for
 * seconds are the host's, and their first touch waits for it: that is system time of the program. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HUGE = 2 << 20, BYTES = 512 << 20, UPDATES = 8000000 };

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

static void used(double *user, double *system)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    *user = seconds(r.ru_utime);
    *system = seconds(r.ru_stime);
}

int main(int count, char **words)
{
    static const unsigned waits[] = {0, 0, 0, 3, 0, 6, 0};
    const int huge = count > 1 && strcmp(words[1], "huge") == 0;
    char *got = mmap(NULL, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return 1;
    uint64_t *table = (uint64_t *)(((uintptr_t)got + HUGE - 1) & -(uintptr_t)HUGE);
    if (madvise(table, BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) return 1;
    uint64_t x = 88172645463325252u;
    for (unsigned turn = 0; turn < sizeof waits / sizeof *waits; turn++) {
        double user[3], system[3];
        sleep(waits[turn]);
        used(&user[0], &system[0]);
        for (uint64_t i = 0; i < BYTES / 8; i += 512) table[i] = i;
        used(&user[1], &system[1]);
        for (unsigned i = 0; i < UPDATES; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            table[x % (BYTES / 8)] ^= x;
        }
        used(&user[2], &system[2]);
        printf("%s pages, given back %u s before: touched in %.3f s of system time, updated in %.3f s of user time\n",
               huge ? "huge" : "base", waits[turn], system[1] - system[0], user[2] - user[1]);
        madvise(table, BYTES, MADV_DONTNEED);
    }
    return 0;
}
