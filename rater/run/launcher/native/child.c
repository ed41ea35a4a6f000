/* A copy before its program begins. The forked child binds itself, opens its files and waits at its
   gate. Then it executes the program with the priority, timer slack, signals and limits that rater
   itself was given, as if the user had started it. */
#include "launcher.h"

#define PREFERRED 1
#define LOCAL 4
#define PREFERRED_MANY 5
#define MODE_FLAGS (7 << 13) /* linux/mempolicy.h: or-ed to the mode */
#define SHELL "/bin/sh"
#define SCRIPT_BYTES 80 /* as bash: a file without a known format is a script if these are text */

static struct { /* what the launcher was given */
    pid_t launcher;
    sigset_t blocked;
    struct sigaction on_child, on_pipe, on_continue;
    int slack;
    unsigned long long locks;
} origin;

/* Keeps what the launcher was given; called before it changes anything of its own. */
void remember_origin(unsigned long long locks) {
    origin.launcher = getpid();
    origin.locks = locks;
    origin.slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    sigprocmask(SIG_SETMASK, NULL, &origin.blocked);
    sigaction(SIGCHLD, NULL, &origin.on_child);
    sigaction(SIGPIPE, NULL, &origin.on_pipe);
    sigaction(SIGCONT, NULL, &origin.on_continue);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static _Noreturn void give_up(struct slot *slot, int step, int error) {
    slot->error = error;
    __atomic_store_n(&slot->step, step, __ATOMIC_RELEASE);
    _exit(step == EXECUTE && error != ENOENT ? 126 : 127); /* as a shell exits */
}

static const char *text(struct view table, uint32_t offset) {
    return offset < table.size ? table.bytes + offset : "";
}

/* Returns the strings of at most two lists, one list behind the other, in the form that execve
   takes. `before` places in front of them are free. */
static char **find_words(struct view table, const uint32_t *lists, int count, int before) {
    uint64_t total = 0;
    uint32_t left[2] = {0};
    for (int i = 0; i < count; i++) {
        if (lists[i] % 4 == 0 && lists[i] <= table.size - 4)
            total += left[i] = *(const uint32_t *)(table.bytes + lists[i]);
    }
    char **words = total > table.size ? NULL : calloc(before + total + 1, sizeof *words);
    if (!words)
        _exit(127);
    char **next = words + before;
    for (int i = 0; i < count; i++) {
        uint32_t offset = lists[i] + 4;
        for (; left[i] && offset < table.size; left[i]--) {
            char *word = (char *)table.bytes + offset;
            *next++ = word;
            offset += (uint32_t)strlen(word) + 1;
        }
    }
    return words;
}

/* Copies a mask of a table to MASK_BYTES bytes, zeros behind it. Returns whether there is a
   mask. */
bool find_mask(struct view table, uint32_t offset, unsigned char *bytes) {
    memset(bytes, 0, MASK_BYTES);
    if (offset == NO_OFFSET || offset % 4 || offset > table.size - 4)
        return false;
    uint32_t count = *(const uint32_t *)(table.bytes + offset);
    if (count > MASK_BYTES || count > table.size - offset - 4)
        return false;
    memcpy(bytes, table.bytes + offset + 4, count);
    return true;
}

static void bind_memory(struct view table, const struct entry *entry, struct slot *slot) {
    unsigned char wanted[MASK_BYTES], given[MASK_BYTES] = {0};
    int mode = entry->policy, given_mode = 0;
    if (mode < 0)
        return;
    bool has_nodes = find_mask(table, entry->nodes, wanted);
    void *nodes = has_nodes ? wanted : NULL;
    unsigned long bits = has_nodes ? MASK_BYTES * 8 + 1 : 0; /* the kernel takes one bit fewer */
    if (syscall(SYS_set_mempolicy, mode, nodes, bits) &&
        (mode != PREFERRED_MANY || errno != EINVAL ||
         syscall(SYS_set_mempolicy, PREFERRED, nodes, bits)))
        give_up(slot, MEMORY, errno);
    if (syscall(SYS_get_mempolicy, &given_mode, given, MASK_BYTES * 8 + 1UL, NULL, 0UL))
        give_up(slot, MEMORY, errno);
    given_mode &= ~MODE_FLAGS;
    /* Kernels before 5.14 have no PREFERRED_MANY, and call the local policy PREFERRED. */
    bool is_wanted = given_mode == mode ||
                     (given_mode == PREFERRED && (mode == LOCAL || mode == PREFERRED_MANY));
    if (!is_wanted || memcmp(wanted, given, MASK_BYTES)) {
        memcpy(slot->given, given, TEXT_BYTES);
        give_up(slot, MEMORY_GIVEN, given_mode);
    }
}

static void open_output(struct slot *slot, int fd, const char *path, int step) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || dup2(file, fd) < 0)
        give_up(slot, step, errno);
}

