/* A copy before its program begins. The child binds itself, opens its files and waits at its gate.
   Then it executes the program with the priority, timer slack, signals and limits that rater itself
   was given, as if the user had started it.

   What a child may touch until its program begins: it shares the launcher's memory, as the many
   copies of a memory map that forks make are torn down under one lock of the kernel, and then
   copies begin in a convoy. It writes to its `slot`, to the word in front of its `argv` and to its
   stack of STACK_BYTES, and to nothing else. It reads its `birth` and the table, which the launcher
   keeps until it has ended. It calls no function of the library that may set errno, allocate, or
   use memory of a thread: system calls are those of plain.h. It runs no handler of a signal: all
   are blocked until those that the launcher handles have their old dispositions. It changes nothing
   that belongs to memory as a whole (PR_SET_THP_DISABLE, PR_SET_DUMPABLE): who needs that is
   forked. It dies by exit_group. A signal that dumps core in the moment before its program begins
   ends the launcher too on kernels before 5.16, and the run says so. */
#include "launcher.h"
#include "plain.h"

#include <sched.h>

#define PREFERRED 1
#define LOCAL 4
#define PREFERRED_MANY 5
#define MODE_FLAGS (7 << 13) /* linux/mempolicy.h: or-ed to the mode */
#define SHELL "/bin/sh"
#define SCRIPT_BYTES 80 /* as bash: a file without a known format is a script if these are text */


struct disposition { /* of a signal, as the kernel has it: handler, flags, restorer and mask */
    unsigned long words[8];
};

struct scheduling { /* sched_attr of the kernel, in its first size */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t deadline[3];
};

static struct { /* what the launcher was given */
    pid_t launcher;
    struct scheduling scheduling;
    bool rises; /* the launcher has another priority, which no child inherits */
    sigset_t blocked;
    struct disposition on_child, on_pipe, on_continue;
    int slack;
    unsigned long long locks;
    struct rlimit files;
} origin;

static void set_disposition(int number, const struct disposition *disposition) {
    PLAIN(rt_sigaction, number, disposition, NULL, _NSIG / 8);
}

static struct disposition disposition_of(int number) {
    struct disposition disposition = {{0}};
    PLAIN(rt_sigaction, number, NULL, &disposition, _NSIG / 8);
    return disposition;
}

/* Keeps what the launcher was given; called before it changes anything of its own. */
void remember_origin(unsigned long long locks) {
    origin.launcher = getpid();
    origin.locks = locks;
    getrlimit(RLIMIT_NOFILE, &origin.files);
    origin.slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    sigprocmask(SIG_SETMASK, NULL, &origin.blocked);
    origin.on_child = disposition_of(SIGCHLD);
    origin.on_pipe = disposition_of(SIGPIPE);
    origin.on_continue = disposition_of(SIGCONT);
    PLAIN(sched_getattr, 0, &origin.scheduling, sizeof origin.scheduling, 0);
    memset(origin.scheduling.deadline, 0, sizeof origin.scheduling.deadline);
}

