/* The rival of steady mode: a C loop that keeps N copies going.
 *
 * respawnloop N WARMUP_S WINDOW_S COMMAND [ARG ...]; spawns N copies, each pinned to CPU i modulo
 * CPUs, and starts each again as soon as it ends, until the window is over. Prints how many ended
 * inside the window. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static int cpus[CPU_SETSIZE], count;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static pid_t start(int slot, char **command) {
    pid_t pid;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[slot % count], &one);
    sched_setaffinity(0, sizeof one, &one);
    if (posix_spawn(&pid, command[0], NULL, NULL, command, environ) != 0)
        exit(1);
    return pid;
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    int copies = atoi(argv[1]);
    double warmup_s = atof(argv[2]), window_s = atof(argv[3]);
    pid_t *pids = calloc((size_t)copies, sizeof *pids);
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all))
            cpus[count++] = cpu;
    int64_t open = now() + (int64_t)(warmup_s * 1e9), close = open + (int64_t)(window_s * 1e9);
    for (int slot = 0; slot < copies; slot++)
        pids[slot] = start(slot, argv + 4);
    long ended = 0;
    for (;;) {
        /* Where this loop runs is the scheduler's choice, as it is for rater. */
        sched_setaffinity(0, sizeof all, &all);
        pid_t pid = wait(NULL);
        int64_t t = now();
        if (t >= close)
            break;
        ended += t >= open;
        int slot = 0;
        while (pids[slot] != pid)
            slot++;
        pids[slot] = start(slot, argv + 4);
    }
    for (int slot = 0; slot < copies; slot++)
        kill(pids[slot], SIGKILL);
    printf("%ld\n", ended);
    return 0;
}