static void restore_signals(void) {
    /* Python ignores SIGXFSZ for itself. glibc's posix_spawn leaves the two signals behind
       SIGSYS ignored, which it keeps for threads and hides from sigaction: hence the system
       call. Of SIGPIPE rater hands on what it was given, as far as it knows that. */
    const int ignored[] = {SIGXFSZ, SIGSYS + 1, SIGSYS + 2};
    const unsigned long plain[8] = {0}; /* the kernel's struct sigaction: the default action */
    for (int i = 0; i < 3; i++)
        syscall(SYS_rt_sigaction, ignored[i], plain, NULL, _NSIG / 8);
    sigaction(SIGCHLD, &origin.on_child, NULL);
    sigaction(SIGPIPE, &origin.on_pipe, NULL);
    sigaction(SIGCONT, &origin.on_continue, NULL);
}

static _Noreturn void execute(struct slot *slot, char **argv, char **environment) {
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    sigprocmask(SIG_SETMASK, &origin.blocked, NULL);
    execve(argv[0], argv, environment);
    int error = errno;
    char begin[SCRIPT_BYTES];
    int file = error == ENOEXEC ? open(argv[0], O_RDONLY | O_CLOEXEC) : -1;
    ssize_t size = file < 0 ? -1 : read(file, begin, sizeof begin);
    if (size >= 0 && !memchr(begin, 0, size)) {
        argv[-1] = SHELL; /* a script without #!; the caller left this word free */
        execve(SHELL, argv - 1, environment);
    }
    give_up(slot, EXECUTE, error);
}

/* Writes down what the child used until it waits at its gate. */
static void measure_gate(const struct entry *entry, struct figures *figures) {
    int64_t cpu_ns; /* not kept: the clock below counts the reading of schedstat too */
    if (entry->flags & PROOF)
        read_schedstat("/proc/self/schedstat", &cpu_ns, &figures->gate_delay_ns);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    figures->gate_peak_bytes = usage.ru_maxrss * 1024LL;
    figures->gate_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

_Noreturn void child(struct view table, const struct entry *entry, struct slot *slot,
                     struct gate gate) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != origin.launcher || setpgid(0, 0))
        give_up(slot, GROUP, errno);
    if (origin.slack > 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)origin.slack, 0, 0, 0);
    bind_memory(table, entry, slot);
    if (entry->transparent >= 0 &&
        prctl(PR_SET_THP_DISABLE, entry->transparent ? 0UL : 1UL, 0UL, 0UL, 0UL))
        give_up(slot, PAGES, errno);
    struct rlimit locks;
    getrlimit(RLIMIT_LOCKS, &locks);
    locks.rlim_cur = origin.locks;
    if (setrlimit(RLIMIT_LOCKS, &locks))
        give_up(slot, LIMITS, errno);
    if (chdir(text(table, entry->directory)))
        give_up(slot, DIRECTORY, errno);
    open_output(slot, 1, text(table, entry->output), OUTPUT);
    open_output(slot, 2, text(table, entry->error), ERROR);
    if (entry->flags & REPORTS)
        dup2(gate.reports, REPORT_FD);
    const uint32_t variables[] = {entry->shared_variables, entry->own_variables};
    char **argv = find_words(table, &entry->argv, 1, 1) + 1; /* one word stays free in front: SHELL, for a script without #! */
    char **environment = find_words(table, variables, 2, 0);
    restore_signals(); /* all signals stay blocked until the program begins */
    measure_gate(entry, &slot->figures);
    /* Either we see that the launcher waits for us, or it sees that we are ready: `await_ready`. */
    __atomic_store_n(&slot->ready, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(gate.awaited, __ATOMIC_SEQ_CST) == entry->token)
        kill(origin.launcher, SIGCHLD);
    while (__atomic_load_n(gate.word, __ATOMIC_ACQUIRE) == gate.closed)
        syscall(SYS_futex, gate.word, FUTEX_WAIT, gate.closed, NULL, NULL, 0);
    execute(slot, argv, environment);
}

/* Reads a file of /proc in one piece, and puts a zero byte behind it. Returns its size, or -1. */
int read_small(const char *path, char *bytes, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t count = read(file, bytes, size - 1);
    close(file);
    if (count >= 0)
        bytes[count] = 0;
    return (int)count;
}

/* Reads CPU time and waiting time that the scheduler counts of a thread; -1 where it counts
   none. */
void read_schedstat(const char *path, int64_t *cpu_ns, int64_t *delay_ns) {
    char line[128], *end;
    *cpu_ns = *delay_ns = -1;
    if (read_small(path, line, sizeof line) <= 0)
        return;
    long long cpu = strtoll(line, &end, 10), delay = strtoll(end, &end, 10);
    /* The third number is that of time slices: 0 where the kernel's schedstats are switched off. */
    if (strtoll(end, NULL, 10) > 0) {
        *cpu_ns = cpu;
        *delay_ns = delay;
    }
}
