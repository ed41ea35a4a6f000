/* The rival: a C loop that pins and posix_spawns N copies, then waits for all.
 *
 * spawnloop N COMMAND [ARG ...]; prints the elapsed nanoseconds from before the
 * first spawn to after the last wait. Copy i is pinned to CPU i modulo CPUs. */
#define _GNU_SOURCE
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int copies = atoi(argv[1]);
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    int cpus[CPU_SETSIZE], count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all))
            cpus[count++] = cpu;
    int64_t start = now();
    for (int i = 0; i < copies; i++) {
        pid_t pid;
        CPU_ZERO(&one);
        CPU_SET(cpus[i % count], &one);
        sched_setaffinity(0, sizeof one, &one);
        if (posix_spawn(&pid, argv[2], NULL, NULL, argv + 2, environ) != 0)
            return 1;
    }
    sched_setaffinity(0, sizeof all, &all);
    for (int i = 0; i < copies; i++)
        wait(NULL);
    printf("%lld\n", (long long)(now() - start));
    return 0;
}