/* Tells whether a process that has lost its policy and niceness may take those of the origin. */
static bool can_go_back(void) {
    const struct scheduling common = {.size = sizeof common};
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(PLAIN(sched_setattr, 0, &common, 0) ||
              PLAIN(sched_setattr, 0, &origin.scheduling, 0));
    return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

/* Puts the launcher above all that it starts, where that is allowed: a copy of real-time priority
   on each CPU would keep it from stamping an end. One below the highest leaves the kernel's own
   threads alone. Children start with the common policy and niceness, and take those of the
   origin. */
void rise(void) {
    struct rlimit limit = {0};
    struct sched_param first = {.sched_priority = sched_get_priority_max(SCHED_RR) - 1};
    bool is_low = origin.scheduling.nice >= 0 && origin.scheduling.policy != SCHED_FIFO &&
                  origin.scheduling.policy != SCHED_RR;
    if (!origin.scheduling.size || !(is_low || can_go_back()))
        return;
    origin.rises = !sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
    getrlimit(RLIMIT_RTPRIO, &limit);
    if (origin.rises || !limit.rlim_cur || limit.rlim_cur < origin.scheduling.priority)
        return;
    first.sched_priority = (int)limit.rlim_cur;
    origin.rises = !sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
}

static int64_t in_ns(struct timespec time) {
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t now_ns(void) { /* the launcher's: a child makes the system call itself */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return in_ns(now);
}

static _Noreturn void give_up(struct slot *slot, int step, long error) {
    slot->error = (int32_t)error;
    __atomic_store_n(&slot->step, step, __ATOMIC_RELEASE);
    for (;;)
        PLAIN(exit_group, step == EXECUTE && error != ENOENT ? 126 : 127); /* as a shell exits */
}

/* Ends the child where a system call of a step has failed, which returned -errno. */
static void require(long result, struct slot *slot, int step) {
    if (result < 0)
        give_up(slot, step, -result);
}

static const char *text(struct view table, uint32_t offset) {
    return offset < table.size ? table.bytes + offset : "";
}

static void bind_memory(const struct birth *birth, struct slot *slot) {
    int mode = birth->entry->policy, given_mode = 0;
    if (mode < 0)
        return;
    const void *nodes = birth->has_nodes ? birth->nodes : NULL;
    unsigned long bits = NODE_BYTES * 8 + 1; /* the kernel takes one bit fewer */
    long result = PLAIN(set_mempolicy, mode, nodes, nodes ? bits : 0);
    if (result == -EINVAL && mode == PREFERRED_MANY)
        result = PLAIN(set_mempolicy, PREFERRED, nodes, nodes ? bits : 0);
    require(result, slot, MEMORY);
    require(PLAIN(get_mempolicy, &given_mode, slot->given, bits), slot, MEMORY);
    given_mode &= ~MODE_FLAGS;
    /* Kernels before 5.14 have no PREFERRED_MANY, and call the local policy PREFERRED. */
    bool is_wanted = given_mode == mode ||
                     (given_mode == PREFERRED && (mode == LOCAL || mode == PREFERRED_MANY));
    for (int byte = 0; byte < NODE_BYTES; byte++)
        is_wanted &= birth->nodes[byte] == slot->given[byte];
    if (!is_wanted)
        give_up(slot, MEMORY_GIVEN, given_mode);
}

/* Opens a file of output, and empties it where it is not empty: ext4 writes a file that was truncated
   to the disk when it is closed, even if it was empty before, and the copy would wait for that. */
static void open_output(struct slot *slot, int fd, const char *path, int step) {
    long file = PLAIN(openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    require(file, slot, step);
    if (PLAIN(lseek, file, 0, SEEK_END) > 0) {
        require(PLAIN(ftruncate, file, 0), slot, step);
        PLAIN(lseek, file, 0, SEEK_SET);
    }
    require(PLAIN(dup3, file, fd, 0), slot, step);
}

static void restore_signals(void) {
    /* Python ignores SIGXFSZ for itself. glibc's posix_spawn leaves the two signals behind
       SIGSYS ignored, which it keeps for threads. Of SIGPIPE rater hands on what it was given,
       as far as it knows that. */
    const struct disposition plain = {{0}}; /* the default action */
    set_disposition(SIGXFSZ, &plain);
    set_disposition(SIGSYS + 1, &plain);
    set_disposition(SIGSYS + 2, &plain);
    set_disposition(SIGCHLD, &origin.on_child);
    set_disposition(SIGPIPE, &origin.on_pipe);
    set_disposition(SIGCONT, &origin.on_continue);
}

static _Noreturn void execute(struct slot *slot, char **argv, char **environment) {
    PLAIN(prctl, PR_SET_PDEATHSIG, 0);
    PLAIN(rt_sigprocmask, SIG_SETMASK, &origin.blocked, NULL, _NSIG / 8);
    long error = -PLAIN(execve, argv[0], argv, environment);
    char begin[SCRIPT_BYTES];
    long file = error == ENOEXEC ? PLAIN(openat, AT_FDCWD, argv[0], O_RDONLY | O_CLOEXEC) : -1;
    long size = file < 0 ? -1 : PLAIN(read, file, begin, sizeof begin);
    bool is_text = size >= 0;
    for (long byte = 0; byte < size; byte++)
        is_text &= begin[byte] != 0;
    if (is_text) {
        argv[-1] = SHELL; /* a script without #!; this word was left free */
        PLAIN(execve, SHELL, argv - 1, environment);
    }
    give_up(slot, EXECUTE, error);
}

/* Writes down what the child used until it waits at its gate. */
static void measure_gate(const struct entry *entry, struct figures *figures) {
    int64_t cpu_ns; /* not kept: the clock below counts the reading of schedstat too */
    if (entry->flags & PROOF)
        read_schedstat("/proc/self/schedstat", &cpu_ns, &figures->gate_delay_ns);
    struct rusage usage;
    PLAIN(getrusage, RUSAGE_SELF, &usage);
    figures->gate_peak_bytes = usage.ru_maxrss * 1024LL;
    struct timespec used = {0};
    PLAIN(clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &used);
    figures->gate_cpu_ns = in_ns(used);
}

static void restore_limits(struct slot *slot) {
    struct rlimit locks = {0};
    PLAIN(prlimit64, 0, RLIMIT_LOCKS, NULL, &locks);
    locks.rlim_cur = origin.locks;
    require(PLAIN(prlimit64, 0, RLIMIT_LOCKS, &locks), slot, LIMITS);
    require(PLAIN(prlimit64, 0, RLIMIT_NOFILE, &origin.files), slot, LIMITS);
}

_Noreturn void child(const struct birth *birth) {
    const struct entry *entry = birth->entry;
    struct slot *slot = birth->slot;
    PLAIN(prctl, PR_SET_PDEATHSIG, SIGKILL);
    if (PLAIN(getppid, 0) != origin.launcher)
        give_up(slot, GROUP, ESRCH);
    if (birth->first_pidfd) /* before all else, as the launcher's table may be this one */
        require(PLAIN(close_range, birth->first_pidfd, ~0U, CLOSE_RANGE_UNSHARE), slot, GROUP);
    require(PLAIN(setpgid, 0, 0), slot, GROUP);
    if (origin.slack > 0)
        PLAIN(prctl, PR_SET_TIMERSLACK, origin.slack);
    if (origin.rises)
        require(PLAIN(sched_setattr, 0, &origin.scheduling, 0), slot, PRIORITY);
    bind_memory(birth, slot);
    if (entry->transparent >= 0)
        require(PLAIN(prctl, PR_SET_THP_DISABLE, !entry->transparent), slot, PAGES);
    restore_limits(slot);
    require(PLAIN(chdir, text(birth->table, entry->directory)), slot, DIRECTORY);
    open_output(slot, 1, text(birth->table, entry->output), OUTPUT);
    open_output(slot, 2, text(birth->table, entry->error), ERROR);
    if (entry->flags & REPORTS)
        PLAIN(dup3, birth->reports, REPORT_FD, 0);
    restore_signals(); /* all signals stay blocked until the program begins */
    measure_gate(entry, &slot->figures);
    /* Either we see that the launcher waits for us, or it sees that we are ready: `await_ready`. */
    __atomic_store_n(&slot->ready, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(birth->awaited, __ATOMIC_SEQ_CST) == entry->token)
        PLAIN(kill, origin.launcher, SIGCHLD);
    while (__atomic_load_n(birth->gate, __ATOMIC_ACQUIRE) == birth->closed)
        PLAIN(futex, birth->gate, FUTEX_WAIT, birth->closed, NULL);
    execute(slot, birth->argv, birth->environment);
}

/* Reads a file of /proc in one piece, and puts a zero byte behind it. Returns its size, or less
   than 0. */
int read_small(const char *path, char *bytes, size_t size) {
    long file = PLAIN(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    long count = PLAIN(read, file, bytes, size - 1);
    PLAIN(close, file);
    if (count >= 0)
        bytes[count] = 0;
    return (int)count;
}

/* Reads a number, and leaves `text` behind it; 0 where there is none. */
static int64_t read_number(const char **text) {
    int64_t number = 0;
    while (**text == ' ')
        ++*text;
    while (**text >= '0' && **text <= '9')
        number = (int64_t)((uint64_t)number * 10 + (uint64_t)(*(*text)++ - '0'));
    return number;
}

/* Reads CPU time and waiting time that the scheduler counts of a thread; -1 where it counts
   none. */
void read_schedstat(const char *path, int64_t *cpu_ns, int64_t *delay_ns) {
    char line[128];
    const char *rest = line;
    *cpu_ns = *delay_ns = -1;
    if (read_small(path, line, sizeof line) <= 0)
        return;
    int64_t cpu = read_number(&rest), delay = read_number(&rest);
    /* The third number is that of time slices: 0 where the kernel's schedstats are switched off. */
    if (read_number(&rest) > 0) {
        *cpu_ns = cpu;
        *delay_ns = delay;
    }
}
