/* `given`: print all that a process is given by who starts it.
   `given as-user PROGRAM ARGS`: start a program with some of that as few users have it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static void show_file(const char *name)
{
    char text[256] = "";
    int file = open(name, O_RDONLY);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    text[got > 0 ? got : 0] = 0;
    close(file);
    printf("%s %s\n", name, text);
}

static int as_user(char **words)
{
    unsigned long plain[8] = {0}; /* two signals of threads, which whoever started us may ignore */
    for (int n = SIGSYS + 1; n < SIGRTMIN; n++)
        syscall(SYS_rt_sigaction, n, plain, NULL, 8);
    char *variables[32] = {"B=2", "no-equals-sign", "A=1", "=nameless", "my.setting=1", "A=twice",
                         "BASH_FUNC_cd%%=() { echo no; }", "P=\xff\xfe"};
    int n = 8;
    for (char **it = environ; *it; it++)
        if (!strncmp(*it, "RATER_", 6) || !strncmp(*it, "PATH=", 5) || !strncmp(*it, "HOME=", 5))
            if (n < 31)
                variables[n++] = *it;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 123456UL, 0, 0, 0);
    struct rlimit limit = {100 << 20, 100 << 20};
    setrlimit(RLIMIT_MSGQUEUE, &(struct rlimit){4096, 8192});
    setrlimit(RLIMIT_CORE, &limit);
    setrlimit(RLIMIT_LOCKS, &(struct rlimit){77, RLIM_INFINITY});
    personality(ADDR_NO_RANDOMIZE);
    umask(027);
    int adjust = open("/proc/self/oom_score_adj", O_WRONLY);
    if (write(adjust, "123", 3) < 0)
        perror("oom_score_adj");
    close(adjust);
    dup2(open("/dev/zero", O_RDONLY), 3);
    dup2(3, 17);
    execve(words[0], words, variables);
    perror(words[0]);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "as-user"))
        return as_user(argv + 2);
    for (char **it = environ; *it; it++)
        printf("environment %s\n", *it);
    for (int n = 1; n < argc; n++)
        printf("argument %s\n", argv[n]);
    struct sched_param parameter;
    sched_getparam(0, &parameter);
    printf("policy %d priority %d nice %d\n", sched_getscheduler(0), parameter.sched_priority,
           getpriority(PRIO_PROCESS, 0));
    printf("slack %d huge pages off %d\n", prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    int death = 0, reaper = 0;
    prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0);
    printf("death %d reaper %d dumpable %d privileges %d\n", death, reaper,
           prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int n = 1; n < 65; n++) {
        unsigned long action[8] = {0}; /* as the kernel has it: glibc hides two */
        if (!syscall(SYS_rt_sigaction, n, NULL, action, 8) && (void (*)(int))action[0] != SIG_DFL)
            printf("signal %d is ignored\n", n);
        if (sigismember(&blocked, n) == 1)
            printf("signal %d is blocked\n", n);
    }
    for (int n = 0; n < 16; n++) {
        struct rlimit limit;
        if (!getrlimit(n, &limit))
            printf("limit %d %llx %llx\n", n, (long long)limit.rlim_cur, (long long)limit.rlim_max);
    }
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (int n = 0; n < 64; n++)
        if (CPU_ISSET(n, &cpus))
            printf("CPU %d\n", n);
    int mode = -1;
    syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL);
    printf("memory policy %d, io priority %ld, session %d\n", mode,
           syscall(SYS_ioprio_get, 1, 0), getsid(0));
    mode_t mask = umask(0);
    printf("personality %x umask %o uid %d %d gid %d %d\n", personality(0xffffffff), mask, getuid(),
           geteuid(), getgid(), getegid());
    show_file("/proc/self/oom_score_adj");
    for (int n = 3; n < 256; n++)
        if (fcntl(n, F_GETFD) >= 0)
            printf("descriptor %d\n", n);
    struct stat input;
    if (getenv("RATER_COPY"))
        printf("inside: terminal %s, input %s\n", open("/dev/tty", O_RDWR) < 0 ? strerror(errno) : "there",
               !fstat(0, &input) && S_ISCHR(input.st_mode) && !read(0, &mask, 1) ? "empty" : "not empty");
    return 0;
}
